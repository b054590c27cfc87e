"""A load on Spark in a process of its own, which dies where it is told to."""

from __future__ import annotations

from pathlib import Path

from omnigraph.api import Graph
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.spark.session import get_session
from omnigraph.storage.open_backend import make_backend
from tests.load.spark.loading import ONE_TASK, load
from tests.support.pauses import ControlledPauses
from tests.support.processes import Link
from tests.support.spark_session import SETTINGS


def load_until_killed(link: Link, *, folder: str, file: str, point: str, mode: str = "append") -> str | None:
    pauses = ControlledPauses()
    runtime = GraphRuntime.open(make_backend(folder, None, ONE_TASK, pauses=pauses), read_only=False)
    graph = Graph(runtime, runtime.branch("main"))
    get_session(SETTINGS)
    pauses.crash_at(point)
    link.ready()
    return load(graph, Path(file), mode=mode, split_bytes=500_000, write=WriteOptions(actor="etl")).commit_id
