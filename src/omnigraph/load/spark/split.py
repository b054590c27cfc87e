"""Split: the input of a load, cut into what one task stages: splits of files, or partitions of frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from omnigraph.load.inputs import Inputs, plan_splits
from omnigraph.load.options import LoadOptions
from omnigraph.load.records.batches import ColumnBatch, OpenFile, Reject, Split
from omnigraph.load.records.parse import RecordParser
from omnigraph.load.spark.parse import StageJob, parse_portions
from omnigraph.load.spark.reject import FRAME_PREFIX
from omnigraph.load.spark.stage import stage_portion, stage_split
from omnigraph.log.snapshot import Snapshot
from omnigraph.schema.catalog import Catalog, EntityKind, no_such_type
from omnigraph.spark.table_rows import BaseTable
from omnigraph.spark.tasks import RESULT, collect_results, encode_results, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITION_BITS = 20
_PORTIONS_PER_PARTITION = 1 << 12


class LoadInput(Protocol):
    """What a load reads."""

    def split(self, snapshot: Snapshot) -> StageJob:
        """The splits, and what workers need to stage them on this snapshot."""

    def stage(self, job: StageJob) -> list[dict[str, Any]]:
        """Run the tasks that stage the splits; their results."""

    def named_types(self, catalog: Catalog) -> list[str]:
        """The types that the caller named."""

    def sort_key(self, reject: Reject) -> Any:
        """Orders rejects as their records stand in the input."""


@dataclass(frozen=True)
class FileInput:
    """Files, one task per split."""

    inputs: Inputs
    options: LoadOptions
    session: SparkSession
    op_id: str
    concurrency: int

    def split(self, snapshot: Snapshot) -> StageJob:
        splits = plan_splits(self.inputs, self.options.split_bytes)
        return _build_job(snapshot, self.options, self.op_id, splits, self.inputs.files.open)

    def stage(self, job: StageJob) -> list[dict[str, Any]]:
        return run_tasks(
            self.session, len(job.splits), lambda number: stage_split(job, number), self.concurrency or None
        )

    def named_types(self, catalog: Catalog) -> list[str]:
        return _resolve_types(catalog, self.inputs.named_types)

    def sort_key(self, reject: Reject) -> tuple[int, int]:
        return self._file_order[reject.file], reject.line

    @cached_property
    def _file_order(self) -> dict[str, int]:
        return {source.path: source.index for source in self.inputs.sources}


@dataclass(frozen=True)
class FrameInput:
    """Frames by kind and name of their type, one task per partition."""

    frames: Mapping[tuple[EntityKind, str], DataFrame]
    options: LoadOptions
    op_id: str
    concurrency: int

    def split(self, snapshot: Snapshot) -> StageJob:
        self.named_types(snapshot.catalog)
        splits = [
            Split(number, f"{FRAME_PREFIX}{name}", "parquet", kind, name)
            for number, (kind, name) in enumerate(self.frames)
        ]
        return _build_job(snapshot, self.options, self.op_id, splits, _open_no_file)

    def stage(self, job: StageJob) -> list[dict[str, Any]]:
        task_results: list[dict[str, Any]] = []
        for number, frame in enumerate(self.frames.values()):
            bounded = frame.coalesce(self.concurrency) if self.concurrency else frame
            task_results += collect_results(bounded.mapInArrow(_partition_stager(job, number), RESULT))
        return task_results

    def named_types(self, catalog: Catalog) -> list[str]:
        return _resolve_types(catalog, self.frames)

    def sort_key(self, reject: Reject) -> tuple[str, int]:
        return reject.file, reject.line


def _build_job(
    snapshot: Snapshot, options: LoadOptions, op_id: str, splits: Sequence[Split], open_file: OpenFile
) -> StageJob:
    bases = {type_def.id: BaseTable.of(snapshot, type_def.id) for type_def in snapshot.catalog.types}
    may_complete = options.mode == "merge" and not all(base.is_empty for base in bases.values())
    return StageJob(
        location=snapshot.backend.tables.location,
        parser=RecordParser(snapshot.catalog, op_id, partial=may_complete),
        splits=tuple(splits),
        open_file=open_file,
        bases=bases,
        mode=options.mode,
        last_wins=options.mode == "merge" and options.on_duplicate == "last",
        limits=options.limits,
        rejects_path=f"{options.rejects.rstrip('/')}/rejects-{op_id}" if options.rejects is not None else None,
        storage_options=options.storage_options,
    )


def _partition_stager(
    job: StageJob, frame_number: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def stage_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        frame = job.splits[frame_number]
        source_index = (frame_number << _PARTITION_BITS) | partition
        split = replace(frame, path=f"{frame.path}[{partition}]", source_index=source_index)
        raw_batches = list(_number_rows(split, batches))
        first_portion = partition * _PORTIONS_PER_PARTITION

        def stage_portions() -> Iterator[dict[str, Any]]:
            for number, portion in enumerate(parse_portions(job, split, lambda: raw_batches)):
                yield stage_portion(job, portion, frame_number, first_portion + number)

        yield from encode_results(stage_portions)

    return stage_partition


def _number_rows(split: Split, batches: Iterable[pa.RecordBatch]) -> Iterator[ColumnBatch]:
    row = 1
    for batch in batches:
        yield ColumnBatch(split, row, pa.Table.from_batches([batch]))
        row += batch.num_rows


def _open_no_file(path: str) -> Any:
    raise AssertionError(f"{path} is no file")


def _resolve_types(catalog: Catalog, named_types: Iterable[tuple[EntityKind, str]]) -> list[str]:
    type_ids = []
    for kind, name in named_types:
        type_def = catalog.node(name) if kind == "node" else catalog.edge(name)
        if type_def is None:
            raise no_such_type(name, catalog)
        type_ids.append(type_def.id)
    return type_ids
