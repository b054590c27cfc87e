"""A load on Spark in a process of its own, which dies where it is told to."""

from __future__ import annotations

from pathlib import Path

from omnigraph.graph import Graph
from omnigraph.spark.session import get_session
from omnigraph.storage.opening import make_backend
from omnigraph.storage.pauses import ControlledPauses
from omnigraph.write.plan import WriteOptions
from omnigraph.write.site import Site
from tests.spark.conftest import SETTINGS
from tests.spark.loading import ONE_TASK, load
from tests.support.processes import Link


def load_until_killed(link: Link, *, place: str, file: str, point: str, mode: str = "append") -> str | None:
    pauses = ControlledPauses()
    site = Site.open(make_backend(place, None, ONE_TASK, pauses=pauses), read_only=False)
    graph = Graph(site, site.branch("main"))
    get_session(SETTINGS)
    pauses.crash_at(point)
    link.ready()
    return load(graph, Path(file), mode=mode, split_bytes=500_000, write=WriteOptions(actor="etl")).commit_id
