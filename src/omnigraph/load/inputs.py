"""Finds the input files that a caller names, and cuts them into splits with exact line numbers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import numpy as np

from omnigraph.errors import InvalidInput
from omnigraph.load.records.batches import Compression, Format, Split
from omnigraph.load.records.csv_text import find_last_row_end, mask_row_ends, parse_csv_rows
from omnigraph.load.records.read_split import open_text, require_header, translate_read_errors
from omnigraph.schema.catalog import Catalog, EntityKind, TypeDef
from omnigraph.storage.input_files import InputFiles

PathLike = str | os.PathLike[str]
Paths = PathLike | Sequence[PathLike]

_COMPRESSIONS: Mapping[str, Compression] = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_FORMATS: Mapping[str, Format] = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".orc": "orc",
}
_TYPED_ONLY = ("csv", "parquet", "orc")
_SCAN_BYTES = 8 * 1024 * 1024
_PEEK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class LoadSources:
    """What the caller names: files of mixed records, and files of records of one type, by the type's name.

    `node:Person` and `edge:Knows` say which type is meant if a node type and an edge type have the same name.
    """

    mixed: tuple[str, ...] = ()
    typed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: Paths | Mapping[str, Paths] | LoadSources) -> LoadSources:
        if isinstance(paths, LoadSources):
            return paths
        if isinstance(paths, Mapping):
            return cls(typed={name: _to_path_tuple(value) for name, value in paths.items()})
        return cls(_to_path_tuple(paths))


def _to_path_tuple(paths: Paths) -> tuple[str, ...]:
    path_list = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    return tuple(os.fspath(path) for path in path_list)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One input file. `index` is its position in the input; later records win over earlier ones."""

    index: int
    path: str
    size_bytes: int
    format: Format
    compression: Compression | None = None
    kind: EntityKind | None = None
    type_name: str | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """All files of a load, and the types that the caller named, including types without a file."""

    sources: tuple[SourceFile, ...]
    named_types: tuple[tuple[EntityKind, str], ...]
    files: InputFiles

    @property
    def size_bytes(self) -> int:
        """The total size as stored: for compressed files, the compressed size."""
        return sum(source.size_bytes for source in self.sources)


def discover(load_sources: LoadSources, catalog: Catalog, files: InputFiles) -> Inputs:
    """Finds the files of all sources, in their order. Raises `InvalidInput` for a missing file or an unknown type."""
    sources: list[SourceFile] = []
    named_types: list[tuple[EntityKind, str]] = []
    groups: list[tuple[TypeDef | None, Iterable[str]]] = [(None, load_sources.mixed)]
    for name, paths in load_sources.typed.items():
        type_def = _resolve_type(catalog, name)
        named_types.append((type_def.kind, type_def.name))
        groups.append((type_def, paths))
    if not load_sources.mixed and not load_sources.typed:
        raise InvalidInput("no input is named", code="no_input", advice="Name at least one file")
    for file_type, group in groups:
        for path in group:
            for found_file in files.find(path):
                source = _describe_file(len(sources), found_file.path, found_file.size_bytes, file_type)
                sources.append(_detect_json_lines(source, files))
    _refuse_duplicates(sources)
    return Inputs(tuple(sources), tuple(named_types), files)


def _resolve_type(catalog: Catalog, name: str) -> TypeDef:
    kind, colon, bare = name.partition(":")
    node = catalog.node(bare if colon else name) if kind == "node" or not colon else None
    edge = catalog.edge(bare if colon else name) if kind == "edge" or not colon else None
    if node is not None and edge is not None:
        raise InvalidInput(
            f"{name!r} is a node type and an edge type",
            code="ambiguous_type",
            advice=f"Write node:{name} or edge:{name}",
            type=name,
        )
    type_def = node or edge
    if type_def is None:
        type_names = ", ".join(sorted(type_def.table_key for type_def in catalog.types))
        raise InvalidInput(
            f"there is no type {name!r}", code="type_not_found", advice=f"Known types: {type_names}", type=name
        )
    return type_def


def _describe_file(index: int, path: str, size_bytes: int, type_def: TypeDef | None) -> SourceFile:
    stem, extension = os.path.splitext(path.lower())
    compression = _COMPRESSIONS.get(extension)
    if compression is not None:
        extension = os.path.splitext(stem)[1]
    file_format = _FORMATS.get(extension, "ndjson")
    if file_format in _TYPED_ONLY and type_def is None:
        raise InvalidInput(
            f"{path} holds rows of one type, and does not say of which",
            code="type_needed",
            advice=f"Name it: --type Person={path}, or load({{'Person': '{path}'}})",
            file=path,
        )
    if file_format in ("parquet", "orc") and compression is not None:
        raise InvalidInput(
            f"{path}: {file_format} is compressed inside", code="file_error", advice="Decompress the file"
        )
    kind, name = (type_def.kind, type_def.name) if type_def is not None else (None, None)
    return SourceFile(index, path, size_bytes, file_format, compression, kind, name)


def _detect_json_lines(source: SourceFile, files: InputFiles) -> SourceFile:
    """Decides by the first character whether a `.json` file is one array or has one object per line."""
    if source.format != "json":
        return source
    split = Split(source.index, source.path, "ndjson", compression=source.compression)
    with translate_read_errors(split), files.open(source.path) as file:
        start = open_text(split, file).read(_PEEK_BYTES).lstrip()
    return source if start.startswith(b"[") else replace(source, format="ndjson")


def _refuse_duplicates(sources: Sequence[SourceFile]) -> None:
    locations: set[str] = set()
    for source in sources:
        location = source.path if "://" in source.path else os.path.realpath(source.path)
        if location in locations:
            raise InvalidInput(
                f"{source.path} is named twice", code="duplicate_input", advice="Name every file once", file=source.path
            )
        locations.add(location)


# --- splits ------------------------------------------------------------------------------------------------------


def plan_splits(inputs: Inputs, split_bytes: int) -> list[Split]:
    """Cuts the input into splits of about this size, in order. Text that is cut is scanned once to count its lines."""
    return [split for source in inputs.sources for split in _split_file(source, inputs.files, split_bytes)]


def _split_file(source: SourceFile, files: InputFiles, split_bytes: int) -> Iterator[Split]:
    whole_file = Split(
        source.index,
        source.path,
        source.format,
        source.kind,
        source.type_name,
        source.compression,
        size_bytes=source.size_bytes,
    )
    can_be_cut = source.compression is None and source.format in ("ndjson", "csv", "parquet")
    if not can_be_cut or source.size_bytes <= split_bytes:
        yield whole_file
        return
    with translate_read_errors(whole_file), files.open(source.path) as file:
        if source.format == "parquet":
            yield from _split_row_groups(whole_file, file, split_bytes)
        else:
            yield from _split_text(whole_file, file, split_bytes)


def _split_text(whole_file: Split, file: BinaryIO, split_bytes: int) -> Iterator[Split]:
    """Cuts at the first line end at or behind each multiple of the size; in CSV, at a line end outside quotes."""
    is_csv = whole_file.format == "csv"
    columns = _read_csv_header(whole_file, file) if is_csv else ()
    start, first_line, at, line, quotes = 0, 1, 0, 1, 0
    file.seek(0)
    while chunk := file.read(_SCAN_BYTES):
        octets = np.frombuffer(chunk, np.uint8)
        newlines = np.flatnonzero(octets == 10)
        ends = newlines[mask_row_ends(octets, newlines, quotes)] if is_csv else newlines
        while len(ends):
            due = int(np.searchsorted(ends, start + split_bytes - at - 1))
            if due >= len(ends):
                break
            end = at + int(ends[due]) + 1
            yield replace(whole_file, start=start, end=end, first_line=first_line, columns=columns if start else (),
                          size_bytes=end - start)  # fmt: skip
            start, first_line = end, line + int(np.searchsorted(newlines, end - at - 1)) + 1
            ends = ends[due + 1 :]
        at += len(chunk)
        line += len(newlines)
        quotes += int(np.count_nonzero(octets == 34)) if is_csv else 0
    if start < at:
        yield replace(whole_file, start=start, end=at, first_line=first_line, columns=columns if start else (),
                      size_bytes=at - start)  # fmt: skip


def _read_csv_header(whole_file: Split, file: BinaryIO) -> tuple[str, ...]:
    data = b""
    while chunk := file.read(_PEEK_BYTES):
        data += chunk
        end = find_last_row_end(data)
        if end:
            data = data[:end]
            break
    text = data.decode("utf-8-sig", errors="replace")
    row = next(parse_csv_rows(text, 1), None)
    return require_header(whole_file, row) if row is not None else ()


def _split_row_groups(whole_file: Split, file: BinaryIO, split_bytes: int) -> Iterator[Split]:
    from pyarrow import parquet

    metadata: Any = parquet.ParquetFile(file).metadata
    start, first_line, rows, size = 0, 1, 0, 0
    for group in range(metadata.num_row_groups):
        rows += metadata.row_group(group).num_rows
        size += metadata.row_group(group).total_byte_size
        if size >= split_bytes or group == metadata.num_row_groups - 1:
            yield replace(whole_file, start=start, end=group + 1, first_line=first_line, size_bytes=size)
            start, first_line, size = group + 1, rows + 1, 0
