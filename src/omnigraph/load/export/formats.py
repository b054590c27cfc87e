"""Rows as exports write them: NDJSON records, Parquet and CSV, each exactly what `load` reads back.

Rows come as Arrow with the columns of a type under the names that users know, in storage's own types.
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
_ONE_BY_ONE = {Scalar.F32, Scalar.DATETIME, Scalar.BLOB}
#: Scalars that JSON has as they are stored.
_PLAIN = {Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64}
_END_NAMES = {"id": "id", "src": "from", "dst": "to"}
_ROWS_PER_GROUP = 128 * 1024
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": "), allow_nan=False).encode


class RowWriter(Protocol):
    """Writes the rows of one type into one file."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


def export_schema(one: TypeDef) -> pa.Schema:
    """The columns of an export: `id`, for edges `from` and `to`, then the properties, as they are stored."""
    names = [*(_END_NAMES[name] for name in SYSTEM_COLUMNS[one.kind]), *one.by_name]
    physical = arrow_schema(one)
    return pa.schema([field.with_name(name) for field, name in zip(physical, names, strict=True)])


@contextmanager
def row_writer(one: TypeDef, export_format: ExportFormat, stream: BinaryIO) -> Iterator[RowWriter]:
    """A writer of one type's rows into an open file."""
    made: dict[ExportFormat, Callable[[TypeDef, BinaryIO], RowWriter]] = {
        "ndjson": _NdjsonWriter,
        "parquet": _ParquetWriter,
        "csv": _CsvWriter,
    }
    writer = made[export_format](one, stream)
    yield writer
    writer.close()


def record_lines(one: TypeDef, batch: pa.RecordBatch) -> bytes:
    """The rows as records, one per line. Nulls are written: a record then says all of its row, whatever it meets."""
    names = batch.schema.names
    texts = [json_texts(one.by_name.get(name), column) for name, column in zip(names, batch.columns, strict=True)]
    if one.kind == "edge":  # `from` and `to` stand before the data, which begins with the id
        names, texts = [names[0], *names[3:]], [*texts[1:3], texts[0], *texts[3:]]
    line = _line_of(one, names)
    return "".join([line % row for row in zip(*texts, strict=True)]).encode()


def _line_of(one: TypeDef, data_names: Sequence[str]) -> str:
    """The line of a record, with a `%s` for each JSON value in it."""
    data = ", ".join(f"{_fixed(name)}: %s" for name in data_names)
    if one.kind == "edge":
        return f'{{"edge": {_fixed(one.name)}, "from": %s, "to": %s, "data": {{{data}}}}}\n'
    return f'{{"type": {_fixed(one.name)}, "data": {{{data}}}}}\n'


def _fixed(text: str) -> str:
    return _dumps(text).replace("%", "%%")


def json_texts(prop: Property | None, column: pa.Array) -> list[str]:
    """The JSON text of every value of a column; `prop` None is a system column, which is text.

    By columns where Arrow writes what JSON wants: exports spend their time here.
    """
    kind = prop.type if prop is not None else _TEXT
    if prop is not None and (kind.is_list or kind.vector_size is not None or kind.scalar in _ONE_BY_ONE):
        return [_dumps(to_output(prop, value)) for value in column.to_pylist()]
    if kind.scalar is Scalar.STRING:
        return ["null" if value is None else encode_basestring(value) for value in column.to_pylist()]
    if kind.scalar is Scalar.F64:
        return [_float_text(value) for value in column.to_pylist()]
    texts = column.cast(pa.utf8())
    if kind.scalar is Scalar.DATE:
        texts = pc.binary_join_element_wise('"', texts, '"', "")
    return list(pc.fill_null(texts, "null").to_pylist())


def _float_text(value: float | None) -> str:
    if value is None:
        return "null"
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


@contextmanager
def compressed(stream: BinaryIO, compression: str | None) -> Iterator[BinaryIO]:
    """The stream itself, or one that compresses into it."""
    if compression is None:
        yield stream
        return
    with pa.CompressedOutputStream(_for_arrow(stream), compression) as packed:
        yield packed


class _NdjsonWriter:
    def __init__(self, one: TypeDef, stream: BinaryIO) -> None:
        self._type = one
        self._stream = stream

    def write(self, batch: pa.RecordBatch) -> None:
        self._stream.write(record_lines(self._type, batch))

    def close(self) -> None:
        pass


class _CsvWriter:
    """RFC 4180. A text is always in quotes, so that an empty one differs from null, which is nothing at all."""

    def __init__(self, one: TypeDef, stream: BinaryIO) -> None:
        self._type = one
        self._stream = stream
        self._stream.write(f"{','.join(map(_quoted, export_schema(one).names))}\n".encode())

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [
            [_cell(value) for value in _values(self._type, name, column)]
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        self._stream.write("".join(f"{','.join(row)}\n" for row in zip(*columns, strict=True)).encode())

    def close(self) -> None:
        pass


class _ParquetWriter:
    """Storage's own types. Rows are gathered into groups of a useful size."""

    def __init__(self, one: TypeDef, stream: BinaryIO) -> None:
        import pyarrow.parquet as pq

        self._schema = export_schema(one)
        self._writer = pq.ParquetWriter(_for_arrow(stream), self._schema, compression="zstd")
        self._held: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))
        self._rows += batch.num_rows
        if self._rows >= _ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema))
        self._held, self._rows = [], 0


class _Kept:
    """A stream that whoever is given it cannot close: its owner has to make it durable first."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self.write = stream.write
        self.flush = stream.flush

    def close(self) -> None:
        pass


def _for_arrow(stream: BinaryIO) -> pa.PythonFile:
    return pa.PythonFile(_Kept(stream), mode="w")


def _values(one: TypeDef, name: str, column: pa.Array) -> list[Any]:
    """A column as JSON values."""
    prop: Property | None = one.by_name.get(name)
    if prop is None or (prop.type.scalar in _PLAIN and prop.type.vector_size is None):
        return list(column.to_pylist())
    return [to_output(prop, value) for value in column.to_pylist()]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    return _quoted(_dumps(value)) if isinstance(value, list) else repr(value)


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
