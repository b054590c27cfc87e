"""The load operation of the local engine: a small input becomes one change set, checked as a whole, and one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omnigraph.commit.publish_plan import PublishPlan, Receipt, TableAction, WriteTxn
from omnigraph.load.inputs import Inputs
from omnigraph.load.local.parse import ParsedRecords, parse_all, read_all
from omnigraph.load.local.reject import AcceptedChanges, RejectFinder
from omnigraph.load.options import LoadOptions
from omnigraph.load.records.batches import RawBatch, Reject
from omnigraph.load.rejects import write_rejects
from omnigraph.load.report import RejectSummary, build_load_result, load_rejected_error
from omnigraph.log.commit_record import CommitKind
from omnigraph.progress import Progress
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.schema.row_constraints import Violation
from omnigraph.storage.backend import Backend

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
