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
    type_id: str = ""  # a name may have had several lives; not shown

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

    Rows are compared by the properties that `new` has: a property that was dropped since is no change of every row.
    `after` (type id, row id) leaves out everything up to that row. A type that neither side has is NotFound.
    """
    ordered = differing_types(old, new, kinds=kinds, types=types)
    if after is not None:
        ordered = list(dropwhile(lambda one: one.id != after[0], ordered))
    return (change for one in ordered for change in _changes_of(old, new, one, after) if not ops or change.op in ops)


def differing_types(
    old: Snapshot, new: Snapshot, *, kinds: Collection[str] = (), types: Collection[str] = ()
) -> list[TypeDef]:
    """Types, in the order in which changes are told, whose tables may differ; as `new` has them if it does."""
    wanted = _type_ids(old, new, types)
    found = (new.catalog.by_id.get(table) or old.catalog.by_id.get(table) for table in find_changed_tables(old, new))
    return sorted(
        (
            one
            for one in found
            if one is not None and (not kinds or one.kind in kinds) and (not types or one.id in wanted)
        ),
        key=lambda one: (one.kind, one.name, one.id),
    )


def _changes_of(old: Snapshot, new: Snapshot, one: TypeDef, after: tuple[str, str] | None) -> Iterator[Change]:
    for change in find_changed_rows(old, new, one.id, columns_to_compare(new.catalog.by_id.get(one.id))).values():
        if after is None or one.id != after[0] or change.id > after[1]:
            images = shown(old, one.id, change.before), shown(new, one.id, change.after)
            yield Change(op_of(change), one.kind, one.name, change.id, *images, one.id)


def _type_ids(old: Snapshot, new: Snapshot, names: Collection[str]) -> set[str]:
    found: set[str] = set()
    for name in names:
        asked = (lookup(name) for side in (old, new) for lookup in (side.catalog.node, side.catalog.edge))
        ids = {one.id for one in asked if one is not None}
        if not ids:
            raise no_such_type(name, new.catalog)
        found |= ids
    return found


def diff_stat(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Counts per table and operation, in the words that commits use for what they touched."""
    counts: dict[str, Counter[str]] = {}
    for one in changes:
        counts.setdefault(f"{one.kind}:{one.type}", Counter())[one.op] += 1
    return [
        {"table_key": table, "inserted": found["insert"], "updated": found["update"], "deleted": found["delete"]}
        for table, found in counts.items()
    ]


def op_of(change: RowChange) -> Op:
    if change.before is None:
        return "insert"
    return "delete" if change.after is None else "update"


def shown(snapshot: Snapshot, table: str, row: Row | None) -> dict[str, Any] | None:
    """A row under the names of the snapshot's own schema."""
    one = snapshot.catalog.by_id.get(table)
    return None if row is None or one is None else image(one, row)


def image(one: TypeDef, row: Row) -> dict[str, Any]:
    ends = {"from": row["src"], "to": row["dst"]} if one.kind == "edge" else {}
    return {"id": row["id"], **ends, **{prop.name: to_output(prop, row.get(prop.id)) for prop in one.properties}}
