"""What users hold: `Graph` and the objects it hands out, and the functions that make and open one.

`remote/` is the same interface over HTTP, `asynchronous/` the same interface awaited. The doors (`cli`, `server`) and
`omnigraph` itself import this room.
"""

from omnigraph.api.graph import Graph
from omnigraph.api.handle import Freshness
from omnigraph.api.open_graph import catalog_of, init, lint, open, open_at, verify
from omnigraph.storage.open_backend import make_backend

__all__ = ["Freshness", "Graph", "catalog_of", "init", "lint", "make_backend", "open", "open_at", "verify"]
