"""Conditions of updates and deletes as Arrow expressions: one form that Lance pushes down and overlay rows evaluate.

Three-valued: a comparison with null is neither true nor false, and only true selects a row.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InvalidInput, Unsupported
from omnigraph.query.language.statements import And, Compare, Condition, NullTest, Or
from omnigraph.schema.arrow import arrow_type
from omnigraph.schema.catalog import Property, PropType, Scalar, TypeDef
from omnigraph.schema.values import canonical_text, convert, derive_id

_ALIASES = {"from": "src", "to": "dst"}
_TEXT = PropType(Scalar.STRING)


def column_of(one: TypeDef, name: str) -> Property:
    """The property, or system column, that users call `name`. Raises InvalidInput with what there is."""
    found = one.by_name.get(name)
    if found is not None:
        return found
    column = _ALIASES.get(name, name)
    if column == "id" or (one.kind == "edge" and column in ("src", "dst")):
        return Property(column, column, _TEXT)
    known = ", ".join(sorted([*one.by_name, "id", *(["from", "to"] if one.kind == "edge" else [])]))
    raise InvalidInput(
        f"{one.table_key} has no property {name!r}", code="unknown_property", advice=f"It has {known}", property=name
    )


def to_expression(one: TypeDef, condition: Condition) -> pc.Expression:
    """The condition over the physical columns of `one`."""
    if isinstance(condition, And):
        return reduce(and_, [to_expression(one, part) for part in condition.parts])
    if isinstance(condition, Or):
        return reduce(or_, [to_expression(one, part) for part in condition.parts])
    prop = column_of(one, condition.name)
    field = pc.field(prop.id)
    if isinstance(condition, NullTest):
        return ~field.is_null() if condition.negated else field.is_null()
    return _comparison(prop, field, condition)


def exact_ids(one: TypeDef, condition: Condition) -> list[str] | None:
    """The only ids that can match, if the condition names them by `id` or by the whole key; None if it does not."""
    if isinstance(condition, And):
        return next(
            (ids for part in condition.parts if (ids := exact_ids(one, part)) is not None), _whole_key(one, condition)
        )
    if isinstance(condition, Or):
        found = [exact_ids(one, part) for part in condition.parts]
        return None if any(ids is None for ids in found) else [row_id for ids in found for row_id in ids or ()]
    if not isinstance(condition, Compare) or condition.op not in ("=", "in") or condition.value is None:
        return None
    prop = column_of(one, condition.name)
    if prop.id != "id" and one.key != (prop.id,):
        return None
    values = condition.value if condition.op == "in" else [condition.value]
    return [canonical_text(prop, convert(prop, value)) for value in values if value is not None]


def _whole_key(one: TypeDef, condition: And) -> list[str] | None:
    """An equality on every member of a key of several members."""
    named: dict[str, Any] = {}
    for part in condition.parts:
        if isinstance(part, Compare) and part.op == "=" and part.value is not None:
            prop = column_of(one, part.name)
            named[prop.id] = convert(prop, part.value)
    if len(one.key) < 2 or not set(one.key) <= set(named):
        return None
    return [derive_id(one, named)]


def _comparison(prop: Property, field: pc.Expression, condition: Compare) -> pc.Expression:
    op, value = condition.op, condition.value
    if prop.type.scalar is Scalar.BLOB or prop.type.vector_size is not None:
        raise InvalidInput(f"{prop.name} is a {prop.type}, which cannot be compared", code="not_comparable")
    if value is None:
        return pc.scalar(False)
    if op == "in":
        return field.isin(pa.array([convert(prop, item) for item in value if item is not None], arrow_type(prop.type)))
    if op in ("contains", "starts_with"):
        return _text_match(prop, field, op, value)
    if prop.type.is_list:
        raise Unsupported(f"{prop.name} is a list; `{op}` on lists is not supported in a condition of a mutation")
    literal = pc.scalar(pa.scalar(convert(prop, value), arrow_type(prop.type)))
    compared: dict[str, Any] = {
        "=": lambda: field == literal,
        "!=": lambda: field != literal,
        "<": lambda: field < literal,
        "<=": lambda: field <= literal,
        ">": lambda: field > literal,
        ">=": lambda: field >= literal,
    }
    result: pc.Expression = compared[op]()
    return result


def _text_match(prop: Property, field: pc.Expression, op: str, value: Any) -> pc.Expression:
    if prop.type.is_list:
        raise Unsupported(f"{prop.name} is a list; `{op}` on lists is not supported in a condition of a mutation")
    if prop.type.scalar is not Scalar.STRING or not isinstance(value, str):
        raise InvalidInput(f"`{op}` needs text on both sides, {prop.name} is {prop.type}", code="wrong_operand")
    return pc.starts_with(field, value) if op == "starts_with" else pc.match_substring(field, value)
