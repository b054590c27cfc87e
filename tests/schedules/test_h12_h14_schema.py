"""H12 to H14: schema changes against rows that ride in records, against writers, and the birth of tables."""

from __future__ import annotations

import pytest

from omnigraph.errors import ConstraintViolation, InvalidInput, OmnigraphError
from omnigraph.query.language.statements import InsertNode
from tests.schedules.guarded import run_without_rules
from tests.schedules.world import SCHEMA, WAIT_S, World, person

_NICK = SCHEMA.replace("age: I32?", "age: I32?  nick: String?")
_UNIQUE_AGE = SCHEMA.replace("age: I32?", "age: I32? @unique")


def test_h12_a_dropped_and_re_added_property_is_another_one(world: World) -> None:
    """Its old values ride in the overlay and must not come back under the new identity. H12"""
    actor = world.actor()
    actor.graph.schema.apply(_NICK)
    actor.apply(person("x", nick="old"))
    actor.graph.schema.apply(SCHEMA)
    actor.graph.schema.apply(_NICK)
    assert world.rows("Person")["x"]["nick"] is None
    actor.graph.fold()
    assert world.rows("Person")["x"]["nick"] is None


def test_h12_a_type_re_added_under_its_name_is_empty(world: World) -> None:
    """Rows of its former life, in the overlay and in tables, are not its rows. H12"""
    actor = world.actor()
    with_thing = f"{SCHEMA}\nnode Thing {{ name: String @key }}\n"
    actor.graph.schema.apply(with_thing)
    actor.apply(InsertNode("Thing", {"name": "folded"}))
    actor.graph.fold()
    actor.apply(InsertNode("Thing", {"name": "inline"}))
    actor.graph.schema.apply(SCHEMA, allow_data_loss=True)
    actor.graph.schema.apply(with_thing)
    assert world.rows("Thing") == {}


@run_without_rules("schema-meets-all")
def test_h12_a_fold_that_meets_a_schema_change_stops(world: World) -> None:
    """It has staged the old shape. H12"""
    folder, changer = world.actor(), world.actor()
    folder.apply(person("x", 1), InsertNode("Note", {"text": "n"}))
    with folder.hold_at("fold.before-record", folder.graph.fold) as late:
        changer.graph.schema.apply(_NICK)
    assert late.result(WAIT_S) is None
    changer.apply(person("x", nick="n"))
    changer.graph.fold()
    row = world.rows("Person")["x"]
    assert (row["age"], row["nick"]) == (1, "n")
    world.assert_sound()


def test_h12_a_writer_that_meets_a_schema_change_prepares_again(world: World) -> None:
    """Its row has the old shape and was checked against the old rules. H12, H13"""
    world.actor().apply(person("a", 1))
    writer, changer = world.actor(), world.actor()
    with writer.hold_at("write.before-record", lambda: writer.apply(person("b", 1))) as late:
        changer.graph.schema.apply(_UNIQUE_AGE)
    with pytest.raises(ConstraintViolation):
        late.result(WAIT_S)
    assert set(world.ages()) == {"a"}


@run_without_rules("schema-meets-all")
def test_h12_a_staged_write_that_meets_a_schema_change_stages_again(world: World) -> None:
    """What it wrote lacks the new column. H12"""
    stager, changer = world.actor(inline_share=0), world.actor()
    with stager.hold_at("write.before-record", lambda: stager.apply(person("x", 1))) as late:
        changer.graph.schema.apply(_NICK)
    assert late.result(WAIT_S).attempts == 2
    assert world.rows("Person")["x"]["nick"] is None
    world.assert_sound()


@run_without_rules("schema-reads-all")
def test_h13_a_rule_is_validated_again_if_rows_landed_meanwhile(world: World) -> None:
    """`@unique` was validated at N; a duplicate lands at N + 1. H13"""
    world.actor().apply(person("a", 1))
    changer, writer = world.actor(), world.actor()
    with changer.hold_at("write.before-record", lambda: changer.graph.schema.apply(_UNIQUE_AGE)) as late:
        writer.apply(person("b", 1))
    with pytest.raises(OmnigraphError) as refused:
        late.result(WAIT_S)
    assert isinstance(refused.value, (ConstraintViolation, InvalidInput))
    assert set(world.ages()) == {"a", "b"}


def test_h13_a_change_that_tightens_nothing_commutes_with_writes(world: World) -> None:
    """A new optional property does not care about rows. H13"""
    changer, writer = world.actor(), world.actor()
    with changer.hold_at("write.before-record", lambda: changer.graph.schema.apply(_NICK)) as late:
        writer.apply(person("b", 1))
    assert late.result(WAIT_S).attempts == 1
    assert world.rows("Person")["b"]["nick"] is None


@run_without_rules("birth-is-pure")
def test_h14_two_branches_give_birth_to_one_table(world: World) -> None:
    """Both fold their first rows of a type at the same time; version 1 is the same for both. H14"""
    main = world.actor()
    main.graph.branch.create("dev")
    dev = world.actor(branch="dev")
    main.apply(person("m", 1))
    dev.apply(person("d", 2))
    with main.hold_at("fold.staged", main.graph.fold) as late:
        assert dev.graph.fold() is not None
    assert late.result(WAIT_S) is not None
    assert world.ages() == {"m": 1}
    assert world.ages("dev") == {"d": 2}
    world.assert_sound()


def test_h14_also_with_different_schemas(world: World) -> None:
    """Each adds the columns it needs to its own line of versions. H14"""
    main = world.actor()
    main.graph.branch.create("dev")
    dev = world.actor(branch="dev")
    dev.graph.schema.apply(_NICK)
    dev.apply(person("d", 2, nick="n"))
    dev.graph.fold()
    main.apply(person("m", 1))
    main.graph.fold()
    main.graph.schema.apply(_UNIQUE_AGE)
    main.apply(person("m2", 3))
    main.graph.fold()
    assert world.ages() == {"m": 1, "m2": 3}
    assert world.rows("Person", "dev")["d"]["nick"] == "n"
    world.assert_sound()
