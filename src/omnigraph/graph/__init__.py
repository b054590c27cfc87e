"""The facade: a graph as users hold it, and how they get one."""

from omnigraph.graph.handle import Freshness, Graph
from omnigraph.graph.opening import catalog_of, init, open, open_at, verify
from omnigraph.storage.opening import make_backend

__all__ = ["Freshness", "Graph", "catalog_of", "init", "make_backend", "open", "open_at", "verify"]
