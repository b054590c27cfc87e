"""Three-way merge of one branch into another, decided row by row and checked like any other change.

The head of the source is read once. The target may move on; then the merge is prepared again on its newest commit
record. Only rows that the source changed since the base are read, and only those that the target changed too need all
three versions. A merge of many changed rows is planned by a `MergeExecutor` on Spark, with the same row decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from omnigraph.commit.graph_runtime import Branch, GraphRuntime
from omnigraph.commit.publish_plan import PublishPlan, Receipt, WriteOptions, WriteTxn
from omnigraph.errors import ConstraintViolation, MergeConflict
from omnigraph.history.adoption import adopt_tables
from omnigraph.history.decide_row import MergeOptions, RowVersions, as_conflict, conflict_sort_key, decide_row
from omnigraph.history.merge_base import MergeBase, build_merge_base
from omnigraph.log.commit_record import CommitKind, CommitRecord
from omnigraph.log.lineage import OpenStream, RecordCache, find_content_commit, merge_bases
from omnigraph.log.snapshot import Catalogs, Snapshot
from omnigraph.log.stream import RecordStream
from omnigraph.mutate.change_set import ChangeSet
from omnigraph.mutate.changed_rows import columns_to_compare, is_same_row, read_rows
from omnigraph.mutate.pending_table import Row, RowChange
from omnigraph.progress import report_progress
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.schema.combine import merge_catalogs
from omnigraph.storage.backend import Backend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MergeEngine = Literal["auto", "local", "spark"]
"""Where the rows of a merge are decided: `auto` chooses by their number between this process and Spark."""


@dataclass(frozen=True)
class MergeInput:
    """One attempt of a merge: what is merged, into what, since when, and under which schema."""

    op_id: str
    txn: WriteTxn
    source: Snapshot
    base: MergeBase
    catalog: Catalog
    outcome: str
    options: MergeOptions
    source_stream: RecordStream

    @property
    def target(self) -> Snapshot:
        return self.txn.snapshot

    @property
    def new_catalog(self) -> Catalog | None:
        """The schema that the merge gives to the target; None if the target keeps its own."""
        return self.catalog if self.catalog.hash != self.target.catalog.hash else None

    @property
    def types(self) -> list[TypeDef]:
        """The types of the merged graph of which the source may have changed rows."""
        by_id = self.catalog.by_id
        return [by_id[table] for table in self.base.tables_changed_in(self.source) if table in by_id]


class MergeExecutor(Protocol):
    """Plans a merge that is too large for this process."""

    def accepts(self, merge: MergeInput) -> bool:
        """Whether the executor, and not this process, plans this attempt."""

    def plan(self, merge: MergeInput) -> PublishPlan:
        """The merge as a plan. Raises MergeConflict."""

    def confirm(self, plan: PublishPlan) -> PublishPlan:
        """The staged plan as it is to be published."""

    def end(self, commit_id: str | None) -> None:
        """The merge has landed, or there was nothing to do."""


@dataclass(frozen=True)
class MergeEngineSettings:
    """Where a merge runs, as the caller says. `require_writable` is called before Spark stages anything."""

    engine: MergeEngine
    session: SparkSession | None
    master: str | None
    spark_conf: Mapping[str, str]
    progress: bool | None
    require_writable: Callable[[], None]

    def open_session(self) -> SparkSession:
        from omnigraph.spark.session import get_session
        from omnigraph.spark.settings import SparkSettings

        self.require_writable()
        settings = None
        if self.master is not None or self.spark_conf:
            settings = SparkSettings.from_environment(master=self.master, conf=dict(self.spark_conf))
        return get_session(settings, self.session)


def run_merge(
    runtime: GraphRuntime,
    source: CommitRecord,
    target: Branch,
    options: MergeOptions,
    write: WriteOptions,
    settings: MergeEngineSettings,
    holder: str | None,
) -> Receipt:
    """Merge `source` into the target branch, in one commit."""
    with choose_executor(runtime.backend, write, settings) as executor:
        merge = Merge(runtime.backend, runtime.catalogs, runtime.records, source, options, executor)
        receipt = target.writer.run(merge, write, holder)
        if executor is not None:
            executor.end(receipt.commit_id)
    return receipt


def preview_merge(
    runtime: GraphRuntime,
    source: CommitRecord,
    target: Branch,
    options: MergeOptions,
    write: WriteOptions,
    settings: MergeEngineSettings,
) -> PublishPlan | Receipt:
    """What `run_merge` would publish. On Spark it stages files, which no commit names."""
    with choose_executor(runtime.backend, write, settings) as executor:
        return target.writer.preview(
            Merge(runtime.backend, runtime.catalogs, runtime.records, source, options, executor)
        )


@contextmanager
def choose_executor(
    backend: Backend, write: WriteOptions, settings: MergeEngineSettings
) -> Iterator[MergeExecutor | None]:
    """The executor of a large merge; None if the merge runs in this process, however large it is."""
    if settings.engine == "local":
        yield None
        return
    from omnigraph.history.spark.merge import SparkMergeExecutor

    with (
        report_progress(settings.progress) as progress,
        SparkMergeExecutor(backend, write, settings.engine, settings.open_session, progress) as executor,
    ):
        yield executor


class Merge:
    """The operation that the writer runs: the source is fixed, the target is that of each attempt."""

    kind: CommitKind = "merge"

    def __init__(
        self,
        backend: Backend,
        catalogs: Catalogs,
        open_stream: OpenStream,
        source: CommitRecord,
        options: MergeOptions,
        executor: MergeExecutor | None = None,
    ) -> None:
        self.op_id = backend.ids.ulid()
        self._backend = backend
        self._catalogs = catalogs
        self._open_stream = open_stream
        self._source = Snapshot(backend, source, catalogs.get(source.schema))
        self._options = options
        self._executor = executor

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        merge = self._find_input(txn)
        if merge is None:
            return Receipt(None, result={"outcome": "already_up_to_date"})
        if self._executor is not None and self._executor.accepts(merge):
            return self._executor.plan(merge)
        return plan_in_process(self._backend, merge)

    def confirm(self, plan: PublishPlan) -> PublishPlan:
        return self._executor.confirm(plan) if self._executor is not None else plan

    def _find_input(self, txn: WriteTxn) -> MergeInput | None:
        """The merge base and the merged schema; None if the target already has everything."""
        source, target = self._source.record, txn.snapshot
        # The bases of the heads themselves, not of the commits whose content they repeat: nearest in layout as well.
        commit_records = RecordCache(self._open_stream, [target.record, source])
        bases = merge_bases(commit_records, [target.record], source)
        target_content, source_content, *base_contents = (
            find_content_commit(commit_records, commit_record) for commit_record in (target.record, source, *bases)
        )
        if source_content in base_contents:
            return None
        base = build_merge_base(self._backend, self._catalogs, commit_records, bases)
        base_catalogs = [self._catalogs.get(commit_record.schema) for commit_record in base.records]
        return MergeInput(
            op_id=self.op_id,
            txn=txn,
            source=self._source,
            base=base,
            catalog=merge_catalogs(base_catalogs, self._source.catalog, target.catalog),
            outcome="fast_forward" if target_content in base_contents else "merged",
            options=self._options,
            source_stream=self._open_stream(source.stream),
        )


def plan_in_process(backend: Backend, merge: MergeInput) -> PublishPlan:
    """Decide all rows, check the change and plan the commit, in this process. Raises MergeConflict."""
    decisions = _RowDecisions(merge)
    merged = decisions.decide_tables()
    changes = ChangeSet(backend, merge.txn, merge.catalog)
    for table, rows in merged.items():
        changes.remember_committed(table, decisions.target_rows[table])
        changes.put_all(table, rows)
    changes.depend_on(decisions.ids_read)
    if merge.outcome == "fast_forward":
        # A fast-forward relies on the target having no changes of its own: any change there means another attempt.
        for type_def in merge.catalog.types:
            changes.claims.read_all(type_def.id)
    conflicts = [*decisions.conflicts, *_check(changes)]
    if conflicts:
        raise merge_conflict(conflicts)
    plan = changes.plan(
        kind="merge",
        op_id=merge.op_id,
        catalog=merge.new_catalog,
        merged_header=merge.source.record.header,
        result={"outcome": merge.outcome},
    )
    return adopt_tables(plan, merge.base, merge.source, merge.target, merge.catalog, merge.source_stream)


class _RowDecisions:
    """The row decision for every row that the source changed."""

    def __init__(self, merge: MergeInput) -> None:
        self._merge = merge
        self.conflicts: list[Mapping[str, Any]] = []
        self.ids_read: dict[str, set[str]] = {}
        self.target_rows: dict[str, dict[str, Row | None]] = {}

    def decide_tables(self) -> dict[str, dict[str, Row | None]]:
        """By table, the rows of the target that change; None for rows that are removed."""
        return {type_def.id: self._decide_table(type_def) for type_def in self._merge.types}

    def _decide_table(self, type_def: TypeDef) -> dict[str, Row | None]:
        table, columns, base = type_def.id, columns_to_compare(type_def), self._merge.base
        source_changes = base.changes_in(self._merge.source, table, columns)
        self.ids_read[table] = set(source_changes)
        target_rows = self.target_rows[table] = self._read_target(table, source_changes)
        merged: dict[str, Row | None] = {}
        for row_id, change in source_changes.items():
            target = target_rows.get(row_id)
            versions = RowVersions(change.before, change.after, target, base.is_settled(table, row_id))
            decision = decide_row(type_def, columns, self._merge.options, row_id, versions)
            if decision.conflict is not None:
                self.conflicts.append(decision.conflict)
            if not decision.keep and not is_same_row(decision.row, target, columns):
                merged[row_id] = decision.row
        return merged

    def _read_target(self, table: str, source_changes: Mapping[str, RowChange]) -> dict[str, Row | None]:
        """The target's rows that the source changed. A table that the target left as it was is not read again."""
        if self._merge.base.is_state_of(self._merge.target, table):
            return {row_id: change.before for row_id, change in source_changes.items()}
        rows = read_rows(self._merge.target, table, source_changes)
        return {row_id: rows.get(row_id) for row_id in source_changes}


def _check(changes: ChangeSet) -> list[dict[str, Any]]:
    """The constraints that the merged change violates, as conflicts."""
    try:
        changes.check()
    except ConstraintViolation as error:
        return [as_conflict(violation) for violation in error.violations]
    return []


def merge_conflict(conflicts: Iterable[Mapping[str, Any]], count: int | None = None) -> MergeConflict:
    """The error that lists all conflicts, or the first of `count`."""
    ordered = sorted(conflicts, key=conflict_sort_key)
    total = len(ordered) if count is None else count
    more = f" (and {total - 1} more)" if total > 1 else ""
    details: dict[str, Any] = {"merge_conflicts": [dict(conflict) for conflict in ordered]}
    if total > len(ordered):
        details["conflict_count"] = total
    return MergeConflict(
        f"the branches cannot be merged: {ordered[0]['message']}{more}",
        advice="Nothing was written; settle the conflicts with a resolution, or change the source branch",
        **details,
    )
