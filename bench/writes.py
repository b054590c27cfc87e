"""Measures writes: requests and hops of every operation, seconds on a slow store, throughput, and bare Lance."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import bare, throughput
from bench.report import Report
from bench.timing import median_s
from tests.cost.budget import Cost, OverBudget
from tests.cost.ground import INLINE, STAGED, CostGround, MeteredActor, Shape, acting, build
from tests.cost.operations import (
    ALL,
    BRANCH_CREATE,
    FIRST_ON_BRANCH,
    INSERT,
    INSERT_STAGED,
    CostedOperation,
    measure,
    warm,
)
from tests.support.proxy import Proxy
from tests.support.s3 import ServerProcess, fresh_bucket

SHAPES = (Shape(), Shape(depth=100), Shape(depth=1000), Shape(tables=200), Shape(branches=50))
QUICK_SHAPES = (Shape(), Shape(depth=50), Shape(tables=20), Shape(branches=10))
SLOW_OPERATIONS = (INSERT, INSERT_STAGED, BRANCH_CREATE, FIRST_ON_BRANCH)
ADDED_LATENCIES_S = (0.0, 0.05, 0.15)
AT_ONCE = 8

#: Figures to beat: the cost of the same operation in the system whose design this project set out to improve.
BEFORE = {INSERT.name: "198 requests, ~110 hops", BRANCH_CREATE.name: "77 hops", FIRST_ON_BRANCH.name: "1777, 258 hops"}


def run(report: Report, *, quick: bool) -> None:
    server = ServerProcess("moto_server.py")
    try:
        _requests(report, server, QUICK_SHAPES if quick else SHAPES)
        _seconds(report, server, repeat=3 if quick else 7)
    finally:
        server.stop()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        report.add(
            "Inserts per second, local directory",
            throughput.measure(Path(folder), seconds_each=1.0 if quick else 5.0),
            "one-row inserts, fsync on, folding on; one branch",
        )
        report.add(
            "One row, beside bare Lance on the same disk",
            bare.compare(Path(folder), repeat=20 if quick else 100),
            "median of repeated inserts into a table of 10,000 rows; ratio = omnigraph inline / that line",
        )


def _requests(report: Report, server: ServerProcess, shapes: tuple[Shape, ...]) -> None:
    """Counts requests, including those of Lance, and hops of every operation, for every shape of graph."""
    costs_by_way: dict[str, list[tuple[Shape, Cost, bool]]] = {operation.name: [] for operation in ALL}
    for shape in shapes:
        for config in (INLINE, STAGED):
            with on_s3(server) as ground:
                build(ground, shape)
                with acting(ground, config) as actor:
                    warm(actor)
                    for operation in (operation for operation in ALL if operation.config == config):
                        costs_by_way[operation.name].append((shape, *_cost(actor, operation)))
    note = f"small = {shapes[0]}; ! = over the budget that tests/cost holds"
    report.add(
        "Requests (hops) of warm operations, on the wire, Lance's own included",
        [_request_row(operation, costs_by_way[operation.name]) for operation in ALL],
        note,
    )


def _cost(actor: MeteredActor, operation: CostedOperation) -> tuple[Cost, bool]:
    """Builds a table row: the cost, and whether it is within the budget."""
    try:
        return measure(actor, operation), True
    except OverBudget as error:
        return error.cost, False


def _request_row(operation: CostedOperation, costs: list[tuple[Shape, Cost, bool]]) -> dict[str, str]:
    row = {"operation": operation.name}
    for shape, cost, within in costs:
        row[_label(shape)] = f"{'' if within else '! '}{cost.requests} ({cost.hops})"
    row["of which"] = ", ".join(f"{number} {kind} {part}" for (kind, part), number in costs[0][1].counts)
    row["earlier"] = BEFORE.get(operation.name, "")
    return row


def _label(shape: Shape) -> str:
    """Describes how the shape differs from the smallest one."""
    plain = Shape()
    if shape.tables != plain.tables:
        return f"{shape.tables} tables"
    if shape.branches != plain.branches:
        return f"{shape.branches} branches"
    return f"depth {shape.depth}" if shape.depth != plain.depth else "small"


def _seconds(report: Report, server: ServerProcess, repeat: int) -> None:
    """Measures wall time with latency added to every request, eight at a time. It shows a trend and is no test."""
    rows = []
    with on_s3(server) as ground:
        build(ground, Shape(depth=20))
        assert ground.proxy is not None
        ground.proxy.max_concurrent = AT_ONCE
        for operation in SLOW_OPERATIONS:
            with acting(ground, operation.config) as actor:
                warm(actor)
                rows.append({"operation": operation.name, **_slow_row(actor, ground.proxy, operation, repeat)})
    report.add(
        f"Seconds at added latency per request, {AT_ONCE} requests at a time",
        rows,
        "moto on this machine behind a proxy; wall = compute + hops × latency",
    )


def _slow_row(actor: MeteredActor, proxy: Proxy, operation: CostedOperation, repeat: int) -> dict[str, float]:
    tags = [actor.ground.tag() for _ in range((repeat + 1) * len(ADDED_LATENCIES_S))]
    for tag in tags:
        operation.prepare(actor.graph, tag)
    remaining_tags = iter(tags)

    def once() -> None:
        operation.act(actor.graph, next(remaining_tags))

    walls = {}
    for latency_s in ADDED_LATENCIES_S:
        proxy.latency_s = latency_s
        walls[latency_s] = median_s(once, repeat)
    proxy.latency_s = 0.0
    slowest = ADDED_LATENCIES_S[-1]
    row = {f"+{latency_s * 1000:.0f} ms": wall for latency_s, wall in walls.items()}
    return {**row, "hops": (walls[slowest] - walls[0.0]) / slowest}


@contextmanager
def on_s3(server: ServerProcess) -> Iterator[CostGround]:
    with fresh_bucket(server) as bucket, Proxy(server.endpoint) as proxy:
        yield CostGround.on_s3(bucket.through(proxy), proxy)
