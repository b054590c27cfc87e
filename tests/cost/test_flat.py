"""Every operation keeps its budget, and costs the same at any depth, with any number of tables and branches.

S141 (directory), S142, S144, S165.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph.query.language.statements import InsertNode
from tests.cost.budget import NEVER_BUT_INTENTS, Budget, Cost, cold_open
from tests.cost.ground import CostGround, MeteredActor, Shape
from tests.cost.operations import (
    ALL,
    FIRST_ON_BRANCH,
    FIRST_ON_BRANCH_STAGED,
    INSERT,
    INSERT_EDGE,
    INSERT_KEYED,
    INSERT_STAGED,
    CostedOperation,
    measure,
    warm,
)

GroundOf = Callable[[Shape], CostGround]
Act = Callable[..., MeteredActor]

SMALL = Shape()
SHAPES = (SMALL, Shape(depth=100), Shape(depth=1000), Shape(tables=200), Shape(branches=50))
DEEP_WIDE_AND_BUSHY = Shape(depth=1000, tables=200, branches=50)


def _cost(ground: CostGround, act_on: Act, operation: CostedOperation) -> Cost:
    actor = act_on(ground, operation.config)
    warm(actor)
    return measure(actor, operation)


@pytest.mark.parametrize("operation", ALL, ids=str)
def test_the_cost_is_the_same_at_every_shape(operation: CostedOperation, ground_of: GroundOf, act_on: Act) -> None:
    costs = {shape: _cost(ground_of(shape), act_on, operation) for shape in SHAPES}
    counts = {cost.counts for cost in costs.values()}
    assert len(counts) == 1, "\n".join(f"{shape}: {cost}" for shape, cost in costs.items())


@pytest.mark.slow
@pytest.mark.parametrize("operation", ALL, ids=str)
def test_deep_wide_and_bushy_at_once(operation: CostedOperation, ground_of: GroundOf, act_on: Act) -> None:
    small = _cost(ground_of(SMALL), act_on, operation)
    large = _cost(ground_of(DEEP_WIDE_AND_BUSHY), act_on, operation)
    assert small.counts == large.counts


@pytest.mark.parametrize(
    ("on_branch", "on_main"), [(FIRST_ON_BRANCH, INSERT), (FIRST_ON_BRANCH_STAGED, INSERT_STAGED)], ids=str
)
def test_the_first_write_on_a_branch_costs_what_it_does_on_main(
    on_branch: CostedOperation, on_main: CostedOperation, ground_of: GroundOf, act_on: Act
) -> None:  # S165
    ground = ground_of(SMALL)
    assert _cost(ground, act_on, on_branch) == _cost(ground, act_on, on_main)


@pytest.mark.parametrize("operation", [INSERT_KEYED, INSERT_EDGE], ids=str)
def test_flat_over_a_history_that_was_folded_often(
    operation: CostedOperation, ground_of: GroundOf, act_on: Act
) -> None:
    """Every fold leaves a fragment. A warm process must not pay for each of them whenever it looks for a key.

    The folds are another process's: a process knows what it has folded itself.
    """
    costs = []
    for folds in (1, 10):
        ground = ground_of(Shape(branches=folds))
        folded_cost = act_on(ground)
        for number in range(folds):
            folded_cost.graph.apply([InsertNode("Person", {"name": f"{number}.{step}"}) for step in range(20)])
            assert folded_cost.graph.fold() is not None
        costs.append(_cost(ground, act_on, operation))
    assert costs[0] == costs[1]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_cold_open_costs_the_same_at_every_shape(shape: Shape, ground_of: GroundOf) -> None:  # S144
    for read_only in (True, False):
        actor = MeteredActor(ground_of(shape), read_only=read_only)
        with actor.measure() as opening:
            actor.open()
        with actor.measure() as looking:
            view = actor.graph.view()
        with actor.measure() as reading:
            row = view.table("Note").to_arrow()
        actor.close()
        assert row["text"].to_pylist() == ["here"]
        # The stamp, one listing, the newest record and the look beyond it; to write also one PUT that must be refused,
        # and beside the others a listing of what dead bulk operations left.
        cold_open(read_only=read_only).hold(opening.cost, f"open of {shape}")
        Budget(gets=2, hops=2, exactly=True).hold(looking.cost, "schema and freshness")
        assert opening.cost.requests + looking.cost.requests <= 6 + 2 * (not read_only)
        Budget(table_reads=5).hold(reading.cost, "first row of a folded table")


def test_opening_a_branch_adds_its_registry_entry(ground_of: GroundOf) -> None:
    for shape in (Shape(branches=2), Shape(branches=50)):
        actor = MeteredActor(ground_of(shape))
        with actor.measure() as gauge:
            actor.open("branch0")
        actor.close()
        assert actor.graph.branch_name == "branch0"
        allowed = Budget(gets=5, lists=3, puts=1, hops=6, exactly=True, never=NEVER_BUT_INTENTS)
        allowed.hold(gauge.cost, f"open of a branch, {shape}")


@pytest.mark.parametrize("tables", [3, 200])
def test_init_does_not_depend_on_the_schema(tables: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    ground = CostGround(str(tmp_path_factory.mktemp("init") / "graph"))
    actor = MeteredActor(ground)
    with actor.measure() as gauge:
        actor.init(tables)
    assert len(actor.open().graph.schema.catalog.types) == tables
    actor.close()
    Budget(gets=1, puts=4, total=6, hops=5, exactly=True).hold(gauge.cost, f"init of {tables} types")
    assert not ground.keys("tables/")
