"""The facade for programs with an event loop: the same names, awaited.

    async with og.aio.open("people") as g:
        people = await g.query(source, {"name": "Ada"})

The engine blocks, so it runs on a bounded number of threads. Verbs that return Spark frames return them unchanged.
"""

from omnigraph.api.asynchronous.graph import (
    AsyncBranches,
    AsyncGraph,
    AsyncRemoteGraph,
    AsyncSchema,
    AsyncTable,
    AsyncTags,
    AsyncTransaction,
    AsyncView,
    Opening,
    connect,
    init,
    open,
    open_at,
)

__all__ = [
    "AsyncBranches",
    "AsyncGraph",
    "AsyncRemoteGraph",
    "AsyncSchema",
    "AsyncTable",
    "AsyncTags",
    "AsyncTransaction",
    "AsyncView",
    "Opening",
    "connect",
    "init",
    "open",
    "open_at",
]
