"""Parameter values: refused before any I/O, converted once per use; and mutations lowered to statements."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from omnigraph.errors import InvalidInput
from omnigraph.query.language import checked as c
from omnigraph.query.language import statements as s
from omnigraph.query.language.bind import bind_params
from omnigraph.query.language.check import check_query
from omnigraph.query.language.lower import lower
from omnigraph.query.language.parse import parse_queries
from tests.query.language.support import catalog

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def _check(source: str) -> c.CheckedQuery:
    return check_query(parse_queries(source)[0], catalog())


def _lower(source: str, values: dict[str, Any], *, strict: bool = False) -> list[s.Statement]:
    checked = _check(source)
    return lower(checked, bind_params(checked, values), catalog(), now=NOW, strict=strict)


def _refused(source: str, values: dict[str, Any]) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        bind_params(_check(source), values)
    return caught.value


LIMITED = "query q($n: I64, $d: Date?) { match { $p: Person $p.seen > $d } return { $p.name } limit $n }"


def test_a_required_parameter_must_be_given() -> None:
    error = _refused(LIMITED, {})
    assert error.code == "P1"
    assert error.details == {"query": "q", "parameter": "n"}


def test_an_unknown_parameter_is_an_error() -> None:
    assert _refused(LIMITED, {"n": 1, "nn": 2}).code == "P2"


@pytest.mark.parametrize("value", ["1", 1.5, True, -1, 2**63])
def test_a_limit_must_be_a_count(value: object) -> None:
    assert _refused(LIMITED, {"n": value}).code == "P3"


def test_an_optional_parameter_is_null_in_all_its_uses() -> None:
    assert bind_params(_check(LIMITED), {"n": 3}) == {"n": 3, "n:1": 3, "d": None, "d:1": None}


def test_a_value_is_converted_for_each_use() -> None:
    bound = bind_params(_check(LIMITED), {"n": 0, "d": "2026-01-31"})
    assert bound["d"] == date(2026, 1, 31)
    assert bound["d:1"] == datetime(2026, 1, 31, tzinfo=UTC)


def test_an_unused_parameter_is_still_checked() -> None:
    source = "query q($x: I32) { match { $p: Person } return { $p.name } }"
    assert _refused(source, {"x": "no"}).code == "P3"
    assert _refused(source, {}).code == "P1"


def test_insert_becomes_a_statement_with_stored_values() -> None:
    source = """query q($n: String, $d: String) {
      insert Person { name: $n, tags: [$n, "x"], born: $d, seen: now(), face: [1, 2, 3] }
      insert WorksAt { from: $n, to: "X", since: $d }
    }"""
    day = date(2026, 1, 2)
    assert _lower(source, {"n": "Ada", "d": "2026-01-02"}, strict=True) == [
        s.InsertNode(
            "Person",
            {"name": "Ada", "tags": ["Ada", "x"], "born": day, "seen": NOW, "face": [1.0, 2.0, 3.0]},
            strict=True,
        ),
        s.InsertEdge("WorksAt", "Ada", "X", {"since": day}, strict=True),
    ]


def test_update_and_its_condition() -> None:
    source = 'query q($a: [I32]) { update Person set { bio: null } where age in $a and seen < now() or name = "Ada" }'
    where = s.Or((s.And((s.Compare("age", "in", [1, 2]), s.Compare("seen", "<", NOW))), s.Compare("name", "=", "Ada")))
    assert _lower(source, {"a": [1, 2]}) == [s.Update("Person", {"bio": None}, where)]


def test_delete_of_edges_names_their_ends() -> None:
    source = 'query q() { delete Knows where from = "Ada" and to in ["B", "C"] or note is not null }'
    where = s.Or(
        (s.And((s.Compare("src", "=", "Ada"), s.Compare("dst", "in", ["B", "C"]))), s.NullTest("note", negated=True))
    )
    assert _lower(source, {}) == [s.Delete("Knows", where)]


def test_a_shared_name_keeps_node_and_edge_apart() -> None:
    source = 'query q() { delete Seat where row = 1 delete seat where code = "A" }'
    assert [one.type for one in _lower(source, {})] == ["Seat", "seat"]


def test_an_explicit_id() -> None:
    (statement,) = _lower('query q() { insert Event { id: "e1", title: "t", at: "2026-01-31" } }', {})
    assert isinstance(statement, s.InsertNode)
    assert statement.values["id"] == "e1"
