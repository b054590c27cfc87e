"""The child processes of the demo: `python writers.py ROLE GRAPH NAME COUNT`."""

from __future__ import annotations

import os
import signal
import sys

import omnigraph as og
from omnigraph.api import Graph, make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.query.language.statements import InsertEdge, InsertNode


class CrashBeforeRecord:
    """A pause point handler that kills this process when a write has staged its tables and not yet put its record."""

    def reach(self, name: str) -> None:
        if name == "write.before-record":
            os.kill(os.getpid(), signal.SIGKILL)


def steady(graph: str, name: str, count: int) -> None:
    """Inserts people one commit at a time, and prints a line after each acknowledged commit."""
    g = og.open(graph)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        g.apply([InsertNode("Person", {"name": f"{name}-{number}"})], actor=name)
        print(f"{name}-{number}", flush=True)


def die_halfway(graph: str, name: str, _: int) -> None:
    """Writes to two tables and dies by SIGKILL after the table versions are staged, before the commit record is put."""
    backend = make_backend(graph, config=og.Config(inline_share=0), pauses=CrashBeforeRecord())
    runtime = GraphRuntime.open(backend, read_only=False)
    g = Graph(runtime, runtime.branch("main"))
    g.apply([InsertNode("Person", {"name": name}), InsertEdge("Knows", name, "Ada", {})], actor=name)


if __name__ == "__main__":
    {"steady": steady, "doomed": die_halfway}[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
