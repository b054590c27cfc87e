"""The engine without a JVM: a small input as one change set, checked as a whole, published as one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omnigraph.commit.publish_plan import PublishPlan, Receipt, TableAction, WriteTxn
from omnigraph.load.inputs import Inputs
from omnigraph.load.local.records import Records, parse_all, read_all
from omnigraph.load.local.reject import Judge, Verdict
from omnigraph.load.options import LoadOptions
from omnigraph.load.records.model import RawBatch, Reject
from omnigraph.load.rejects import write_rejects
from omnigraph.load.report import RejectSummary, load_rejected, load_result
from omnigraph.log.commit_record import Kind
from omnigraph.progress import Progress
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.storage.backend import Backend

ENGINE = "local"


class LocalLoad:
    """One load. Input is read once; ids it makes stay the same over all its attempts."""

    kind: Kind = "load"

    def __init__(self, backend: Backend, inputs: Inputs, options: LoadOptions, progress: Progress) -> None:
        self.op_id = backend.ids.ulid()
        self.summary = RejectSummary()
        self._backend = backend
        self._inputs = inputs
        self._options = options
        self._progress = progress
        self._batches: list[RawBatch] | None = None
        self._parsed: tuple[str, Records] | None = None

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        """The plan. Only a rejects file is written: before the commit, so that nobody has to miss it afterwards."""
        records = self._records(txn.catalog)
        with self._progress.step("check", rows=len(records.good)):
            verdict = self._judge(txn, records)
        rejects = sorted([*records.rejects, *verdict.rejects], key=_input_order(self._inputs))
        self.summary = RejectSummary.of(rejects)
        path = self._written(rejects)
        if verdict.unowned:
            unowned = [_unowned_reject(one.rule, one.message, one.type, one.id) for one in verdict.unowned]
            raise load_rejected(RejectSummary.of([*unowned, *rejects]), path, even_skipping=True)
        if rejects and self._options.on_error == "fail":
            raise load_rejected(self.summary, path)
        actions = verdict.changes.actions
        result = load_result(
            _counts(txn.catalog, actions),
            self.summary,
            duplicates=verdict.duplicates,
            rejects_path=path,
            engine=ENGINE,
        )
        if not verdict.changes.changes:
            return Receipt(None, {"inserted": 0, "updated": 0, "deleted": 0}, result)
        return verdict.changes.plan(self.kind, self.op_id, result=result)

    def _records(self, catalog: Catalog) -> Records:
        if self._batches is None:
            self._batches = read_all(self._inputs, self._options)
        if self._parsed is None or self._parsed[0] != catalog.hash:
            with self._progress.step("read", size_bytes=self._inputs.size_bytes) as counter:
                self._parsed = (
                    catalog.hash,
                    parse_all(self._batches, catalog, self.op_id, self._options, counter),
                )
        return self._parsed[1]

    def _judge(self, txn: WriteTxn, records: Records) -> Verdict:
        judge = Judge(self._backend, txn, self._options, self._present(txn.catalog, records))
        return judge.run(records.good)

    def _present(self, catalog: Catalog, records: Records) -> Sequence[str]:
        """Types that the input speaks of: named by the caller, or by a record that is good by itself."""
        named = (catalog.node(name) if kind == "node" else catalog.edge(name) for kind, name in self._inputs.named)
        found: list[TypeDef] = [one for one in named if one is not None]
        return list(dict.fromkeys(one.id for one in [*found, *(record.type for record in records.good)]))

    def _written(self, rejects: Sequence[Reject]) -> str | None:
        if not rejects or self._options.rejects is None:
            return None
        name = f"rejects-{self.op_id}.ndjson"
        return write_rejects(self._options.rejects, name, rejects, self._options.storage_options)


def _input_order(inputs: Inputs) -> Callable[[Reject], tuple[int, int]]:
    place = {source.path: source.index for source in inputs.sources}
    return lambda one: (place[one.file], one.line)


def _unowned_reject(rule: str, message: str, type_key: str, row_id: str) -> Reject:
    return Reject("", 0, None, rule, message, "", type=type_key, id=row_id)


def _counts(catalog: Catalog, actions: Sequence[TableAction]) -> dict[str, dict[str, int]]:
    return {
        catalog.by_id[one.table].table_key: {
            "inserted": one.inserted,
            "updated": one.updated,
            "deleted": one.removed,
        }
        for one in actions
    }
