"""`read_split`: the bytes of a split as bounded batches of records with exact line numbers."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, BinaryIO

import pyarrow as pa

from omnigraph.errors import DamagedInput
from omnigraph.load.records.csv_text import CsvRow, csv_rows, last_row_end
from omnigraph.load.records.model import (
    ColumnBatch,
    ItemBatch,
    Limits,
    LineBatch,
    OpenFile,
    Problem,
    RawBatch,
    Reject,
    Split,
)

_SHOWN_CHARS = 200
_BLANK = " \t\r\n"


def read_split(split: Split, open_file: OpenFile, limits: Limits | None = None) -> Iterator[RawBatch]:
    """The records of a split, in order. Raises DamagedInput for a file that cannot be read to its end."""
    bounds = limits or Limits()
    with reading_errors(split), open_file(split.path) as file:
        if split.format == "ndjson":
            yield from _line_batches(split, text_stream(split, file), bounds)
        elif split.format == "csv":
            yield from _csv_batches(split, text_stream(split, file), bounds)
        elif split.format == "json":
            yield from _array_batches(split, text_stream(split, file), bounds)
        elif split.format == "parquet":
            yield from _parquet_batches(split, file, bounds)
        else:
            yield from _orc_batches(split, file, bounds)


@contextmanager
def reading_errors(split: Split) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, EOFError) as error:
        raise damaged(split, _brief(error)) from error
    except OSError as error:
        if error.errno is not None:
            raise  # the file system's own: missing, forbidden, gone
        raise damaged(split, _brief(error)) from error


def damaged(split: Split, reason: str, *, code: str | None = None, line: int | None = None) -> DamagedInput:
    where = split.path if line is None else f"{split.path}, line {line}"
    return DamagedInput(
        f"{where}: {reason}",
        code=code,
        advice="Nothing was loaded; write the file anew, since what is behind the damage is not known",
        file=split.path,
        line=line,
        reason=reason,
    )


def _brief(error: Exception) -> str:
    return f"the file is damaged: {str(error).strip().partition(chr(10))[0][:200]}"


# --- text --------------------------------------------------------------------------------------------------------


class _Text:
    """The bytes of a split, decompressed, without a byte-order mark."""

    def __init__(self, split: Split, stream: Any) -> None:
        self._stream = stream
        self._left = None if split.end is None else split.end - split.start
        self._fresh = split.start == 0

    def read(self, size: int) -> bytes:
        wanted = size if self._left is None else min(size, self._left)
        data = bytes(self._stream.read(wanted)) if wanted else b""
        if self._left is not None:
            self._left -= len(data)
        if self._fresh and data:
            self._fresh = False
            return data.removeprefix(codecs.BOM_UTF8) or self.read(size)
        return data


def text_stream(split: Split, file: BinaryIO) -> _Text:
    if split.compression is not None:
        return _Text(split, pa.CompressedInputStream(pa.PythonFile(file, mode="r"), split.compression))
    if split.start:
        file.seek(split.start)
    return _Text(split, file)


def _line_batches(split: Split, text: _Text, limits: Limits) -> Iterator[LineBatch]:
    line, held, long_start = split.first_line, b"", None
    while chunk := text.read(limits.batch_bytes):
        cut = chunk.rfind(b"\n") + 1
        if long_start is not None:
            # Inside a line that is too long: nothing of it is kept but its beginning.
            if not cut:
                continue
            end = chunk.index(b"\n") + 1
            reject = _too_long(split, line, long_start, limits)
            yield LineBatch(split, line + 1, chunk[end:cut], (reject,))
            line += chunk.count(b"\n")
            held, long_start = chunk[cut:], None
        elif cut:
            data, held = held + chunk[:cut], chunk[cut:]
            yield _without_long(LineBatch(split, line, data), limits)
            line += data.count(b"\n")
        else:
            held += chunk
        if len(held) > limits.line_bytes + 1:
            held, long_start = b"", held[: 4 * _SHOWN_CHARS]
    if long_start is not None:
        yield LineBatch(split, line, b"", (_too_long(split, line, long_start, limits),))
    elif held:
        yield _without_long(LineBatch(split, line, held), limits)


def _without_long(batch: LineBatch, limits: Limits) -> LineBatch:
    """The batch with lines over the limit made blank and rejected."""
    if len(batch.data) <= limits.line_bytes:
        return batch
    lines = batch.data.split(b"\n")
    rejects = []
    for at, line in enumerate(lines):
        if len(line) - line.endswith(b"\r") > limits.line_bytes:
            rejects.append(_too_long(batch.split, batch.first_line + at, line, limits))
            lines[at] = b""
    return replace(batch, data=b"\n".join(lines), rejects=tuple(rejects)) if rejects else batch


def _too_long(split: Split, line: int, start: bytes, limits: Limits) -> Reject:
    reason = f"the line is longer than line_bytes = {limits.line_bytes} bytes"
    shown = start[: 4 * _SHOWN_CHARS].decode("utf-8", errors="replace")[:_SHOWN_CHARS] + "…"
    return Reject.of(split.path, line, shown, (Problem("line_too_long", reason),))


# --- CSV ---------------------------------------------------------------------------------------------------------


def _csv_batches(split: Split, text: _Text, limits: Limits) -> Iterator[ItemBatch]:
    line, held = split.first_line, b""
    while True:
        chunk = text.read(limits.batch_bytes)
        held += chunk
        cut = last_row_end(held) if chunk else len(held)
        if not chunk and not held:
            return
        data, held = held[:cut], held[cut:]
        if not data:
            if len(held) > limits.array_bytes:
                raise damaged(split, "a quoted field has no end", code="bad_csv", line=line)
            continue
        rows = list(csv_rows(_decoded(split, data, line), line))
        line += data.count(b"\n")
        if not split.columns and rows:
            split = replace(split, columns=header_of(split, rows.pop(0)))
        for at in range(0, len(rows), limits.batch_rows):
            yield _csv_batch(split, rows[at : at + limits.batch_rows])


def header_of(split: Split, row: CsvRow) -> tuple[str, ...]:
    if row.fields is None or None in row.fields:
        raise damaged(split, "the first line must name every column", code="bad_csv", line=row.line)
    return tuple(field for field in row.fields if field is not None)


def _csv_batch(split: Split, rows: list[CsvRow]) -> ItemBatch:
    good, rejects = [], []
    for row in rows:
        if row.fields is None:
            problem = Problem("bad_csv", "a quote is out of place", column=row.column)
        elif len(row.fields) != len(split.columns):
            reason = f"the row has {len(row.fields)} fields, the header {len(split.columns)}"
            problem = Problem("wrong_field_count", reason)
        else:
            good.append(row)
            continue
        rejects.append(Reject.of(split.path, row.line, row.text, (problem,)))
    return ItemBatch(
        split,
        tuple(row.line for row in good),
        tuple(row.fields for row in good if row.fields is not None),
        tuple(row.text for row in good),
        tuple(rejects),
    )


def _decoded(split: Split, data: bytes, first_line: int) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise damaged(split, f"not UTF-8: byte {data[error.start]:#04x}", code="not_utf8", line=line) from None


# --- JSON array --------------------------------------------------------------------------------------------------


def _array_batches(split: Split, text: _Text, limits: Limits) -> Iterator[ItemBatch]:
    parts, size = [], 0
    while chunk := text.read(limits.batch_bytes):
        parts.append(chunk)
        size += len(chunk)
        if size > limits.array_bytes:
            reason = f"a JSON array may have array_bytes = {limits.array_bytes} bytes; write one object per line"
            raise damaged(split, reason, code="limit_exceeded")
    whole = _decoded(split, b"".join(parts), 1)
    number, items = 1, []
    for item in _array_items(split, whole):
        items.append(item)
        if len(items) >= limits.batch_rows:
            yield _item_batch(split, number, items)
            number, items = number + len(items), []
    if items:
        yield _item_batch(split, number, items)


def _item_batch(split: Split, number: int, items: list[str]) -> ItemBatch:
    """Items go by their number: several of them may stand on one line."""
    return ItemBatch(split, tuple(range(number, number + len(items))), tuple(items), tuple(items))


def _array_items(split: Split, text: str) -> Iterator[str]:
    """The texts of the items of the array."""
    decoder = json.JSONDecoder()
    at, line = _skip(text, 0), 1
    line += text.count("\n", 0, at)
    if text[at : at + 1] != "[":
        raise damaged(split, "a JSON file holds one array, or one object per line", code="not_json", line=line)
    seen, at = at, _skip(text, at + 1)
    more = text[at : at + 1] != "]"
    while more:
        line += text.count("\n", seen, at)
        seen = at
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise damaged(split, f"not JSON: {error}", code="not_json", line=line) from None
        yield text[at:end]
        at = _skip(text, end)
        mark = text[at : at + 1]
        if mark not in (",", "]") or not mark:
            line += text.count("\n", seen, at)
            raise damaged(split, "not JSON: ',' or ']' expected after an item", code="not_json", line=line)
        more = mark == ","
        at = _skip(text, at + 1) if more else at
    if _skip(text, at + 1) != len(text):
        raise damaged(split, "not JSON: text after the array", code="not_json", line=1 + text.count("\n", 0, at))


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


# --- typed files -------------------------------------------------------------------------------------------------


def _parquet_batches(split: Split, file: BinaryIO, limits: Limits) -> Iterator[ColumnBatch]:
    from pyarrow import parquet

    opened = parquet.ParquetFile(file)
    groups = range(split.start, opened.num_row_groups if split.end is None else split.end)
    line = split.first_line
    if not groups:
        return
    for batch in opened.iter_batches(limits.batch_rows, row_groups=list(groups)):
        yield ColumnBatch(split, line, pa.Table.from_batches([batch]))
        line += batch.num_rows


def _orc_batches(split: Split, file: BinaryIO, limits: Limits) -> Iterator[ColumnBatch]:
    from pyarrow import orc

    opened = orc.ORCFile(file)
    line = split.first_line
    for stripe in range(split.start, opened.nstripes if split.end is None else split.end):
        table = pa.Table.from_batches([opened.read_stripe(stripe)])
        for at in range(0, table.num_rows, limits.batch_rows):
            yield ColumnBatch(split, line + at, table.slice(at, limits.batch_rows))
        line += table.num_rows
