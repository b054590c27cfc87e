"""Omnigraph: a typed, versioned property graph on plain object storage."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph import aio, errors
    from omnigraph.client import RemoteGraph, connect
    from omnigraph.config import Config
    from omnigraph.graph import Graph, init, lint, open, open_at
    from omnigraph.lang import statements
    from omnigraph.load.report import LoadReport
    from omnigraph.views import CommitInfo, GraphView, Table
    from omnigraph.write.plan import Receipt

__version__ = "0.1.0"

__all__ = [
    "CommitInfo",
    "Config",
    "Graph",
    "GraphView",
    "LoadReport",
    "Receipt",
    "RemoteGraph",
    "Table",
    "__version__",
    "aio",
    "connect",
    "errors",
    "init",
    "lint",
    "open",
    "open_at",
    "statements",
]

# Imported on first use: `import omnigraph` and `omnigraph --help` stay quick.
_HOMES = {
    "CommitInfo": "omnigraph.views",
    "Config": "omnigraph.config",
    "Graph": "omnigraph.graph",
    "GraphView": "omnigraph.views",
    "LoadReport": "omnigraph.load.report",
    "Receipt": "omnigraph.write.plan",
    "RemoteGraph": "omnigraph.client",
    "Table": "omnigraph.views",
    "connect": "omnigraph.client",
    "init": "omnigraph.graph",
    "lint": "omnigraph.graph",
    "open": "omnigraph.graph",
    "open_at": "omnigraph.graph",
}
_MODULES = {"aio": "omnigraph.aio", "errors": "omnigraph.errors", "statements": "omnigraph.lang.statements"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
