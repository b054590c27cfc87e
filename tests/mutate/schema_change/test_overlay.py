"""Schema changes while rows ride in records: inline against fold, and forks with overlays on both sides. S170"""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode, Update
from tests.mutate.schema_change.base_schema import SCHEMA, edit_schema, rows, with_person
from tests.mutate.schema_change.conftest import MakeWorld
from tests.schedules.world import WAIT_S, Actor, World

STEPS = {
    "more": with_person("nick: String?"),
    "default": with_person("rank: I32 @default(7)"),
    "wider": edit_schema(("age: I32?", "age: I64?"), ("weight: F32?", "weight: F64?")),
    "drop": edit_schema(("weight: F32?", "")),
    "rename": edit_schema(("age: I32?", 'years: I32? @rename_from("age")')),
    "rule": edit_schema(("age: I32?", "age: I32? @unique")),
}
by_step = pytest.mark.parametrize("schema", STEPS.values(), ids=STEPS)


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(SCHEMA)


def person(name: str, **values: Any) -> InsertNode:
    return InsertNode("Person", {"name": name, **values})


def without(name: str) -> Delete:
    return Delete("Person", Compare("name", "=", name))


def expected_rows(schema: str, **ages: int | None) -> dict[str, dict[str, Any]]:
    """Rows with these ages and no weight, as they look under one of the schemas."""
    age = "years" if schema == STEPS["rename"] else "age"
    added: dict[str, dict[str, Any]] = {STEPS["more"]: {"nick": None}, STEPS["default"]: {"rank": 7}}
    more = added.get(schema, {})
    weight = {} if schema == STEPS["drop"] else {"weight": None}
    return {name: {"name": name, age: number, **weight, **more} for name, number in ages.items()}


def crowd(actor: Actor) -> None:
    """Rows only in the overlay, only in a table, in both; a tombstone over a table; one deleted and made again."""
    actor.apply(person("table", age=1), person("both", age=0), person("gone", age=3), person("again", age=0))
    actor.graph.fold()
    actor.apply(person("overlay", age=4), person("both", age=2), without("gone"), without("again"))
    actor.apply(person("again", age=5))


CROWD = {"table": 1, "both": 2, "overlay": 4, "again": 5}


@by_step
def test_s170_a_change_over_an_overlay(world: World, schema: str) -> None:
    """The same rows before a fold and after one, and a deleted row stays deleted."""
    actor = world.actor()
    crowd(actor)
    old = actor.head.commit_id
    actor.graph.schema.apply(schema)
    assert rows(actor.graph, "Person") == expected_rows(schema, **CROWD)
    assert rows(world.reader().graph, "Person") == expected_rows(schema, **CROWD)
    actor.graph.fold()
    assert not actor.head.overlay
    assert rows(world.reader().graph, "Person") == expected_rows(schema, **CROWD)
    assert rows(actor.graph.at(old), "Person") == expected_rows(SCHEMA, **CROWD)
    world.assert_sound()


@by_step
@pytest.mark.parametrize("order", ["write-fold", "fold-write"])
def test_s170_inline_against_fold_after_a_change(world: World, schema: str, order: str) -> None:
    """Rows that were reshaped in the overlay are updated and deleted while a fold of them is on its way."""
    actor, second_actor = world.actor(), world.actor()
    crowd(actor)
    actor.graph.schema.apply(schema)
    age = "years" if schema == STEPS["rename"] else "age"
    update = Update("Person", {age: 9}, Compare("name", "=", "overlay"))

    def write(one: Actor) -> None:
        one.apply(update, without("both"))

    if order == "write-fold":
        with actor.hold_at("fold.before-record", actor.graph.fold) as late:
            write(second_actor)
        late.result(WAIT_S)
    else:
        with actor.hold_at("write.before-record", lambda: write(actor)) as late_write:
            second_actor.graph.fold()
        late_write.result(WAIT_S)
    expected = expected_rows(schema, table=1, overlay=9, again=5)
    assert rows(world.reader().graph, "Person") == expected
    actor.graph.fold()
    assert rows(world.reader().graph, "Person") == expected
    world.assert_sound()


@by_step
def test_s170_a_fork_with_overlays_on_both_sides(world: World, schema: str) -> None:
    """Both sides start with the same entries; one changes the schema, both go on and fold."""
    main = world.actor()
    crowd(main)
    main.graph.branch.create("dev")
    dev = world.actor(branch="dev")
    dev.apply(person("dev", age=6), without("again"))
    main.apply(person("main", age=7), without("table"))
    dev.graph.schema.apply(schema)
    sides = {
        "main": (main, expected_rows(SCHEMA, both=2, overlay=4, again=5, main=7)),
        "dev": (dev, expected_rows(schema, table=1, both=2, overlay=4, dev=6)),
    }
    for name, (actor, expected) in sides.items():
        assert rows(world.reader(name).graph, "Person") == expected
        actor.graph.fold()
        assert rows(world.reader(name).graph, "Person") == expected
    main.graph.schema.apply(schema)
    assert rows(main.graph, "Person") == expected_rows(schema, both=2, overlay=4, again=5, main=7)
    world.assert_sound()


def test_s170_a_cascade_into_reshaped_edges(world: World) -> None:
    actor = world.actor()
    actor.apply(person("Ada"), InsertNode("Pet", {"name": "Kit"}), InsertEdge("Owns", "Ada", "Kit", {"since": 1}))
    actor.graph.schema.apply(edit_schema(("since: I32?", 'since: I64?  note: String @default("")')))
    assert [row["note"] for row in rows(actor.graph, "Owns").values()] == [""]
    actor.apply(without("Ada"))
    assert rows(actor.graph, "Owns") == {}
    actor.graph.fold()
    assert rows(world.reader().graph, "Owns") == {}
    world.assert_sound()
