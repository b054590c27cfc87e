"""Rules of the schema, broken and kept by mutations in the language: S95 to S101."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from omnigraph.errors import ConstraintViolation, InvalidInput, KeyConflict
from tests.mutate.ground import MutationGround


def violations(
    ground: MutationGround, text: str, params: Mapping[str, Any] | None = None
) -> list[tuple[str, str, str, Any]]:
    """(rule, type, id, value) of everything that a mutation would break; nothing may have changed."""
    before = ground.commits()
    with pytest.raises(ConstraintViolation) as refused:
        ground.run(text, params)
    assert ground.commits() == before
    assert refused.value.code == "constraint_violation"
    assert refused.value.details["violation_count"] == len(refused.value.violations)
    for violation in refused.value.violations:
        assert set(violation) == {"rule", "type", "id", "property", "value", "message"}
    return [
        (violation["rule"], violation["type"], violation["id"], violation["value"])
        for violation in refused.value.violations
    ]


# --- S95: value rules ----------------------------------------------------------------------------------------------


def test_s95_range_on_insert_and_update(ground: MutationGround) -> None:
    assert violations(ground, 'insert Person { name: "a", age: 151 } insert Person { name: "b", age: -1 }') == [
        ("range", "node:Person", "a", 151),
        ("range", "node:Person", "b", -1),
    ]
    ground.run('insert Person { name: "a", age: 150 } insert Person { name: "b", age: 0 } insert Person { name: "c" }')
    assert violations(ground, 'update Person set { age: 200 } where name = "a"') == [("range", "node:Person", "a", 200)]
    assert ground.column("Person", "age") == {"a": 150, "b": 0, "c": None}


def test_s95_check_on_insert_and_update(ground: MutationGround) -> None:
    assert violations(ground, 'insert Person { name: "a", email: "nope" }') == [("check", "node:Person", "a", "nope")]
    ground.run('insert Person { name: "a", email: "a@x" }')
    assert violations(ground, 'update Person set { email: "nope" } where email = "a@x"') == [
        ("check", "node:Person", "a", "nope")
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('insert Person { name: "a", mood: "angry" }', "T9"),
        ('update Person set { mood: "angry" } where name = "a"', "T9"),
        ('insert Company { name: "a" }', "T35"),
        ('insert Company { name: "a", size: null }', "T38"),
        ('update Company set { size: null } where name = "a"', "T38"),
        ('insert Company { name: "a", size: "big" }', "T8"),
        ('update Company set { size: 2.5 } where name = "a"', "T8"),
        ('insert Company { name: "a", size: 3000000000 }', "T8"),
        ('insert Person { name: "a", joinedAt: datetime("yesterday") }', "T8"),
    ],
)
def test_s95_enum_required_and_type_in_the_text(inline: MutationGround, text: str, code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        inline.run(text)
    assert refused.value.code == code
    assert inline.commits() == []


@pytest.mark.parametrize(
    ("set_", "value", "code"),
    [
        ("mood", "angry", "P3"),
        ("age", "old", "P3"),
        ("age", 2.5, "P3"),
        ("joinedAt", "yesterday", "P3"),
        ("place", [1.0, 2.0], "P3"),
    ],
)
@pytest.mark.parametrize("verb", ["insert", "update"])
def test_s95_and_in_the_parameters(inline: MutationGround, set_: str, value: Any, code: str, verb: str) -> None:
    """S95, S98"""
    inline.run('insert Person { name: "a" }')
    type_ = {"mood": "String", "age": "I32", "joinedAt": "DateTime", "place": "Vector(3)"}[set_]
    body = f'insert Person {{ name: "a", {set_}: $v }}'
    if verb == "update":
        body = f'update Person set {{ {set_}: $v }} where name = "a"'
    with pytest.raises(InvalidInput) as refused:
        inline.run(f"query q($v: {type_}) {{ {body} }}", {"v": value})
    assert refused.value.code == code
    assert len(inline.commits()) == 1


def test_s95_null_where_it_is_required(inline: MutationGround) -> None:
    """A parameter that may be null, for a property that may not. S95"""
    with pytest.raises(InvalidInput):
        inline.run('query q($s: I32?) { insert Company { name: "a", size: $s } }', {"s": None})
    assert inline.commits() == []


# --- S96: uniqueness -----------------------------------------------------------------------------------------------


def test_s96_unique_within_the_change_and_against_the_rest(ground: MutationGround) -> None:
    twice = 'insert Person { name: "a", email: "e@x" } insert Person { name: "b", email: "e@x" }'
    assert violations(ground, twice) == [("unique", "node:Person", "b", "e@x")]
    ground.run('insert Person { name: "a", email: "e@x" } insert Person { name: "n" } insert Person { name: "m" }')
    assert violations(ground, 'insert Person { name: "b", email: "e@x" }') == [("unique", "node:Person", "b", "e@x")]
    assert violations(ground, 'update Person set { email: "e@x" } where name = "n"') == [
        ("unique", "node:Person", "n", "e@x")
    ]
    assert violations(ground, 'update Person set { email: "same@x" } where email is null')[0][0] == "unique"


def test_s96_the_same_key_again_is_no_violation(ground: MutationGround) -> None:
    for _ in range(2):
        ground.run('insert Person { name: "a", email: "e@x" }')
    ground.run('update Person set { email: "e@x" } where name = "a"')
    assert ground.column("Person", "email") == {"a": "e@x"}


def test_s96_a_freed_value_may_be_used_in_the_same_mutation(ground: MutationGround) -> None:
    ground.run('insert Person { name: "a", email: "e@x" } insert Person { name: "b", email: "f@x" }')
    ground.run('update Person set { email: null } where name = "a" insert Person { name: "c", email: "e@x" }')
    assert ground.column("Person", "email") == {"a": None, "b": "f@x", "c": "e@x"}
    swap = """
        update Person set { email: "tmp@x" } where name = "b"
        update Person set { email: "f@x" } where name = "c"
        update Person set { email: "e@x" } where name = "b"
    """
    ground.run(swap)
    assert ground.column("Person", "email") == {"a": None, "b": "e@x", "c": "f@x"}


def test_s96_composite_and_dated_and_null_exempt(ground: MutationGround) -> None:
    ground.run('insert Note { id: "1", text: "a", day: date("2020-01-31") }')
    ground.run('insert Note { id: "2", text: "a", day: date("2020-02-01") } insert Note { id: "3", text: "a" } '
               'insert Note { id: "4", text: "a" }')  # fmt: skip
    lines = violations(ground, 'insert Note { id: "5", text: "a", day: date("2020-01-31") }')
    assert lines == [("unique", "node:Note", "5", {"text": "a", "day": "2020-01-31"})]
    assert violations(ground, 'update Note set { day: date("2020-01-31") } where id = "3"')[0][0] == "unique"


def test_s96_edges_may_be_unique_by_their_ends(ground: MutationGround) -> None:
    ground.run('insert Person { name: "a" } insert Person { name: "b" } insert Likes { id: "1", from: "a", to: "b" }')
    assert violations(ground, 'insert Likes { id: "2", from: "a", to: "b" }') == [
        ("unique", "edge:Likes", "2", {"src": "a", "dst": "b"})
    ]
    ground.run('insert Likes { id: "2", from: "b", to: "a" }')


# --- S97: endpoints and cardinality --------------------------------------------------------------------------------

STAFF = """
    insert Person { name: "a" } insert Person { name: "b" }
    insert Company { name: "x", size: 1 } insert Company { name: "y", size: 1 } insert Company { name: "z", size: 1 }
"""


def test_s97_no_more_edges_than_allowed(ground: MutationGround) -> None:
    ground.run(STAFF + 'insert WorksAt { from: "a", to: "x" } insert WorksAt { from: "a", to: "y" }')
    assert violations(ground, 'insert WorksAt { from: "a", to: "z" }') == [("cardinality", "edge:WorksAt", "a", 3)]
    ground.run('delete WorksAt where to = "x"')
    ground.run('insert WorksAt { from: "a", to: "z" }')
    assert ground.edges("WorksAt") == {("a", "y"), ("a", "z")}


def test_s97_a_moved_edge_is_counted_where_it_comes_from_and_where_it_goes(ground: MutationGround) -> None:
    ground.run(STAFF + """
        insert WorksAt { id: "1", from: "a", to: "x" } insert WorksAt { id: "2", from: "a", to: "y" }
        insert WorksAt { id: "3", from: "b", to: "x" } insert WorksAt { id: "4", from: "b", to: "y" }
    """)  # fmt: skip
    assert violations(ground, 'insert WorksAt { id: "3", from: "a", to: "x" }') == [
        ("cardinality", "edge:WorksAt", "a", 3)
    ]
    ground.run('insert Person { name: "c" } insert WorksAt { id: "3", from: "c", to: "x" }')
    ground.run('insert WorksAt { from: "b", to: "z" }')
    assert ground.edges("WorksAt") == {("a", "x"), ("a", "y"), ("b", "y"), ("b", "z"), ("c", "x")}


def test_s97_the_same_edge_twice_counts_once(ground: MutationGround) -> None:
    ground.run(STAFF + 'insert WorksAt { id: "1", from: "a", to: "x" } insert WorksAt { id: "2", from: "a", to: "y" }')
    for _ in range(2):
        ground.run('insert WorksAt { id: "2", from: "a", to: "z" } insert WorksAt { id: "2", from: "a", to: "y" }')
    assert len(ground.edges("WorksAt")) == 2


def test_s97_no_fewer_edges_than_needed(ground: MutationGround) -> None:
    ground.run('insert Person { name: "a" } insert Person { name: "b" }')
    assert violations(ground, 'insert Task { title: "t" }') == [("cardinality", "edge:Needs", "t", 0)]
    ground.run('insert Task { title: "t" } insert Needs { id: "1", from: "t", to: "a" }')
    assert violations(ground, 'delete Needs where id = "1"') == [("cardinality", "edge:Needs", "t", 0)]
    assert violations(ground, 'delete Person where name = "a"') == [("cardinality", "edge:Needs", "t", 0)]
    ground.run('insert Needs { id: "2", from: "t", to: "b" }')
    assert ground.run('delete Person where name = "a"').counts["deleted"] == 2
    assert ground.run('delete Task where title = "t"').counts["deleted"] == 2
    assert ground.edges("Needs") == set()


def test_s97_both_ends_must_be_there(ground: MutationGround) -> None:
    ground.run(STAFF)
    assert violations(ground, 'insert WorksAt { id: "1", from: "none", to: "nowhere" }') == [
        ("endpoint", "edge:WorksAt", "1", "none"),
        ("endpoint", "edge:WorksAt", "1", "nowhere"),
    ]
    # An id of another type is no end.
    assert violations(ground, 'insert Knows { id: "1", from: "a", to: "x" }') == [("endpoint", "edge:Knows", "1", "x")]


# --- S98, S99: vectors and keys ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [[1.0, 2.0], [1.0, 2.0, 3.0, 4.0], [1.0, "x", 3.0], [1.0, None, 3.0], "abc", 1.0,
                                   [float("nan"), 0.0, 0.0], [float("inf"), 0.0, 0.0]])  # fmt: skip
def test_s98_a_vector_of_the_wrong_shape_is_refused(inline: MutationGround, value: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        inline.run('query q($v: Vector(3)) { insert Person { name: "a", place: $v } }', {"v": value})
    assert refused.value.code == "P3"
    assert inline.commits() == []


def test_s98_a_right_one_is_kept(ground: MutationGround) -> None:
    ground.run('query q($v: Vector(3)) { insert Person { name: "a", place: $v } }', {"v": [1, 2.5, -3]})
    assert ground.column("Person", "place") == {"a": [1.0, 2.5, -3.0]}


@pytest.mark.parametrize("value", [None, 5, 1.5, True, ["a"]])
def test_s99_a_key_that_is_null_or_of_another_type(inline: MutationGround, value: Any) -> None:
    with pytest.raises(InvalidInput):
        inline.run("query q($n: String?) { insert Person { name: $n } }", {"n": value})
    assert inline.commits() == []


def test_s99_a_member_of_a_key_that_is_missing(inline: MutationGround) -> None:
    with pytest.raises(InvalidInput) as refused:
        inline.run("insert Point { x: 1 }")
    assert refused.value.code == "T35"


def test_s99_a_key_twice_in_a_strict_mutation(ground: MutationGround) -> None:
    with pytest.raises(KeyConflict) as refused:
        ground.run("insert Point { x: 1, y: 2 } insert Point { x: 1, y: 2 }", strict=True)
    assert refused.value.details["key_conflict"] == {"table_key": "node:Point", "id": '["1","2"]'}
    assert ground.commits() == []


@pytest.mark.parametrize(
    "text",
    [
        'update Person set { name: "b" } where name = "a"',
        "update Point set { x: 2 } where y = 1",
        'update Note set { id: "2" } where id = "1"',
        'update Knows set { to: "b" } where from = "a"',
        'update Knows set { src: "b" } where from = "a"',
    ],
)
def test_keys_and_ends_never_change(inline: MutationGround, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        inline.run(text)
    assert refused.value.code == "T37"


# --- S100: limits --------------------------------------------------------------------------------------------------


def test_s100_exactly_as_many_rows_as_allowed(ground: MutationGround) -> None:
    small = ground.process(mutation_max_rows=10).graph
    add = "query q($n: String) { insert Person { name: $n } }"
    assert small.mutate_many(add, [{"n": f"p{number}"} for number in range(10)]).counts["inserted"] == 10
    with pytest.raises(InvalidInput) as refused:
        small.mutate_many(add, [{"n": f"q{number}"} for number in range(11)])
    assert refused.value.code == "limit_exceeded"
    assert {name: refused.value.details[name] for name in ("limit", "bound", "value")} == {
        "limit": "mutation_max_rows",
        "bound": 10,
        "value": 11,
    }
    with pytest.raises(InvalidInput):
        small.mutate('query q() { update Person set { age: 1 } where name starts_with "p" insert Note { text: "x" } }')
    assert len(ground.rows("Person")) == 10
    assert len(ground.commits()) == 1


def test_s100_a_hundred_violations_are_listed_and_all_are_counted(ground: MutationGround) -> None:
    add = "query q($i: String, $n: String) { insert Knows { id: $i, from: $n, to: $n } }"
    with pytest.raises(ConstraintViolation) as refused:
        ground.graph.mutate_many(add, [{"i": f"e{number:03}", "n": f"p{number}"} for number in range(75)])
    assert refused.value.details["violation_count"] == 150
    assert len(refused.value.violations) == 100
    assert "(and 149 more)" in str(refused.value)
    assert {(violation["rule"], violation["type"]) for violation in refused.value.violations} == {
        ("endpoint", "edge:Knows")
    }
    assert [violation["id"] for violation in refused.value.violations[:3]] == ["e000", "e000", "e001"]
    assert refused.value.violations[0]["value"] == "p0"


def test_s100_also_violations_of_values_are_all_counted(ground: MutationGround) -> None:
    add = "query q($n: String, $a: I32) { insert Person { name: $n, age: $a, email: $n } }"
    with pytest.raises(ConstraintViolation) as refused:
        ground.graph.mutate_many(add, [{"n": f"p{number}", "a": number} for number in range(300)])
    assert refused.value.details["violation_count"] == 300 + 149
    assert len(refused.value.violations) == 100


def test_s100_violations_of_all_sorts_are_listed_together(ground: MutationGround) -> None:
    ground.run(STAFF + 'insert Person { name: "c", email: "c@x" } insert WorksAt { from: "a", to: "x" } '
               'insert WorksAt { from: "a", to: "y" }')  # fmt: skip
    lines = violations(
        ground,
        """
        insert Person { name: "d", age: 999, email: "c@x" }
        insert Person { name: "e", email: "none" }
        insert WorksAt { id: "1", from: "a", to: "z" }
        insert WorksAt { id: "2", from: "b", to: "nowhere" }
        insert Task { title: "t" }
        """,
    )
    assert sorted(lines, key=str) == sorted(
        [
            ("range", "node:Person", "d", 999),
            ("unique", "node:Person", "d", "c@x"),
            ("check", "node:Person", "e", "none"),
            ("cardinality", "edge:WorksAt", "a", 3),
            ("endpoint", "edge:WorksAt", "2", "nowhere"),
            ("cardinality", "edge:Needs", "t", 0),
        ],
        key=str,
    )


# --- S101: names ---------------------------------------------------------------------------------------------------


def test_s101_camel_case_in_conditions_updates_and_deletes(ground: MutationGround) -> None:
    ground.run(
        'insert Person { name: "a", firstName: "Ada", joinedAt: datetime("2020-01-31T12:00:00Z") } '
        'insert Person { name: "b", firstName: "Bob", joinedAt: datetime("2021-01-31T12:00:00Z") }'
    )
    assert ground.run('update Person set { firstName: "Ava" } where firstName = "Ada"').counts["updated"] == 1
    assert ground.run('update Person set { age: 1 } where joinedAt > datetime("2020-06-01T00:00:00Z")').counts[
        "updated"
    ] == 1  # fmt: skip
    assert ground.column("Person", "age") == {"a": None, "b": 1}
    assert ground.run('insert WorksAt { from: "a", to: "x" } insert Company { name: "x", size: 1 }').counts[
        "inserted"
    ] == 2  # fmt: skip
    assert ground.run('delete worksAt where from = "a"').counts["deleted"] == 1
    assert ground.run('delete Person where firstName starts_with "Av"').counts["deleted"] == 1
    assert set(ground.rows("Person")) == {"b"}
