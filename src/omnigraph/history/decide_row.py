"""The row rule of a merge: what becomes of one row that the source changed, as a function of its three images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from omnigraph.history.diff import image
from omnigraph.mutate.changed_rows import ComparedColumns, find_changed_columns, is_same_row
from omnigraph.mutate.pending_table import Row
from omnigraph.schema.catalog import TypeDef

Resolution = Literal["ours", "theirs"]

_KINDS = {
    "unique": "unique_violation",
    "endpoint": "orphan_edge",
    "orphan_edge": "orphan_edge",
    "cardinality": "cardinality_violation",
}
_TOLD = {
    "divergent_insert": "was inserted on both branches with different values",
    "divergent_update": "was changed on both branches in different ways",
    "delete_vs_update": "was deleted on one branch and changed on the other",
}


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """`resolve` settles every conflict of rows one way; `per_entity` settles single ones, by (`kind:Type`, id)."""

    cell_level: bool = False
    resolve: Resolution | None = None
    per_entity: Mapping[tuple[str, str], Resolution] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sides:
    """One row in base, source and target; None is absent. Without `settled` the bases of a merge disagree on it."""

    base: Row | None
    source: Row | None
    target: Row | None
    settled: bool = True


@dataclass(frozen=True, slots=True)
class Decision:
    """Keep the target's row, or else put `row` there (None removes it). With a conflict the target's row stays."""

    keep: bool
    row: Row | None = None
    conflict: Mapping[str, Any] | None = None


_KEEP = Decision(True)


def decide(one: TypeDef, columns: ComparedColumns, options: MergeOptions, row_id: str, sides: Sides) -> Decision:
    """The first rule that fits decides. A row that the source did not change stays as the target has it."""
    base, source, target = sides.base, sides.source, sides.target
    if sides.settled and is_same_row(source, base, columns):
        return _KEEP
    if sides.settled and is_same_row(target, base, columns):
        return Decision(False, source)
    if is_same_row(source, target, columns):
        return _KEEP
    if options.cell_level and base and source and target:
        cells = find_changed_columns(base, source, columns)
        if not cells & find_changed_columns(base, target, columns):
            return Decision(False, {**target, **{name: source.get(name) for name in cells}})
    chosen = options.per_entity.get((one.table_key, row_id), options.resolve)
    if chosen is not None:
        return _KEEP if chosen == "ours" else Decision(False, source)
    return Decision(True, conflict=_conflict(_kind(sides), one, row_id, sides))


def _kind(sides: Sides) -> str:
    if sides.source is None or sides.target is None:
        return "delete_vs_update"
    return "divergent_insert" if sides.base is None and sides.settled else "divergent_update"


def _conflict(kind: str, one: TypeDef, row_id: str, sides: Sides) -> dict[str, Any]:
    return {
        "kind": kind,
        "entity_kind": one.kind,
        "type_name": one.name,
        "entity_id": row_id,
        "base": image(one, sides.base) if sides.base else None,
        "source": image(one, sides.source) if sides.source else None,
        "target": image(one, sides.target) if sides.target else None,
        "message": f"{one.table_key} {row_id!r} {_TOLD[kind]}",
    }


def as_conflict(violation: Mapping[str, Any]) -> dict[str, Any]:
    """A violation of a rule by the merged change, as a conflict."""
    entity_kind, _, type_name = violation["type"].partition(":")
    return {
        "kind": _KINDS.get(violation["rule"], "value_constraint_violation"),
        "entity_kind": entity_kind,
        "type_name": type_name,
        "entity_id": violation["id"],
        "base": None,
        "source": None,
        "target": None,
        "message": violation["message"],
    }


def conflict_order(one: Mapping[str, Any]) -> tuple[str, ...]:
    """Conflicts are told in this order, whichever plane found them."""
    return tuple(str(one[name]) for name in ("entity_kind", "type_name", "entity_id", "kind", "message"))
