"""Load on Spark, from the input to one commit: split, parse, stage, check, reject, index, rebase, publish.

`SparkLoad.prepare` is the pipeline; each step is a module of this room with the same name. A load of a large input
runs under an intent, so that recovery can finish or abandon it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from omnigraph.commit.graph_runtime import Branch, GraphRuntime
from omnigraph.commit.publish_plan import PublishPlan, Receipt, WriteOptions, WriteTxn
from omnigraph.errors import InvalidInput, LoadRejected
from omnigraph.intents.run_bulk import BULK_BYTES, run_bulk
from omnigraph.load.options import LoadOptions
from omnigraph.load.report import LoadReport, RejectSummary, load_rejected_error
from omnigraph.load.run import LoadJob
from omnigraph.load.spark.check import CheckedLoad, LoadChecker
from omnigraph.load.spark.parse import StageJob
from omnigraph.load.spark.publish import build_indexes, plan_load
from omnigraph.load.spark.rebase import rebase
from omnigraph.load.spark.split import FileInput, FrameInput, LoadInput
from omnigraph.load.spark.stage import StagingResult, stage_tables
from omnigraph.log.commit_record import CommitKind
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.stream import RecordStream
from omnigraph.progress import Progress, report_progress
from omnigraph.schema.catalog import EntityKind
from omnigraph.spark.session import get_session
from omnigraph.spark.settings import SparkSettings
from omnigraph.spark.tasks import spark_errors
from omnigraph.spark.watch_tasks import watch_tasks
from omnigraph.storage.backend import Backend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class FrameLoad:
    """A load of frames: by kind and name of a type, a frame whose columns are `id`, `from`, `to` and properties."""

    runtime: GraphRuntime
    branch: Branch
    holder: str | None
    frames: Mapping[tuple[EntityKind, str], DataFrame]
    options: LoadOptions
    write: WriteOptions
    progress: bool | None = None


def load_files(job: LoadJob) -> LoadReport:
    """Load files. A small input runs without an intent."""
    settings = None
    if job.master is not None or job.spark_conf:
        settings = SparkSettings.from_environment(master=job.master, conf=job.spark_conf)
    session = get_session(settings, job.session)
    backend = job.runtime.backend
    op_id = backend.ids.ulid()
    load_input = FileInput(job.inputs, job.options, session, op_id, backend.config.load_concurrency)
    with report_progress(job.progress) as progress:
        load = SparkLoad(backend, session, job.branch.publisher.records, load_input, job.options, progress, op_id)
        return _run(load, job.branch, job.write, job.holder, is_large=job.inputs.size_bytes > BULK_BYTES)


def load_frames(load: FrameLoad) -> LoadReport:
    """Load frames. They may hold any number of rows, so there is always an intent."""
    if not load.frames:
        raise InvalidInput("no frame is given", code="no_input", advice="Name at least one type and its frame")
    session = next(iter(load.frames.values())).sparkSession
    backend = load.runtime.backend
    op_id = backend.ids.ulid()
    frame_input = FrameInput(load.frames, load.options, op_id, backend.config.load_concurrency)
    write = replace(load.write, on_conflict="fail") if load.options.mode == "overwrite" else load.write
    with report_progress(load.progress) as progress:
        operation = SparkLoad(
            backend, session, load.branch.publisher.records, frame_input, load.options, progress, op_id
        )
        return _run(operation, load.branch, write, load.holder, is_large=True)


def _run(load: SparkLoad, branch: Branch, write: WriteOptions, holder: str | None, *, is_large: bool) -> LoadReport:
    if is_large:
        receipt = run_bulk(load.backend, branch.writer, load, write, holder, stages_in_prepare=True)
    else:
        receipt = branch.writer.run(load, write, holder)
    report = LoadReport.from_receipt(receipt)
    if receipt.replayed:
        return report
    return replace(report, sample=tuple(reject.to_json() for reject in load.summary.sample))


class SparkLoad:
    """One load, as the writer runs it. Staged files are kept over its attempts for as long as they can be used."""

    kind: CommitKind = "load"

    def __init__(
        self,
        backend: Backend,
        session: SparkSession,
        stream: RecordStream,
        load_input: LoadInput,
        options: LoadOptions,
        progress: Progress,
        op_id: str,
    ) -> None:
        self.summary = RejectSummary()
        self.op_id = op_id
        self.backend = backend
        self.attempts_staged = 0
        self._session = session
        self._stream = stream
        self._input = load_input
        self._options = options
        self._progress = progress
        self._checked: CheckedLoad | None = None
        self._final_refusal: tuple[str, LoadRejected] | None = None

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        """Stage and check on this snapshot, or rebase what was staged on an older one; then plan the commit."""
        self._repeat_refusal(txn.record.schema)
        checked = self._rebase(txn.snapshot)
        if checked is None:
            job = self._split(txn.snapshot)
            with spark_errors():
                staging = self._parse_and_stage(job)
                checked = self._check_and_reject(txn.snapshot, job, staging)
            self._refuse_rejects(checked)
            checked = self._index(checked)
        self._checked, self.summary = checked, checked.summary
        return plan_load(self.backend, self.op_id, checked)

    def _rebase(self, snapshot: Snapshot) -> CheckedLoad | None:
        if self._checked is None:
            return None
        return rebase(self.backend, self.op_id, self._stream, self._checked, snapshot, self._progress)

    def _split(self, snapshot: Snapshot) -> StageJob:
        self.attempts_staged += 1
        job = self._input.split(snapshot)
        if self.attempts_staged > 1 and job.rejects_path is not None:
            # Another folder: an earlier attempt may have left files of rejects that this one does not have.
            job = replace(job, rejects_path=f"{job.rejects_path}-{self.attempts_staged}")
        return job

    def _parse_and_stage(self, job: StageJob) -> StagingResult:
        size_bytes = sum(split.size_bytes for split in job.splits)
        with self._progress.step("stage", watch_tasks(self._session), size_bytes=size_bytes):
            staging = StagingResult.from_tasks(self._input.stage(job))
        self.backend.pauses.reach("load.staged")
        return staging

    def _check_and_reject(self, snapshot: Snapshot, job: StageJob, staging: StagingResult) -> CheckedLoad:
        named_types = self._input.named_types(snapshot.catalog) if self._options.mode == "overwrite" else ()
        tables = stage_tables(self.backend, snapshot, job, staging, named_types)
        with self._progress.step("check", watch_tasks(self._session), rows=staging.rows):
            return LoadChecker(
                self.backend, self._session, self._options, snapshot, job, staging, tables, self._input.sort_key
            ).run()

    def _index(self, checked: CheckedLoad) -> CheckedLoad:
        self.backend.pauses.reach("load.checked")
        with self._progress.step("index", watch_tasks(self._session)), spark_errors():
            indexed = build_indexes(self.backend, self._session, checked)
        self.backend.pauses.reach("load.indexed")
        return indexed

    def _refuse_rejects(self, checked: CheckedLoad) -> None:
        """Raise LoadRejected if records were rejected and the caller does not want to skip them."""
        if not checked.summary.count or self._options.on_error != "fail":
            return
        error = load_rejected_error(checked.summary, checked.rejects_path)
        if not checked.rounds and not checked.job.parser.partial:
            self._final_refusal = (checked.snapshot.record.schema, error)
        raise error

    def _repeat_refusal(self, schema: str) -> None:
        """Records that are invalid by themselves are so on every snapshot with the same schema."""
        if self._final_refusal is not None and self._final_refusal[0] == schema:
            raise self._final_refusal[1]
