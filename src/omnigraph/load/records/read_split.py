"""`read_split` reads the bytes of a split as bounded batches of records with exact line numbers."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, BinaryIO

import pyarrow as pa

from omnigraph.errors import DamagedInput
from omnigraph.load.records.batches import (
    ColumnBatch,
    ItemBatch,
    LineBatch,
    OpenFile,
    RawBatch,
    ReadLimits,
    RecordProblem,
    Reject,
    Split,
)
from omnigraph.load.records.csv_text import CsvRow, find_last_row_end, parse_csv_rows

_SHOWN_CHARS = 200
_BLANK = " \t\r\n"


def read_split(split: Split, open_file: OpenFile, limits: ReadLimits | None = None) -> Iterator[RawBatch]:
    """Yields the records of a split in order. Raises `DamagedInput` for a file that cannot be read to its end."""
    bounds = limits or ReadLimits()
    with translate_read_errors(split), open_file(split.path) as file:
        if split.format == "ndjson":
            yield from _read_lines(split, open_text(split, file), bounds)
        elif split.format == "csv":
            yield from _read_csv(split, open_text(split, file), bounds)
        elif split.format == "json":
            yield from _read_array(split, open_text(split, file), bounds)
        elif split.format == "parquet":
            yield from _read_parquet(split, file, bounds)
        else:
            yield from _read_orc(split, file, bounds)


@contextmanager
def translate_read_errors(split: Split) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, EOFError) as error:
        raise damaged_error(split, _damage_reason(error)) from error
    except OSError as error:
        if error.errno is not None:
            raise  # an error of the file system, such as a missing file: not damage
        raise damaged_error(split, _damage_reason(error)) from error


def damaged_error(split: Split, reason: str, *, code: str | None = None, line: int | None = None) -> DamagedInput:
    where = split.path if line is None else f"{split.path}, line {line}"
    return DamagedInput(
        f"{where}: {reason}",
        code=code,
        advice="Nothing was loaded; write the file anew, since what is behind the damage is not known",
        file=split.path,
        line=line,
        reason=reason,
    )


def _damage_reason(error: Exception) -> str:
    return f"the file is damaged: {str(error).strip().partition(chr(10))[0][:200]}"


# --- text --------------------------------------------------------------------------------------------------------


class _SplitText:
    """The bytes of a split, decompressed, without a byte-order mark."""

    def __init__(self, split: Split, stream: Any) -> None:
        self._stream = stream
        self._remaining_bytes = None if split.end is None else split.end - split.start
        self._is_at_file_start = split.start == 0

    def read(self, size: int) -> bytes:
        byte_count = size if self._remaining_bytes is None else min(size, self._remaining_bytes)
        data = bytes(self._stream.read(byte_count)) if byte_count else b""
        if self._remaining_bytes is not None:
            self._remaining_bytes -= len(data)
        if self._is_at_file_start and data:
            self._is_at_file_start = False
            return data.removeprefix(codecs.BOM_UTF8) or self.read(size)
        return data


def open_text(split: Split, file: BinaryIO) -> _SplitText:
    if split.compression is not None:
        return _SplitText(split, pa.CompressedInputStream(pa.PythonFile(file, mode="r"), split.compression))
    if split.start:
        file.seek(split.start)
    return _SplitText(split, file)


def _read_lines(split: Split, text: _SplitText, limits: ReadLimits) -> Iterator[LineBatch]:
    line, pending, long_start = split.first_line, b"", None
    while chunk := text.read(limits.batch_bytes):
        cut = chunk.rfind(b"\n") + 1
        if long_start is not None:
            # Inside a line that is too long: only its beginning is kept, for the reject.
            if not cut:
                continue
            end = chunk.index(b"\n") + 1
            reject = _too_long_reject(split, line, long_start, limits)
            yield LineBatch(split, line + 1, chunk[end:cut], (reject,))
            line += chunk.count(b"\n")
            pending, long_start = chunk[cut:], None
        elif cut:
            data, pending = pending + chunk[:cut], chunk[cut:]
            yield _reject_long_lines(LineBatch(split, line, data), limits)
            line += data.count(b"\n")
        else:
            pending += chunk
        if len(pending) > limits.line_bytes + 1:
            pending, long_start = b"", pending[: 4 * _SHOWN_CHARS]
    if long_start is not None:
        yield LineBatch(split, line, b"", (_too_long_reject(split, line, long_start, limits),))
    elif pending:
        yield _reject_long_lines(LineBatch(split, line, pending), limits)


def _reject_long_lines(batch: LineBatch, limits: ReadLimits) -> LineBatch:
    """Rejects lines over the limit, and makes them blank in the batch, so that line numbers stay right."""
    if len(batch.data) <= limits.line_bytes:
        return batch
    lines = batch.data.split(b"\n")
    rejects = []
    for index, line in enumerate(lines):
        if len(line) - line.endswith(b"\r") > limits.line_bytes:
            rejects.append(_too_long_reject(batch.split, batch.first_line + index, line, limits))
            lines[index] = b""
    return replace(batch, data=b"\n".join(lines), rejects=tuple(rejects)) if rejects else batch


def _too_long_reject(split: Split, line: int, start: bytes, limits: ReadLimits) -> Reject:
    reason = f"the line is longer than line_bytes = {limits.line_bytes} bytes"
    excerpt = start[: 4 * _SHOWN_CHARS].decode("utf-8", errors="replace")[:_SHOWN_CHARS] + "…"
    return Reject.of(split.path, line, excerpt, (RecordProblem("line_too_long", reason),))


# --- CSV ---------------------------------------------------------------------------------------------------------


def _read_csv(split: Split, text: _SplitText, limits: ReadLimits) -> Iterator[ItemBatch]:
    line, pending = split.first_line, b""
    while True:
        chunk = text.read(limits.batch_bytes)
        pending += chunk
        cut = find_last_row_end(pending) if chunk else len(pending)
        if not chunk and not pending:
            return
        data, pending = pending[:cut], pending[cut:]
        if not data:
            if len(pending) > limits.array_bytes:
                raise damaged_error(split, "a quoted field has no end", code="bad_csv", line=line)
            continue
        rows = list(parse_csv_rows(_decode_utf8(split, data, line), line))
        line += data.count(b"\n")
        if not split.columns and rows:
            split = replace(split, columns=require_header(split, rows.pop(0)))
        for at in range(0, len(rows), limits.batch_rows):
            yield _build_csv_batch(split, rows[at : at + limits.batch_rows])


def require_header(split: Split, row: CsvRow) -> tuple[str, ...]:
    if row.fields is None or None in row.fields:
        raise damaged_error(split, "the first line must name every column", code="bad_csv", line=row.line)
    return tuple(field for field in row.fields if field is not None)


def _build_csv_batch(split: Split, rows: list[CsvRow]) -> ItemBatch:
    good, rejects = [], []
    for row in rows:
        if row.fields is None:
            problem = RecordProblem("bad_csv", "a quote is out of place", column=row.column)
        elif len(row.fields) != len(split.columns):
            reason = f"the row has {len(row.fields)} fields, the header {len(split.columns)}"
            problem = RecordProblem("wrong_field_count", reason)
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


def _decode_utf8(split: Split, data: bytes, first_line: int) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise damaged_error(split, f"not UTF-8: byte {data[error.start]:#04x}", code="not_utf8", line=line) from None


# --- JSON array --------------------------------------------------------------------------------------------------


def _read_array(split: Split, text: _SplitText, limits: ReadLimits) -> Iterator[ItemBatch]:
    parts, size = [], 0
    while chunk := text.read(limits.batch_bytes):
        parts.append(chunk)
        size += len(chunk)
        if size > limits.array_bytes:
            reason = f"a JSON array may have array_bytes = {limits.array_bytes} bytes; write one object per line"
            raise damaged_error(split, reason, code="limit_exceeded")
    array_text = _decode_utf8(split, b"".join(parts), 1)
    number, items = 1, []
    for item in _iterate_array_items(split, array_text):
        items.append(item)
        if len(items) >= limits.batch_rows:
            yield _build_item_batch(split, number, items)
            number, items = number + len(items), []
    if items:
        yield _build_item_batch(split, number, items)


def _build_item_batch(split: Split, number: int, items: list[str]) -> ItemBatch:
    """Builds a batch in which the number of an item stands for its line, since one line may have several items."""
    return ItemBatch(split, tuple(range(number, number + len(items))), tuple(items), tuple(items))


def _iterate_array_items(split: Split, text: str) -> Iterator[str]:
    """Yields the text of each item of the array."""
    decoder = json.JSONDecoder()
    at, line = _skip_blanks(text, 0), 1
    line += text.count("\n", 0, at)
    if text[at : at + 1] != "[":
        raise damaged_error(split, "a JSON file holds one array, or one object per line", code="not_json", line=line)
    counted_to, at = at, _skip_blanks(text, at + 1)
    has_more = text[at : at + 1] != "]"
    while has_more:
        line += text.count("\n", counted_to, at)
        counted_to = at
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise damaged_error(split, f"not JSON: {error}", code="not_json", line=line) from None
        yield text[at:end]
        at = _skip_blanks(text, end)
        separator = text[at : at + 1]
        if separator not in (",", "]") or not separator:
            line += text.count("\n", counted_to, at)
            raise damaged_error(split, "not JSON: ',' or ']' expected after an item", code="not_json", line=line)
        has_more = separator == ","
        at = _skip_blanks(text, at + 1) if has_more else at
    if _skip_blanks(text, at + 1) != len(text):
        raise damaged_error(split, "not JSON: text after the array", code="not_json", line=1 + text.count("\n", 0, at))


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


# --- typed files -------------------------------------------------------------------------------------------------


def _read_parquet(split: Split, file: BinaryIO, limits: ReadLimits) -> Iterator[ColumnBatch]:
    from pyarrow import parquet

    opened = parquet.ParquetFile(file)
    groups = range(split.start, opened.num_row_groups if split.end is None else split.end)
    line = split.first_line
    if not groups:
        return
    for batch in opened.iter_batches(limits.batch_rows, row_groups=list(groups)):
        yield ColumnBatch(split, line, pa.Table.from_batches([batch]))
        line += batch.num_rows


def _read_orc(split: Split, file: BinaryIO, limits: ReadLimits) -> Iterator[ColumnBatch]:
    from pyarrow import orc

    opened = orc.ORCFile(file)
    line = split.first_line
    for stripe in range(split.start, opened.nstripes if split.end is None else split.end):
        table = pa.Table.from_batches([opened.read_stripe(stripe)])
        for at in range(0, table.num_rows, limits.batch_rows):
            yield ColumnBatch(split, line + at, table.slice(at, limits.batch_rows))
        line += table.num_rows
