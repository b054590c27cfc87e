"""The child processes of the demo: `python writers.py ROLE GRAPH NAME COUNT`."""

from __future__ import annotations

import sys

import omnigraph as og
from omnigraph.api import Graph, make_backend
from omnigraph.commit.graph_runtime import Site
from omnigraph.query.language.statements import InsertEdge, InsertNode
from omnigraph.storage.pauses import ControlledPauses


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
    pauses = ControlledPauses()
    site = Site.open(make_backend(graph, config=og.Config(inline_share=0), pauses=pauses), read_only=False)
    g = Graph(site, site.branch("main"))
    pauses.crash_at("write.before-record")
    g.apply([InsertNode("Person", {"name": name}), InsertEdge("Knows", name, "Ada", {})], actor=name)


if __name__ == "__main__":
    {"steady": steady, "doomed": doomed}[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
