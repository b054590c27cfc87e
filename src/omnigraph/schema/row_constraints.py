"""Row constraints concern the values of one row: required, enum, range, check, list items, vectors.

Vectorised over Arrow: a row constraint computes a mask of the violating rows. Constraints that need other rows
(uniqueness, endpoints, cardinality) are in the package `constraints`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.catalog import CheckConstraint, Property, RangeConstraint, Scalar, TypeDef
from omnigraph.schema.values import quote_value, to_output

#: Computes the mask of violating rows from the column of the property, without chunks.
_Mask = Callable[[pa.Array], pa.BooleanArray]


@dataclass(frozen=True, slots=True)
class Violation:
    """One constraint (`rule`) that one row violates.

    `type` is the table as users see it (`node:Person`), `property` the user's name.
    """

    rule: str
    type: str
    id: str
    property: str | None
    value: Any
    message: str

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "type": self.type,
            "id": self.id,
            "property": self.property,
            "value": self.value,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class _RowConstraint:
    rule: str
    prop: Property
    mask: _Mask
    describe: Callable[[str], str]  # the message for a quoted value


def row_violations(type_def: TypeDef, rows: pa.Table, *, limit: int | None = None) -> list[Violation]:
    """Every violation of a row constraint, by row and then by property; at most `limit` of them.

    `rows` holds full images: `id` and one column per property id. A missing column counts as null.
    """
    return find_row_violations(type_def, rows, limit=limit)[0]


def find_row_violations(type_def: TypeDef, rows: pa.Table, *, limit: int | None = None) -> tuple[list[Violation], int]:
    """At most `limit` violations as in `row_violations`, and the number of all violations."""
    violations: list[tuple[int, int, Violation]] = []
    count = 0
    ids = rows.column("id")
    for order, constraint in enumerate(_row_constraints(type_def)):
        column = _column(rows, constraint.prop)
        violating = pc.indices_nonzero(constraint.mask(column)).to_pylist()
        count += len(violating)
        listed = ((row, _violation(type_def, constraint, ids[row].as_py(), column[row])) for row in violating[:limit])
        violations.extend((row, order, violation) for row, violation in listed)
    violations.sort(key=lambda entry: entry[:2])
    return [violation for _, _, violation in violations[:limit]], count


def _violation(type_def: TypeDef, constraint: _RowConstraint, row_id: str, stored: pa.Scalar) -> Violation:
    prop, value = constraint.prop, _value_for_people(constraint.prop, stored)
    message = constraint.describe(quote_value(value))
    return Violation(constraint.rule, type_def.table_key, row_id, prop.name, value, message)


def _value_for_people(prop: Property, stored: pa.Scalar) -> Any:
    value = stored.as_py()
    if value is None or prop.type.scalar is Scalar.BLOB:
        return None
    if prop.type.vector_size is not None or prop.type.is_list:
        return quote_value(value)
    return to_output(prop, value)


def _column(rows: pa.Table, prop: Property) -> pa.Array:
    if prop.id not in rows.column_names:
        return pa.nulls(rows.num_rows)
    column = rows.column(prop.id)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _row_constraints(type_def: TypeDef) -> Iterator[_RowConstraint]:
    ranges: dict[str, list[RangeConstraint]] = {}
    patterns: dict[str, list[CheckConstraint]] = {}
    for limits in type_def.ranges:
        ranges.setdefault(limits.column, []).append(limits)
    for pattern in type_def.checks:
        patterns.setdefault(pattern.column, []).append(pattern)
    for prop in type_def.properties:
        yield from _property_constraints(type_def, prop)
        for limits in ranges.get(prop.id, ()):
            yield _range_constraint(prop, limits)
        for pattern in patterns.get(prop.id, ()):
            yield _pattern_constraint(prop, pattern)


def _property_constraints(type_def: TypeDef, prop: Property) -> Iterator[_RowConstraint]:
    if not prop.nullable:
        text = f"property '{prop.name}' of {type_def.table_key} is required"
        yield _RowConstraint("required", prop, _is_null, lambda _value: text)
    if prop.type.enum_values:
        allowed = pa.array(prop.type.enum_values, pa.utf8())
        names = ", ".join(prop.type.enum_values)
        yield _RowConstraint(
            "enum",
            prop,
            lambda column: _where_present(column, lambda: pc.invert(pc.is_in(column, value_set=allowed))),
            lambda value: f"property '{prop.name}': {value} is not one of {names}",
        )
    if prop.type.vector_size is not None:
        yield from _vector_constraints(prop, prop.type.vector_size)
    elif prop.type.is_list:
        yield _RowConstraint(
            "list",
            prop,
            lambda column: _where_present(column, lambda: _with_bad_item(column, _is_null)),
            lambda _value: f"property '{prop.name}': a list holds no null items",
        )


def _vector_constraints(prop: Property, size: int) -> Iterator[_RowConstraint]:
    yield _RowConstraint(
        "vector",
        prop,
        lambda column: _where_present(column, lambda: _wrong_length(column, size)),
        lambda _value: f"property '{prop.name}': a vector must have {size} numbers",
    )
    yield _RowConstraint(
        "vector",
        prop,
        lambda column: _where_present(column, lambda: _with_bad_item(column, _not_finite)),
        lambda _value: f"property '{prop.name}': every number of a vector must be finite",
    )


def _range_constraint(prop: Property, limits: RangeConstraint) -> _RowConstraint:
    def outside(column: pa.Array) -> pa.BooleanArray:
        # Compared in the column's own type: an integer bound never passes through a float. NaN compares false with
        # everything, so it is outside whichever end is open.
        inside = []
        if limits.low is not None:
            inside.append(pc.greater_equal(column, pa.scalar(limits.low, column.type)))
        if limits.high is not None:
            inside.append(pc.less_equal(column, pa.scalar(limits.high, column.type)))
        return pc.invert(pc.and_(inside[0], inside[-1]))

    ends = ["" if end is None else str(to_output(prop, end)) for end in (limits.low, limits.high)]
    return _RowConstraint(
        "range",
        prop,
        lambda column: _where_present(column, lambda: outside(column)),
        lambda value: f"property '{prop.name}': {value} is not in the range {'..'.join(ends)}",
    )


def _pattern_constraint(prop: Property, check: CheckConstraint) -> _RowConstraint:
    return _RowConstraint(
        "check",
        prop,
        lambda column: _where_present(column, lambda: pc.invert(pc.match_substring_regex(column, check.pattern))),
        lambda value: f"property '{prop.name}': {value} does not match {quote_value(check.pattern)}",
    )


# --- masks ---------------------------------------------------------------------------------------------------------


def _is_null(column: pa.Array) -> pa.BooleanArray:
    return pc.is_null(column)


def _not_finite(items: pa.Array) -> pa.BooleanArray:
    return pc.invert(pc.fill_null(pc.is_finite(items), False))


def _where_present(column: pa.Array, mask: Callable[[], pa.BooleanArray]) -> pa.BooleanArray:
    """The mask of violating rows, without rows whose value is null."""
    if column.null_count == len(column):
        return pc.is_valid(column)
    return pc.and_(pc.is_valid(column), pc.fill_null(mask(), False))


def _wrong_length(column: pa.Array, size: int) -> pa.BooleanArray:
    return pc.not_equal(pc.list_value_length(column), size)


def _with_bad_item(column: pa.Array, bad: _Mask) -> pa.BooleanArray:
    """The rows of a list column with at least one bad item."""
    parents = pc.list_parent_indices(column)
    broken = pc.unique(parents.filter(bad(pc.list_flatten(column))))
    return pc.is_in(pa.array(range(len(column)), pa.int64()), value_set=broken.cast(pa.int64()))
