"""Row constraints, vectorised. S95, S98."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import CheckConstraint, Property, PropType, RangeConstraint, Scalar, TypeDef
from omnigraph.schema.row_constraints import Violation, row_violations


def type_of(
    scalar: str, *, nullable: bool = True, low: Any = None, high: Any = None, check: str = "", **kind: Any
) -> TypeDef:
    prop = Property("p_1", "p", PropType(Scalar(scalar), **kind), nullable)
    ranges = (RangeConstraint("p_1", low, high),) if (low, high) != (None, None) else ()
    checks = (CheckConstraint("p_1", check),) if check else ()
    return TypeDef("node.t-1", "node", "T", (prop,), ranges=ranges, checks=checks)


def find_broken(type_def: TypeDef, values: list[Any], **options: Any) -> list[tuple[str, str]]:
    rows = pa.table({"id": [f"r{at}" for at in range(len(values))], "p_1": values}, schema=arrow_schema(type_def))
    return [(violation.id, violation.rule) for violation in row_violations(type_def, rows, **options)]


def test_required_property_that_is_null_is_a_violation() -> None:
    assert find_broken(type_of("I32", nullable=False), [1, None, 3, None]) == [("r1", "required"), ("r3", "required")]
    assert find_broken(type_of("I32"), [1, None]) == []


def test_required_property_whose_column_is_absent() -> None:
    rows = pa.table({"id": ["a", "b"]})
    violations = row_violations(type_of("I32", nullable=False), rows)
    assert [violation.id for violation in violations] == ["a", "b"]


def test_absent_optional_column_violates_no_constraint() -> None:
    rows = pa.table({"id": ["a"]})
    for type_def in (type_of("I32", low=0), type_of("String", check="x"), type_of("F32", vector_size=2)):
        assert row_violations(type_def, rows) == []


def test_value_outside_the_enum_is_a_violation() -> None:
    assert find_broken(type_of("String", enum_values=("a", "b")), ["a", "c", None, "B"]) == [
        ("r1", "enum"),
        ("r3", "enum"),
    ]


@pytest.mark.parametrize(
    ("type_def", "values", "bad"),
    [
        (type_of("I32", low=0, high=10), [-1, 0, 10, 11, None], ["r0", "r3"]),
        (type_of("I32", low=0), [-1, 0, 2**31 - 1], ["r0"]),
        (type_of("I32", high=0), [-(2**31), 0, 1], ["r2"]),
        (type_of("U64", low=2**64 - 1), [2**64 - 2, 2**64 - 1], ["r0"]),
        (type_of("I64", high=2**53), [2**53, 2**53 + 1], ["r1"]),
        (
            type_of("F64", low=0.0, high=1.0),
            [0.0, 1.0, 1.0000000000000002, math.nan, math.inf, None],
            ["r2", "r3", "r4"],
        ),
        (type_of("F64", high=1.0), [-math.inf, math.nan], ["r1"]),
        (type_of("F64", low=1), [math.inf, math.nan], ["r1"]),
        (type_of("F32", high=0.10000000149011612), [0.1, 0.2], ["r1"]),
    ],
)
def test_range_ends_are_inclusive_and_nan_is_outside(type_def: TypeDef, values: list[Any], bad: list[str]) -> None:
    assert find_broken(type_def, values) == [(row, "range") for row in bad]


def test_check_searches_and_null_is_exempt() -> None:
    assert find_broken(type_of("String", check="b+"), ["abbc", "ac", "", None]) == [("r1", "check"), ("r2", "check")]
    assert find_broken(type_of("String", check="^b+$"), ["abbc", "bb"]) == [("r0", "check")]


def test_list_items_are_never_null() -> None:
    assert find_broken(type_of("I32", is_list=True), [[1], None, [], [1, None]]) == [("r3", "list")]


def test_vector_must_be_finite() -> None:
    values = [[1.0, 2.0], None, [math.nan, 1.0], [1.0, None], [math.inf, 0.0]]
    assert find_broken(type_of("F32", vector_size=2), values) == [("r2", "vector"), ("r3", "vector"), ("r4", "vector")]


def test_vector_of_another_length_in_a_plain_list_column() -> None:
    type_def = type_of("F32", vector_size=2)
    rows = pa.table({"id": ["a", "b", "c"], "p_1": pa.array([[1.0], [1.0, 2.0], None], pa.list_(pa.float32()))})
    assert [violation.id for violation in row_violations(type_def, rows)] == ["a"]


def test_chunks_and_slices_count_rows_from_the_start_of_the_table() -> None:
    type_def = type_of("F32", vector_size=2)
    part = pa.table(
        {"id": ["x", "a", "b"], "p_1": [[0.0, 0.0], [1.0, 1.0], [math.nan, 0.0]]}, schema=arrow_schema(type_def)
    )
    rows = pa.concat_tables([part.slice(1), part.slice(2)])
    assert [violation.id for violation in row_violations(type_def, rows)] == ["b", "b"]


def test_violations_come_by_row_then_by_property_and_stop_at_the_limit() -> None:
    props = (Property("b_1", "b", PropType(Scalar.I32)), Property("a_1", "a", PropType(Scalar.I32)))
    type_def = TypeDef(
        "edge.e-1", "edge", "E", props, ranges=(RangeConstraint("a_1", 0, None), RangeConstraint("b_1", 0, None))
    )
    rows = pa.table({"id": ["x", "y"], "a_1": pa.array([-1, None], pa.int32()), "b_1": pa.array([-1, -2], pa.int32())})
    violations = row_violations(type_def, rows)
    assert [(v.id, v.property, v.rule) for v in violations] == [
        ("x", "b", "range"),
        ("x", "a", "range"),
        ("y", "b", "range"),
        ("y", "a", "required"),
    ]
    assert row_violations(type_def, rows, limit=2) == violations[:2]
    assert row_violations(type_def, rows, limit=0) == []


def test_empty_table_has_no_violations() -> None:
    assert find_broken(type_of("I32", nullable=False, low=0), []) == []
    assert row_violations(type_of("I32"), arrow_schema(type_of("I32")).empty_table()) == []


def test_a_violation_names_everything_a_user_needs() -> None:
    type_def = type_of("F32", high=0.10000000149011612)
    rows = pa.table({"id": ["a"], "p_1": [0.2]}, schema=arrow_schema(type_def))
    (violation,) = row_violations(type_def, rows)
    assert violation == Violation("range", "node:T", "a", "p", 0.2, "property 'p': 0.2 is not in the range ..0.1")
    json.dumps(violation.to_json())
