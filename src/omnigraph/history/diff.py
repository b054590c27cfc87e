"""`diff`: what changed from one commit to another, as users see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any, Literal

from omnigraph.log.snapshot import Snapshot
from omnigraph.mutate.changed_rows import columns_to_compare, find_changed_rows, find_changed_tables
from omnigraph.mutate.pending_table import Row, RowChange
from omnigraph.schema.catalog import EntityKind, TypeDef, no_such_type
from omnigraph.schema.values import to_output

Op = Literal["insert", "update", "delete"]


@dataclass(frozen=True, slots=True)
class Change:
    """One entity that differs. Images hold `id`, for edges `from` and `to`, and the properties by name."""

    op: Op
    kind: EntityKind
    type: str
    id: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    type_id: str = ""  # identity of the type, since a name can be reused; not in to_json

    def to_json(self) -> dict[str, Any]:
        return {
            "op": self.op,
            "kind": self.kind,
            "type": self.type,
            "id": self.id,
            "before": self.before,
            "after": self.after,
        }


def diff(
    old: Snapshot,
    new: Snapshot,
    *,
    kinds: Collection[str] = (),
    types: Collection[str] = (),
    ops: Collection[str] = (),
    after: tuple[str, str] | None = None,
) -> Iterator[Change]:
    """Changes from `old` to `new` by kind, type and id. Compaction, folds and new indexes never appear.

    Rows are compared by the properties that `new` has: dropping a property does not make every row a change.
    `after` (type id, row id) leaves out everything up to that row. A type that neither side has is NotFound.
    """
    type_defs = differing_types(old, new, kinds=kinds, types=types)
    if after is not None:
        type_defs = list(dropwhile(lambda type_def: type_def.id != after[0], type_defs))
    return (
        change
        for type_def in type_defs
        for change in _find_changes(old, new, type_def, after)
        if not ops or change.op in ops
    )


def differing_types(
    old: Snapshot, new: Snapshot, *, kinds: Collection[str] = (), types: Collection[str] = ()
) -> list[TypeDef]:
    """Types whose tables may differ, in the order in which `diff` yields their changes.

    The definition is that of `new`, or of `old` if `new` lacks the type.
    """
    selected = _resolve_types(old, new, types)
    type_defs = (
        new.catalog.by_id.get(table) or old.catalog.by_id.get(table) for table in find_changed_tables(old, new)
    )
    return sorted(
        (
            type_def
            for type_def in type_defs
            if type_def is not None and (not kinds or type_def.kind in kinds) and (not types or type_def.id in selected)
        ),
        key=lambda type_def: (type_def.kind, type_def.name, type_def.id),
    )


def _find_changes(old: Snapshot, new: Snapshot, type_def: TypeDef, after: tuple[str, str] | None) -> Iterator[Change]:
    table = type_def.id
    for change in find_changed_rows(old, new, table, columns_to_compare(new.catalog.by_id.get(table))).values():
        if after is None or table != after[0] or change.id > after[1]:
            images = _image_in(old, table, change.before), _image_in(new, table, change.after)
            yield Change(op_of(change), type_def.kind, type_def.name, change.id, *images, table)


def _resolve_types(old: Snapshot, new: Snapshot, names: Collection[str]) -> set[str]:
    type_ids: set[str] = set()
    for name in names:
        type_defs = (lookup(name) for side in (old, new) for lookup in (side.catalog.node, side.catalog.edge))
        ids = {type_def.id for type_def in type_defs if type_def is not None}
        if not ids:
            raise no_such_type(name, new.catalog)
        type_ids |= ids
    return type_ids


def diff_stat(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Counts per table and operation, with the field names of `touched` in `GraphView.commit`."""
    counts: dict[str, Counter[str]] = {}
    for change in changes:
        counts.setdefault(f"{change.kind}:{change.type}", Counter())[change.op] += 1
    return [
        {"table_key": table, "inserted": ops["insert"], "updated": ops["update"], "deleted": ops["delete"]}
        for table, ops in counts.items()
    ]


def op_of(change: RowChange) -> Op:
    if change.before is None:
        return "insert"
    return "delete" if change.after is None else "update"


def _image_in(snapshot: Snapshot, table: str, row: Row | None) -> dict[str, Any] | None:
    """A row under the names of the snapshot's own schema."""
    type_def = snapshot.catalog.by_id.get(table)
    return None if row is None or type_def is None else to_image(type_def, row)


def to_image(type_def: TypeDef, row: Row) -> dict[str, Any]:
    """A row as users see it: `id`, for edges `from` and `to`, and the properties by name."""
    ends = {"from": row["src"], "to": row["dst"]} if type_def.kind == "edge" else {}
    properties = {prop.name: to_output(prop, row.get(prop.id)) for prop in type_def.properties}
    return {"id": row["id"], **ends, **properties}
