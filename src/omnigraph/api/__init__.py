"""The facade: a graph as users hold it, and how they get one."""

from omnigraph.api.graph import Graph
from omnigraph.api.handle import Freshness
from omnigraph.api.lint_queries import lint
from omnigraph.api.open_graph import catalog_of, init, open, open_at, verify
from omnigraph.storage.open_backend import make_backend

__all__ = ["Freshness", "Graph", "catalog_of", "init", "lint", "make_backend", "open", "open_at", "verify"]
