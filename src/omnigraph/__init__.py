"""Omnigraph: a typed, versioned property graph on plain object storage."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph import aio, errors
    from omnigraph.api import Graph, init, lint, open, open_at
    from omnigraph.api.remote import RemoteGraph, connect
    from omnigraph.api.table import Table
    from omnigraph.api.view import CommitInfo, GraphView
    from omnigraph.commit.publish_plan import Receipt
    from omnigraph.config import Config
    from omnigraph.load.report import LoadReport
    from omnigraph.query.language import statements

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
    "CommitInfo": "omnigraph.api.view",
    "Config": "omnigraph.config",
    "Graph": "omnigraph.api",
    "GraphView": "omnigraph.api.view",
    "LoadReport": "omnigraph.load.report",
    "Receipt": "omnigraph.commit.publish_plan",
    "RemoteGraph": "omnigraph.api.remote",
    "Table": "omnigraph.api.table",
    "connect": "omnigraph.api.remote",
    "init": "omnigraph.api",
    "lint": "omnigraph.api",
    "open": "omnigraph.api",
    "open_at": "omnigraph.api",
}
_MODULES = {"aio": "omnigraph.aio", "errors": "omnigraph.errors", "statements": "omnigraph.query.language.statements"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
