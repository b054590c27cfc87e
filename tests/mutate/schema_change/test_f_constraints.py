"""F: rules of the schema as mutations meet them, on rows in the overlay and on rows in tables."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.errors import ConstraintViolation, InvalidInput, KeyConflict, OmnigraphError
from omnigraph.query.language.statements import And, Compare, Delete, InsertEdge, InsertNode, Update
from omnigraph.schema.values import ValueRefused
from tests.mutate.schema_change.base_schema import rows
from tests.mutate.schema_change.conftest import MakeWorld
from tests.schedules.world import Actor, World

SCHEMA = """
node Person {
    name: String @key
    mail: String? @unique
    born: Date? @unique
    level: enum(low, high)
    age: I32? @range(0..150)
    homePage: String? @check("^https?://") @index
    face: Vector(3)?
    first: String?
    last: String?
    @unique(first, last)
}
node Slot { room: String  hour: I32  day: Date  @key(room, hour, day) }
edge Has: Person -> Slot @card(1..2)
edge Likes: Person -> Person @card(0..2) { since: I32? }
"""


@pytest.fixture(params=["overlay", "table"])
def actor(request: pytest.FixtureRequest, make_world: MakeWorld) -> Actor:
    """Ada is there, in the overlay or in a table, and every later write stays there or is staged, too."""
    world: World = make_world(SCHEMA.replace("@card(1..2)", ""))
    actor = world.actor(inline_share=0 if request.param == "table" else 4)
    actor.apply(ada(mail="a@x", born="1815-12-10", first="Ada", last="Byron"), slot("A", 1))
    if request.param == "table":
        actor.graph.fold()
    return actor


def ada(**values: Any) -> InsertNode:
    return person("Ada", **values)


def person(name: str, **values: Any) -> InsertNode:
    return InsertNode("Person", {"name": name, "level": "low", **values})


def slot(room: str, hour: Any, day: Any = "2024-01-02") -> InsertNode:
    return InsertNode("Slot", {"room": room, "hour": hour, "day": day})


def by_name(name: str) -> Compare:
    return Compare("name", "=", name)


def expect_refusal(actor: Actor, *statements: Any) -> OmnigraphError:
    """The statements are refused and nothing is written."""
    before = actor.head.commit_id
    with pytest.raises(OmnigraphError) as error:
        actor.apply(*statements)
    assert actor.head.commit_id == before
    return error.value


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"level": None}, "required"),
        ({"age": 151}, "range"),
        ({"age": -1}, "range"),
        ({"homePage": "ftp://x"}, "check"),
    ],
)
def test_s95_values_that_violate_a_row_constraint_are_refused(actor: Actor, values: dict[str, Any], rule: str) -> None:
    for statement in (person("Bob", **values), ada(**values), Update("Person", values, by_name("Ada"))):
        error = expect_refusal(actor, statement)
        assert isinstance(error, ConstraintViolation)
        assert [violation["rule"] for violation in error.violations] == [rule]
        assert error.violations[0]["property"] == next(iter(values))


@pytest.mark.parametrize(
    "values", [{"level": "mid"}, {"age": "old"}, {"age": 2**31}, {"born": "yesterday"}, {"mail": 3}]
)
def test_s95_values_of_another_type_are_refused(actor: Actor, values: dict[str, Any]) -> None:
    for statement in (person("Bob", **values), ada(**values), Update("Person", values, by_name("Ada"))):
        assert isinstance(expect_refusal(actor, statement), ValueRefused)


@pytest.mark.parametrize("values", [{"mail": "a@x"}, {"born": "1815-12-10"}, {"first": "Ada", "last": "Byron"}])
def test_s96_unique_across_versions(actor: Actor, values: dict[str, Any]) -> None:
    error = expect_refusal(actor, person("Bob", **values))
    assert isinstance(error, ConstraintViolation)
    assert (error.violations[0]["rule"], error.violations[0]["id"]) == ("unique", "Bob")


def test_s96_unique_inside_one_change(actor: Actor) -> None:
    assert isinstance(expect_refusal(actor, person("Bob", mail="b@x"), person("Cy", mail="b@x")), ConstraintViolation)


def test_s96_the_same_row_again_is_no_violation(actor: Actor) -> None:
    actor.apply(ada(mail="a@x", age=36))
    assert rows(actor.graph, "Person")["Ada"]["age"] == 36


def test_s96_a_member_alone_or_null_is_no_duplicate(actor: Actor) -> None:
    actor.apply(person("Bob", first="Ada", last="King"), person("Cy", first="Ada"), person("Di", first="Ada"))
    assert len(rows(actor.graph, "Person")) == 4


def test_s96_a_freed_value_is_free_in_the_same_change(actor: Actor) -> None:
    actor.apply(Update("Person", {"mail": None}, by_name("Ada")), person("Bob", mail="a@x"))
    actor.apply(Delete("Person", by_name("Bob")), person("Cy", mail="a@x"))
    assert {row_id: row["mail"] for row_id, row in rows(actor.graph, "Person").items()} == {"Ada": None, "Cy": "a@x"}


def test_s97_more_edges_than_the_maximum(actor: Actor) -> None:
    actor.apply(person("Bob"), *[InsertEdge("Likes", "Ada", "Bob") for _ in range(2)])
    error = expect_refusal(actor, InsertEdge("Likes", "Ada", "Ada"))
    assert isinstance(error, ConstraintViolation)
    assert (error.violations[0]["rule"], error.violations[0]["id"]) == ("cardinality", "Ada")


def test_s97_an_edge_that_moves_is_counted_where_it_was_and_where_it_is(actor: Actor) -> None:
    moving = InsertEdge("Likes", "Ada", "Bob", {"id": "m"})
    actor.apply(person("Bob"), moving, *[InsertEdge("Likes", "Bob", "Ada") for _ in range(2)])
    assert isinstance(expect_refusal(actor, InsertEdge("Likes", "Bob", "Ada", {"id": "m"})), ConstraintViolation)
    actor.graph.schema.apply(SCHEMA.replace("@card(1..2)", "").replace("@card(0..2)", "@card(1..3)"))
    error = expect_refusal(actor, InsertEdge("Likes", "Bob", "Ada", {"id": "m"}))
    assert isinstance(error, ConstraintViolation)
    assert [violation["id"] for violation in error.violations] == ["Ada"]


def test_s97_one_edge_written_twice_counts_once(actor: Actor) -> None:
    again = InsertEdge("Likes", "Ada", "Ada", {"id": "e"})
    actor.apply(again, again, InsertEdge("Likes", "Ada", "Ada", {"id": "f"}))
    assert set(rows(actor.graph, "Likes")) == {"e", "f"}


def test_s97_fewer_edges_than_the_minimum(actor: Actor) -> None:
    [slot_id] = rows(actor.graph, "Slot")
    actor.apply(InsertEdge("Has", "Ada", slot_id, {"id": "h"}))
    actor.graph.schema.apply(SCHEMA)
    assert isinstance(expect_refusal(actor, person("Bob")), ConstraintViolation)
    assert isinstance(expect_refusal(actor, Delete("Has", Compare("id", "=", "h"))), ConstraintViolation)
    assert isinstance(expect_refusal(actor, Delete("Slot", Compare("id", "=", slot_id))), ConstraintViolation)
    actor.apply(person("Bob"), InsertEdge("Has", "Bob", slot_id))
    actor.apply(Delete("Person", by_name("Ada")))
    assert set(rows(actor.graph, "Person")) == {"Bob"}


@pytest.mark.parametrize(
    "face", [[1.0, 2.0], [1.0, 2.0, 3.0, 4.0], [1.0, "x", 3.0], [1.0, None, 3.0], [float("nan")] * 3]
)
def test_s98_vectors(actor: Actor, face: list[Any]) -> None:
    for statement in (person("Bob", face=face), Update("Person", {"face": face}, by_name("Ada"))):
        assert isinstance(expect_refusal(actor, statement), InvalidInput)
    actor.apply(ada(face=[1, 2, 3]))
    assert rows(actor.graph, "Person")["Ada"]["face"] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("key", [{"hour": None}, {"hour": "1"}, {"hour": 1.5}, {"day": "x"}, {"room": 1}])
def test_s99_a_key_that_is_null_or_of_another_type(actor: Actor, key: dict[str, Any]) -> None:
    values = {"room": "A", "hour": 2, "day": "2024-01-02", **key}
    assert isinstance(expect_refusal(actor, InsertNode("Slot", values)), InvalidInput)
    missing = {name: value for name, value in values.items() if name not in key}
    assert isinstance(expect_refusal(actor, InsertNode("Slot", missing)), InvalidInput)


def test_s99_a_key_that_is_there(actor: Actor) -> None:
    values = {"room": "A", "hour": 1, "day": "2024-01-02"}
    assert isinstance(expect_refusal(actor, InsertNode("Slot", values, strict=True)), KeyConflict)
    assert expect_refusal(actor, Update("Slot", {"hour": 3}, Compare("room", "=", "A"))).code == "key_immutable"


def test_s100_limits_are_inclusive(make_world: MakeWorld) -> None:
    actor = make_world(SCHEMA).actor(mutation_max_rows=5)
    actor.apply(*[slot("A", number) for number in range(5)])
    error = expect_refusal(actor, *[slot("B", number) for number in range(6)])
    assert error.code == "limit_exceeded"
    assert error.details["bound"] == 5
    ends = [slot("A", hour) for hour in (-(2**31), 2**31 - 1)]
    actor.apply(*ends)


@pytest.mark.parametrize("age", [0, 150])
def test_s100_the_ends_of_a_range_are_inside(actor: Actor, age: int) -> None:
    actor.apply(ada(age=age))
    assert rows(actor.graph, "Person")["Ada"]["age"] == age


def test_s101_camel_case_columns(actor: Actor) -> None:
    page = Compare("homePage", "=", "https://x")
    actor.apply(ada(homePage="https://x"), person("Bob", homePage="https://y"))
    assert actor.apply(Update("Person", {"age": 1}, page)).counts["updated"] == 1
    both = And((page, Compare("homePage", "starts_with", "https")))
    assert actor.graph.table("Person").to_arrow(["homePage"], both).to_pylist() == [{"homePage": "https://x"}]
    assert actor.apply(Delete("Person", page)).counts["deleted"] == 1
    renamed = SCHEMA.replace("@card(1..2)", "").replace("@index", '@index @rename_from("homePage")')
    actor.graph.schema.apply(renamed.replace("homePage: String?", "webPage: String?"))
    assert actor.apply(Delete("Person", Compare("webPage", "=", "https://y"))).counts["deleted"] == 1
