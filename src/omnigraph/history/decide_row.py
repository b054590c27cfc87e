"""The three-way row decision of a merge: what becomes of one row, as a function of its base, source and target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from omnigraph.errors import InvalidInput
from omnigraph.history.diff import to_image
from omnigraph.mutate.changed_rows import ComparedColumns, find_changed_columns, is_same_row
from omnigraph.mutate.pending_table import Row
from omnigraph.schema.catalog import TypeDef

Resolution = Literal["ours", "theirs"]

_ENTITY_FIELDS = ("entity_kind", "type_name", "entity_id")
_CONFLICT_KINDS = {
    "unique": "unique_violation",
    "endpoint": "orphan_edge",
    "orphan_edge": "orphan_edge",
    "cardinality": "cardinality_violation",
}
_CONFLICT_MESSAGES = {
    "divergent_insert": "was inserted on both branches with different values",
    "divergent_update": "was changed on both branches in different ways",
    "delete_vs_update": "was deleted on one branch and changed on the other",
}


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """How rows that both sides changed are settled.

    `cell_level` joins changes of different properties. What then remains is a conflict: `per_entity` settles single
    ones, by (`kind:Type`, id), and `resolve` all others one way: `ours` keeps the target's row, `theirs` takes the
    source's.
    """

    cell_level: bool = False
    resolve: Resolution | None = None
    per_entity: Mapping[tuple[str, str], Resolution] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowVersions:
    """One row in base, source and target; None if absent. Not `is_settled`: the bases of the merge disagree on it."""

    base: Row | None
    source: Row | None
    target: Row | None
    is_settled: bool = True


@dataclass(frozen=True, slots=True)
class RowDecision:
    """Keep the target's row, or else put `row` there (None removes it). With a conflict the target's row stays."""

    keep: bool
    row: Row | None = None
    conflict: Mapping[str, Any] | None = None


_KEEP = RowDecision(True)


def decide_row(
    type_def: TypeDef, columns: ComparedColumns, options: MergeOptions, row_id: str, versions: RowVersions
) -> RowDecision:
    """The first condition that holds decides. A row that the source did not change stays as the target has it."""
    base, source, target = versions.base, versions.source, versions.target
    if versions.is_settled and is_same_row(source, base, columns):
        return _KEEP
    if versions.is_settled and is_same_row(target, base, columns):
        return RowDecision(False, source)
    if is_same_row(source, target, columns):
        return _KEEP
    if options.cell_level and base and source and target:
        cells = find_changed_columns(base, source, columns)
        if not cells & find_changed_columns(base, target, columns):
            return RowDecision(False, {**target, **{name: source.get(name) for name in cells}})
    resolution = options.per_entity.get((type_def.table_key, row_id), options.resolve)
    if resolution is not None:
        return _KEEP if resolution == "ours" else RowDecision(False, source)
    return RowDecision(True, conflict=_describe_conflict(type_def, row_id, versions))


def _conflict_kind(versions: RowVersions) -> str:
    if versions.source is None or versions.target is None:
        return "delete_vs_update"
    return "divergent_insert" if versions.base is None and versions.is_settled else "divergent_update"


def _describe_conflict(type_def: TypeDef, row_id: str, versions: RowVersions) -> dict[str, Any]:
    kind = _conflict_kind(versions)
    return {
        "kind": kind,
        "entity_kind": type_def.kind,
        "type_name": type_def.name,
        "entity_id": row_id,
        "base": to_image(type_def, versions.base) if versions.base else None,
        "source": to_image(type_def, versions.source) if versions.source else None,
        "target": to_image(type_def, versions.target) if versions.target else None,
        "message": f"{type_def.table_key} {row_id!r} {_CONFLICT_MESSAGES[kind]}",
    }


def as_conflict(violation: Mapping[str, Any]) -> dict[str, Any]:
    """A constraint that the merged change violates, as a conflict of the merge."""
    entity_kind, _, type_name = violation["type"].partition(":")
    return {
        "kind": _CONFLICT_KINDS.get(violation["rule"], "value_constraint_violation"),
        "entity_kind": entity_kind,
        "type_name": type_name,
        "entity_id": violation["id"],
        "base": None,
        "source": None,
        "target": None,
        "message": violation["message"],
    }


def conflict_sort_key(conflict: Mapping[str, Any]) -> tuple[str, ...]:
    """Orders conflicts the same way, whichever executor found them."""
    return tuple(str(conflict[name]) for name in ("entity_kind", "type_name", "entity_id", "kind", "message"))


def parse_resolutions(raw: object, where: str = "resolutions") -> dict[tuple[str, str], Resolution]:
    """By (`kind:Type`, id). Takes a list of conflicts with a field `resolve`, or the error that lists them.

    A conflict without `resolve` stays one; other fields do not matter.
    """
    resolutions: dict[tuple[str, str], Resolution] = {}
    for index, conflict in enumerate(_list_conflicts(raw, where)):
        if not isinstance(conflict, Mapping) or not all(isinstance(conflict.get(name), str) for name in _ENTITY_FIELDS):
            raise _bad_resolutions_error(f"{where}, item {index + 1}, does not name an entity")
        resolution = conflict.get("resolve")
        if resolution is None:
            continue
        if resolution not in ("ours", "theirs"):
            raise _bad_resolutions_error(f"{where}, item {index + 1}, is resolved by {resolution!r}")
        entity = (f"{conflict['entity_kind']}:{conflict['type_name']}", conflict["entity_id"])
        if resolutions.setdefault(entity, resolution) != resolution:
            raise _bad_resolutions_error(f"{where} settles {entity[0]} {entity[1]!r} both ways")
    return resolutions


def _list_conflicts(raw: object, where: str) -> Sequence[Any]:
    conflicts = raw.get("merge_conflicts") if isinstance(raw, Mapping) else raw
    if not isinstance(conflicts, list):
        raise _bad_resolutions_error(f"{where} is not a list of conflicts")
    return conflicts


def _bad_resolutions_error(message: str) -> InvalidInput:
    return InvalidInput(
        message,
        code="bad_resolutions",
        advice='Write [{"entity_kind", "type_name", "entity_id", "resolve": "ours" or "theirs"}, …]',
    )
