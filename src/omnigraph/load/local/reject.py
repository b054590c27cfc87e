"""Which records of an input break a rule together with other rows, found again until none does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from omnigraph.commit.publish_plan import WriteTxn
from omnigraph.load.local.parse import ParsedRecord
from omnigraph.load.options import LoadOptions
from omnigraph.load.records.batches import RecordProblem, Reject
from omnigraph.mutate.change_set import ChangeSet
from omnigraph.mutate.check_changes import ChangeChecker
from omnigraph.schema.row_constraints import Violation, row_violations
from omnigraph.storage.backend import Backend

_ProblemsByRow = dict[tuple[str, str], list[RecordProblem]]


@dataclass(frozen=True, slots=True)
class AcceptedChanges:
    """The changes that hold, without the records rejected on the way. `unowned`: violations of no record."""

    changes: ChangeSet
    rejects: tuple[Reject, ...]
    duplicates: int
    unattributed: tuple[Violation, ...] = ()


@dataclass
class RejectFinder:
    """One attempt on one snapshot."""

    backend: Backend
    txn: WriteTxn
    options: LoadOptions
    overwritten_tables: Sequence[str]  # types that an overwrite replaces
    _rejects: list[Reject] = field(default_factory=list)

    def find(self, good: Sequence[ParsedRecord]) -> AcceptedChanges:
        """Reject what breaks a rule, and again what breaks one without it: an edge whose node was rejected."""
        left, duplicates = self._reject_repeated_ids(good)
        left, changes = self._reject_existing_ids(left)
        while True:
            blamed, unowned = self._find_problems(changes)
            if not blamed:
                return AcceptedChanges(changes, tuple(self._rejects), duplicates, tuple(unowned))
            for record in left:
                if record.key in blamed:
                    self._rejects.append(record.reject(*sorted(blamed[record.key], key=RecordProblem.sort_key)))
            left = [record for record in left if record.key not in blamed]
            changes = self._apply(left)

    def _reject_repeated_ids(self, good: Sequence[ParsedRecord]) -> tuple[list[ParsedRecord], int]:
        """One record per id: in merge the last one wins, elsewhere the first one stays and the others are conflicts."""
        last_wins = self.options.mode == "merge" and self.options.on_duplicate == "last"
        record_by_key: dict[tuple[str, str], ParsedRecord] = {}
        for record in reversed(good) if last_wins else good:
            record_by_key.setdefault(record.key, record)
        if len(record_by_key) == len(good):
            return list(good), 0
        for record in [] if last_wins else good:
            if record_by_key[record.key] is not record:
                text = f"{record.type.table_key}: the input has more than one row with id {record.id!r}"
                self._rejects.append(record.reject(RecordProblem("key_conflict", text, "id")))
        return [record for record in good if record_by_key[record.key] is record], len(good) - len(record_by_key)

    def _reject_existing_ids(self, records: list[ParsedRecord]) -> tuple[list[ParsedRecord], ChangeSet]:
        changes = self._apply(records)
        if self.options.mode != "append":
            return records, changes
        existing_keys = {
            record.key
            for record in records
            if not record.has_fresh_id and changes.state(record.type).read_committed(record.id) is not None
        }
        if not existing_keys:
            return records, changes
        for record in records:
            if record.key in existing_keys:
                text = f"{record.type.table_key} already has a row with id {record.id!r}"
                self._rejects.append(record.reject(RecordProblem("key_conflict", text, "id")))
        records = [record for record in records if record.key not in existing_keys]
        return records, self._apply(records)

    def _apply(self, records: Sequence[ParsedRecord]) -> ChangeSet:
        changes = ChangeSet(self.backend, self.txn)
        if self.options.mode == "overwrite":
            for table in self.overwritten_tables:
                changes.state(self.txn.catalog.by_id[table]).remove_all()
                changes.claims.read_all(table)
                changes.claims.write_all(table)
        else:
            _fetch_existing_rows(self.backend, changes, records)
        merging = self.options.mode == "merge"
        for record in records:
            state = changes.state(record.type)
            existing = state.read_committed(record.id) if merging and not record.has_fresh_id else None
            state.put(record.merge_onto(existing), minted=record.has_fresh_id)
        return changes

    def _find_problems(self, changes: ChangeSet) -> tuple[_ProblemsByRow, list[Violation]]:
        """What is wrong, by the record to blame, and what no record is to blame for."""
        catalog = self.txn.catalog
        values = [
            partial(row_violations, catalog.by_id[action.table], action.rows)
            for action in changes.actions
            if action.rows is not None
        ]
        checked = ChangeChecker(self.backend, catalog, changes.state, changes.changes)
        tables = {one.table_key: one.id for one in catalog.types}
        of_values = [
            (one, [(tables[one.type], one.id)]) for part in checked.read_committed_rows(values) for one in part
        ]
        blamed: _ProblemsByRow = {}
        unowned: list[Violation] = []
        for violation, rows in [*of_values, *checked.violations_with_rows()]:
            for row in rows:
                problem = RecordProblem(violation.rule, violation.message, violation.property)
                blamed.setdefault(row, []).append(problem)
            if not rows:
                unowned.append(violation)
        return blamed, unowned


def _fetch_existing_rows(backend: Backend, changes: ChangeSet, records: Sequence[ParsedRecord]) -> None:
    """The rows that records may meet: one read per type, all types at once."""
    ids_by_table: dict[str, list[str]] = {}
    for record in records:
        changes.state(record.type)
        if not record.has_fresh_id:
            ids_by_table.setdefault(record.type.id, []).append(record.id)
    catalog = changes.catalog
    backend.in_parallel(lambda item: changes.state(catalog.by_id[item[0]]).fetch(item[1]), ids_by_table.items())
