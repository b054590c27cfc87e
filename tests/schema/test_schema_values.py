"""User values to stored values and back. S95, S98, S99."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.schema.arrow import arrow_type
from omnigraph.schema.catalog import Annotation, Property, PropType, Scalar, TypeDef
from omnigraph.schema.values import (
    INTEGER_BOUNDS,
    ValueRefused,
    canonical_text,
    convert,
    default_value,
    derive_id,
    to_output,
)


def prop(scalar: str, *, name: str = "p", ident: str = "p_1", **kind: Any) -> Property:
    return Property(ident, name, PropType(Scalar(scalar), **kind))


ENUM = prop("String", enum_values=("red", "green"))
VECTOR = prop("F32", vector_size=3)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

ACCEPTED = [
    (prop("String"), "", ""),
    (prop("String"), "naïve 🦉", "naïve 🦉"),
    (prop("Bool"), True, True),
    (prop("Bool"), np.bool_(False), False),
    (prop("I32"), -(2**31), -(2**31)),
    (prop("U64"), 2**64 - 1, 2**64 - 1),
    (prop("I64"), np.int16(7), 7),
    (prop("F64"), 3, 3.0),
    (prop("F64"), 0.1, 0.1),
    (prop("F64"), "Infinity", math.inf),
    (prop("F32"), 0.5, 0.5),
    (prop("F32"), 0.1, 0.10000000149011612),
    (prop("Date"), "2026-01-31", date(2026, 1, 31)),
    (prop("Date"), date(1, 1, 1), date(1, 1, 1)),
    (prop("Date"), 0, date(1970, 1, 1)),
    (prop("Date"), -1, date(1969, 12, 31)),
    (prop("DateTime"), "2026-01-31T12:00:00Z", NOON),
    (prop("DateTime"), "2026-01-31 12:00", NOON),
    (prop("DateTime"), "2026-01-31t12:00:00.000z", NOON),
    (prop("DateTime"), "2026-01-31T14:00:00+02:00", NOON),
    (prop("DateTime"), "2026-01-31T06:30:00-0530", NOON),
    (prop("DateTime"), "2026-01-31T13:00:00+01", NOON),
    (prop("DateTime"), "2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
    (prop("DateTime"), "2026-01-31T12:00:00.1239Z", NOON.replace(microsecond=123000)),
    (prop("DateTime"), NOON.replace(microsecond=999999), NOON.replace(microsecond=999000)),
    (prop("DateTime"), datetime(2026, 1, 31, 12), NOON),
    (prop("DateTime"), NOON.astimezone(timezone(timedelta(hours=5))), NOON),
    (prop("DateTime"), date(2026, 1, 31), datetime(2026, 1, 31, tzinfo=UTC)),
    (prop("DateTime"), -1, datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    (prop("Blob"), b"\x00\xff", b"\x00\xff"),
    (prop("Blob"), "base64:AP8=", b"\x00\xff"),
    (prop("Blob"), "base64:", b""),
    (ENUM, "red", "red"),
    (prop("I32", is_list=True), [], []),
    (prop("I32", is_list=True), (1, np.int32(2)), [1, 2]),
    (prop("Date", is_list=True), ["2026-01-31"], [date(2026, 1, 31)]),
    (VECTOR, [1, 2.5, np.float32(0.5)], [1.0, 2.5, 0.5]),
    (VECTOR, np.array([1, 2, 3], np.float32), [1.0, 2.0, 3.0]),
]

REFUSED = [
    (prop("String"), 3, "OG-V-002", "expected String, got an integer 3"),
    (prop("String"), "\ud800", "OG-V-010", "surrogate"),
    (prop("Bool"), 1, "OG-V-002", "expected Bool"),
    (prop("Bool"), "true", "OG-V-002", "expected Bool"),
    (prop("I32"), 2**31, "OG-V-003", "does not fit I32"),
    (prop("U32"), -1, "OG-V-003", "does not fit U32"),
    (prop("U64"), 2**64, "OG-V-003", "does not fit U64"),
    (prop("I64"), True, "OG-V-002", "expected I64, got a Bool"),
    (prop("I64"), 3.0, "OG-V-002", "expected I64, got a number"),
    (prop("I64"), "3", "OG-V-002", "expected I64, got text"),
    (prop("F64"), "1.5", "OG-V-002", "expected F64"),
    (prop("F64"), True, "OG-V-002", "expected F64"),
    (prop("F64"), 10**400, "OG-V-003", "too large for F64"),
    (prop("F32"), 1e39, "OG-V-003", "too large for F32"),
    (prop("Date"), "2026-02-30", "OG-V-004", "not a date"),
    (prop("Date"), "2026-1-3", "OG-V-004", "not a date"),
    (prop("Date"), "20260131", "OG-V-004", "not a date"),
    (prop("Date"), "2026-01-31T00:00:00Z", "OG-V-004", "not a date"),
    (prop("Date"), "2026-01-31\n", "OG-V-004", "not a date"),
    (prop("Date"), "２０２６-01-31", "OG-V-004", "not a date"),
    (prop("Date"), NOON, "OG-V-002", "expected Date"),
    (prop("Date"), 10**9, "OG-V-004", "outside the years"),
    (prop("Date"), False, "OG-V-002", "expected Date"),
    (prop("DateTime"), "2026-01-31T25:00:00Z", "OG-V-004", "not a date and time"),
    (prop("DateTime"), "2026-01-31T12:00:00+99:00", "OG-V-004", "not a date and time"),
    (prop("DateTime"), "0001-01-01T00:00:00+01:00", "OG-V-004", "not a date and time"),
    (prop("DateTime"), "yesterday", "OG-V-004", "not a date and time"),
    (prop("DateTime"), 10**18, "OG-V-004", "outside the years"),
    (prop("DateTime"), 1.5, "OG-V-002", "expected DateTime"),
    (prop("Blob"), "AP8=", "OG-V-002", "expected Blob"),
    (prop("Blob"), "base64:A", "OG-V-009", "not base64"),
    (prop("Blob"), "base64:é", "OG-V-009", "not base64"),
    (ENUM, "blue", "OG-V-005", '"blue" is not one of red, green'),
    (ENUM, 1, "OG-V-002", "expected enum text"),
    (prop("I32", is_list=True), [1, None], "OG-V-008", "item 1 is null"),
    (prop("I32", is_list=True), [1, "x"], "OG-V-002", "item 1: expected I32"),
    (prop("I32", is_list=True), 5, "OG-V-002", r"expected \[I32\]"),
    (prop("String", is_list=True), "text", "OG-V-002", r"expected \[String\]"),
    (VECTOR, [1, 2], "OG-V-006", "expected 3 numbers, got 2"),
    (VECTOR, [1, 2, "x"], "OG-V-002", "item 2: expected a number"),
    (VECTOR, [1, 2, True], "OG-V-002", "item 2: expected a number"),
    (VECTOR, [1, 2, None], "OG-V-002", "item 2: expected a number"),
    (VECTOR, [1, 2, math.nan], "OG-V-007", "finite"),
    (VECTOR, [1, 2, 1e39], "OG-V-007", "finite"),
    (VECTOR, [1, 2, 10**400], "OG-V-007", "finite"),
    (VECTOR, "abc", "OG-V-002", r"expected Vector\(3\)"),
]


@pytest.mark.parametrize(("property", "given_value", "stored"), ACCEPTED, ids=lambda value: str(value)[:40])
def test_a_value_that_fits(property: Property, given_value: Any, stored: Any) -> None:
    found = convert(property, given_value)
    assert found == stored
    assert type(found) is type(stored)
    assert pa.array([found], arrow_type(property.type)).to_pylist() == [stored]


@pytest.mark.parametrize(("property", "given_value", "code", "reason"), REFUSED, ids=lambda value: repr(value)[:40])
def test_a_value_that_does_not_fit(property: Property, given_value: Any, code: str, reason: str) -> None:
    with pytest.raises(ValueRefused, match=reason) as caught:
        convert(property, given_value)
    assert caught.value.code == code
    assert caught.value.property == "p"
    json.dumps(caught.value.to_json()).encode()


@pytest.mark.parametrize("property", [prop("String"), ENUM, VECTOR, prop("I32", is_list=True)])
def test_null_passes_since_required_is_a_row_constraint(property: Property) -> None:
    assert convert(property, None) is None
    assert to_output(property, None) is None


@pytest.mark.parametrize("scalar", INTEGER_BOUNDS)
def test_integer_limits_are_inclusive(scalar: Scalar) -> None:  # S100
    integer_prop = prop(scalar.value)
    for edge, step in zip(INTEGER_BOUNDS[scalar], (-1, 1), strict=True):
        assert convert(integer_prop, edge) == edge
        with pytest.raises(ValueRefused):
            convert(integer_prop, edge + step)


CANONICAL = [
    ("String", "Ada", "Ada"),
    ("Bool", True, "true"),
    ("I64", -5, "-5"),
    ("F64", 1.0, "1"),
    ("F64", -0.0, "0"),
    ("F64", 0.1, "0.1"),
    ("F64", 1e300, "1e+300"),
    ("F32", 0.10000000149011612, "0.1"),
    ("F32", 3.4028234663852886e38, "3.4028235e+38"),
    ("F32", 16777216.0, "16777216"),
    ("Date", date(33, 4, 3), "0033-04-03"),
    ("DateTime", NOON, "2026-01-31T12:00:00Z"),
    ("DateTime", NOON.replace(microsecond=5000), "2026-01-31T12:00:00.005Z"),
]


@pytest.mark.parametrize(("scalar", "value", "text"), CANONICAL)
def test_canonical_text(scalar: str, value: Any, text: str) -> None:
    assert canonical_text(prop(scalar), value) == text


def type_with_key(*members: Property) -> TypeDef:
    return TypeDef("node.t-1", "node", "T", members, key=tuple(sorted(member.id for member in members)))


def test_the_id_of_one_member_is_its_text() -> None:
    assert derive_id(type_with_key(prop("I64")), {"p_1": 5}) == "5"


def test_the_id_of_several_members_follows_their_identities_not_their_names() -> None:
    first = prop("String", name="zeta", ident="a_1")
    second = prop("F64", name="alpha", ident="b_1")
    assert derive_id(type_with_key(second, first), {"a_1": 'q"é', "b_1": -0.0}) == '["q\\"é","0"]'


def test_ids_of_several_members_never_collide() -> None:
    pair = type_with_key(prop("String", ident="a_1"), prop("String", ident="b_1"))
    assert derive_id(pair, {"a_1": 'x","y', "b_1": "z"}) != derive_id(pair, {"a_1": "x", "b_1": 'y","z'})


@pytest.mark.parametrize(
    ("row", "code"), [({}, "OG-V-001"), ({"p_1": None}, "OG-V-001"), ({"p_1": math.nan}, "OG-V-007")]
)
def test_a_key_without_a_usable_value(row: dict[str, Any], code: str) -> None:  # S99
    with pytest.raises(ValueRefused) as caught:
        derive_id(type_with_key(prop("F64")), row)
    assert caught.value.code == code


def test_default_value_is_the_stored_form_of_the_annotation() -> None:
    assert default_value(prop("I32")) is None
    property = Property("p_1", "p", PropType(Scalar.DATE), annotations=(Annotation("default", ("2026-01-31",)),))
    assert default_value(property) == date(2026, 1, 31)
    many = Property("p_1", "p", PropType(Scalar.I32, is_list=True), annotations=(Annotation("default", ((1, 2),)),))
    assert default_value(many) == [1, 2]


STORED: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: st.text(st.characters(exclude_categories=["Cs"])),
    Scalar.BOOL: st.booleans(),
    **{kind: st.integers(*limits) for kind, limits in INTEGER_BOUNDS.items()},
    Scalar.F32: st.floats(width=32),
    Scalar.F64: st.floats(),
    Scalar.DATE: st.dates(),
    Scalar.DATETIME: st.datetimes(timezones=st.just(UTC)).map(
        lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
    ),
    Scalar.BLOB: st.binary(),
}


def same(first: Any, second: Any) -> bool:
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second or (first != first and second != second))


@given(data=st.data())
def test_output_reads_back_as_the_same_value_through_json(data: st.DataObject) -> None:
    scalar = data.draw(st.sampled_from(list(Scalar)))
    is_list = scalar is not Scalar.BLOB and data.draw(st.booleans())
    scalar_prop = prop(scalar.value, is_list=is_list)
    value = data.draw(st.lists(STORED[scalar]) if is_list else STORED[scalar])
    assert same(convert(scalar_prop, value), value)
    assert same(convert(scalar_prop, json.loads(json.dumps(to_output(scalar_prop, value), allow_nan=False))), value)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
def test_vector_output_reads_back_as_the_same_vector(value: list[float]) -> None:
    assert convert(VECTOR, json.loads(json.dumps(to_output(VECTOR, value)))) == value


@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)
def test_canonical_text_of_f32_is_equal_exactly_for_equal_values(first: float, second: float) -> None:
    float_prop = prop("F32")
    assert (canonical_text(float_prop, first) == canonical_text(float_prop, second)) == (first == second)
    assert convert(float_prop, float(canonical_text(float_prop, first))) == first
