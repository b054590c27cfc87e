"""Matches the columns of a CSV, Parquet or ORC file with the properties of the type that its rows have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omnigraph.errors import DamagedInput
from omnigraph.load.records.batches import Split
from omnigraph.load.records.parse_record import end_field_name
from omnigraph.schema.catalog import Property, PropType, Scalar, TypeDef

_TEXT = PropType(Scalar.STRING)


@dataclass(frozen=True, slots=True)
class ColumnMatch:
    """The stored column and the property of each column of a file, by its name in the file and in the file's order."""

    columns: Mapping[str, str]
    properties: Mapping[str, Property]


def match_columns(type_def: TypeDef, split: Split, names: Sequence[str]) -> ColumnMatch:
    """Matches the columns, or raises `DamagedInput`: a column that fits no property is wrong in every row."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise _mismatch_error(split, "duplicate_field", f"the column {repeated[0]!r} is there twice", repeated[0])
    system = {"id": "id"}
    if type_def.kind == "edge":
        system.update({end_field_name(type_def, names, column): column for column in ("src", "dst")})
        for name, column in system.items():
            if column != "id" and name not in names:
                word = "from" if column == "src" else "to"
                raise _mismatch_error(split, "missing_end", f"there is no column {word!r} (or {column!r})", word)
    columns: dict[str, str] = {}
    props: dict[str, Property] = {}
    for name in names:
        prop = type_def.by_name.get(name)
        if name in system:
            prop = Property(system[name], name, _TEXT)
        if prop is None:
            field_names = ", ".join(sorted([*type_def.by_name, *system]))
            raise _mismatch_error(
                split, "unknown_property", f"{type_def.table_key} has no property {name!r}; it has {field_names}", name
            )
        columns[name], props[name] = prop.id, prop
    for key in type_def.key:
        if type_def.by_id[key].name not in names:
            missing = type_def.by_id[key].name
            raise _mismatch_error(
                split, "OG-V-001", f"there is no column {missing!r}, which is part of the key", missing
            )
    return ColumnMatch(columns, props)


def _mismatch_error(split: Split, code: str, reason: str, column: str) -> DamagedInput:
    return DamagedInput(
        f"{split.path}: {reason}",
        code=code,
        advice="Nothing was loaded; rename or remove the column, or name another type",
        file=split.path,
        line=1,
        property=column,
        reason=reason,
    )
