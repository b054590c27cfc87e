"""Parameter values: refused before any I/O, converted once per use; and mutations bound to what is executed."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from omnigraph.errors import InvalidInput
from omnigraph.query.language.bind import BoundStatement, bind_params
from omnigraph.query.language.check import check_query
from omnigraph.query.language.check_statements import check_statement
from omnigraph.query.language.checked import (
    AllOf,
    AnyOf,
    CheckedCompare,
    CheckedDelete,
    CheckedInsert,
    CheckedNullTest,
    CheckedQuery,
    CheckedUpdate,
    Const,
    ListOf,
    Now,
    Param,
    Predicate,
    Prop,
)
from omnigraph.query.language.mutation_call import MutationCall
from omnigraph.query.language.parse import parse_queries
from omnigraph.query.language.query_cache import get_checked_query
from omnigraph.query.language.statements import (
    And,
    Compare,
    Delete,
    InsertEdge,
    InsertNode,
    NullTest,
    Or,
    Statement,
    Update,
)
from omnigraph.schema.catalog import Catalog
from tests.query.language.support import catalog

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def _check(source: str) -> CheckedQuery:
    return check_query(parse_queries(source)[0], catalog())


def _bind(source: str, values: dict[str, Any], *, strict: bool = False, now: datetime = NOW) -> list[BoundStatement]:
    return MutationCall(source, None, [values], now, strict).bind(catalog())


def _resolve(bound: BoundStatement) -> tuple[Any, ...]:
    """What a bound statement does, by identities and stored values; two that do the same are equal."""
    statement = bound.statement
    match statement:
        case CheckedInsert():
            return ("insert", statement.type, _values(bound), bound.is_strict)
        case CheckedUpdate():
            return ("update", statement.type, _values(bound), _condition(statement.where, bound))
        case CheckedDelete():
            return ("delete", statement.type, _condition(statement.where, bound))
    raise AssertionError(statement)


def _values(bound: BoundStatement) -> dict[str, Any]:
    assert isinstance(bound.statement, CheckedInsert | CheckedUpdate)
    return {assignment.column: bound.resolve_value(assignment.value) for assignment in bound.statement.values}


def _condition(where: Predicate, bound: BoundStatement) -> tuple[Any, ...]:
    match where:
        case AllOf(parts) | AnyOf(parts):
            return (type(where), *(_condition(part, bound) for part in parts))
        case CheckedNullTest(Prop() as column, negated):
            return (column.column, "is null", negated)
        case CheckedCompare(Prop() as column, op, Const() | Param() | Now() | ListOf() as operand):
            return (column.column, op, bound.resolve_value(operand))
    raise AssertionError(where)


def _same(source: str, values: dict[str, Any], statements: list[Statement], *, strict: bool = False) -> None:
    """The text and the statements from Python become the same."""
    bound = [_resolve(statement) for statement in _bind(source, values, strict=strict)]
    assert bound == [_resolve(check_statement(statement, catalog())) for statement in statements]


def _expect_refusal(source: str, values: dict[str, Any]) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        bind_params(_check(source), values)
    return caught.value


LIMITED = "query q($n: I64, $d: Date?) { match { $p: Person $p.seen > $d } return { $p.name } limit $n }"


def test_a_required_parameter_must_be_given() -> None:
    error = _expect_refusal(LIMITED, {})
    assert error.code == "P1"
    assert error.details == {"query": "q", "parameter": "n"}


def test_an_unknown_parameter_is_an_error() -> None:
    assert _expect_refusal(LIMITED, {"n": 1, "nn": 2}).code == "P2"


@pytest.mark.parametrize("value", ["1", 1.5, True, -1, 2**63])
def test_a_limit_must_be_a_count(value: object) -> None:
    assert _expect_refusal(LIMITED, {"n": value}).code == "P3"


def test_an_optional_parameter_is_null_in_all_its_uses() -> None:
    assert bind_params(_check(LIMITED), {"n": 3}) == {"n": 3, "n:1": 3, "d": None, "d:1": None}


def test_a_value_is_converted_for_each_use() -> None:
    bound = bind_params(_check(LIMITED), {"n": 0, "d": "2026-01-31"})
    assert bound["d"] == date(2026, 1, 31)
    assert bound["d:1"] == datetime(2026, 1, 31, tzinfo=UTC)


def test_an_unused_parameter_is_still_checked() -> None:
    source = "query q($x: I32) { match { $p: Person } return { $p.name } }"
    assert _expect_refusal(source, {"x": "no"}).code == "P3"
    assert _expect_refusal(source, {}).code == "P1"


def test_insert_becomes_a_statement_with_stored_values() -> None:
    source = """query q($n: String, $d: String) {
      insert Person { name: $n, tags: [$n, "x"], born: $d, seen: now(), face: [1, 2, 3] }
      insert WorksAt { from: $n, to: "X", since: $d }
    }"""
    day = date(2026, 1, 2)
    person = {"name": "Ada", "tags": ["Ada", "x"], "born": day, "seen": NOW, "face": [1.0, 2.0, 3.0]}
    statements: list[Statement] = [
        InsertNode("Person", person, strict=True),
        InsertEdge("WorksAt", "Ada", "X", {"since": day}, strict=True),
    ]
    _same(source, {"n": "Ada", "d": "2026-01-02"}, statements, strict=True)
    first, second = _bind(source, {"n": "Ada", "d": "2026-01-02"}, strict=True)
    names = {prop.id: prop.name for prop in catalog().by_id[first.statement.type.type_id].properties}
    assert {names[column]: value for column, value in _values(first).items()} == person
    assert {"src": "Ada", "dst": "X"}.items() <= _values(second).items()


def test_update_and_its_condition() -> None:
    source = 'query q($a: [I32]) { update Person set { bio: null } where age in $a and seen < now() or name = "Ada" }'
    where = Or((And((Compare("age", "in", [1, 2]), Compare("seen", "<", NOW))), Compare("name", "=", "Ada")))
    _same(source, {"a": [1, 2]}, [Update("Person", {"bio": None}, where)])


def test_delete_of_edges_names_their_ends() -> None:
    source = 'query q() { delete Knows where from = "Ada" and to in ["B", "C"] or note is not null }'
    where = Or((And((Compare("src", "=", "Ada"), Compare("dst", "in", ["B", "C"]))), NullTest("note", negated=True)))
    _same(source, {}, [Delete("Knows", where)])


def test_a_shared_name_keeps_node_and_edge_apart() -> None:
    source = 'query q() { delete Seat where row = 1 delete seat where code = "A" }'
    types = [bound.statement.type for bound in _bind(source, {})]
    assert [(entity.kind, entity.name) for entity in types] == [("node", "Seat"), ("edge", "Seat")]


def test_an_explicit_id() -> None:
    (bound,) = _bind('query q() { insert Event { id: "e1", title: "t", at: "2026-01-31" } }', {})
    assert isinstance(bound.statement, CheckedInsert)
    assert _values(bound)["id"] == "e1"


def test_now_is_stored_in_milliseconds_wherever_it_stands() -> None:
    """As a value, in a list and in a condition: exactly what conversion stores for the instant itself."""
    instant = datetime(2026, 1, 31, 12, 0, 0, 123_999, tzinfo=UTC)
    source = "query q() { update Person set { seen: now() } where seen < now() or seen in [now()] }"
    (bound,) = _bind(source, {}, now=instant)
    where = Or((Compare("seen", "<", instant), Compare("seen", "in", [instant])))
    converted = check_statement(Update("Person", {"seen": instant}, where), catalog())
    assert _resolve(bound) == _resolve(converted)
    assert list(_values(bound).values()) == [instant.replace(microsecond=123_000)]


def test_a_mutation_is_checked_once_per_schema() -> None:
    source = "query q() { delete Seat where row = 1 }"
    (first,), (second,) = _bind(source, {}), _bind(source, {})
    assert first.statement is second.statement
    newer = Catalog(catalog().types, catalog().source + " ", catalog().interfaces)
    assert get_checked_query(source, None, newer) is not get_checked_query(source, None, catalog())
