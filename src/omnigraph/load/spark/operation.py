"""A load on Spark as one operation on a snapshot: stage, check, index; then the same files on newer states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from omnigraph.commit.publish_plan import PublishPlan, Receipt, StagedMove, TableAction, WriteTxn
from omnigraph.commit.staging import base_table, pinned_version
from omnigraph.errors import LoadRejected
from omnigraph.load.options import LoadOptions
from omnigraph.load.records.model import Reject
from omnigraph.load.report import RejectSummary, load_rejected, load_result
from omnigraph.load.spark.check import Checks, Work
from omnigraph.load.spark.rebase import Recheck
from omnigraph.load.spark.stage import StageJob
from omnigraph.load.spark.staging_result import Gathered
from omnigraph.log.commit_record import CommitRecord, Kind, Stub
from omnigraph.log.indexes import wanted_indexes
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.stream import RecordStream
from omnigraph.progress import Progress
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import Catalog
from omnigraph.spark.base_table import BaseTable
from omnigraph.spark.constraints_by_shuffle import LoadedTable
from omnigraph.spark.tasks import run_tasks, spark_errors
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import build_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINE = "spark"

Stage = Callable[[StageJob], list[dict[str, Any]]]
"""Runs the job that writes the input's rows; its results, in the order of the input."""


@dataclass(frozen=True)
class Source:
    """What is loaded: splits to be staged under a catalog, and the types that the caller named."""

    job_of: Callable[[Snapshot], StageJob]
    stage: Stage
    named: Callable[[Catalog], Sequence[str]]
    order: Callable[[Reject], Any]


class SparkLoad:
    """One load. What was staged is kept over its attempts, for as long as the graph lets it be used."""

    kind: Kind = "load"

    def __init__(
        self,
        backend: Backend,
        session: SparkSession,
        records: RecordStream,
        source: Source,
        options: LoadOptions,
        progress: Progress,
        op_id: str,
    ) -> None:
        self.op_id = op_id
        self.summary = RejectSummary()
        self.attempts_staged = 0
        self._backend = backend
        self._session = session
        self._records = records
        self._source = source
        self._options = options
        self._progress = progress
        self._work: Work | None = None
        self._refused: tuple[str, LoadRejected] | None = None

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        """Stage and check on this state, or carry over what was staged on an older one."""
        if self._refused is not None and self._refused[0] == txn.record.schema:
            raise self._refused[1]  # records that are bad in any state of the graph
        work = self._carried(txn.snapshot) or self._staged(txn.snapshot)
        self._work = work
        self.summary = work.summary
        return self._plan(work)

    # --- on a new state ----------------------------------------------------------------------------------------

    def _carried(self, snapshot: Snapshot) -> Work | None:
        """The same files on a newer record; None if they cannot be used there."""
        work = self._work
        if work is None or snapshot.record.schema != work.snapshot.record.schema:
            return None
        recheck = Recheck(snapshot.catalog, self._backend.tables, work.loaded)
        between = self._between(work.snapshot.record, snapshot.record)
        if between is None or recheck.since(between, work.snapshot, snapshot) is not None:
            return None
        self._backend.pauses.reach("load.rebasing")
        with self._progress.step("rebase"):
            loaded = {table: self._moved(one, work.snapshot, snapshot) for table, one in work.loaded.items()}
        return replace(work, snapshot=snapshot, loaded=loaded)

    def _between(self, old: CommitRecord, new: CommitRecord) -> list[CommitRecord] | None:
        """The records after `old` up to `new`; None if one of them forbids to name what was staged before it."""
        found: list[CommitRecord] = []
        for entry in self._records.after_many(old.seq):
            if entry.seq > new.seq:
                break
            if isinstance(entry, Stub) or (entry.kind == "gc" and not self._honoured(entry)):
                return None
            found.append(entry)
        return found if old.seq + len(found) == new.seq else None

    def _honoured(self, record: CommitRecord) -> bool:
        return self.op_id in (record.gc or {}).get("honours", ())

    def _moved(self, one: LoadedTable, old: Snapshot, new: Snapshot) -> LoadedTable:
        base = _base_of(new, one.type.id)
        if pinned_version(old.record, one.type.id) == pinned_version(new.record, one.type.id):
            return replace(one, base=base)
        _, pinned = base_table(self._backend, new.record, one.type.id, one.type.kind)
        staged = self._backend.tables.restage(one.staged, pinned)
        return replace(one, base=base, staged=staged, own=tuple(self._backend.tables.bulk.own_fragments(staged)))

    # --- from the input ----------------------------------------------------------------------------------------

    def _staged(self, snapshot: Snapshot) -> Work:
        self.attempts_staged += 1
        job = self._source.job_of(snapshot)
        if self.attempts_staged > 1 and job.rejects_at is not None:
            # What the attempt before has written may not be what is rejected now.
            job = replace(job, rejects_at=f"{job.rejects_at}-{self.attempts_staged}")
        with spark_errors():
            with self._progress.step("stage", self._session, size_bytes=sum(one.size_bytes for one in job.splits)):
                gathered = Gathered.of(self._source.stage(job))
            self._backend.pauses.reach("load.staged")
            loaded = self._provisional(snapshot, job, gathered)
            with self._progress.step("check", self._session, rows=gathered.rows):
                order = self._source.order
                checks = Checks(self._backend, self._session, self._options, snapshot, job, gathered, loaded, order)
                work = checks.run()
        if work.summary.count and self._options.on_error == "fail":
            error = load_rejected(work.summary, work.rejects_path)
            if not work.rounds and not job.parser.partial:
                self._refused = (snapshot.record.schema, error)
            raise error
        self._backend.pauses.reach("load.checked")
        return self._indexed(work)

    def _provisional(self, snapshot: Snapshot, job: StageJob, gathered: Gathered) -> dict[str, LoadedTable]:
        """Every table with the input's rows added, as versions that nobody names."""
        catalog, tables = snapshot.catalog, self._backend.tables
        overwrite = self._options.mode == "overwrite"
        named = self._source.named(catalog) if overwrite else ()
        wanted = dict.fromkeys([*named, *gathered.fragments])

        def stage(table: str) -> LoadedTable:
            one, base = catalog.by_id[table], job.bases[table]
            _, pinned = base_table(self._backend, snapshot.record, table, one.kind)
            staged = tables.bulk.stage(
                pinned, arrow_schema(one), gathered.fragments.get(table, ()), overwrite=overwrite
            )
            covered = base.version is not None and base.overlay is not None
            return LoadedTable(
                type=one,
                base=base,
                staged=staged,
                own=tuple(tables.bulk.own_fragments(staged)),
                overwrite=overwrite,
                replaces=overwrite or gathered.present[table] > 0 or covered,
                repeats=gathered.portions[table] > 1 and table not in gathered.minted,
            )

        return dict(zip(wanted, self._backend.in_parallel(stage, wanted), strict=True))

    def _indexed(self, work: Work) -> Work:
        """Indexes over what was loaded, built by workers: search and traversal are fast right after the commit."""
        bulk, place = self._backend.tables.bulk, work.job.place
        wanted = {table: wanted_indexes(one.type, bulk.version_of(one.staged)) for table, one in work.loaded.items()}
        todo = [
            (table, work.loaded[table].staged.version or "", plan)
            for table, specs in wanted.items()
            for plan in bulk.index_plans(work.loaded[table].staged, specs)
            if plan.fragments
        ]

        def build(number: int) -> list[dict[str, Any]]:
            table, version, plan = todo[number]
            return [{"type": table, "index": build_elsewhere(place, table, version, plan)}]

        with self._progress.step("index", self._session), spark_errors():
            built = run_tasks(self._session, len(todo), build)
        loaded = dict(work.loaded)
        for table, specs in wanted.items():
            own = [one["index"] for one in built if one["type"] == table and one["index"] is not None]
            loaded[table] = replace(loaded[table], staged=bulk.put_indexes(loaded[table].staged, specs, own))
        self._backend.pauses.reach("load.indexed")
        return replace(work, loaded=loaded)

    # --- the plan ----------------------------------------------------------------------------------------------

    def _plan(self, work: Work) -> PublishPlan | Receipt:
        actions = [action for one in work.loaded.values() if (action := self._action(work, one)) is not None]
        counts = {
            work.snapshot.catalog.by_id[one.table].table_key: {
                "inserted": one.inserted,
                "updated": one.updated,
                "deleted": one.removed,
            }
            for one in actions
        }
        result = load_result(
            counts, work.summary, duplicates=work.duplicates, rejects_path=work.rejects_path, engine=ENGINE
        )
        if not actions:
            return Receipt(None, {"inserted": 0, "updated": 0, "deleted": 0}, result)
        recheck = Recheck(work.snapshot.catalog, self._backend.tables, work.loaded)
        return PublishPlan(
            kind=self.kind,
            op_id=self.op_id,
            base=work.snapshot.record,
            footprint=recheck.footprint,
            actions=tuple(actions),
            judge=recheck.judge,
            result=result,
        )

    def _action(self, work: Work, one: LoadedTable) -> TableAction | None:
        table, staged = one.type.id, one.staged
        record = work.snapshot.record
        if not one.has_rows and not one.overwrite:
            return None
        held = self._backend.tables.bulk.version_of(staged)
        move = StagedMove(pinned_version(record, table), staged, held.version, held.size_bytes, held.fragments)
        action = TableAction(table, staged.schema, overwrite=one.overwrite, move=move)
        if one.overwrite:
            again = work.kept.get(table, 0)
            before = record.pins[table].rows if table in record.pins else 0
            return replace(action, inserted=staged.rows_written - again, updated=again, removed=before - again)
        superseded, updated = self._superseded(work.snapshot, one)
        return replace(action, inserted=staged.rows_written - updated, updated=updated, superseded=tuple(superseded))

    def _superseded(self, snapshot: Snapshot, one: LoadedTable) -> tuple[list[str], int]:
        """Overlay entries that the staged rows replace, and how many rows that a reader sees are replaced in all."""
        entries = snapshot.record.overlay.get(one.type.id)
        if entries is None:
            return [], one.staged.rows_removed
        held = self._backend.tables.bulk.version_of(one.staged)
        ids = held.find_in(set(one.own), "id", list(entries.index), ["id"])["id"].to_pylist()
        version = pinned_version(snapshot.record, one.type.id)
        below = self._backend.tables.open(one.type.id, version).addresses(ids).num_rows if version and ids else 0
        shown = sum(one not in entries.tombstones for one in ids)
        return ids, one.staged.rows_removed - below + shown


def bases_of(snapshot: Snapshot) -> dict[str, BaseTable]:
    """Every table of the schema as the load finds it."""
    return {one.id: _base_of(snapshot, one.id) for one in snapshot.catalog.types}


def _base_of(snapshot: Snapshot, table: str) -> BaseTable:
    entries = snapshot.record.overlay.get(table)
    return BaseTable(pinned_version(snapshot.record, table), entries.encoded if entries is not None else None)
