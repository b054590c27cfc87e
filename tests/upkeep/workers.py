"""What the child processes of the upkeep tests do."""

from __future__ import annotations

from typing import Any

import omnigraph
from omnigraph.api import make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.config import Config
from omnigraph.query.language.statements import Compare, Delete, Update
from omnigraph.upkeep.optimize import Optimizer
from tests.schedules.world import knows, person
from tests.support.pauses import ControlledPauses
from tests.support.processes import Link


def write_rows(link: Link, *, uri: str, config: dict[str, Any], rows: int) -> int:
    """Insert, link, update and delete at full speed, reporting what was acknowledged."""
    graph = omnigraph.open(uri, config=Config(**config))
    link.ready()
    for number in range(rows):
        name = f"w{link.index}-{number}"
        graph.apply([person(name, number), knows(name, name)])
        if number % 5 == 1:
            graph.apply([Update("Person", {"age": 1000 + number}, Compare("name", "=", name))])
        if number % 5 == 2:
            graph.apply([Delete("Person", Compare("name", "=", name))])
        link.send(row=name)
    return rows


def optimize_until_killed(link: Link, *, uri: str, point: str) -> None:
    """A large optimize that dies at a point."""
    pauses = ControlledPauses()
    pauses.crash_at(point)
    backend = make_backend(uri, None, Config(fsync=False, fold="never"), pauses=pauses)
    runtime = GraphRuntime.open(backend, read_only=False)
    link.ready()
    Optimizer(runtime, runtime.branch("main"), intent_above_bytes=0).run()
