"""The load operation of the local engine: a small input becomes one change set, checked as a whole, and one commit.

The input is read and parsed in memory (`parse_all`); `RejectFinder` finds the records that must be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from omnigraph.commit.publish_plan import PublishPlan, Receipt, TableAction, WriteTxn
from omnigraph.load.inputs import Inputs, plan_splits
from omnigraph.load.options import LoadOptions
from omnigraph.load.records.batches import (
    BOOKKEEPING,
    FRESH_ID_COLUMN,
    LINE_COLUMN,
    ColumnBatch,
    LineBatch,
    RawBatch,
    RecordProblem,
    Reject,
)
from omnigraph.load.records.mentioned import mentioned_masks
from omnigraph.load.records.parse import RecordParser
from omnigraph.load.records.read_split import read_split
from omnigraph.load.rejects import write_rejects
from omnigraph.load.report import RejectSummary, build_load_result, load_rejected_error
from omnigraph.log.commit_record import CommitKind
from omnigraph.mutate.change_set import ChangeSet
from omnigraph.mutate.check_changes import ChangeChecker
from omnigraph.mutate.pending_table import Row
from omnigraph.progress import Progress, StepCounter
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.schema.row_constraints import Violation, row_violations
from omnigraph.storage.backend import Backend


@dataclass(frozen=True, slots=True)
class ParsedRecord:
    """A well-formed record: its new row, and the columns that it mentions."""

    type: TypeDef
    row: Row
    mentioned: tuple[str, ...]
    has_fresh_id: bool
    batch: RawBatch
    line: int

    @property
    def id(self) -> str:
        row_id: str = self.row["id"]
        return row_id

    @property
    def key(self) -> tuple[str, str]:
        return self.type.id, self.id

    @property
    def position(self) -> tuple[int, int]:
        """The position in the input: file, then line."""
        return self.batch.split.source_index, self.line

    def merge_onto(self, existing: Row | None) -> Row:
        """Returns the existing row with the values of the columns that the record mentions."""
        return self.row if existing is None else {**existing, **{name: self.row[name] for name in self.mentioned}}

    def reject(self, *problems: RecordProblem) -> Reject:
        text = self.batch.text_of(self.line)
        return Reject.of(self.batch.split.path, self.line, text, problems, type=self.type.table_key, id=self.id)


@dataclass(frozen=True, slots=True)
class ParsedRecords:
    """The well-formed records of an input in its order, and the rejects."""

    accepted: tuple[ParsedRecord, ...]
    rejects: tuple[Reject, ...]


def read_all(inputs: Inputs, options: LoadOptions) -> list[RawBatch]:
    """Reads the whole input. Raises if it is too large for the local engine; decompressed text counts."""
    batches: list[RawBatch] = []
    size_bytes = 0
    for split in plan_splits(inputs, options.split_bytes):
        for raw in read_split(split, inputs.files.open, options.limits):
            batches.append(raw)
            size_bytes += _batch_bytes(raw)
            options.check_local_size(size_bytes)
    return batches


def _batch_bytes(raw: RawBatch) -> int:
    if isinstance(raw, LineBatch):
        return len(raw.data)
    if isinstance(raw, ColumnBatch):
        return int(raw.table.nbytes)
    return sum(len(text) for text in raw.texts)


def parse_all(
    batches: Sequence[RawBatch], catalog: Catalog, seed: str, options: LoadOptions, counter: StepCounter
) -> ParsedRecords:
    parser = RecordParser(catalog, seed, partial=options.mode == "merge")
    accepted: list[ParsedRecord] = []
    rejects: list[Reject] = []
    for parsed_batches, raw in enumerate(batches, 1):
        parsed = parser.parse(raw)
        rejects += parsed.rejects
        for type_id, table in parsed.tables.items():
            accepted += _records_of_table(catalog.by_id[type_id], table, raw)
        counter.advance(parsed_batches, len(batches))
    accepted.sort(key=lambda record: record.position)
    return ParsedRecords(tuple(accepted), tuple(rejects))


def _records_of_table(type_def: TypeDef, table: pa.Table, raw: RawBatch) -> Iterator[ParsedRecord]:
    ends = ("src", "dst") if type_def.kind == "edge" else ()
    masks = mentioned_masks(type_def, table)
    lines, has_fresh_id = table.column(LINE_COLUMN).to_pylist(), table.column(FRESH_ID_COLUMN).to_pylist()
    rows = table.drop_columns(list(BOOKKEEPING)).to_pylist()
    for index, row in enumerate(rows):
        mentioned = tuple(name for name, mask in masks.items() if mask[index])
        yield ParsedRecord(type_def, row, ("id", *ends, *mentioned), has_fresh_id[index], raw, lines[index])


_ProblemsByRow = dict[tuple[str, str], list[RecordProblem]]


@dataclass(frozen=True, slots=True)
class AcceptedChanges:
    """The changes of all records that are not rejected. `unattributed` are violations that no record causes."""

    changes: ChangeSet
    rejects: tuple[Reject, ...]
    duplicates: int
    unattributed: tuple[Violation, ...] = ()


@dataclass
class RejectFinder:
    """Finds the rejects of one attempt on one snapshot."""

    backend: Backend
    txn: WriteTxn
    options: LoadOptions
    overwritten_tables: Sequence[str]  # only in mode "overwrite"
    _rejects: list[Reject] = field(default_factory=list)

    def find(self, parsed: Sequence[ParsedRecord]) -> AcceptedChanges:
        """Rejects records that violate a constraint, then those that do so without them, such as their edges."""
        records, duplicates = self._reject_repeated_ids(parsed)
        records, changes = self._reject_existing_ids(records)
        while True:
            problems, unattributed = self._find_problems(changes)
            if not problems:
                return AcceptedChanges(changes, tuple(self._rejects), duplicates, tuple(unattributed))
            for record in records:
                if record.key in problems:
                    self._rejects.append(record.reject(*sorted(problems[record.key], key=RecordProblem.sort_key)))
            records = [record for record in records if record.key not in problems]
            changes = self._apply(records)

    def _reject_repeated_ids(self, records: Sequence[ParsedRecord]) -> tuple[list[ParsedRecord], int]:
        """Leaves one record per id: the last one in a merge, otherwise the first one, and the others are rejects."""
        last_wins = self.options.mode == "merge" and self.options.on_duplicate == "last"
        record_by_key: dict[tuple[str, str], ParsedRecord] = {}
        for record in reversed(records) if last_wins else records:
            record_by_key.setdefault(record.key, record)
        if len(record_by_key) == len(records):
            return list(records), 0
        for record in [] if last_wins else records:
            if record_by_key[record.key] is not record:
                text = f"{record.type.table_key}: the input has more than one row with id {record.id!r}"
                self._rejects.append(record.reject(RecordProblem("key_conflict", text, "id")))
        return [record for record in records if record_by_key[record.key] is record], len(records) - len(record_by_key)

    def _reject_existing_ids(self, records: list[ParsedRecord]) -> tuple[list[ParsedRecord], ChangeSet]:
        changes = self._apply(records)
        if self.options.mode != "append":
            return records, changes
        existing_keys = {
            record.key
            for record in records
            if not record.has_fresh_id and changes.pending_table(record.type).read_committed(record.id) is not None
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
                changes.pending_table(self.txn.catalog.by_id[table]).remove_all()
                changes.claims.read_all(table)
                changes.claims.write_all(table)
        else:
            _fetch_existing_rows(self.backend, changes, records)
        is_merge = self.options.mode == "merge"
        for record in records:
            table_changes = changes.pending_table(record.type)
            existing = table_changes.read_committed(record.id) if is_merge and not record.has_fresh_id else None
            table_changes.put(record.merge_onto(existing), minted=record.has_fresh_id)
        return changes

    def _find_problems(self, changes: ChangeSet) -> tuple[_ProblemsByRow, list[Violation]]:
        """Returns problems by the row that causes them, and the violations that no row of the input causes."""
        catalog = self.txn.catalog
        value_checks = [
            partial(row_violations, catalog.by_id[action.table], action.rows)
            for action in changes.actions
            if action.rows is not None
        ]
        checker = ChangeChecker(self.backend, catalog, changes.pending_table, changes.changes)
        table_ids = {type_def.table_key: type_def.id for type_def in catalog.types}
        value_violations = [
            (violation, [(table_ids[violation.type], violation.id)])
            for violations in checker.read_committed_rows(value_checks)
            for violation in violations
        ]
        problems: _ProblemsByRow = {}
        unattributed: list[Violation] = []
        for violation, rows in [*value_violations, *checker.violations_with_rows()]:
            for row in rows:
                problem = RecordProblem(violation.rule, violation.message, violation.property)
                problems.setdefault(row, []).append(problem)
            if not rows:
                unattributed.append(violation)
        return problems, unattributed


def _fetch_existing_rows(backend: Backend, changes: ChangeSet, records: Sequence[ParsedRecord]) -> None:
    """Fetches the rows that have the ids of records: one read per type, all types in parallel."""
    ids_by_table: dict[str, list[str]] = {}
    for record in records:
        changes.pending_table(record.type)
        if not record.has_fresh_id:
            ids_by_table.setdefault(record.type.id, []).append(record.id)
    catalog = changes.catalog
    backend.in_parallel(lambda item: changes.pending_table(catalog.by_id[item[0]]).fetch(item[1]), ids_by_table.items())


ENGINE = "local"


class LocalLoad:
    """One load. The input is read once; the ids that it generates are the same in all attempts."""

    kind: CommitKind = "load"

    def __init__(self, backend: Backend, inputs: Inputs, options: LoadOptions, progress: Progress) -> None:
        self.op_id = backend.ids.ulid()
        self.summary = RejectSummary()
        self._backend = backend
        self._inputs = inputs
        self._options = options
        self._progress = progress
        self._batches: list[RawBatch] | None = None
        self._parsed: tuple[str, ParsedRecords] | None = None

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        """Parses, checks and plans the commit. Writes the rejects file now, so that it exists before the commit."""
        records = self._read_records(txn.catalog)
        with self._progress.step("check", rows=len(records.accepted)):
            accepted = self._find_rejects(txn, records)
        rejects = sorted([*records.rejects, *accepted.rejects], key=_input_position(self._inputs))
        self.summary = RejectSummary.from_rejects(rejects)
        path = self._write_rejects(rejects)
        if accepted.unattributed:
            unattributed = [_reject_without_record(violation) for violation in accepted.unattributed]
            raise load_rejected_error(RejectSummary.from_rejects([*unattributed, *rejects]), path, even_skipping=True)
        if rejects and self._options.on_error == "fail":
            raise load_rejected_error(self.summary, path)
        actions = accepted.changes.actions
        counts = _count_by_table(txn.catalog, actions)
        result = build_load_result(
            counts, self.summary, duplicates=accepted.duplicates, rejects_path=path, engine=ENGINE
        )
        if not accepted.changes.changes:
            return Receipt(None, {"inserted": 0, "updated": 0, "deleted": 0}, result)
        return accepted.changes.plan(self.kind, self.op_id, result=result)

    def _read_records(self, catalog: Catalog) -> ParsedRecords:
        if self._batches is None:
            self._batches = read_all(self._inputs, self._options)
        if self._parsed is None or self._parsed[0] != catalog.hash:
            with self._progress.step("read", size_bytes=self._inputs.size_bytes) as counter:
                records = parse_all(self._batches, catalog, self.op_id, self._options, counter)
            self._parsed = (catalog.hash, records)
        return self._parsed[1]

    def _find_rejects(self, txn: WriteTxn, records: ParsedRecords) -> AcceptedChanges:
        finder = RejectFinder(self._backend, txn, self._options, self._tables_in_input(txn.catalog, records))
        return finder.find(records.accepted)

    def _tables_in_input(self, catalog: Catalog, records: ParsedRecords) -> Sequence[str]:
        """Returns the types that the caller names or a well-formed record has: an overwrite replaces those."""
        resolved_types = (
            catalog.node(name) if kind == "node" else catalog.edge(name) for kind, name in self._inputs.named_types
        )
        named_types: list[TypeDef] = [type_def for type_def in resolved_types if type_def is not None]
        record_types = (record.type for record in records.accepted)
        return list(dict.fromkeys(type_def.id for type_def in [*named_types, *record_types]))

    def _write_rejects(self, rejects: Sequence[Reject]) -> str | None:
        if not rejects or self._options.rejects is None:
            return None
        name = f"rejects-{self.op_id}.ndjson"
        return write_rejects(self._options.rejects, name, rejects, self._options.storage_options)


def _input_position(inputs: Inputs) -> Callable[[Reject], tuple[int, int]]:
    source_order = {source.path: source.index for source in inputs.sources}
    return lambda reject: (source_order[reject.file], reject.line)


def _reject_without_record(violation: Violation) -> Reject:
    return Reject("", 0, None, violation.rule, violation.message, "", type=violation.type, id=violation.id)


def _count_by_table(catalog: Catalog, actions: Sequence[TableAction]) -> dict[str, dict[str, int]]:
    return {
        catalog.by_id[action.table].table_key: {
            "inserted": action.inserted,
            "updated": action.updated,
            "deleted": action.removed,
        }
        for action in actions
    }
