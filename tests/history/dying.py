"""A merge by the tasks of the Spark plane in a process of its own, which dies where it is told to."""

from __future__ import annotations

from omnigraph.api import Graph
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.storage.open_backend import make_backend
from tests.history.bed import QUIET
from tests.history.here import HereSession
from tests.support.pauses import ControlledPauses
from tests.support.processes import Link


def merge_until_killed(link: Link, *, graph_path: str, point: str) -> str | None:
    pauses = ControlledPauses()
    runtime = GraphRuntime.open(make_backend(graph_path, None, QUIET, pauses=pauses), read_only=False)
    graph = Graph(runtime, runtime.branch("main"))
    pauses.crash_at(point)
    link.ready()
    session = HereSession()
    return graph.branch.merge("work", engine="spark", spark=session, actor="etl", progress=False).commit_id  # type: ignore[arg-type]
