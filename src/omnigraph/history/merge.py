"""Three-way merge of one branch into another, decided row by row and validated like any other change.

The heads are captured once for the source; the target may move, and then the merge is prepared again on its newest
record. Only rows that the source changed since the base are looked at, and of those only the ones that the target
changed too need all three images.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from omnigraph.errors import ConstraintViolation, MergeConflict
from omnigraph.history.adoption import adopting
from omnigraph.history.base import BaseState, base_state
from omnigraph.history.delta import Columns, changed_columns, columns_of, rows_of, same_row
from omnigraph.history.diff import image
from omnigraph.history.lineage import RecordsOf, content_place, merge_bases, remembered
from omnigraph.history.schemas import merged_catalog
from omnigraph.lang.schema.model import Catalog, TypeDef
from omnigraph.log.record import CommitRecord, Kind
from omnigraph.log.snapshot import Catalogs, Snapshot
from omnigraph.storage.backend import Backend
from omnigraph.write.change_set import ChangeSet
from omnigraph.write.plan import PublishPlan, Receipt, WriteTxn
from omnigraph.write.table_state import Row, RowChange

Resolution = Literal["ours", "theirs"]

_KINDS = {
    "unique": "unique_violation",
    "endpoint": "orphan_edge",
    "orphan_edge": "orphan_edge",
    "cardinality": "cardinality_violation",
}


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """`resolve` settles every conflict of rows one way; `per_entity` settles single ones, by (`kind:Type`, id)."""

    cell_level: bool = False
    resolve: Resolution | None = None
    per_entity: Mapping[tuple[str, str], Resolution] = field(default_factory=dict)


class Merge:
    """The operation: a function of the target's state, with the source fixed."""

    kind: Kind = "merge"

    def __init__(
        self, backend: Backend, catalogs: Catalogs, records_of: RecordsOf, source: CommitRecord, options: MergeOptions
    ) -> None:
        self.op_id = backend.ids.ulid()
        self._backend = backend
        self._catalogs = catalogs
        self._records_of = records_of
        self._source = Snapshot(backend, source, catalogs.get(source.schema))
        self._options = options

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        target = txn.snapshot
        # The bases of the very heads, not of the commits whose state they repeat: nearest in layout as well.
        records_of = remembered(self._records_of, target.record, self._source.record)
        bases = merge_bases(records_of, [target.record], self._source.record)
        ours, theirs, *common = (content_place(records_of, one) for one in (target.record, self._source.record, *bases))
        if theirs in common:
            return Receipt(None, result={"outcome": "already_up_to_date"})
        outcome = "fast_forward" if ours in common else "merged"
        base = base_state(self._backend, self._catalogs, records_of, bases)
        known = [self._catalogs.get(one.schema) for one in base.records]
        catalog = merged_catalog(known, self._source.catalog, target.catalog)
        rows = _Rows(base, self._source, target, catalog, self._options)
        merged = rows.merge()
        changes = ChangeSet(self._backend, txn, catalog)
        for table, images in merged.items():
            changes.know(table, rows.ours[table])
            changes.put_all(table, images)
        changes.depend_on(rows.looked_at)
        if outcome == "fast_forward":
            # That the target has nothing of its own is part of the answer: any change there means another attempt.
            for one in catalog.types:
                changes.claims.read_all(one.id)
        conflicts = [*rows.conflicts, *_violations(changes)]
        if conflicts:
            raise merge_conflict(conflicts)
        plan = changes.plan(
            kind=self.kind,
            op_id=self.op_id,
            catalog=catalog if catalog.hash != target.catalog.hash else None,
            merged=self._source.record.header,
            result={"outcome": outcome},
        )
        return adopting(plan, base, self._source, target, catalog, self._records_of(self._source.record.stream))


class _Rows:
    """The row rule over every table that the source changed."""

    def __init__(
        self, base: BaseState, source: Snapshot, target: Snapshot, catalog: Catalog, options: MergeOptions
    ) -> None:
        self._base = base
        self._source = source
        self._target = target
        self._catalog = catalog
        self._options = options
        self.conflicts: list[dict[str, Any]] = []
        self.looked_at: dict[str, set[str]] = {}
        self.ours: dict[str, dict[str, Row | None]] = {}

    def merge(self) -> dict[str, dict[str, Row | None]]:
        """By table, the rows of the target that become another, None for those that go."""
        found = {}
        for table in self._base.tables_changed_in(self._source):
            one = self._catalog.by_id.get(table)
            if one is not None:
                found[table] = self._merge_table(one)
        return found

    def _merge_table(self, one: TypeDef) -> dict[str, Row | None]:
        columns = columns_of(one)
        theirs = self._base.changes_in(self._source, one.id, columns)
        self.looked_at[one.id] = set(theirs)
        ours = self.ours[one.id] = self._ours(one.id, theirs)
        merged: dict[str, Row | None] = {}
        for row_id, change in theirs.items():
            kept, result = self._decide(one, columns, change, ours.get(row_id))
            if not kept and not same_row(result, ours.get(row_id), columns):
                merged[row_id] = result
        return merged

    def _ours(self, table: str, theirs: Mapping[str, RowChange]) -> dict[str, Row | None]:
        """The target's rows that the source changed. A table that the target left alone is not read again."""
        if self._base.is_state_of(self._target, table):
            return {row_id: change.before for row_id, change in theirs.items()}
        found = rows_of(self._target, table, theirs)
        return {row_id: found.get(row_id) for row_id in theirs}

    def _decide(self, one: TypeDef, columns: Columns, change: RowChange, target: Row | None) -> tuple[bool, Row | None]:
        """(keep the target's row, else this one). The first rule that fits decides; source differs from base."""
        row_id, base, source = change.id, change.before, change.after
        if self._base.is_settled(one.id, row_id) and same_row(target, base, columns):
            return False, source
        if same_row(source, target, columns):
            return True, None
        kind = _conflict_kind(base, source, target, settled=self._base.is_settled(one.id, row_id))
        if self._options.cell_level and base and source and target:
            cells = changed_columns(base, source, columns)
            if not cells & changed_columns(base, target, columns):
                return False, {**target, **{name: source.get(name) for name in cells}}
        chosen = self._options.per_entity.get((one.table_key, row_id), self._options.resolve)
        if chosen is not None:
            return (True, None) if chosen == "ours" else (False, source)
        self.conflicts.append(_conflict(kind, one, row_id, base, source, target))
        return True, None


def _violations(changes: ChangeSet) -> list[dict[str, Any]]:
    """What the merged change would break, as conflicts."""
    try:
        changes.check()
    except ConstraintViolation as error:
        return [_as_conflict(one) for one in error.violations]
    return []


def _conflict_kind(base: Row | None, source: Row | None, target: Row | None, *, settled: bool) -> str:
    if source is None or target is None:
        return "delete_vs_update"
    return "divergent_insert" if base is None and settled else "divergent_update"


def _conflict(
    kind: str, one: TypeDef, row_id: str, base: Row | None, source: Row | None, target: Row | None
) -> dict[str, Any]:
    told = {
        "divergent_insert": "was inserted on both branches with different values",
        "divergent_update": "was changed on both branches in different ways",
        "delete_vs_update": "was deleted on one branch and changed on the other",
    }
    return {
        "kind": kind,
        "entity_kind": one.kind,
        "type_name": one.name,
        "entity_id": row_id,
        "base": image(one, base) if base else None,
        "source": image(one, source) if source else None,
        "target": image(one, target) if target else None,
        "message": f"{one.table_key} {row_id!r} {told[kind]}",
    }


def _as_conflict(violation: Mapping[str, Any]) -> dict[str, Any]:
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


def merge_conflict(conflicts: Iterable[Mapping[str, Any]]) -> MergeConflict:
    ordered = sorted(
        conflicts, key=lambda one: (one["entity_kind"], one["type_name"], one["entity_id"], one["kind"], one["message"])
    )
    more = f" (and {len(ordered) - 1} more)" if len(ordered) > 1 else ""
    return MergeConflict(
        f"the branches cannot be merged: {ordered[0]['message']}{more}",
        advice="Nothing was written; settle the conflicts with a resolution, or change the source branch",
        merge_conflicts=[dict(one) for one in ordered],
    )
