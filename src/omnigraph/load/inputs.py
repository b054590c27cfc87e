"""From what a user names to files, and from files to splits with exact line numbers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import numpy as np

from omnigraph.errors import InvalidInput
from omnigraph.load.records.csv_text import csv_rows, last_row_end, row_ends
from omnigraph.load.records.model import Compression, Format, Split
from omnigraph.load.records.read_split import header_of, reading_errors, text_stream
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
_SNIFFED_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Given:
    """What the caller names: files of mixed records, and files that are about one type, by its name.

    A name is that of a node or edge type; `node:Person` and `edge:Knows` say which, where both have one.
    """

    mixed: tuple[str, ...] = ()
    typed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: Paths | Mapping[str, Paths] | Given) -> Given:
        if isinstance(paths, Given):
            return paths
        if isinstance(paths, Mapping):
            return cls(typed={name: _listed(value) for name, value in paths.items()})
        return cls(_listed(paths))


def _listed(paths: Paths) -> tuple[str, ...]:
    several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    return tuple(os.fspath(one) for one in several)


@dataclass(frozen=True, slots=True)
class Source:
    """One input file. `index` is its place in the input order, in which later records win."""

    index: int
    path: str
    size_bytes: int
    format: Format
    compression: Compression | None = None
    kind: EntityKind | None = None
    type_name: str | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """All files of a load, and the types that were named, also those without a file."""

    sources: tuple[Source, ...]
    named: tuple[tuple[EntityKind, str], ...]
    files: InputFiles

    @property
    def size_bytes(self) -> int:
        """As stored: of compressed files, the compressed size."""
        return sum(one.size_bytes for one in self.sources)


def discover(given: Given, catalog: Catalog, files: InputFiles) -> Inputs:
    """The files behind the names, in the order given. Raises InvalidInput for what is not there or has no type."""
    sources: list[Source] = []
    named: list[tuple[EntityKind, str]] = []
    groups: list[tuple[TypeDef | None, Iterable[str]]] = [(None, given.mixed)]
    for name, paths in given.typed.items():
        one = _type_named(catalog, name)
        named.append((one.kind, one.name))
        groups.append((one, paths))
    if not given.mixed and not given.typed:
        raise InvalidInput("no input is named", code="no_input", advice="Name at least one file")
    for one_or_none, group in groups:
        for path in group:
            for found in files.find(path):
                source = _source(len(sources), found.path, found.size_bytes, one_or_none)
                sources.append(_sniffed(source, files))
    _refuse_twice(sources)
    return Inputs(tuple(sources), tuple(named), files)


def _type_named(catalog: Catalog, name: str) -> TypeDef:
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
    found = node or edge
    if found is None:
        known = ", ".join(sorted(one.table_key for one in catalog.types))
        raise InvalidInput(
            f"there is no type {name!r}", code="type_not_found", advice=f"Known types: {known}", type=name
        )
    return found


def _source(index: int, path: str, size_bytes: int, one: TypeDef | None) -> Source:
    stem, extension = os.path.splitext(path.lower())
    compression = _COMPRESSIONS.get(extension)
    if compression is not None:
        extension = os.path.splitext(stem)[1]
    chosen = _FORMATS.get(extension, "ndjson")
    if chosen in _TYPED_ONLY and one is None:
        raise InvalidInput(
            f"{path} holds rows of one type, and does not say of which",
            code="type_needed",
            advice=f"Name it: --type Person={path}, or load({{'Person': '{path}'}})",
            file=path,
        )
    if chosen in ("parquet", "orc") and compression is not None:
        raise InvalidInput(f"{path}: {chosen} is compressed inside", code="file_error", advice="Decompress the file")
    kind, name = (one.kind, one.name) if one is not None else (None, None)
    return Source(index, path, size_bytes, chosen, compression, kind, name)


def _sniffed(source: Source, files: InputFiles) -> Source:
    """`.json` may hold one array or one object per line: the first character tells."""
    if source.format != "json":
        return source
    split = Split(source.index, source.path, "ndjson", compression=source.compression)
    with reading_errors(split), files.open(source.path) as file:
        start = text_stream(split, file).read(_SNIFFED_BYTES).lstrip()
    return source if start.startswith(b"[") else replace(source, format="ndjson")


def _refuse_twice(sources: Sequence[Source]) -> None:
    seen: set[str] = set()
    for one in sources:
        place = one.path if "://" in one.path else os.path.realpath(one.path)
        if place in seen:
            raise InvalidInput(
                f"{one.path} is named twice", code="duplicate_input", advice="Name every file once", file=one.path
            )
        seen.add(place)


# --- splits ------------------------------------------------------------------------------------------------------


def plan_splits(inputs: Inputs, split_bytes: int) -> list[Split]:
    """Parts of about this size, in the order of the input. Text that is cut is scanned once to count its lines."""
    return [split for source in inputs.sources for split in _splits(source, inputs.files, split_bytes)]


def _splits(source: Source, files: InputFiles, split_bytes: int) -> Iterator[Split]:
    whole = Split(
        source.index,
        source.path,
        source.format,
        source.kind,
        source.type_name,
        source.compression,
        size_bytes=source.size_bytes,
    )
    cuttable = source.compression is None and source.format in ("ndjson", "csv", "parquet")
    if not cuttable or source.size_bytes <= split_bytes:
        yield whole
        return
    with reading_errors(whole), files.open(source.path) as file:
        if source.format == "parquet":
            yield from _row_group_splits(whole, file, split_bytes)
        else:
            yield from _text_splits(whole, file, split_bytes)


def _text_splits(whole: Split, file: BinaryIO, split_bytes: int) -> Iterator[Split]:
    """Cut at the first line end at or behind each multiple of the size; of CSV, at one that is not within quotes."""
    is_csv = whole.format == "csv"
    columns = _csv_header(whole, file) if is_csv else ()
    start, first_line, at, line, quotes = 0, 1, 0, 1, 0
    file.seek(0)
    while chunk := file.read(_SCAN_BYTES):
        octets = np.frombuffer(chunk, np.uint8)
        newlines = np.flatnonzero(octets == 10)
        ends = newlines[row_ends(octets, newlines, quotes)] if is_csv else newlines
        while len(ends):
            due = int(np.searchsorted(ends, start + split_bytes - at - 1))
            if due >= len(ends):
                break
            end = at + int(ends[due]) + 1
            yield replace(whole, start=start, end=end, first_line=first_line, columns=columns if start else (),
                          size_bytes=end - start)  # fmt: skip
            start, first_line = end, line + int(np.searchsorted(newlines, end - at - 1)) + 1
            ends = ends[due + 1 :]
        at += len(chunk)
        line += len(newlines)
        quotes += int(np.count_nonzero(octets == 34)) if is_csv else 0
    if start < at:
        yield replace(whole, start=start, end=at, first_line=first_line, columns=columns if start else (),
                      size_bytes=at - start)  # fmt: skip


def _csv_header(whole: Split, file: BinaryIO) -> tuple[str, ...]:
    data = b""
    while chunk := file.read(_SNIFFED_BYTES):
        data += chunk
        end = last_row_end(data)
        if end:
            data = data[:end]
            break
    text = data.decode("utf-8-sig", errors="replace")
    row = next(csv_rows(text, 1), None)
    return header_of(whole, row) if row is not None else ()


def _row_group_splits(whole: Split, file: BinaryIO, split_bytes: int) -> Iterator[Split]:
    from pyarrow import parquet

    described: Any = parquet.ParquetFile(file).metadata
    start, first_line, rows, size = 0, 1, 0, 0
    for group in range(described.num_row_groups):
        rows += described.row_group(group).num_rows
        size += described.row_group(group).total_byte_size
        if size >= split_bytes or group == described.num_row_groups - 1:
            yield replace(whole, start=start, end=group + 1, first_line=first_line, size_bytes=size)
            start, first_line, size = group + 1, rows + 1, 0
