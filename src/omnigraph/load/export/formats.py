"""Writes rows as NDJSON records, Parquet or CSV, so that `load` reads back exactly the same rows.

Rows arrive as Arrow batches with the property names that users know, in the types of storage.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from json.encoder import encode_basestring
from typing import Any, BinaryIO, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import SYSTEM_COLUMNS, Property, PropType, Scalar, TypeDef
from omnigraph.schema.values import to_output

ExportFormat = Literal["ndjson", "parquet", "csv"]
FORMATS: tuple[ExportFormat, ...] = ("ndjson", "parquet", "csv")
SUFFIXES: Mapping[ExportFormat, str] = {"ndjson": ".ndjson", "parquet": ".parquet", "csv": ".csv"}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}

_TEXT = PropType(Scalar.STRING)
_CONVERTED_BY_VALUE = {Scalar.F32, Scalar.DATETIME, Scalar.BLOB}
#: Scalars whose stored value is their JSON value.
_PLAIN = {Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64}
_END_NAMES = {"id": "id", "src": "from", "dst": "to"}
_ROWS_PER_GROUP = 128 * 1024
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": "), allow_nan=False).encode


class RowWriter(Protocol):
    """Writes the rows of one type into one file."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


def export_schema(type_def: TypeDef) -> pa.Schema:
    """Returns the columns of an export: `id`, for edges `from` and `to`, then the properties in their stored types."""
    names = [*(_END_NAMES[name] for name in SYSTEM_COLUMNS[type_def.kind]), *type_def.by_name]
    physical = arrow_schema(type_def)
    return pa.schema([field.with_name(name) for field, name in zip(physical, names, strict=True)])


@contextmanager
def open_row_writer(type_def: TypeDef, export_format: ExportFormat, stream: BinaryIO) -> Iterator[RowWriter]:
    """Opens a writer of one type's rows into an open file."""
    writer_classes: dict[ExportFormat, Callable[[TypeDef, BinaryIO], RowWriter]] = {
        "ndjson": _NdjsonWriter,
        "parquet": _ParquetWriter,
        "csv": _CsvWriter,
    }
    writer = writer_classes[export_format](type_def, stream)
    yield writer
    writer.close()


def format_records(type_def: TypeDef, batch: pa.RecordBatch) -> bytes:
    """Formats rows as records, one per line, with nulls, so that merging such a record replaces all values."""
    names = batch.schema.names
    texts = [
        format_json_values(type_def.by_name.get(name), column)
        for name, column in zip(names, batch.columns, strict=True)
    ]
    if type_def.kind == "edge":  # `from` and `to` stand before the data, which begins with the id
        names, texts = [names[0], *names[3:]], [*texts[1:3], texts[0], *texts[3:]]
    line = _record_template(type_def, names)
    return "".join([line % row for row in zip(*texts, strict=True)]).encode()


def _record_template(type_def: TypeDef, data_names: Sequence[str]) -> str:
    """Returns the line of a record with a `%s` for each JSON value."""
    data = ", ".join(f"{_escape_percent(name)}: %s" for name in data_names)
    if type_def.kind == "edge":
        return f'{{"edge": {_escape_percent(type_def.name)}, "from": %s, "to": %s, "data": {{{data}}}}}\n'
    return f'{{"type": {_escape_percent(type_def.name)}, "data": {{{data}}}}}\n'


def _escape_percent(text: str) -> str:
    return _dumps(text).replace("%", "%%")


def format_json_values(prop: Property | None, column: pa.Array) -> list[str]:
    """Formats every value of a column as JSON; `prop` is None for a system column, which is text.

    Exports spend their time here, so whole columns are converted where Arrow's text form is valid JSON.
    """
    kind = prop.type if prop is not None else _TEXT
    if prop is not None and (kind.is_list or kind.vector_size is not None or kind.scalar in _CONVERTED_BY_VALUE):
        return [_dumps(to_output(prop, value)) for value in column.to_pylist()]
    if kind.scalar is Scalar.STRING:
        return ["null" if value is None else encode_basestring(value) for value in column.to_pylist()]
    if kind.scalar is Scalar.F64:
        return [_format_float(value) for value in column.to_pylist()]
    texts = column.cast(pa.utf8())
    if kind.scalar is Scalar.DATE:
        texts = pc.binary_join_element_wise('"', texts, '"', "")
    return list(pc.fill_null(texts, "null").to_pylist())


def _format_float(value: float | None) -> str:
    if value is None:
        return "null"
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


@contextmanager
def compress_into(stream: BinaryIO, compression: str | None) -> Iterator[BinaryIO]:
    """Yields the stream itself, or a stream that compresses into it."""
    if compression is None:
        yield stream
        return
    with pa.CompressedOutputStream(_to_arrow_file(stream), compression) as packed:
        yield packed


class _NdjsonWriter:
    def __init__(self, type_def: TypeDef, stream: BinaryIO) -> None:
        self._type = type_def
        self._stream = stream

    def write(self, batch: pa.RecordBatch) -> None:
        self._stream.write(format_records(self._type, batch))

    def close(self) -> None:
        pass


class _CsvWriter:
    """Writes CSV by RFC 4180. A text is always in quotes, so that an empty text differs from null, an empty field."""

    def __init__(self, type_def: TypeDef, stream: BinaryIO) -> None:
        self._type = type_def
        self._stream = stream
        self._stream.write(f"{','.join(map(_quote, export_schema(type_def).names))}\n".encode())

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [
            [_format_cell(value) for value in _to_json_values(self._type, name, column)]
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        self._stream.write("".join(f"{','.join(row)}\n" for row in zip(*columns, strict=True)).encode())

    def close(self) -> None:
        pass


class _ParquetWriter:
    """Writes the types of storage. Rows are collected into row groups of a useful size."""

    def __init__(self, type_def: TypeDef, stream: BinaryIO) -> None:
        import pyarrow.parquet as pq

        self._schema = export_schema(type_def)
        self._writer = pq.ParquetWriter(_to_arrow_file(stream), self._schema, compression="zstd")
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))
        self._rows += batch.num_rows
        if self._rows >= _ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, self._schema))
        self._batches, self._rows = [], 0


class _UnclosableStream:
    """Ignores `close`: Arrow would close the stream before its owner has made it durable."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self.write = stream.write
        self.flush = stream.flush

    def close(self) -> None:
        pass


def _to_arrow_file(stream: BinaryIO) -> pa.PythonFile:
    return pa.PythonFile(_UnclosableStream(stream), mode="w")


def _to_json_values(type_def: TypeDef, name: str, column: pa.Array) -> list[Any]:
    """Converts a column to JSON values."""
    prop: Property | None = type_def.by_name.get(name)
    if prop is None or (prop.type.scalar in _PLAIN and prop.type.vector_size is None):
        return list(column.to_pylist())
    return [to_output(prop, value) for value in column.to_pylist()]


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quote(value)
    return _quote(_dumps(value)) if isinstance(value, list) else repr(value)


def _quote(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
