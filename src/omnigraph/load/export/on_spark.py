"""Export on Spark: rows are sorted by ranges of ids, and every task writes its range as one file.

Only files that a task result names count: a task that is tried again, or runs twice, leaves files that the driver
ignores. The driver gives the files their final names.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.clock import IdSource, SystemIds
from omnigraph.errors import Unavailable, Unsupported
from omnigraph.load.export.export import ExportOptions, ExportReport, ExportTarget, count_rows, part_name
from omnigraph.load.export.formats import ExportFormat, compress_into, export_schema, open_row_writer
from omnigraph.log.snapshot import Snapshot
from omnigraph.progress import Progress, report_progress
from omnigraph.schema.catalog import TypeDef
from omnigraph.spark.data_source import read_frame
from omnigraph.spark.session import get_session
from omnigraph.spark.watch_tasks import watch_tasks
from omnigraph.storage.lance.arrow_fit import cast_by_position
from omnigraph.storage.output_files import OutputFolder, fill_folder, output_exists_error, scratch_beside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WRITTEN = "part INT, name STRING, rows BIGINT"
_UNFINISHED = "_unfinished"
_TOKEN = 12
#: Bytes of a table's data files that one task writes.
_TASK_BYTES = 32 << 20
_COPY_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class _WrittenPart:
    """One file that a task wrote: its position in the order, its temporary name, its number of rows."""

    part: int
    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class _PartWriter:
    """Runs in a task: writes its rows, which come in order, into one file and returns its name. No rows, no file."""

    type: TypeDef
    folder: OutputFolder
    format: ExportFormat

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        ids = SystemIds()
        name = f"{_UNFINISHED}/{self.type.kind}_{self.type.name}-{part:05}-{ids.token(_TOKEN)}"
        rows = 0
        with self.folder.open_writer(name, ids) as stream, open_row_writer(self.type, self.format, stream) as writer:
            for batch in chain([first], filled):
                writer.write(_to_stored_types(batch, self.type))
                rows += batch.num_rows
        yield pa.RecordBatch.from_pydict(
            {"part": pa.array([part], pa.int32()), "name": [name], "rows": pa.array([rows], pa.int64())}
        )


def export_on_spark(
    snapshot: Snapshot,
    target: ExportTarget,
    types: Sequence[TypeDef],
    options: ExportOptions,
    session: SparkSession | None = None,
) -> ExportReport:
    """Like the export in this process: the same rows in the same order, split into files at other rows."""
    ids = snapshot.backend.ids
    run = _SparkExport(snapshot, types, options)
    report = ExportReport(snapshot.commit_id, target.path, options.format, {}, 0, engine="spark")
    with report_progress(options.progress, clock=snapshot.backend.clock, ids=ids) as progress:
        if target.is_folder:
            with fill_folder(target.folder, ids, overwrite=options.overwrite) as folder:
                written = run.write(folder, get_session(existing=session), progress)
                files = [name for type_def in types for name in run.give_names(type_def, written[type_def.id], folder)]
                folder.drop(_UNFINISHED)
        else:
            _refuse_file(target, options)
            with scratch_beside(target.folder, ids) as folder:
                written = run.write(folder, get_session(existing=session), progress)
                with progress.step("join"):
                    _join_files([part for type_def in types for part in written[type_def.id]], folder, target, ids)
            files = [target.name]
    counts = {type_def.table_key: sum(part.rows for part in written[type_def.id]) for type_def in types}
    size_bytes = sum(target.folder.size_bytes(name) or 0 for name in files)
    return replace(report, counts=counts, size_bytes=size_bytes, files=tuple(files))


@dataclass(frozen=True, slots=True)
class _SparkExport:
    """One export: what is written, and how."""

    snapshot: Snapshot
    types: Sequence[TypeDef]
    options: ExportOptions

    def write(self, folder: OutputFolder, spark: SparkSession, progress: Progress) -> dict[str, list[_WrittenPart]]:
        """All types, one job each; files in the order of their rows."""
        return {type_def.id: self._write_type(type_def, folder, spark, progress) for type_def in self.types}

    def _write_type(
        self, type_def: TypeDef, folder: OutputFolder, spark: SparkSession, progress: Progress
    ) -> list[_WrittenPart]:
        tasks = self._count_tasks(type_def)
        if not tasks:
            return []
        frame = read_frame(self.snapshot, type_def, spark)
        # Spark compares texts by their bytes, as we do, so the ranges follow one another in our order.
        ordered = frame.repartitionByRange(tasks, "id").sortWithinPartitions("id")
        writer = _PartWriter(type_def, folder, self.options.format)
        with progress.step(type_def.table_key, watch_tasks(spark), rows=count_rows(self.snapshot, [type_def])):
            rows = ordered.mapInArrow(writer, _WRITTEN).collect()
        written = sorted(
            (_WrittenPart(row["part"], row["name"], row["rows"]) for row in rows), key=lambda row: row.part
        )
        if any(folder.size_bytes(part.name) is None for part in written):
            raise Unavailable(
                f"files that workers wrote to {folder.path()} are not there",
                code="output_not_shared",
                advice="Export to an object store, or to a directory that all workers share",
            )
        return written

    def give_names(self, type_def: TypeDef, written: Sequence[_WrittenPart], folder: OutputFolder) -> list[str]:
        names = []
        for number, part in enumerate(written):
            names.append(part_name(type_def, number, self.options.format))
            folder.rename(part.name, names[-1])
        if not written and self.options.format != "ndjson":  # a file without rows still tells the columns
            names.append(part_name(type_def, 0, self.options.format))
            with (
                folder.open_writer(names[-1], self.snapshot.backend.ids) as stream,
                open_row_writer(type_def, self.options.format, stream),
            ):
                pass
        return names

    def _count_tasks(self, type_def: TypeDef) -> int:
        """By rows and by bytes, whichever asks for more; none for an empty type."""
        rows = count_rows(self.snapshot, [type_def])
        pin = self.snapshot.record.pins.get(type_def.id)
        size_bytes = pin.size_bytes if pin else 0
        return max(math.ceil(rows / self.options.part_rows), math.ceil(size_bytes / _TASK_BYTES)) if rows else 0


def _refuse_file(target: ExportTarget, options: ExportOptions) -> None:
    if target.folder.holds_anything(target.name) and not options.overwrite:
        raise output_exists_error(target.path)
    if not target.folder.is_local:
        raise Unsupported(
            "Spark writes one file to a directory of this machine only",
            advice="Name a folder (ending in /), or use --engine local",
        )
    if options.format != "ndjson":
        raise Unsupported(
            f"Spark writes {options.format} into folders only",
            advice="Name a folder (ending in /), or use --engine local",
        )


def _join_files(parts: Sequence[_WrittenPart], folder: OutputFolder, target: ExportTarget, ids: IdSource) -> None:
    """Concatenate the files."""
    with target.folder.open_writer(target.name, ids) as raw, compress_into(raw, target.compression) as stream:
        for part in parts:
            with folder.open_reader(part.name) as source:
                shutil.copyfileobj(source, stream, _COPY_BYTES)


def _to_stored_types(batch: pa.RecordBatch, type_def: TypeDef) -> pa.RecordBatch:
    """Rows from Spark in the types of storage."""
    return cast_by_position(batch, export_schema(type_def))
