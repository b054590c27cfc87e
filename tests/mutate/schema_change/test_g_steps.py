"""G: what each step of a schema change does to rows, in the overlay, in tables with removed rows, and in both."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.errors import ConstraintViolation, OmnigraphError
from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode, NullTest, Update
from omnigraph.schema.change_steps import NEEDS_DEFAULT, UNSUPPORTED, VIOLATED, SchemaChangeRefused
from tests.mutate.schema_change.base_schema import SCHEMA, edit_schema, rows, with_person
from tests.mutate.schema_change.conftest import MakeWorld
from tests.schedules.world import Actor, World

in_both = pytest.mark.parametrize("actor", ["both"], indirect=True)
"""For what does not depend on where rows are."""


@pytest.fixture(params=["overlay", "table", "both"])
def actor(request: pytest.FixtureRequest, make_world: MakeWorld) -> Actor:
    """Ada (36), Bob (no age) and the cat Kit; Cy was deleted. In tables, the deleted row leaves a hole."""
    return make_filled_actor(make_world(SCHEMA), request.param)


def make_filled_actor(world: World, place: str) -> Actor:
    actor = world.actor()
    actor.apply(person("Ada", age=30), person("Cy", age=1), InsertNode("Pet", {"name": "Kit", "kind": "cat"}))
    if place == "both":
        actor.graph.fold()
    actor.apply(person("Ada", age=36, weight=0.5), person("Bob"))
    actor.apply(InsertEdge("Owns", "Ada", "Kit", {"id": "o", "since": 1}), Delete("Person", Compare("name", "=", "Cy")))
    if place == "table":
        actor.graph.fold()
    return actor


def person(name: str, **values: Any) -> InsertNode:
    return InsertNode("Person", {"name": name, **values})


def ages(actor: Actor) -> dict[str, Any]:
    return {row_id: row["age"] for row_id, row in rows(actor.graph, "Person").items()}


def expect_refusal(actor: Actor, schema: str) -> OmnigraphError:
    """The change is refused, nothing is written, and the graph works on as before."""
    head, source, people = actor.head.commit_id, actor.graph.schema.source, rows(actor.graph, "Person")
    with pytest.raises(OmnigraphError) as error:
        actor.graph.schema.apply(schema)
    assert actor.head.commit_id == head
    assert (actor.graph.schema.source, rows(actor.graph, "Person")) == (source, people)
    actor.apply(person("Dan"))
    return error.value


# --- metadata only -----------------------------------------------------------------------------------------------


def test_s102_a_property_that_may_be_null(actor: Actor) -> None:
    before = actor.head.commit_id
    pins = {table: pin.version for table, pin in actor.head.pins.items()}
    actor.graph.schema.apply(with_person("nick: String?"))
    assert {table: pin.version for table, pin in actor.head.pins.items()} == pins
    assert rows(actor.graph, "Person")["Ada"] == {"name": "Ada", "age": 36, "weight": 0.5, "nick": None}
    assert rows(actor.graph.at(before), "Person")["Ada"] == {"name": "Ada", "age": 36, "weight": 0.5}
    assert actor.apply(Update("Person", {"nick": "n"}, NullTest("nick"))).counts["updated"] == 2
    actor.graph.fold()
    assert {row["nick"] for row in rows(actor.graph, "Person").values()} == {"n"}


@in_both
def test_s102_further_types(actor: Actor) -> None:
    actor.graph.schema.apply(f"{SCHEMA}\nnode Toy {{ name: String @key }}\nedge Plays: Pet -> Toy\n")
    actor.apply(InsertNode("Toy", {"name": "ball"}), InsertEdge("Plays", "Kit", "ball"))
    actor.graph.fold()
    assert set(rows(actor.graph, "Toy")) == {"ball"}
    assert ages(actor) == {"Ada": 36, "Bob": None}


def test_s103_renames_keep_rows_and_rules(actor: Actor) -> None:
    old = actor.head.commit_id
    text = edit_schema(
        ("node Person {", 'node Human @rename_from("Person") {'),
        ("age: I32?", 'years: I32? @rename_from("age")'),
        ("Person -> Pet", "Human -> Pet"),
        ("name: String @key  kind", 'called: String @key @rename_from("name")  kind'),
    )
    assert not any(step.rewrites_rows or step.validates_rows for step in actor.graph.schema.plan(text))
    actor.graph.schema.apply(text)
    assert {row_id: row["years"] for row_id, row in rows(actor.graph, "Human").items()} == {"Ada": 36, "Bob": None}
    then = actor.graph.at(old)
    assert rows(then, "Person")["Ada"] == rows(then, "Human")["Ada"] == {"name": "Ada", "age": 36, "weight": 0.5}
    selected = then.table("Human").to_arrow(["id", "years"], Compare("years", ">", 30)).to_pylist()
    assert selected == [{"id": "Ada", "years": 36}]
    actor.apply(InsertNode("Pet", {"called": "Kit", "kind": "dog"}))  # the same row: its id did not change
    assert rows(actor.graph, "Pet") == {"Kit": {"called": "Kit", "kind": "dog"}}


def test_s107_an_enum_with_more_values(actor: Actor) -> None:
    pins = {table: pin.version for table, pin in actor.head.pins.items()}
    actor.graph.schema.apply(edit_schema(("enum(cat, dog)", "enum(bird, dog, cat)")))
    assert {table: pin.version for table, pin in actor.head.pins.items()} == pins
    actor.apply(InsertNode("Pet", {"name": "Tweety", "kind": "bird"}))
    assert {row["kind"] for row in rows(actor.graph, "Pet").values()} == {"cat", "bird"}


# --- rows are written --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("rank: I32 @default(-7)", -7),
        ("rank: [String] @default([])", []),
        ('rank: enum(a, b) @default("b")', "b"),
        ("rank: Vector(2) @default([1, 0.5])", [1.0, 0.5]),
        ("rank: Bool @default(false)", False),
    ],
)
def test_s106_a_required_property_with_a_default(actor: Actor, declared: str, value: Any) -> None:
    old = actor.head.commit_id
    actor.graph.schema.apply(with_person(declared))
    assert {row_id: row["rank"] for row_id, row in rows(actor.graph, "Person").items()} == {"Ada": value, "Bob": value}
    assert "rank" not in rows(actor.graph.at(old), "Person")["Ada"]
    actor.apply(person("Eve"))
    actor.graph.fold()
    rows_by_id = rows(actor.graph, "Person")
    assert {row_id: row["rank"] for row_id, row in rows_by_id.items()} == dict.fromkeys(["Ada", "Bob", "Eve"], value)
    assert (rows_by_id["Ada"]["age"], rows_by_id["Ada"]["weight"]) == (36, 0.5)


def test_wider_numbers_keep_their_values(actor: Actor) -> None:
    old = actor.head.commit_id
    actor.apply(person("Max", age=2**31 - 1, weight=0.1))
    actor.graph.schema.apply(edit_schema(("age: I32?", "age: I64?"), ("weight: F32?", "weight: F64?")))
    actor.apply(person("Big", age=2**40, weight=0.1))
    actor.graph.fold()
    rows_by_id = rows(actor.graph, "Person")
    assert {row_id: row["age"] for row_id, row in rows_by_id.items()} == {
        "Ada": 36,
        "Bob": None,
        "Max": 2**31 - 1,
        "Big": 2**40,
    }
    assert rows_by_id["Big"]["weight"] == 0.1
    assert rows_by_id["Max"]["weight"] == pytest.approx(0.1, rel=1e-7)
    assert rows(actor.graph.at(old), "Person")["Ada"]["age"] == 36


def test_several_steps_in_one_commit(actor: Actor) -> None:
    """A default, a wider type, a rename, a drop and a rule, all at once."""
    text = edit_schema(
        ("age: I32?", 'years: I64? @rename_from("age") @range(0..10000000000)'),
        ("weight: F32?", "rank: I32 @default(1)"),
        ("kind: enum(cat, dog)?", "kind: enum(cat, dog)"),
        ("since: I32?", "since: I32"),
    )
    receipt = actor.graph.schema.apply(text)
    assert actor.graph.commits(1)[0].commit_id == receipt.commit_id
    assert rows(actor.graph, "Person")["Ada"] == {"name": "Ada", "years": 36, "rank": 1}
    assert rows(actor.graph, "Owns") == {"o": {"from": "Ada", "to": "Kit", "since": 1}}


# --- refused -----------------------------------------------------------------------------------------------------


@in_both
@pytest.mark.parametrize(
    ("old", "new", "code", "entity"),
    [
        ("age: I32?", "age: I32?  rank: I32", NEEDS_DEFAULT, "node:Person.rank"),
        ("age: I32?", "age: String?", UNSUPPORTED, "node:Person.age"),
        ("weight: F32?", "weight: I64?", UNSUPPORTED, "node:Person.weight"),
        ("age: I32?", "age: [I32]?", UNSUPPORTED, "node:Person.age"),
        ("enum(cat, dog)", "enum(cat)", UNSUPPORTED, "node:Pet.kind"),
        ("enum(cat, dog)", "String", UNSUPPORTED, "node:Pet.kind"),
        ("name: String @key  age", "name: String  age", UNSUPPORTED, "node:Person"),
        ("age: I32?", "age: I32? @unique  n: I32 @default(1)  @key(name, n)", UNSUPPORTED, "node:Person"),
        ("Person -> Pet", "Pet -> Pet", UNSUPPORTED, "edge:Owns"),
    ],
)
def test_s106_s107_impossible_steps_are_refused(actor: Actor, old: str, new: str, code: str, entity: str) -> None:
    text = edit_schema((old, new)).replace("String @key  age: I32? @unique", "String  age: I32? @unique")
    assert not actor.graph.schema.plan(text).supported
    error = expect_refusal(actor, text)
    assert isinstance(error, SchemaChangeRefused)
    assert error.code == code
    assert entity in [refusal.entity for refusal in error.refusals]


@pytest.mark.parametrize(
    ("old", "new", "rule", "rows_named"),
    [
        ("age: I32?", "age: I32", "required", ["Bob"]),
        ("age: I32?", "age: I32? @range(..30)", "range", ["Ada"]),
        ("name: String @key  age", 'name: String @key @check("^B")  age', "check", ["Ada"]),
        ("age: I32?", "age: I32?  n: I32 @default(1) @unique", "unique", ["Ada", "Bob"]),
        ("Person -> Pet", "Person -> Pet @card(1..)", "cardinality", ["Bob"]),
        ("Person -> Pet", "Person -> Pet @card(0..0)", "cardinality", ["Ada"]),
    ],
)
def test_s106_tightening_a_constraint_that_rows_violate_is_refused(
    actor: Actor, old: str, new: str, rule: str, rows_named: list[str]
) -> None:
    error = expect_refusal(actor, edit_schema((old, new)))
    assert isinstance(error, ConstraintViolation)
    assert error.code == VIOLATED
    assert {violation["rule"] for violation in error.violations} == {rule}
    assert {violation["id"] for violation in error.violations} <= set(rows_named)
    assert error.violations


def test_s106_violations_of_every_constraint_of_every_type_are_listed(actor: Actor) -> None:
    actor.apply(person("Eve", age=36, weight=-1.0), InsertNode("Pet", {"name": "Rex"}))
    text = edit_schema(
        ("age: I32?", "age: I32 @unique"), ("weight: F32?", "weight: F32? @range(0..)"), ("dog)?", "dog)")
    )
    error = expect_refusal(actor, text)
    assert isinstance(error, ConstraintViolation)
    assert {(violation["type"], violation["rule"]) for violation in error.violations} == {
        ("node:Person", "required"),
        ("node:Person", "unique"),
        ("node:Person", "range"),
        ("node:Pet", "required"),
    }
    assert "apply the schema again" in str(error)


def test_tightening_a_constraint_that_all_rows_fulfil_succeeds(actor: Actor) -> None:
    """They hold from now on, and only since now."""
    actor.apply(Update("Person", {"age": 3}, NullTest("age")))
    text = edit_schema(("age: I32?", "age: I32 @unique @range(0..99)"), ("Person -> Pet", "Person -> Pet @card(..1)"))
    actor.graph.schema.apply(text)
    for bad in (person("X"), person("X", age=36), person("X", age=100), InsertEdge("Owns", "Ada", "Kit")):
        with pytest.raises(ConstraintViolation):
            actor.apply(bad)
    actor.graph.schema.apply(SCHEMA)
    actor.apply(person("X"), person("Y", age=100), InsertEdge("Owns", "Ada", "Kit"))


def test_violations_are_bounded(make_world: MakeWorld) -> None:
    actor = make_world(SCHEMA).actor()
    actor.apply(*[person(f"p{number}") for number in range(300)])
    with pytest.raises(ConstraintViolation) as error:
        actor.graph.schema.apply(edit_schema(("age: I32?", "age: I32")))
    assert len(error.value.violations) == 100
    assert error.value.details["violation_count"] == 300


def test_a_new_type_of_edge_that_every_node_must_have(make_world: MakeWorld) -> None:
    """It has no rows yet, not even a table; the nodes that need one are named."""
    actor = make_world(SCHEMA).actor()
    text = f"{SCHEMA}\nedge Feeds: Person -> Pet @card(1..)\n"
    actor.apply(person("Ada"))
    with pytest.raises(ConstraintViolation) as error:
        actor.graph.schema.apply(text)
    assert [(violation["rule"], violation["type"], violation["id"]) for violation in error.value.violations] == [
        ("cardinality", "edge:Feeds", "Ada")
    ]
    actor.apply(Delete("Person", Compare("name", "=", "Ada")))
    assert actor.graph.schema.apply(text).commit_id is not None


@pytest.mark.parametrize("where", ["overlay", "table"])
def test_all_violations_of_relational_constraints_are_counted(make_world: MakeWorld, where: str) -> None:
    actor = make_world(SCHEMA).actor()
    people = [person(f"p{number:03}", age=number % 2) for number in range(150)]
    edges = [InsertEdge("Owns", f"p{number:03}", "Kit") for number in range(120) for _ in range(2)]
    actor.apply(*people, InsertNode("Pet", {"name": "Kit"}), *edges)
    if where == "table":
        actor.graph.fold()
    with pytest.raises(ConstraintViolation) as error:
        actor.graph.schema.apply(
            edit_schema(("age: I32?", "age: I32? @unique"), ("Person -> Pet", "Person -> Pet @card(1..1)"))
        )
    assert error.value.details["violation_count"] == 148 + 150
    assert len(error.value.violations) == 100
    with pytest.raises(ConstraintViolation) as error:
        actor.graph.schema.apply(edit_schema(("Person -> Pet", "Person -> Pet @card(..1)")))
    assert error.value.details["violation_count"] == 120
    assert (error.value.violations[0]["id"], error.value.violations[0]["value"]) == ("p000", 2)


# --- nothing to do -----------------------------------------------------------------------------------------------


@in_both
def test_s113_the_same_schema_makes_no_commit(actor: Actor) -> None:
    head = actor.head.commit_id
    receipt = actor.graph.schema.apply(SCHEMA)
    assert (receipt.commit_id, receipt.result["steps"]) == (None, [])
    assert actor.head.commit_id == head


@in_both
def test_s113_a_comment_is_kept_and_touches_no_row(actor: Actor) -> None:
    pins = actor.head.pins
    actor.graph.schema.apply(f"// people\n{SCHEMA}")
    assert actor.graph.schema.source.startswith("// people\n")
    assert actor.head.pins == pins


# --- drops -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allow_data_loss", [False, True])
def test_s105_what_is_dropped_is_in_history_only(actor: Actor, allow_data_loss: bool) -> None:
    """Only cleanup makes it unreachable; the record says what it may take."""
    old, catalog = actor.head.commit_id, actor.graph.schema.catalog
    text = "node Person { name: String @key  weight: F32? }\n"
    actor.graph.schema.apply(text, allow_data_loss=allow_data_loss)
    assert [type_def.name for type_def in actor.graph.schema.catalog.types] == ["Person"]
    assert rows(actor.graph, "Person")["Ada"] == {"name": "Ada", "weight": 0.5}
    assert rows(actor.graph.at(old), "Person")["Ada"]["age"] == 36
    assert set(rows(actor.graph.at(old), "Owns")) == {"o"}
    person_type, pet, owns = catalog.node("Person"), catalog.node("Pet"), catalog.edge("Owns")
    assert person_type is not None and pet is not None and owns is not None  # noqa: PT018
    hard_drops = {
        "hard_drops": sorted([pet.id, owns.id]),
        "hard_dropped_properties": {person_type.id: [person_type.by_name["age"].id]},
    }
    assert actor.head.extra == (hard_drops if allow_data_loss else None)


@in_both
def test_schema_changes_are_repeatable_by_client_key(actor: Actor) -> None:
    """The second call is answered by what the first one did."""
    first = actor.graph.schema.apply(with_person("nick: String?"), client_key="once")
    again = actor.graph.schema.apply(with_person("nick: String?"), client_key="once")
    assert again.commit_id == first.commit_id
    assert again.replayed
