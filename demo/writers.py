"""The child processes of the demo: `python writers.py ROLE GRAPH NAME COUNT`."""

from __future__ import annotations

import os
import signal
import sys

import omnigraph as og
from omnigraph.api import Graph, make_backend
from omnigraph.commit.graph_runtime import Site
from omnigraph.query.language.statements import InsertEdge, InsertNode


class CrashBeforeRecord:
    """Kills this process, without any clean-up, when a write has staged its tables and is about to put its record."""

    def reach(self, name: str) -> None:
        if name == "write.before-record":
            os.kill(os.getpid(), signal.SIGKILL)


def steady(graph: str, name: str, count: int) -> None:
    """Insert people one commit at a time and say so after each acknowledged commit, until done or killed."""
    g = og.open(graph)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        g.apply([InsertNode("Person", {"name": f"{name}-{number}"})], actor=name)
        print(f"{name}-{number}", flush=True)


def doomed(graph: str, name: str, _: int) -> None:
    """Write to two tables and die by SIGKILL after the table versions are staged, before the commit record is."""
    site = Site.open(make_backend(graph, config=og.Config(inline_share=0), pauses=CrashBeforeRecord()), read_only=False)
    g = Graph(site, site.branch("main"))
    g.apply([InsertNode("Person", {"name": name}), InsertEdge("Knows", name, "Ada", {})], actor=name)


if __name__ == "__main__":
    {"steady": steady, "doomed": doomed}[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
