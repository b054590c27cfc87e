"""The facade: a graph as users hold it, and how they get one."""

from omnigraph.graph.core import Freshness
from omnigraph.graph.handle import Graph
from omnigraph.graph.linting import lint
from omnigraph.graph.opening import catalog_of, init, open, open_at, verify
from omnigraph.storage.opening import make_backend

__all__ = ["Freshness", "Graph", "catalog_of", "init", "lint", "make_backend", "open", "open_at", "verify"]
