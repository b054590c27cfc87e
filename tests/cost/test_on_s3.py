"""The same budgets on the wire: every request that reaches the server, Lance's own included, and exact hops.

S141 (S3 twin), S142, S143, S144, S165.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from omnigraph.api import Graph
from omnigraph.query.language.statements import InsertNode
from tests.cost.budget import Budget, Cost, OverBudget, cold_open
from tests.cost.ground import STAGED, CostGround, MeteredActor, Shape, acting, build, deepen
from tests.cost.operations import (
    ALL,
    BRANCH_CREATE,
    BRANCH_DELETE,
    FIRST_ON_BRANCH,
    FIRST_ON_BRANCH_STAGED,
    INSERT,
    INSERT_STAGED,
    CostedOperation,
    measure,
    warm,
)
from tests.support.proxy import Proxy
from tests.support.s3 import S3Place

pytestmark = pytest.mark.s3

FLAT = (INSERT, FIRST_ON_BRANCH, BRANCH_CREATE, BRANCH_DELETE, INSERT_STAGED, FIRST_ON_BRANCH_STAGED)
EIGHT_WAY = 8


@pytest.fixture
def empty(proxied_place: S3Place, s3_proxy: Proxy) -> CostGround:
    """A place on the server without a graph."""
    return CostGround.on_s3(proxied_place, s3_proxy)


@pytest.fixture
def wire(empty: CostGround) -> CostGround:
    """A small graph on the server."""
    build(empty, Shape())
    return empty


@pytest.fixture
def actor(wire: CostGround, request: pytest.FixtureRequest) -> Iterator[MeteredActor]:
    """A warm actor, with the configuration of the test's operation."""
    operation: CostedOperation = request.node.callspec.params["operation"]
    with acting(wire, operation.config) as warm_actor:
        warm(warm_actor)
        yield warm_actor


@pytest.mark.parametrize("operation", ALL, ids=str)
def test_the_budget_holds_on_the_wire(operation: CostedOperation, actor: MeteredActor) -> None:
    assert measure(actor, operation).lists == 0


@pytest.mark.parametrize("operation", [INSERT], ids=str)
def test_a_request_past_our_meter_is_seen(
    operation: CostedOperation, actor: MeteredActor, proxied_place: S3Place
) -> None:
    """Every operation above also compares our own count with the wire; here they must differ."""
    with actor.measure() as gauge:
        operation.act(actor.graph, actor.ground.tag())
        proxied_place.object_store().get("graph.json")
    with pytest.raises(AssertionError):
        gauge.check_agreement()


@pytest.mark.parametrize("depths", [(1, 100), pytest.param((1, 100, 1000), marks=pytest.mark.slow)])
def test_flat_over_depth(depths: tuple[int, ...], wire: CostGround) -> None:
    costs_by_depth = []
    for depth in depths:
        deepen(wire, depth)
        costs: dict[str, Cost] = {}
        for config in {operation.config for operation in FLAT}:
            with acting(wire, config) as actor:
                warm(actor)
                costs |= {operation.name: measure(actor, operation) for operation in FLAT if operation.config == config}
        cold = MeteredActor(wire)
        with cold.measure() as gauge:
            cold.open()
        cold.close()
        costs_by_depth.append({**costs, "open": gauge.cost})
    assert all(costs == costs_by_depth[0] for costs in costs_by_depth[1:]), "\n".join(map(str, costs_by_depth))


@pytest.mark.parametrize("tables", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_flat_over_tables_and_branches(tables: int, empty: CostGround) -> None:
    build(empty, Shape(tables=tables, branches=tables // 4))
    for config in {operation.config for operation in FLAT}:
        with acting(empty, config) as actor:
            warm(actor)
            for operation in FLAT:
                if operation.config == config:
                    measure(actor, operation)


@pytest.mark.parametrize("tables", [3, 200])
def test_init(tables: int, empty: CostGround) -> None:
    actor = MeteredActor(empty)
    with actor.measure() as gauge:
        actor.init(tables)
    assert len(actor.open().graph.schema.catalog.types) == tables
    actor.close()
    Budget(gets=1, puts=4, total=6, hops=5, exactly=True).hold(gauge.cost, f"init of {tables} types")


@pytest.mark.parametrize("read_only", [True, False], ids=["to read", "to write"])
def test_cold_open(read_only: bool, wire: CostGround) -> None:  # S144
    actor = MeteredActor(wire, read_only=read_only)
    with actor.measure() as opening:
        actor.open()
    view = actor.graph.view()
    with actor.measure() as reading:
        rows = view.table("Note").to_arrow()
    actor.close()
    assert rows["text"].to_pylist() == ["here"]
    cold_open(read_only=read_only).hold(opening.cost, "cold open")
    Budget(table_reads=5, hops=4).hold(reading.cost, "first row of a folded table")


def test_the_birth_of_a_table_adds_four_requests(empty: CostGround) -> None:
    actor = MeteredActor(empty, STAGED)
    actor.init(3)
    actor.open().graph.view()
    with actor.measure() as gauge:
        receipt = actor.graph.apply([InsertNode("Note", {"text": "first"})])
    actor.close()
    assert empty.has_record(receipt.commit_id)
    assert gauge.cost.requests == 4 + 4, str(gauge.cost)


def test_a_lost_race(wire: CostGround) -> None:
    with acting(wire) as slow, acting(wire) as fast:
        warm(slow)
        fast.graph.refresh()
        fast.graph.apply([InsertNode("Note", {"text": "fast"})])
        with slow.measure() as gauge:
            receipt = slow.graph.apply([InsertNode("Note", {"text": "slow"})])
    assert wire.has_record(receipt.commit_id)
    Budget(puts=2, gets=16, hops=3).hold(gauge.cost, "insert that lost a race")


@pytest.mark.parametrize("operation", [INSERT, INSERT_STAGED], ids=str)
@pytest.mark.parametrize("method", ["GET", "LIST", "PUT"])
def test_one_request_more_is_over_budget(operation: CostedOperation, method: str, actor: MeteredActor) -> None:
    """S143."""
    store = actor.backend.store
    requests: dict[str, Callable[[], object]] = {
        "GET": lambda: store.get("graph.json"),
        "LIST": lambda: store.list("__manifest/"),
        "PUT": lambda: store.put("schemas/spare.json", b""),
    }

    def act(graph: Graph, tag: str) -> object:
        requests[method]()
        return operation.act(graph, tag)

    measure(actor, operation)
    with pytest.raises(OverBudget, match=f" {method} instead of"):
        measure(actor, replace(operation, act=act))


@pytest.mark.parametrize("operation", [INSERT, INSERT_STAGED, BRANCH_CREATE], ids=str)
@pytest.mark.parametrize("at_once", [None, EIGHT_WAY], ids=["unlimited", "eight at once"])
def test_time_grows_with_hops_and_nothing_else(
    operation: CostedOperation, at_once: int | None, actor: MeteredActor, s3_proxy: Proxy
) -> None:
    """`wall = compute + hops × latency`: the slope is the number of hops, so no request hides from the count."""
    measure(actor, operation)
    s3_proxy.max_concurrent = at_once
    tags = iter([actor.ground.tag() for _ in range(32)])

    def once() -> None:
        operation.act(actor.graph, next(tags))

    slope = s3_proxy.slope(once, (0.0, 0.1, 0.2), repeat=3)
    budget = operation.budget_on(actor.ground)
    assert budget.hops is not None
    # Other work on the machine may be in the slope, but never a whole hop of it.
    assert budget.hops - 0.7 < slope.hops < budget.hops + 0.7, slope
