"""Filters: what Lance can evaluate, and what Arrow has to.

Filters are Arrow expressions and reach Lance as Substrait, which knows no unsigned numbers, no binary columns and
no vectors; what it cannot carry is evaluated here on the rows. Both sides agree except on `~isin` over nulls: Lance
follows SQL (null is neither in nor out), Arrow does not, so plans add `is_valid` where that matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def _fits_substrait(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_list(kind):
        return _fits_substrait(kind.value_type)
    return not (types.is_unsigned_integer(kind) or types.is_large_binary(kind) or types.is_fixed_size_list(kind))


def to_substrait(where: pc.Expression, schema: pa.Schema) -> bytes:
    """The filter as Lance takes it, over a table of this schema.

    Substrait holds the whole schema, and one column that it cannot name spoils every filter: such columns are
    replaced by others that nobody refers to. Lance itself does so for fewer types.
    """
    from pyarrow.substrait import serialize_expressions

    stand_ins = [
        field if _fits_substrait(field.type) else pa.field(f"__not_carried_{position}", pa.int8())
        for position, field in enumerate(schema)
    ]
    return bytes(serialize_expressions([where], ["filter"], pa.schema(stand_ins)))


def refers_to(where: pc.Expression, schema: pa.Schema, name: str) -> bool:
    """Whether the filter names the column: it then cannot be bound without it."""
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
    """False if the filter names a column that the version does not hold or that cannot be carried to Lance."""
    doubtful = [
        field.name
        for field in schema
        if field.name not in stored.names or not _fits_substrait(stored.field(field.name).type)
    ]
    return not any(refers_to(where, schema, name) for name in doubtful)


def equals_any(column: pa.Field, values: Sequence[Any]) -> pc.Expression | str | None:
    """A filter for `column` being one of the values that an index can answer; None if Lance has no way to say it."""
    if pa.types.is_unsigned_integer(column.type):
        # As text, since Substrait cannot carry them; nothing but digits goes in.
        return f"`{column.name}` IN ({', '.join(str(int(value)) for value in values)})"
    if not _fits_substrait(column.type) or pa.types.is_nested(column.type):
        return None
    return pc.field(column.name).isin(pa.array(values, column.type))


def both(*conditions: pc.Expression | None) -> pc.Expression | None:
    """All of them; None stands for no condition."""
    return _all(condition for condition in conditions if condition is not None)


def _all(conditions: Iterable[pc.Expression]) -> pc.Expression | None:
    conjunction: pc.Expression | None = None
    for condition in conditions:
        conjunction = condition if conjunction is None else conjunction & condition
    return conjunction
