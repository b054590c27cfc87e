"""`diff`: what changed from one commit to another, as users see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from omnigraph.history.delta import changed_rows, columns_of, tables_that_differ
from omnigraph.lang.schema.model import EntityKind, TypeDef
from omnigraph.lang.schema.values import to_output
from omnigraph.log.snapshot import Snapshot
from omnigraph.write.table_state import Row, RowChange

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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def diff(
    old: Snapshot,
    new: Snapshot,
    *,
    kinds: Collection[str] = (),
    types: Collection[str] = (),
    ops: Collection[str] = (),
) -> Iterator[Change]:
    """Changes from `old` to `new` by kind, type and id. Compaction, folds and new indexes never appear.

    Rows are compared by the properties that `new` has: a property that was dropped since is no change of every row.
    """
    found = (new.catalog.by_id.get(table) or old.catalog.by_id.get(table) for table in tables_that_differ(old, new))
    for one in sorted((one for one in found if one is not None), key=lambda one: (one.kind, one.name, one.id)):
        if (kinds and one.kind not in kinds) or (types and one.name not in types):
            continue
        for change in changed_rows(old, new, one.id, columns_of(new.catalog.by_id.get(one.id))).values():
            op = op_of(change)
            if not ops or op in ops:
                before, after = shown(old, one.id, change.before), shown(new, one.id, change.after)
                yield Change(op, one.kind, one.name, change.id, before, after)


def diff_stat(changes: Iterator[Change]) -> dict[str, dict[str, int]]:
    """Counts per `kind:Type` and operation."""
    counts: dict[str, Counter[str]] = {}
    for one in changes:
        counts.setdefault(f"{one.kind}:{one.type}", Counter())[one.op] += 1
    return {table: {op: found[op] for op in ("insert", "update", "delete")} for table, found in sorted(counts.items())}


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
