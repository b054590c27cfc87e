"""Schema changes against writers, folds and each other: one order or a clean refusal, never a mixed view.

S108, S111, H12, H13, H14. Every schedule is exact: one side stands at a named point while the other runs.
"""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.clock import SystemClock
from omnigraph.errors import ConstraintViolation, InvalidInput, NotFound, PreconditionFailed, ReadSetChanged
from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode, Statement, Update
from omnigraph.schema.change_steps import VIOLATED
from tests.mutate.schema_change.base_schema import SCHEMA, edit_schema, rows, with_person
from tests.mutate.schema_change.conftest import MakeWorld
from tests.schedules.world import WAIT_S, World

DEFAULT = with_person("rank: I32 @default(7)")
WIDER = edit_schema(("age: I32?", "age: I64?"))
POINTS = ("write.captured", "write.validated", "write.before-record")


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(SCHEMA)


def person(name: str, **values: Any) -> InsertNode:
    return InsertNode("Person", {"name": name, **values})


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("share", [0, 4], ids=["staged", "inline"])
@pytest.mark.parametrize("schema", [DEFAULT, WIDER, with_person("nick: String?")], ids=["default", "wider", "more"])
def test_s108_a_writer_that_was_overtaken_lands_after(world: World, schema: str, share: int, point: str) -> None:
    """It is prepared again under the new schema, so that its row has the new shape and the default."""
    world.actor().apply(person("Ada", age=1))
    writer, changer = world.actor(inline_share=share), world.actor()
    with writer.hold_at(point, lambda: writer.apply(person("Bob", age=2))) as late:
        changer.graph.schema.apply(schema)
    assert late.result(WAIT_S).attempts == 2
    expected = {"rank": 7} if schema == DEFAULT else {"nick": None} if schema != WIDER else {}
    for reader in (writer, world.reader()):
        rows_by_id = rows(reader.graph, "Person")
        assert rows_by_id == {
            name: {"name": name, "age": age, "weight": None, **expected} for name, age in (("Ada", 1), ("Bob", 2))
        }
    world.assert_sound()


@pytest.mark.parametrize("where", ["overlay", "table"])
@pytest.mark.parametrize("schema", [DEFAULT, WIDER], ids=["default", "wider"])
@pytest.mark.parametrize("meanwhile", ["inline", "staged", "update", "delete", "fold"])
def test_h12_a_change_that_rewrites_rows_misses_none(world: World, schema: str, where: str, meanwhile: str) -> None:
    """Whatever lands between its preparation and its record, every row has the new column or type. H12, H13"""
    first = world.actor()
    first.apply(person("Ada", age=1), person("Cy", age=3))
    if where == "table":
        first.graph.fold()
        first.apply(person("Ada", age=1))
    changer, second_actor = world.actor(), world.actor(inline_share=0 if meanwhile == "staged" else 4)
    with changer.hold_at("write.before-record", lambda: changer.graph.schema.apply(schema)) as late:
        if meanwhile == "fold":
            assert second_actor.graph.fold() is not None
        elif meanwhile == "update":
            second_actor.apply(Update("Person", {"age": 9}, Compare("name", "=", "Cy")))
        elif meanwhile == "delete":
            second_actor.apply(Delete("Person", Compare("name", "=", "Cy")))
        else:
            second_actor.apply(person("Bob", age=2))
    assert late.result(WAIT_S).attempts == 2
    ages = {"Ada": 1, "Cy": 3}
    ages |= {"update": {"Cy": 9}, "inline": {"Bob": 2}, "staged": {"Bob": 2}}.get(meanwhile, {})
    if meanwhile == "delete":
        del ages["Cy"]
    rank = {"rank": 7} if schema == DEFAULT else {}
    expected = {row_id: {"name": row_id, "age": age, "weight": None, **rank} for row_id, age in ages.items()}
    assert rows(world.reader().graph, "Person") == expected
    changer.graph.fold()
    assert rows(world.reader().graph, "Person") == expected
    world.assert_sound()


@pytest.mark.parametrize(
    ("schema", "bad"),
    [
        (edit_schema(("age: I32?", "age: I32? @unique")), person("Bob", age=1)),
        (edit_schema(("age: I32?", "age: I32? @range(0..5)")), person("Bob", age=6)),
        (edit_schema(("age: I32?", "age: I32")), person("Bob")),
        (edit_schema(("name: String @key  age", 'name: String @key @check("a")  age')), person("Bob", age=2)),
        (with_person("rank: I32 @default(7)  @unique(age, rank)"), person("Bob", age=1)),
        (edit_schema(("Person -> Pet", "Person -> Pet @card(..1)")), InsertEdge("Owns", "Ada", "Kit")),
        (edit_schema(("Person -> Pet", "Person -> Pet @card(1..)")), person("Bob", age=2)),
        (f"{SCHEMA}edge Feeds: Pet -> Person @card(..3)\nedge Walks: Person -> Pet @card(1..)\n", None),
    ],
    ids=["unique", "range", "required", "check", "unique-default", "card-max", "card-min", "card-new-edge"],
)
def test_h13_a_constraint_is_checked_again_if_rows_landed_meanwhile(
    make_world: MakeWorld, schema: str, bad: Statement | None
) -> None:
    """The rule held when it was checked; the row that breaks it lands first. Both orders end without it broken. H13"""
    for change_first in (False, True):
        _race_of_rule_and_row(make_world(SCHEMA), schema, bad, change_first=change_first)


def _race_of_rule_and_row(world: World, schema: str, bad: Statement | None, *, change_first: bool) -> None:
    changer, writer, row = world.actor(), world.actor(), bad or person("Bob", age=2)
    if bad is not None:
        pet = InsertNode("Pet", {"name": "Kit"})
        world.actor().apply(person("Ada", age=1), pet, InsertEdge("Owns", "Ada", "Kit"))
    if change_first:
        with writer.hold_at("write.before-record", lambda: writer.apply(row)) as late:
            changer.graph.schema.apply(schema)
    else:
        with changer.hold_at("write.before-record", lambda: changer.graph.schema.apply(schema)) as late:
            writer.apply(row)
    with pytest.raises(ConstraintViolation) as refused:
        late.result(WAIT_S)
    assert (refused.value.code == VIOLATED) == (not change_first)
    assert world.reader().graph.schema.source == (schema if change_first else SCHEMA)


def test_h13_a_constraint_is_accepted_after_the_violating_row_is_fixed(world: World) -> None:
    """Checked again means checked again: what was a violation at first is none any more. H13"""
    world.actor().apply(person("Ada"))
    changer, writer = world.actor(), world.actor()
    with changer.hold_at(
        "write.captured", lambda: changer.graph.schema.apply(edit_schema(("age: I32?", "age: I32")))
    ) as late:
        writer.apply(person("Ada", age=1))
    assert late.result(WAIT_S).commit_id is not None


def test_h13_changes_of_other_types_commute(world: World) -> None:
    """A rule of one type does not wait for writers of another. H13"""
    changer, writer = world.actor(), world.actor()
    schema = edit_schema(("age: I32?", "age: I32 @unique"))
    with changer.hold_at("write.before-record", lambda: changer.graph.schema.apply(schema)) as late:
        writer.apply(InsertNode("Pet", {"name": "Kit"}))
    assert late.result(WAIT_S).attempts == 1
    assert set(rows(world.reader().graph, "Pet")) == {"Kit"}


def test_h12_a_dropped_type_takes_the_rows_that_landed_meanwhile_along(world: World) -> None:
    changer, writer = world.actor(), world.actor()
    only_people = SCHEMA.split("node Pet")[0]
    with changer.hold_at("write.before-record", lambda: changer.graph.schema.apply(only_people)) as late:
        last_commit = writer.apply(InsertNode("Pet", {"name": "Kit"})).commit_id
    late.result(WAIT_S)
    changer.graph.schema.apply(SCHEMA)
    assert rows(changer.graph, "Pet") == {}
    assert last_commit is not None
    assert set(rows(changer.graph.at(last_commit), "Pet")) == {"Kit"}
    world.assert_sound()


@pytest.mark.parametrize("point", POINTS)
def test_s108_a_writer_of_something_that_went_is_refused(world: World, point: str) -> None:
    writer, changer = world.actor(), world.actor()
    new_schema = edit_schema(("age: I32?", ""))
    with writer.hold_at(point, lambda: writer.apply(person("Bob", age=2))) as late:
        changer.graph.schema.apply(new_schema)
    with pytest.raises(InvalidInput) as refused:
        late.result(WAIT_S)
    assert refused.value.code == "unknown_property"
    with writer.hold_at(point, lambda: writer.apply(InsertNode("Pet", {"name": "Kit"}))) as late:
        changer.graph.schema.apply(new_schema.split("node Pet")[0])
    with pytest.raises(NotFound):
        late.result(WAIT_S)
    assert rows(world.reader().graph, "Person") == {}


def test_s108_a_caller_who_wants_to_decide_is_told(world: World) -> None:
    writer, changer = world.actor(), world.actor()
    with writer.hold_at("write.before-record", lambda: writer.apply(person("Bob"), on_conflict="fail")) as late:
        changer.graph.schema.apply(DEFAULT)
    with pytest.raises(ReadSetChanged, match="schema"):
        late.result(WAIT_S)


def test_s108_two_changes_end_in_one_order(world: World) -> None:
    """The loser is compiled anew against the winner's schema: its text is what the schema becomes."""
    first_actor, second_actor = world.actor(), world.actor()
    texts = with_person("nick: String?"), with_person("mail: String?")
    with first_actor.hold_at("write.before-record", lambda: first_actor.graph.schema.apply(texts[0])) as late:
        second_actor.graph.schema.apply(texts[1])
    result = late.result(WAIT_S)
    assert result.attempts == 2
    assert [step["step"] for step in result.result["steps"]] == ["drop_property", "add_property"]
    assert world.reader().graph.schema.source == texts[0]
    world.assert_sound()


def test_s108_a_change_bound_to_a_commit_does_not_follow(world: World) -> None:
    """`if_commit` is how a plan that a person looked at is kept from dropping what came after it."""
    first_actor, second_actor = world.actor(), world.actor()
    seen_commit = first_actor.graph.refresh()
    with first_actor.hold_at(
        "write.before-record",
        lambda: first_actor.graph.schema.apply(with_person("nick: String?"), if_commit=seen_commit),
    ) as late:
        second_actor.graph.schema.apply(with_person("mail: String?"))
    with pytest.raises(PreconditionFailed):
        late.result(WAIT_S)
    assert "mail" in world.reader().graph.schema.source


def test_s108_the_same_change_twice_is_one_commit(world: World) -> None:
    """The loser finds that nothing is left to do."""
    first_actor, second_actor = world.actor(), world.actor()
    with first_actor.hold_at("write.before-record", lambda: first_actor.graph.schema.apply(DEFAULT)) as late:
        second_actor.graph.schema.apply(DEFAULT)
    assert late.result(WAIT_S).commit_id is None


@pytest.mark.parametrize("schema", [DEFAULT, WIDER, edit_schema(("age: I32?", ""))], ids=["default", "wider", "drop"])
def test_s111_a_stale_handle_reads_what_it_has_and_writes_what_is(world: World, schema: str) -> None:
    stale, changer = world.actor(), world.actor()
    stale.apply(person("Ada", weight=1.0))
    view = stale.graph.view()
    changer.graph.schema.apply(schema)
    changer.apply(person("Bob"))
    assert view.catalog.source == SCHEMA
    assert rows(view, "Person") == {"Ada": {"name": "Ada", "age": None, "weight": 1.0}}
    old = stale.graph.view(fresh=False)
    assert old.catalog.source == SCHEMA
    assert set(rows(old, "Person")) == {"Ada"}
    stale.apply(person("Cy"))
    assert rows(stale.graph, "Person") == rows(world.reader().graph, "Person")
    assert set(rows(stale.graph, "Person")) == {"Ada", "Bob", "Cy"}
    assert stale.graph.schema.source == schema


@pytest.mark.parametrize("held", ["fold.captured", "fold.staged", "fold.before-record"])
@pytest.mark.parametrize("schema", [DEFAULT, WIDER, with_person("nick: String?")], ids=["default", "wider", "more"])
def test_h12_a_fold_of_the_old_shape_stops(world: World, schema: str, held: str) -> None:
    """H12"""
    folder, changer = world.actor(), world.actor()
    folder.apply(person("Ada", age=1), InsertNode("Pet", {"name": "Kit"}))
    with folder.hold_at(held, folder.graph.fold) as late:
        changer.graph.schema.apply(schema)
    assert late.result(WAIT_S) is None
    before = rows(world.reader().graph, "Person")
    changer.graph.fold()
    assert rows(world.reader().graph, "Person") == before
    assert before["Ada"]["age"] == 1
    world.assert_sound()


@pytest.mark.parametrize("schema", [DEFAULT, WIDER], ids=["default", "wider"])
def test_h14_one_table_is_born_by_two_branches_with_different_schemas(world: World, schema: str) -> None:
    """One gives it its first version by a fold, the other by a change that writes rows; at the same time. H14"""
    main = world.actor()
    main.apply(person("Ada", age=1))
    main.graph.branch.create("dev")
    dev = world.actor(branch="dev")
    dev.apply(person("Bob", age=2))
    with dev.hold_at("write.before-record", lambda: dev.graph.schema.apply(schema)) as late:
        with main.hold_at("fold.before-record", main.graph.fold) as folding:
            pass
        assert folding.result(WAIT_S) is not None
    assert late.result(WAIT_S).attempts == 1
    dev.graph.fold()
    assert rows(world.reader().graph, "Person") == {"Ada": {"name": "Ada", "age": 1, "weight": None}}
    rank = {"rank": 7} if schema == DEFAULT else {}
    assert rows(world.reader("dev").graph, "Person") == {
        row_id: {"name": row_id, "age": age, "weight": None, **rank} for row_id, age in (("Ada", 1), ("Bob", 2))
    }
    world.assert_sound()


class _JumpingClock(SystemClock):
    """A clock that a test sets forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s

    def jump(self) -> None:
        self.ahead_s += 1000.0


def test_a_change_that_takes_long_lands_if_nobody_is_in_its_way(world: World) -> None:
    """Rewriting a large table may take longer than a writer would fight for its turn."""
    world.actor().apply(person("Ada", age=1))
    clock = _JumpingClock()
    changer = world.actor(clock=clock)
    changer.pauses.call_at("write.staged", clock.jump)
    assert changer.graph.schema.apply(DEFAULT).commit_id is not None
    assert rows(world.reader().graph, "Person")["Ada"]["rank"] == 7
