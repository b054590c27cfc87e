"""Writes beyond the quiet single one: lost races, folding, groups, refusals, and what a warm write may not do. S141."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from omnigraph.config import Config
from omnigraph.query.language.statements import InsertEdge, InsertNode, Statement
from omnigraph.storage.lance import PinnedTable, TableStore
from omnigraph.storage.store import Store
from tests.cost.budget import Budget, Cost
from tests.cost.ground import INLINE, STAGED, CostGround, MeteredActor, Shape
from tests.cost.operations import INSERT, INSERT_KEYED_STAGED, INSERT_STAGED, CostedOperation, measure, warm

Act = Callable[..., MeteredActor]
GroundOf = Callable[[Shape], CostGround]
READ_AHEAD = INLINE.read_ahead


def _insert(actor: MeteredActor, text: str) -> str:
    receipt = actor.graph.apply([InsertNode("Note", {"text": text})])
    assert receipt.commit_id is not None
    return receipt.commit_id


@pytest.mark.parametrize("missed", [1, 10])
@pytest.mark.parametrize("shape", [Shape(), Shape(depth=1000)], ids=str)
def test_a_lost_race_adds_one_read_ahead_and_one_put(
    missed: int, shape: Shape, ground_of: GroundOf, act_on: Act
) -> None:
    ground = ground_of(shape)
    slow, fast = act_on(ground), act_on(ground)
    warm(slow)
    for number in range(missed):
        _insert(fast, f"fast{number}")
    with slow.measure() as gauge:
        commit_id = _insert(slow, "slow")
    assert ground.has_record(commit_id)
    assert slow.graph.table("Note").count() == fast.graph.table("Note").count()
    # The refused PUT, then everything that may have come in between side by side, then the PUT that lands.
    Budget(puts=2, gets=READ_AHEAD, hops=3).hold(gauge.cost, f"insert that missed {missed} commits")
    assert gauge.cost.own("PUT", "record") == 2


@pytest.mark.parametrize("config", [INLINE, STAGED], ids=["inline", "staged"])
def test_losing_a_race_redoes_no_table_work_for_other_tables(ground: CostGround, act_on: Act, config: Config) -> None:
    slow, fast = act_on(ground, config), act_on(ground)
    warm(slow)
    with slow.measure() as quiet:
        _insert(slow, "quiet")
    fast.graph.apply([InsertNode("Person", {"name": "meanwhile"})])
    with slow.measure() as raced:
        commit_id = _insert(slow, "raced")
    assert ground.has_record(commit_id)
    assert raced.cost.own("PUT") == 2
    assert raced.cost.table_writes == quiet.cost.table_writes
    assert raced.cost.table_reads == quiet.cost.table_reads


def test_a_staged_insert_that_lost_to_another_writes_no_data_again(ground: CostGround, act_on: Act) -> None:
    slow, fast = act_on(ground, STAGED), act_on(ground, STAGED)
    warm(slow)
    with slow.measure() as quiet:
        _insert(slow, "quiet")
    fast.graph.refresh()
    _insert(fast, "fast")
    with slow.measure() as raced:
        commit_id = _insert(slow, "raced")
    assert ground.has_record(commit_id)
    # A transaction and a manifest on the new pin; the data file is the one that was staged first.
    assert raced.cost.table_writes == quiet.cost.table_writes + 2


@pytest.mark.parametrize("operation", [INSERT_STAGED, INSERT_KEYED_STAGED], ids=str)
def test_staged_inserts_in_a_row_stay_in_their_budget(
    operation: CostedOperation, ground: CostGround, act_on: Act
) -> None:
    """Each finds the fragment of the one before, which nobody has scanned."""
    actor = act_on(ground, STAGED)
    warm(actor)
    costs = [measure(actor, operation) for _ in range(30)]
    assert len({cost.counts for cost in costs[1:]}) == 1, "\n".join(str(cost) for cost in costs)


def test_the_birth_of_a_table_is_paid_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    ground = CostGround(str(tmp_path_factory.mktemp("birth") / "graph"))
    actor = MeteredActor(ground, STAGED)
    actor.init(3)
    actor.open().graph.view()
    with actor.measure() as gauge:
        commit_id = _insert(actor, "first")
    actor.close()
    assert ground.has_record(commit_id)
    # Lance looks twice whether a table is there and writes its empty version, in a directory with one rename.
    Budget(puts=1, table_reads=2, table_writes=3 + 3, hops=1).hold(gauge.cost, "first insert into a table, staged")


@pytest.mark.parametrize("inserts", [1000])
def test_amortised_over_many_inserts_with_folding(ground: CostGround, inserts: int) -> None:
    actor = MeteredActor(ground, Config(fsync=False, fold="auto")).open()
    warm(actor)
    with actor.measure_at_full_speed() as gauge:
        commits = [_insert(actor, f"note{number}") for number in range(inserts)]
        actor.close()  # the folds in the background are part of the price
    folds = sum(commit.kind == "fold" for commit in MeteredActor(ground).open().graph.commits(limit=None))
    assert ground.has_record(commits[-1])
    assert len(set(commits)) == inserts
    assert folds >= 2
    assert gauge.cost.lists == 0
    assert gauge.cost.requests <= 1.3 * inserts, str(gauge.cost)


def test_a_group_shares_one_record(ground: CostGround, act_on: Act) -> None:
    """Twelve threads on one handle: no round is lost, and together they pay less than one PUT each."""
    actor = act_on(ground)
    warm(actor)
    start = threading.Barrier(12)

    def write(number: int) -> list[str]:
        start.wait()
        return [_insert(actor, f"{number}.{step}") for step in range(5)]

    with actor.measure() as gauge, ThreadPoolExecutor(12) as pool:
        commits = [receipt for receipts in pool.map(write, range(12)) for receipt in receipts]
    assert all(ground.has_record(commit) for commit in commits)
    assert sum(len(ground.record(commit).members) for commit in set(commits)) == 60
    assert gauge.cost.own("PUT", "record") == len(set(commits)) < 60
    assert gauge.cost.requests == gauge.cost.own("PUT", "record")  # no lost round, nothing read


def test_an_idempotent_insert_costs_its_lookup(ground: CostGround, act_on: Act) -> None:
    actor = act_on(ground)
    warm(actor)
    with actor.measure() as first:
        receipt = actor.graph.apply([InsertNode("Note", {"text": "once"})], client_key="k1")
    with actor.measure() as again:
        replayed = actor.graph.apply([InsertNode("Note", {"text": "once"})], client_key="k1")
    assert ground.has_record(receipt.commit_id)
    assert (replayed.commit_id, replayed.replayed) == (receipt.commit_id, True)
    INSERT.budget.hold(first.cost, "insert with a client key")
    Budget(gets=1, hops=1).hold(again.cost, "the same again")


class OpenedTables:
    """Which tables were opened, each time that one is asked for."""

    def __init__(self, tables: TableStore, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        original = tables.open

        def open_and_note(table: str, version: str) -> PinnedTable:
            self.asked.append(table)
            return original(table, version)

        patch.setattr(tables, "open", open_and_note)


MUTATIONS: tuple[tuple[int, Sequence[Statement]], ...] = (
    (1, [InsertNode("Note", {"text": "one"})]),
    (1, [InsertNode("Note", {"text": "one"}), InsertNode("Note", {"text": "two"})]),
    (1, [InsertNode("Person", {"name": "zoe", "email": "z@example.org"})]),
    (2, [InsertEdge("Knows", "ada", "bob")]),
    (3, [InsertNode("Person", {"name": "yan"}), InsertEdge("Knows", "yan", "ada"), InsertNode("Note", {"text": "x"})]),
)


@pytest.mark.parametrize("config", [INLINE, STAGED], ids=["inline", "staged"])
@pytest.mark.parametrize(("touched", "statements"), MUTATIONS)
def test_what_a_warm_write_does_not_do(
    touched: int,
    statements: Sequence[Statement],
    config: Config,
    ground_of: GroundOf,
    act_on: Act,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No schema read, no intent listing, one resolution of the head, and no table opened that it does not touch."""
    ground = ground_of(Shape(tables=200))
    actor = act_on(ground, config)
    warm(actor)
    opened = OpenedTables(actor.backend.tables, monkeypatch)
    with actor.measure() as gauge:
        receipt = actor.graph.apply(statements)
    assert ground.has_record(receipt.commit_id)
    assert receipt.counts["inserted"] == len(statements)
    cost = gauge.cost
    assert cost.without_tables == {("PUT", "record"): 1}, str(cost)
    assert len(set(opened.asked)) <= touched
    assert cost.lists == 0


@pytest.mark.parametrize("rows", [2, 20])
def test_a_staged_write_of_many_rows_costs_what_one_row_does(rows: int, ground: CostGround, act_on: Act) -> None:
    actor = act_on(ground, STAGED)
    warm(actor)
    with actor.measure() as gauge:
        receipt = actor.graph.apply([InsertNode("Note", {"text": f"{n}"}) for n in range(rows)])
    assert ground.has_record(receipt.commit_id)
    assert receipt.counts["inserted"] == rows
    INSERT_STAGED.budget.hold(gauge.cost, f"staged insert of {rows} rows")


def test_staging_several_tables_adds_three_requests_each(ground: CostGround, act_on: Act) -> None:
    actor = act_on(ground, STAGED)
    warm(actor)
    with actor.measure() as gauge:
        receipt = actor.graph.apply([InsertNode("Note", {"text": "x"}), InsertEdge("Knows", "ada", "bob")])
    assert ground.has_record(receipt.commit_id)
    Budget(puts=1, table_reads=2, table_writes=6, hops=1).hold(gauge.cost, "staged insert into two tables")


def test_the_metered_store_is_what_the_engine_uses(ground: CostGround) -> None:
    """A layer that refuses everything stops a write: nothing goes around the meter."""

    class Refusing:
        def __init__(self, inner: Store) -> None:
            self._inner = inner
            self.refuses = False

        def __getattr__(self, name: str) -> object:
            if self.refuses:
                raise ConnectionError("cut off")
            return getattr(self._inner, name)

    layers: list[Refusing] = []

    def layer(store: Store) -> Store:
        layers.append(Refusing(store))
        return layers[-1]  # type: ignore[return-value]

    actor = MeteredActor(ground, layer=layer).open()
    warm(actor)
    layers[0].refuses = True
    with pytest.raises(ConnectionError):
        _insert(actor, "cut off")
    actor.close()


def test_costs_compare_by_value() -> None:
    one = Cost.of({("PUT", "record"): 1, ("GET", "record"): 0}, 1)
    assert one == Cost.of({("PUT", "record"): 1}, 1)
    assert one != replace(one, hops=2)
