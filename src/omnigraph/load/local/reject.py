"""Which records of an input break a rule together with other rows, found again until none does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from omnigraph.commit.publish_plan import WriteTxn
from omnigraph.load.local.records import Record
from omnigraph.load.options import LoadOptions
from omnigraph.load.records.model import Problem, Reject
from omnigraph.mutate.change_set import ChangeSet
from omnigraph.mutate.check_changes import CheckedChange
from omnigraph.schema.row_constraints import Violation, row_violations
from omnigraph.storage.backend import Backend

_Blamed = dict[tuple[str, str], list[Problem]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The changes that hold, without the records rejected on the way. `unowned`: violations of no record."""

    changes: ChangeSet
    rejects: tuple[Reject, ...]
    duplicates: int
    unowned: tuple[Violation, ...] = ()


@dataclass
class Judge:
    """One attempt on one snapshot."""

    backend: Backend
    txn: WriteTxn
    options: LoadOptions
    present: Sequence[str]  # types that an overwrite replaces
    _rejects: list[Reject] = field(default_factory=list)

    def run(self, good: Sequence[Record]) -> Verdict:
        """Reject what breaks a rule, and again what breaks one without it: an edge whose node was rejected."""
        left, duplicates = self._without_repeated(good)
        left, changes = self._without_taken(left)
        while True:
            blamed, unowned = self._broken(changes)
            if not blamed:
                return Verdict(changes, tuple(self._rejects), duplicates, tuple(unowned))
            for one in left:
                if one.key in blamed:
                    self._rejects.append(one.reject(*sorted(blamed[one.key], key=Problem.order)))
            left = [one for one in left if one.key not in blamed]
            changes = self._applied(left)

    def _without_repeated(self, good: Sequence[Record]) -> tuple[list[Record], int]:
        """One record per id: in merge the last one wins, elsewhere the first one stays and the others are conflicts."""
        last_wins = self.options.mode == "merge" and self.options.on_duplicate == "last"
        chosen: dict[tuple[str, str], Record] = {}
        for one in reversed(good) if last_wins else good:
            chosen.setdefault(one.key, one)
        if len(chosen) == len(good):
            return list(good), 0
        for one in [] if last_wins else good:
            if chosen[one.key] is not one:
                text = f"{one.type.table_key}: the input has more than one row with id {one.id!r}"
                self._rejects.append(one.reject(Problem("key_conflict", text, "id")))
        return [one for one in good if chosen[one.key] is one], len(good) - len(chosen)

    def _without_taken(self, left: list[Record]) -> tuple[list[Record], ChangeSet]:
        changes = self._applied(left)
        if self.options.mode != "append":
            return left, changes
        taken = {one.key for one in left if not one.minted and changes.state(one.type).committed(one.id) is not None}
        if not taken:
            return left, changes
        for one in left:
            if one.key in taken:
                text = f"{one.type.table_key} already has a row with id {one.id!r}"
                self._rejects.append(one.reject(Problem("key_conflict", text, "id")))
        left = [one for one in left if one.key not in taken]
        return left, self._applied(left)

    def _applied(self, left: Sequence[Record]) -> ChangeSet:
        changes = ChangeSet(self.backend, self.txn)
        if self.options.mode == "overwrite":
            for table in self.present:
                changes.state(self.txn.catalog.by_id[table]).remove_all()
                changes.claims.read_all(table)
                changes.claims.write_all(table)
        else:
            _fetch(self.backend, changes, left)
        merging = self.options.mode == "merge"
        for one in left:
            state = changes.state(one.type)
            existing = state.committed(one.id) if merging and not one.minted else None
            state.put(one.over(existing), minted=one.minted)
        return changes

    def _broken(self, changes: ChangeSet) -> tuple[_Blamed, list[Violation]]:
        """What is wrong, by the record to blame, and what no record is to blame for."""
        catalog = self.txn.catalog
        values = [
            partial(row_violations, catalog.by_id[action.table], action.rows)
            for action in changes.actions
            if action.rows is not None
        ]
        checked = CheckedChange(self.backend, catalog, changes.state, changes.changes)
        tables = {one.table_key: one.id for one in catalog.types}
        of_values = [(one, [(tables[one.type], one.id)]) for part in checked.look_up(values) for one in part]
        blamed: _Blamed = {}
        unowned: list[Violation] = []
        for violation, rows in [*of_values, *checked.blame()]:
            for row in rows:
                problem = Problem(violation.rule, violation.message, violation.property)
                blamed.setdefault(row, []).append(problem)
            if not rows:
                unowned.append(violation)
        return blamed, unowned


def _fetch(backend: Backend, changes: ChangeSet, left: Sequence[Record]) -> None:
    """The rows that records may meet: one read per type, all types at once."""
    wanted: dict[str, list[str]] = {}
    for one in left:
        changes.state(one.type)
        if not one.minted:
            wanted.setdefault(one.type.id, []).append(one.id)
    catalog = changes.catalog
    backend.in_parallel(lambda item: changes.state(catalog.by_id[item[0]]).fetch(item[1]), wanted.items())
