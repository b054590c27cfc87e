"""Loading on Spark: files by splits, frames by partitions, under an intent if the input is large; one commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.commit.graph_runtime import Branch, GraphRuntime
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.errors import InvalidInput
from omnigraph.intents.run_bulk import BULK_BYTES, run_bulk
from omnigraph.load.inputs import plan_splits
from omnigraph.load.options import LoadOptions
from omnigraph.load.records.batches import ColumnBatch, Reject, Split
from omnigraph.load.records.parse import RecordParser
from omnigraph.load.report import LoadReport
from omnigraph.load.run import LoadJob
from omnigraph.load.spark.operation import Source, SparkLoad, bases_of
from omnigraph.load.spark.reject import FRAME
from omnigraph.load.spark.stage import StageJob, portions, stage_split, staged_result
from omnigraph.log.snapshot import Snapshot
from omnigraph.progress import Progress, report_progress
from omnigraph.schema.catalog import Catalog, EntityKind, no_such_type
from omnigraph.spark.session import get_session
from omnigraph.spark.settings import SparkSettings
from omnigraph.spark.tasks import RESULT, results, run_tasks, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITION_BITS = 20
_PORTIONS_PER_PARTITION = 1 << 12


def run(job: LoadJob) -> LoadReport:
    """Load files."""
    settings = None
    if job.master is not None or job.spark_conf:
        settings = SparkSettings.from_environment(master=job.master, conf=job.spark_conf)
    session = get_session(settings, job.session)
    op_id = job.site.backend.ids.ulid()
    source = _FileSource(job, session, op_id).source()
    with report_progress(job.progress) as progress:
        place = _Place(job.site, job.branch, job.holder, session, progress)
        is_large = job.inputs.size_bytes > BULK_BYTES
        return _run(place, source, job.options, job.write, op_id, is_large=is_large)


@dataclass(frozen=True)
class FrameLoad:
    """A load of frames: by kind and name of a type, a frame whose columns are `id`, `from`, `to` and properties."""

    site: GraphRuntime
    branch: Branch
    holder: str | None
    frames: Mapping[tuple[EntityKind, str], DataFrame]
    options: LoadOptions
    write: WriteOptions
    progress: bool | None = None


def run_frames(load: FrameLoad) -> LoadReport:
    """Load frames, which may hold any number of rows; so there is always an intent."""
    if not load.frames:
        raise InvalidInput("no frame is given", code="no_input", advice="Name at least one type and its frame")
    session = next(iter(load.frames.values())).sparkSession
    op_id = load.site.backend.ids.ulid()
    source = _FrameSource(load, op_id).source()
    write = replace(load.write, on_conflict="fail") if load.options.mode == "overwrite" else load.write
    with report_progress(load.progress) as progress:
        place = _Place(load.site, load.branch, load.holder, session, progress)
        return _run(place, source, load.options, write, op_id, is_large=True)


@dataclass(frozen=True)
class _Place:
    site: GraphRuntime
    branch: Branch
    holder: str | None
    session: SparkSession
    progress: Progress


def _run(
    place: _Place, source: Source, options: LoadOptions, write: WriteOptions, op_id: str, *, is_large: bool
) -> LoadReport:
    backend, publisher = place.site.backend, place.branch.publisher
    load = SparkLoad(backend, place.session, publisher.records, source, options, place.progress, op_id)
    if is_large:
        receipt = run_bulk(backend, place.branch.writer, load, write, place.holder, stages_in_prepare=True)
    else:
        receipt = place.branch.writer.run(load, write, place.holder)
    report = LoadReport.from_receipt(receipt)
    if receipt.replayed:
        return report
    return replace(report, sample=tuple(one.to_json() for one in load.summary.sample))


def _stage_job(snapshot: Snapshot, options: LoadOptions, op_id: str, splits: Sequence[Split], opens: Any) -> StageJob:
    bases = bases_of(snapshot)
    merging = options.mode == "merge" and not all(one.is_empty for one in bases.values())
    return StageJob(
        place=snapshot.backend.tables.location,
        parser=RecordParser(snapshot.catalog, op_id, partial=merging),
        splits=tuple(splits),
        open_file=opens,
        bases=bases,
        mode=options.mode,
        last_wins=options.mode == "merge" and options.on_duplicate == "last",
        limits=options.limits,
        rejects_at=f"{options.rejects.rstrip('/')}/rejects-{op_id}" if options.rejects is not None else None,
        storage_options=options.storage_options,
    )


@dataclass(frozen=True)
class _FileSource:
    job: LoadJob
    session: SparkSession
    op_id: str

    def source(self) -> Source:
        places = {one.path: one.index for one in self.job.inputs.sources}
        return Source(self._job_of, self._stage, self._named, lambda one: (places[one.file], one.line))

    def _job_of(self, snapshot: Snapshot) -> StageJob:
        splits = plan_splits(self.job.inputs, self.job.options.split_bytes)
        return _stage_job(snapshot, self.job.options, self.op_id, splits, self.job.inputs.files.open)

    def _stage(self, stage: StageJob) -> list[dict[str, Any]]:
        at_once = self.job.site.backend.config.load_concurrency or None
        return run_tasks(self.session, len(stage.splits), lambda number: stage_split(stage, number), at_once)

    def _named(self, catalog: Catalog) -> list[str]:
        return _type_ids(catalog, self.job.inputs.named_types)


@dataclass(frozen=True)
class _FrameSource:
    load: FrameLoad
    op_id: str

    def source(self) -> Source:
        return Source(self._job_of, self._stage, self._named, _frame_order)

    def _job_of(self, snapshot: Snapshot) -> StageJob:
        _type_ids(snapshot.catalog, self.load.frames)
        splits = [
            Split(at, f"{FRAME}{name}", "parquet", kind, name) for at, (kind, name) in enumerate(self.load.frames)
        ]
        return _stage_job(snapshot, self.load.options, self.op_id, splits, _no_file)

    def _stage(self, stage: StageJob) -> list[dict[str, Any]]:
        at_once = self.load.site.backend.config.load_concurrency
        found: list[dict[str, Any]] = []
        for number, frame in enumerate(self.load.frames.values()):
            bounded = frame.coalesce(at_once) if at_once else frame
            found += results(bounded.mapInArrow(_frame_stager(stage, number), RESULT))
        return found

    def _named(self, catalog: Catalog) -> list[str]:
        return _type_ids(catalog, self.load.frames)


def _frame_stager(stage: StageJob, number: int) -> Any:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        whole = stage.splits[number]
        split = replace(whole, path=f"{whole.path}[{partition}]", source_index=(number << _PARTITION_BITS) | partition)
        raws = list(_column_batches(split, batches))
        first = partition * _PORTIONS_PER_PARTITION

        def work() -> Iterator[dict[str, Any]]:
            for at, portion in enumerate(portions(stage, split, lambda: raws)):
                yield staged_result(stage, portion, number, first + at)

        yield from told(work)

    return run


def _column_batches(split: Split, batches: Iterable[pa.RecordBatch]) -> Iterator[ColumnBatch]:
    row = 1
    for batch in batches:
        yield ColumnBatch(split, row, pa.Table.from_batches([batch]))
        row += batch.num_rows


def _no_file(path: str) -> Any:
    raise AssertionError(f"{path} is no file")


def _frame_order(one: Reject) -> tuple[str, int]:
    return one.file, one.line


def _type_ids(catalog: Catalog, named: Iterable[tuple[EntityKind, str]]) -> list[str]:
    found = []
    for kind, name in named:
        one = catalog.node(name) if kind == "node" else catalog.edge(name)
        if one is None:
            raise no_such_type(name, catalog)
        found.append(one.id)
    return found
