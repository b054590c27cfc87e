"""What the child processes of the crash tests do."""

from __future__ import annotations

from omnigraph.api import Graph, make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.config import Config
from omnigraph.storage.metering import RequestKind
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore
from tests.support.pauses import ControlledPauses
from tests.support.processes import Link


def change_and_die(link: Link, *, uri: str, schema: str, point: str | None, put: int | None, fault: str) -> str | None:
    """Apply a schema; the process ends at a point of the engine, or at its n-th PUT after opening."""
    pauses, faults = ControlledPauses(), FaultyStore
    stores: list[FaultyStore] = []

    def wrap(store: object) -> FaultyStore:
        stores.append(faults(store, FaultPlan.none()))  # type: ignore[arg-type]
        return stores[0]

    backend = make_backend(uri, None, Config(fsync=False, fold="never"), wrap=wrap, pauses=pauses)
    runtime = GraphRuntime.open(backend, read_only=False)
    graph = Graph(runtime, runtime.branch("main"))
    if point is not None:
        pauses.crash_at(point)
    if put is not None:
        stores[0].plan = FaultPlan.at(put, Fault(fault), kinds={RequestKind.PUT})
    link.ready()
    return graph.schema.apply(schema).commit_id
