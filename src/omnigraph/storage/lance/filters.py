"""Filters: which ones Lance can evaluate, and which ones Arrow evaluates on the rows.

Filters are Arrow expressions and reach Lance as Substrait, which knows no unsigned numbers, no binary columns and no
vectors; Arrow evaluates filters over those. Both agree except on `~isin` over nulls: Lance follows SQL (null is
neither in nor out), Arrow does not, so plans add `is_valid` where that matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def _fits_substrait(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_list(kind):
        return _fits_substrait(kind.value_type)
    return not (types.is_unsigned_integer(kind) or types.is_large_binary(kind) or types.is_fixed_size_list(kind))


def to_substrait(where: pc.Expression, schema: pa.Schema) -> bytes:
    """The filter as Substrait, the form in which Lance takes it, over a table of this schema.

    Substrait contains the whole schema, and a column with a type that it lacks makes every filter invalid. Such
    columns are replaced by placeholders that no filter refers to. Lance itself does so for fewer types.
    """
    from pyarrow.substrait import serialize_expressions

    stand_ins = [
        field if _fits_substrait(field.type) else pa.field(f"__not_carried_{position}", pa.int8())
        for position, field in enumerate(schema)
    ]
    return bytes(serialize_expressions([where], ["filter"], pa.schema(stand_ins)))


def refers_to(where: pc.Expression, schema: pa.Schema, name: str) -> bool:
    """Whether the filter names the column: such a filter cannot be bound to the schema without that column."""
    without = pa.schema([field for field in schema if field.name != name])
    try:
        without.empty_table().filter(where)
    except pa.ArrowInvalid as error:
        return f"FieldRef.Name({name})" in str(error)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return False
    return False


def columns_in_filter(where: pc.Expression, schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if refers_to(where, schema, field.name)]


def can_lance_evaluate(where: pc.Expression, schema: pa.Schema, stored: pa.Schema) -> bool:
    """False if the filter names a column that the version does not store or that Substrait has no type for."""
    doubtful = [
        field.name
        for field in schema
        if field.name not in stored.names or not _fits_substrait(stored.field(field.name).type)
    ]
    return not any(refers_to(where, schema, name) for name in doubtful)


def equals_any(column: pa.Field, values: Sequence[Any]) -> pc.Expression | str | None:
    """A filter for `column` being one of the values, which an index can answer; None if Lance cannot express it."""
    if pa.types.is_unsigned_integer(column.type):
        # As SQL text, since Substrait has no unsigned integers; `int` lets nothing but digits in.
        return f"`{column.name}` IN ({', '.join(str(int(value)) for value in values)})"
    if not _fits_substrait(column.type) or pa.types.is_nested(column.type):
        return None
    return pc.field(column.name).isin(pa.array(values, column.type))


def all_of(*conditions: pc.Expression | None) -> pc.Expression | None:
    """The conjunction of the conditions; None stands for no condition."""
    present = [condition for condition in conditions if condition is not None]
    return reduce(and_, present) if present else None
