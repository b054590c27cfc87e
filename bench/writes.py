"""What writes cost: requests and hops of every operation, seconds on a slow store, throughput, and Lance beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import bare, throughput
from bench.report import Report
from bench.timing import median_s
from tests.cost.budget import Cost, OverBudget
from tests.cost.ground import INLINE, STAGED, Actor, Ground, Shape, acting, build
from tests.cost.operations import ALL, BRANCH_CREATE, FIRST_ON_BRANCH, INSERT, INSERT_STAGED, Operation, measured, warm
from tests.support.proxy import Proxy
from tests.support.s3 import ServerProcess, fresh_bucket

SHAPES = (Shape(), Shape(depth=100), Shape(depth=1000), Shape(tables=200), Shape(branches=50))
QUICK_SHAPES = (Shape(), Shape(depth=50), Shape(tables=20), Shape(branches=10))
SLOW_OPERATIONS = (INSERT, INSERT_STAGED, BRANCH_CREATE, FIRST_ON_BRANCH)
ADDED_LATENCIES_S = (0.0, 0.05, 0.15)
AT_ONCE = 8

#: Figures to beat: what the same operation costs in the system whose design this one set out to improve.
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
    """Requests on the wire, Lance's included, and hops, at every shape."""
    found: dict[str, list[tuple[Shape, Cost, bool]]] = {one.name: [] for one in ALL}
    for shape in shapes:
        for config in (INLINE, STAGED):
            with on_s3(server) as ground:
                build(ground, shape)
                with acting(ground, config) as actor:
                    warm(actor)
                    for operation in (one for one in ALL if one.config == config):
                        found[operation.name].append((shape, *_cost(actor, operation)))
    note = f"small = {shapes[0]}; ! = over the budget that tests/cost holds"
    report.add(
        "Requests (hops) of warm operations, on the wire, Lance's own included",
        [_request_row(one, found[one.name]) for one in ALL],
        note,
    )


def _cost(actor: Actor, operation: Operation) -> tuple[Cost, bool]:
    """The cost, and whether it is within the budget."""
    try:
        return measured(actor, operation), True
    except OverBudget as error:
        return error.cost, False


def _request_row(operation: Operation, costs: list[tuple[Shape, Cost, bool]]) -> dict[str, str]:
    row = {"operation": operation.name}
    for shape, cost, within in costs:
        row[_label(shape)] = f"{'' if within else '! '}{cost.requests} ({cost.hops})"
    row["of which"] = ", ".join(f"{number} {kind} {part}" for (kind, part), number in costs[0][1].counts)
    row["earlier"] = BEFORE.get(operation.name, "")
    return row


def _label(shape: Shape) -> str:
    """What is special about the shape."""
    plain = Shape()
    if shape.tables != plain.tables:
        return f"{shape.tables} tables"
    if shape.branches != plain.branches:
        return f"{shape.branches} branches"
    return f"depth {shape.depth}" if shape.depth != plain.depth else "small"


def _seconds(report: Report, server: ServerProcess, repeat: int) -> None:
    """Wall time with latency added to every request and eight at a time: a trend, never a gate."""
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


def _slow_row(actor: Actor, proxy: Proxy, operation: Operation, repeat: int) -> dict[str, float]:
    tags = [actor.ground.tag() for _ in range((repeat + 1) * len(ADDED_LATENCIES_S))]
    for tag in tags:
        operation.prepare(actor.graph, tag)
    left = iter(tags)

    def once() -> None:
        operation.act(actor.graph, next(left))

    walls = {}
    for latency_s in ADDED_LATENCIES_S:
        proxy.latency_s = latency_s
        walls[latency_s] = median_s(once, repeat)
    proxy.latency_s = 0.0
    slowest = ADDED_LATENCIES_S[-1]
    row = {f"+{latency_s * 1000:.0f} ms": wall for latency_s, wall in walls.items()}
    return {**row, "hops": (walls[slowest] - walls[0.0]) / slowest}


@contextmanager
def on_s3(server: ServerProcess) -> Iterator[Ground]:
    with fresh_bucket(server) as place, Proxy(server.endpoint) as proxy:
        yield Ground.on_s3(place.through(proxy), proxy)
