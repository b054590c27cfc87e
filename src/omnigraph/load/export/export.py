"""Exports the rows of one commit as files: nodes first, then edges, each by type and id.

| destination | ndjson | parquet, csv |
|---|---|---|
| a file | one sorted stream; `.gz` and `.zst` compress it | rows of one type |
| a folder | `node_Person/part-00000.ndjson`, … | `node_Person/part-00000.parquet`, … |
| a stream | one sorted stream | csv of one type |
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import pyarrow as pa

from omnigraph.clock import IdSource
from omnigraph.errors import InvalidInput
from omnigraph.load.export.formats import (
    COMPRESSIONS,
    FORMATS,
    SUFFIXES,
    ExportFormat,
    compress_into,
    export_schema,
    format_records,
    open_row_writer,
)
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.table_view import TableView
from omnigraph.schema.catalog import Catalog, TypeDef, no_such_type
from omnigraph.storage.lance.arrow_fit import cast_by_position, make_nullable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.progress import StepCounter
    from omnigraph.storage.output_files import OutputFolder

ExportEngine = Literal["auto", "local", "spark"]
ENGINES: tuple[ExportEngine, ...] = ("auto", "local", "spark")

#: The engine `auto` uses Spark for tables of more bytes than this.
SPARK_BYTES = 256 << 20
_PART_ROWS = 1 << 20
#: Tables up to this size are sorted in memory; larger ones by DuckDB, which spills to disk.
SMALL_BYTES = 64 << 20
_SORT_MEMORY = "512MiB"
_ROWS_PER_BATCH = 8_192
_FOLDER_FORMATS = ("parquet", "csv")


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How a commit is exported. If `partitioned` is None, the format and the form of the path decide."""

    format: ExportFormat = "ndjson"
    types: tuple[str, ...] | None = None
    engine: ExportEngine = "auto"
    partitioned: bool | None = None
    overwrite: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict)
    progress: bool | None = False
    """True shows progress on stderr; None only if that is a terminal or the work takes long."""

    part_rows: int = _PART_ROWS
    small_bytes: int = SMALL_BYTES

    def __post_init__(self) -> None:
        _check_choice("format", self.format, FORMATS)
        _check_choice("engine", self.engine, ENGINES)


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export wrote. `counts` are rows by table, such as `node:Person`; `files` are relative to `path`."""

    commit_id: str
    path: str | None
    format: str
    counts: Mapping[str, int]
    size_bytes: int
    files: tuple[str, ...] = ()
    engine: str = "local"

    @property
    def rows(self) -> int:
        return sum(self.counts.values())

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "counts": dict(self.counts), "files": list(self.files), "rows": self.rows}


def export(
    snapshot: Snapshot,
    destination: str | os.PathLike[str] | BinaryIO,
    options: ExportOptions | None = None,
    session: SparkSession | None = None,
) -> ExportReport:
    """Writes a commit to a file, a folder or a stream. A file or folder appears completely or not at all."""
    options = options or ExportOptions()
    types = types_in_export_order(snapshot.catalog, options.types)
    if not isinstance(destination, str | os.PathLike):
        return _export_to_stream(snapshot, destination, types, options)
    path = os.fspath(destination)
    target = ExportTarget.of(path, options)
    if not target.is_folder and options.format != "ndjson" and len(types) != 1:
        raise InvalidInput(
            f"{path} is one file, and {options.format} holds one type per file",
            code="one_type_per_file",
            advice="Name a folder (ending in /), or one type",
        )
    if _choose_engine(snapshot, types, options, session) == "spark":
        from omnigraph.load.export.on_spark import export_on_spark

        return export_on_spark(snapshot, target, types, options, session)
    return _export_in_process(snapshot, target, types, options)


def record_stream(snapshot: Snapshot, types: Sequence[str] | None = None) -> Iterator[bytes]:
    """Yields the NDJSON export in pieces of whole lines, as a server sends it."""
    for type_def in types_in_export_order(snapshot.catalog, types):
        for batch in sort_rows(snapshot, type_def):
            yield format_records(type_def, batch)


def types_in_export_order(catalog: Catalog, names: Sequence[str] | None) -> list[TypeDef]:
    """Returns the types to export: nodes first, so that a load of the export finds the ends of edges; both by name."""
    selected = list(catalog.types) if names is None else [_resolve_type(catalog, name) for name in dict.fromkeys(names)]
    return sorted(
        {type_def.id: type_def for type_def in selected}.values(),
        key=lambda type_def: (type_def.kind == "edge", type_def.name),
    )


def part_name(type_def: TypeDef, number: int, export_format: ExportFormat) -> str:
    return f"{type_def.kind}_{type_def.name}/part-{number:05}{SUFFIXES[export_format]}"


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """The destination of an export: a folder, or one file in a folder."""

    folder: OutputFolder
    name: str = ""  # of the file; empty for a folder

    @property
    def is_folder(self) -> bool:
        return not self.name

    @property
    def path(self) -> str:
        return self.folder.path(self.name)

    @property
    def compression(self) -> str | None:
        return COMPRESSIONS.get(os.path.splitext(self.name)[1])

    @classmethod
    def of(cls, path: str, options: ExportOptions) -> ExportTarget:
        from omnigraph.storage.output_files import OutputFolder

        storage = tuple(sorted(options.storage_options.items()))
        bare = path.rstrip("/")
        head, _, name = bare.rpartition("/")
        suffix = os.path.splitext(name.removesuffix(".gz").removesuffix(".zst"))[1]
        looks_like_file = suffix == SUFFIXES[options.format] or (options.format == "ndjson" and path == bare)
        if options.partitioned or (options.partitioned is None and not looks_like_file):
            return cls(OutputFolder(bare or path, storage))
        parent = (head or "/") if "/" in bare else "."
        return cls(OutputFolder(parent, storage), name)


def _export_in_process(
    snapshot: Snapshot, target: ExportTarget, types: Sequence[TypeDef], options: ExportOptions
) -> ExportReport:
    from omnigraph.progress import report_progress
    from omnigraph.storage.output_files import fill_folder, output_exists_error

    ids = snapshot.backend.ids
    report = ExportReport(snapshot.commit_id, target.path, options.format, {}, 0)
    with report_progress(options.progress, clock=snapshot.backend.clock, ids=ids) as progress:
        with progress.step("export", rows=count_rows(snapshot, types)) as counter:
            if target.is_folder:
                with fill_folder(target.folder, ids, overwrite=options.overwrite) as folder:
                    return _write_folder(snapshot, folder, types, options, counter, report)
            if target.folder.holds_anything(target.name) and not options.overwrite:
                raise output_exists_error(target.path)
            with target.folder.open_writer(target.name, ids) as raw, compress_into(raw, target.compression) as stream:
                counts = _write_stream(snapshot, stream, types, options, counter)
        size_bytes = target.folder.size_bytes(target.name) or 0
        return replace(report, counts=counts, size_bytes=size_bytes, files=(target.name,))


def _export_to_stream(
    snapshot: Snapshot, stream: BinaryIO, types: Sequence[TypeDef], options: ExportOptions
) -> ExportReport:
    if options.engine == "spark" or options.partitioned:
        raise InvalidInput("a stream is written in-process and in one piece", advice="Name a file or a folder instead")
    if options.format == "parquet" or (options.format == "csv" and len(types) != 1):
        raise InvalidInput(
            f"{options.format} cannot be written to a stream",
            code="one_type_per_file",
            advice="Name a folder; or use ndjson, or csv of one type",
        )
    counted = _CountingStream(stream)
    counts = _write_stream(snapshot, counted, types, options, None)  # type: ignore[arg-type]  # it only writes
    return ExportReport(snapshot.commit_id, None, options.format, counts, counted.size_bytes)


def _write_stream(
    snapshot: Snapshot,
    stream: BinaryIO,
    types: Sequence[TypeDef],
    options: ExportOptions,
    counter: StepCounter | None,
) -> dict[str, int]:
    """All types after one another into one file."""
    counts: dict[str, int] = {}
    total_rows = count_rows(snapshot, types)
    for type_def in types:
        counts[type_def.table_key] = 0
        with open_row_writer(type_def, options.format, stream) as writer:
            for batch in sort_rows(snapshot, type_def, options.small_bytes):
                writer.write(batch)
                counts[type_def.table_key] += batch.num_rows
                if counter is not None:
                    counter.advance(sum(counts.values()), total_rows)
    return counts


def _write_folder(
    snapshot: Snapshot,
    folder: OutputFolder,
    types: Sequence[TypeDef],
    options: ExportOptions,
    counter: StepCounter,
    report: ExportReport,
) -> ExportReport:
    """Writes each type into parts of bounded size. In Parquet and CSV, a type without rows has an empty part."""
    counts: dict[str, int] = {}
    files: list[str] = []
    total_rows = count_rows(snapshot, types)
    for type_def in types:
        counts[type_def.table_key] = 0
        with _PartFiles(type_def, folder, options, snapshot.backend.ids) as parts:
            for batch in sort_rows(snapshot, type_def, options.small_bytes):
                parts.write(batch)
                counts[type_def.table_key] += batch.num_rows
                counter.advance(sum(counts.values()), total_rows)
        files += parts.files
    size_bytes = sum(folder.size_bytes(name) or 0 for name in files)
    return replace(report, counts=counts, size_bytes=size_bytes, files=tuple(files))


class _PartFiles:
    """Writes the part files of one type, one after the other."""

    def __init__(self, type_def: TypeDef, folder: OutputFolder, options: ExportOptions, ids: IdSource) -> None:
        self.files: list[str] = []
        self._type = type_def
        self._folder = folder
        self._options = options
        self._ids = ids
        self._open: Any = None
        self._writer: Any = None
        self._rows = 0

    def __enter__(self) -> _PartFiles:
        if self._options.format in _FOLDER_FORMATS:
            self._begin()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._end(*failure)

    def write(self, batch: Any) -> None:
        if self._writer is not None and self._rows >= self._options.part_rows:
            self._end(None, None, None)
        if self._writer is None:
            self._begin()
        self._writer.write(batch)
        self._rows += batch.num_rows

    def _begin(self) -> None:
        name = part_name(self._type, len(self.files), self._options.format)
        self._open = _open_part(self._type, self._folder, name, self._options.format, self._ids)
        self._writer = self._open.__enter__()
        self._rows = 0
        self.files.append(name)

    def _end(self, *failure: Any) -> None:
        if self._open is not None:
            opened, self._open, self._writer = self._open, None, None
            opened.__exit__(*failure)


@contextmanager
def _open_part(
    type_def: TypeDef, folder: OutputFolder, name: str, export_format: ExportFormat, ids: IdSource
) -> Iterator[Any]:
    with folder.open_writer(name, ids) as stream, open_row_writer(type_def, export_format, stream) as writer:
        yield writer


class _CountingStream:
    """A stream that counts the bytes written to it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.size_bytes = 0

    def write(self, data: bytes) -> int:
        self._stream.write(data)
        self.size_bytes += len(data)
        return len(data)


def count_rows(snapshot: Snapshot, types: Sequence[TypeDef]) -> int:
    """Counts rows from the commit record, without reading tables; an estimate for the progress display."""
    row_count = 0
    for type_def in types:
        pin, entries = snapshot.record.pins.get(type_def.id), snapshot.record.overlay.get(type_def.id)
        row_count += (pin.rows if pin else 0) + (entries.rows.num_rows if entries else 0)
    return row_count


def _choose_engine(
    snapshot: Snapshot, types: Sequence[TypeDef], options: ExportOptions, session: SparkSession | None
) -> Literal["local", "spark"]:
    if options.engine != "auto":
        return options.engine
    pins = [pin for type_def in types if (pin := snapshot.record.pins.get(type_def.id)) is not None]
    return "spark" if session is not None or sum(pin.size_bytes for pin in pins) > SPARK_BYTES else "local"


def _resolve_type(catalog: Catalog, name: str) -> TypeDef:
    """Finds a type by name, a node type before an edge type, or by table key (`edge:Knows`)."""
    kind, colon, bare = name.partition(":")
    type_def = None
    if colon and kind in ("node", "edge"):
        type_def = catalog.node(bare) if kind == "node" else catalog.edge(bare)
    elif not colon:
        type_def = catalog.node(name) or catalog.edge(name)
    if type_def is None:
        raise no_such_type(name, catalog)
    return type_def


def _check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InvalidInput(f"{option} is {value!r}", code=f"unknown_{option}", advice=f"Use {', '.join(choices)}")


# --- rows in the order of their ids, in bounded memory ---------------------------------------------------------------


def sort_rows(snapshot: Snapshot, type_def: TypeDef, small_bytes: int = SMALL_BYTES) -> Iterator[pa.RecordBatch]:
    """Yields all rows of a type, sorted by the bytes of their ids, with the columns of `export_schema`."""
    view = snapshot.view(type_def)
    size_bytes = view.pinned.size_bytes if view.pinned is not None else 0
    schema = export_schema(type_def)
    batches = _sort_in_memory(view) if size_bytes <= small_bytes else _sort_on_disk(view)
    for batch in batches:
        # Some Arrow operations forget which columns are never null.
        yield cast_by_position(batch, schema)


def _sort_in_memory(view: TableView) -> Iterator[pa.RecordBatch]:
    rows = view.scan()
    return iter(rows.sort_by("id").to_batches(_ROWS_PER_BATCH)) if rows.num_rows else iter(())


def _sort_on_disk(view: TableView) -> Iterator[pa.RecordBatch]:
    import duckdb

    with (
        tempfile.TemporaryDirectory(prefix="omnigraph-sort-", ignore_cleanup_errors=True) as folder,
        duckdb.connect(":memory:", config={"temp_directory": folder, "memory_limit": _SORT_MEMORY}) as duck,
    ):
        duck.execute("SET TimeZone = 'UTC'")
        rows = pa.RecordBatchReader.from_batches(make_nullable(view.schema), view.batches())
        # DuckDB compares texts by their bytes, like the sort in memory.
        yield from duck.from_arrow(rows).order('"id"').to_arrow_reader(_ROWS_PER_BATCH)
