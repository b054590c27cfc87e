"""The columns of a file that is about one type: what each of them is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omnigraph.errors import DamagedInput
from omnigraph.load.records.model import Split
from omnigraph.load.records.reference import end_name
from omnigraph.schema.catalog import Property, PropType, Scalar, TypeDef

_TEXT = PropType(Scalar.STRING)


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """By the file's name of each column, in the file's order: the stored column, and the property for its values."""

    columns: Mapping[str, str]
    props: Mapping[str, Property]


def column_plan(one: TypeDef, split: Split, names: Sequence[str]) -> ColumnPlan:
    """What the columns are, or DamagedInput: a column that fits nothing is wrong in every row."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise _misfit(split, "duplicate_field", f"the column {twice[0]!r} is there twice", twice[0])
    system = {"id": "id"}
    if one.kind == "edge":
        system.update({end_name(one, names, column): column for column in ("src", "dst")})
        for name, column in system.items():
            if column != "id" and name not in names:
                word = "from" if column == "src" else "to"
                raise _misfit(split, "missing_end", f"there is no column {word!r} (or {column!r})", word)
    columns: dict[str, str] = {}
    props: dict[str, Property] = {}
    for name in names:
        prop = one.by_name.get(name)
        if name in system:
            prop = Property(system[name], name, _TEXT)
        if prop is None:
            known = ", ".join(sorted([*one.by_name, *system]))
            raise _misfit(split, "unknown_property", f"{one.table_key} has no property {name!r}; it has {known}", name)
        columns[name], props[name] = prop.id, prop
    for key in one.key:
        if one.by_id[key].name not in names:
            missing = one.by_id[key].name
            raise _misfit(split, "OG-V-001", f"there is no column {missing!r}, which is part of the key", missing)
    return ColumnPlan(columns, props)


def _misfit(split: Split, code: str, reason: str, column: str) -> DamagedInput:
    return DamagedInput(
        f"{split.path}: {reason}",
        code=code,
        advice="Nothing was loaded; rename or remove the column, or name another type",
        file=split.path,
        line=1,
        property=column,
        reason=reason,
    )
