"""Measures the creation, first write, merge and deletion of a branch, in a graph of few tables and of many."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.report import Report
from bench.writes import on_s3
from omnigraph.api import Graph
from omnigraph.query.language.statements import InsertNode
from tests.cost.budget import Cost
from tests.cost.ground import INLINE, MeteredActor, Shape, acting, build
from tests.cost.operations import warm
from tests.support.s3 import ServerProcess

FEW, MANY = 10, 10_000
TABLES = (3, 200)
QUICK_TABLES = (3, 20)

Act = Callable[[Graph], object]


@dataclass(frozen=True, slots=True)
class Step:
    """One measured operation. `prepare` runs before `act`, which is measured; both get a handle on main."""

    name: str
    act: Act
    prepare: Act = lambda graph: None


def write(branch: str, count: int, tag: str) -> Act:
    def run(graph: Graph) -> object:
        return graph.on_branch(branch).apply([InsertNode("Note", {"text": f"{tag}{n}"}) for n in range(count)])

    return run


def merge(branch: str, outcome: str) -> Act:
    def run(graph: Graph) -> None:
        merge_outcome = graph.branch.merge(branch).outcome
        assert merge_outcome == outcome, merge_outcome

    return run


def both(*acts: Act) -> Act:
    def run(graph: Graph) -> None:
        for act in acts:
            act(graph)

    return run


STEPS = (
    Step("create a branch", lambda graph: graph.branch.create("work")),
    Step("first row on it", write("work", 1, "first")),
    Step(f"merge of {FEW} rows, fast forward", merge("work", "fast_forward"), write("work", FEW, "few")),
    Step(
        f"merge of {FEW} rows, both changed",
        merge("work", "merged"),
        both(write("work", FEW, "more"), write("main", FEW, "own")),
    ),
    Step("merge of nothing", merge("work", "already_up_to_date")),
    Step(f"merge of {MANY:,} rows, both changed", merge("work", "merged"), write("work", MANY, "many")),
    Step(
        f"merge of {MANY:,} rows, pin taken over",
        merge("wide", "fast_forward"),
        both(lambda graph: graph.branch.create("wide"), write("wide", MANY, "wide")),
    ),
    Step("delete the branch", lambda graph: graph.branch.delete("work")),
)


def run(report: Report, *, quick: bool) -> None:
    tables = QUICK_TABLES if quick else TABLES
    server = ServerProcess("moto_server.py")
    try:
        measurements = {count: _measure(server, count) for count in tables}
    finally:
        server.stop()
    report.add(
        "Requests (hops) and seconds of branches, on the wire, Lance's own included",
        [_row(step, {count: costs[step.name] for count, costs in measurements.items()}) for step in STEPS],
        "warm, one process; seconds with 150 ms added to every request; flat = the same requests at every width",
    )


def _measure(server: ServerProcess, tables: int) -> dict[str, tuple[Cost, float]]:
    with on_s3(server) as ground:
        build(ground, Shape(tables=tables))
        with acting(ground, INLINE) as actor:
            warm(actor)
            return {step.name: _cost(actor, step) for step in STEPS}


def _cost(actor: MeteredActor, step: Step) -> tuple[Cost, float]:
    step.prepare(actor.graph)
    started_s = time.monotonic()
    with actor.measure() as gauge:
        step.act(actor.graph)
    return gauge.cost, time.monotonic() - started_s


def _row(step: Step, measurements: dict[int, tuple[Cost, float]]) -> dict[str, object]:
    row: dict[str, object] = {"operation": step.name}
    for tables, (cost, _) in measurements.items():
        row[f"{tables} tables"] = f"{cost.requests} ({cost.hops})"
    for tables, (_, seconds_s) in measurements.items():
        row[f"s, {tables} tables"] = round(seconds_s, 2)
    costs = [cost for cost, _ in measurements.values()]
    row["flat"] = "yes" if len({cost.requests for cost in costs}) == 1 else "no"
    row["of which"] = ", ".join(f"{count} {kind} {part}" for (kind, part), count in costs[0].counts)
    return row
