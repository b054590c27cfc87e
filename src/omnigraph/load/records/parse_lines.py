"""Parses many lines of JSON at once with Arrow's JSON reader, as far as the lines are plainly right.

Arrow's reader accepts too much: it drops unknown fields, takes a missing field for null, and reads two objects from
one line. So a line counts as parsed only if

- it begins with `{` and ends with `}`, and there are as many objects as lines: after `}` a `{` can follow only at the
  outermost level, so every line is then one object;
- the type that it names is the type as which it was read;
- it has exactly as many quotes as the fields and texts that were read from it need. A field that was dropped or
  repeated has quotes of its own, so the count differs. An explicit null is searched in the text of `data`, which must
  then come last: a field of that name elsewhere would be one too many.

`parse_record` parses all other lines. A block of lines that Arrow refuses is halved until the blocks are small.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from omnigraph.load.records.arrow_values import Mask, as_mask, to_single_chunk, valid_mask
from omnigraph.load.records.batches import LineBatch
from omnigraph.load.records.parse_columns import RawColumns, build_parsed_table, can_parse_by_column
from omnigraph.load.records.parse_record import end_field_name
from omnigraph.schema.arrow import arrow_type
from omnigraph.schema.catalog import Catalog, Property, Scalar, TypeDef

_PREFIX = re.compile(r'\{[ \t]*"(type|edge)"[ \t]*:[ \t]*"([^"\\]*)"')
_MAX_MARKS = 64
_MIN_LINES = 64  # for fewer lines, setting up Arrow's reader costs more than parsing them one by one
_NEWLINE, _RETURN, _QUOTE, _BACKSLASH, _OPEN, _CLOSE = b'\n\r"\\{}'


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a batch, each with its newline, and the number of quotes in each."""

    texts: pa.Array
    numbers: np.ndarray
    quotes: np.ndarray
    plain: Mask  # begins with { and ends with }; no doubled backslash makes the count of quotes uncertain

    def take(self, mask: Mask) -> Lines:
        if mask.all():
            return self
        return Lines(self.texts.filter(pa.array(mask)), self.numbers[mask], self.quotes[mask], self.plain[mask])

    def halves(self) -> tuple[Lines, Lines]:
        middle = len(self.numbers) // 2
        return self._slice(0, middle), self._slice(middle, len(self.numbers))

    def _slice(self, start: int, end: int) -> Lines:
        part = slice(start, end)
        return Lines(self.texts.slice(start, end - start), self.numbers[part], self.quotes[part], self.plain[part])

    @property
    def data(self) -> pa.Buffer:
        """The texts of all lines as one buffer, without copying."""
        offsets = np.frombuffer(self.texts.buffers()[1], np.int32)[self.texts.offset :]
        start, end = int(offsets[0]), int(offsets[len(self.texts)])
        return self.texts.buffers()[2].slice(start, end - start)


def scan_lines(raw: LineBatch) -> Lines | None:
    """Finds the lines of a batch and counts their quotes; None if the batch is not valid UTF-8."""
    data = raw.data if raw.data.endswith(b"\n") else raw.data + b"\n"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    octets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(octets == _NEWLINE)
    offsets = np.concatenate([[0], ends + 1])
    last = octets[np.maximum(ends - 1, 0)]
    last = np.where(last == _RETURN, octets[np.maximum(ends - 2, 0)], last)
    plain = (octets[offsets[:-1]] == _OPEN) & (last == _CLOSE)
    quotes = np.diff(np.searchsorted(np.flatnonzero(octets == _QUOTE), offsets))
    backslashes = np.flatnonzero(octets == _BACKSLASH)
    if len(backslashes):
        _discount_escapes(octets, backslashes, offsets, quotes, plain)
    texts = pa.Array.from_buffers(
        pa.utf8(), len(ends), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    )
    return Lines(texts, np.arange(raw.first_line, raw.first_line + len(ends), dtype=np.int64), quotes, plain)


def _discount_escapes(
    octets: np.ndarray, backslashes: np.ndarray, offsets: np.ndarray, quotes: np.ndarray, plain: Mask
) -> None:
    """Subtracts escaped quotes. A doubled backslash may or may not escape the next quote: such lines are not plain."""
    after = octets[np.minimum(backslashes + 1, len(octets) - 1)]
    line = np.searchsorted(offsets, backslashes, side="right") - 1
    np.subtract.at(quotes, line[after == _QUOTE], 1)
    plain[line[after == _BACKSLASH]] = False


def group_by_type(catalog: Catalog, lines: Lines) -> Iterator[tuple[TypeDef, str, Lines]]:
    """Yields types with the type name and the lines that mention it; lines of rare or unclear types are left out."""
    unclassified = lines.take(lines.plain)
    for _ in range(_MAX_MARKS):
        if len(unclassified.numbers) < _MIN_LINES:
            return
        mark = _find_type_mark(unclassified.texts[0].as_py())
        if mark.at_start:
            has_mark = as_mask(pc.starts_with(unclassified.texts, mark.text))
        else:
            has_mark = as_mask(pc.match_substring(unclassified.texts, mark.text))
        type_def = catalog.edge(mark.name) if mark.word == "edge" else catalog.node(mark.name) if mark.word else None
        if type_def is not None and has_mark.sum() >= _MIN_LINES:
            yield type_def, mark.name, unclassified.take(has_mark)
        unclassified = unclassified.take(~has_mark)


@dataclass(frozen=True, slots=True)
class _TypeMark:
    """A text that all lines of one type contain. Without a `word`, the mark is one whole line of unknown type."""

    text: str
    word: str = ""  # "type" or "edge"
    name: str = ""
    at_start: bool = True


def _find_type_mark(text: str) -> _TypeMark:
    match = _PREFIX.match(text)
    if match is not None:
        return _TypeMark(match.group(0), match.group(1), match.group(2))
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return _TypeMark(text)
    for word in ("type", "edge"):
        name = record.get(word)
        if isinstance(name, str):
            match = re.search(rf'"{word}"[ \t]*:[ \t]*"{re.escape(name)}"', text)
            return _TypeMark(match.group(0), word, name, at_start=False) if match else _TypeMark(text)
    return _TypeMark(text)


def parse_lines(type_def: TypeDef, seed: str, file: int, lines: Lines, name: str | None) -> Iterator[pa.Table]:
    """Yields tables of the lines that could be parsed; their line numbers say which lines those are.

    `name` is the type name in mixed records; None if each line is an object of properties of one known type.
    """
    if not can_parse_by_column(type_def) or len(lines.numbers) < _MIN_LINES:
        return
    shape = _JsonShape.of(type_def, name, lines)
    try:
        table = pj.read_json(
            pa.BufferReader(lines.data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(lines.data) + 1),
            parse_options=pj.ParseOptions(explicit_schema=shape.schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        for half in lines.halves() if len(lines.numbers) >= 2 * _MIN_LINES else ():
            yield from parse_lines(type_def, seed, file, half, name)
        return
    if table.num_rows == len(lines.numbers):
        parsed = _build_checked_table(type_def, seed, file, lines, shape, table)
        if parsed is not None:
            yield parsed


@dataclass(frozen=True, slots=True)
class _JsonShape:
    """The fields that Arrow's JSON reader looks for."""

    schema: pa.Schema
    ends: tuple[tuple[str, str], ...]  # stored column, name in the text
    name: str | None

    @classmethod
    def of(cls, type_def: TypeDef, name: str | None, lines: Lines) -> _JsonShape:
        data = [
            pa.field("id", pa.utf8()),
            *(pa.field(prop.name, _json_read_type(prop)) for prop in type_def.properties),
        ]
        if name is not None:
            ends = (("src", "from"), ("dst", "to")) if type_def.kind == "edge" else ()
            top = [type_def.kind if ends else "type", *(word for _, word in ends)]
            fields = [*(pa.field(word, pa.utf8()) for word in top), pa.field("data", pa.struct(data))]
            return cls(pa.schema(fields), ends, name)
        first_text = lines.texts[0].as_py()
        words = [word for word in ("src", "dst", "from", "to") if f'"{word}"' in first_text]
        typed_ends = tuple(
            (column, end_field_name(type_def, words, column)) for column in ("src", "dst") if type_def.kind == "edge"
        )
        return cls(pa.schema([*data, *(pa.field(word, pa.utf8()) for _, word in typed_ends)]), typed_ends, None)


def _json_read_type(prop: Property) -> pa.DataType:
    """Returns the Arrow type to read a property as: floats as exact as in `parse_record`, dates as text."""
    prop_type = prop.type
    if prop_type.vector_size is not None:
        return pa.list_(pa.float64())
    item = arrow_type(prop_type).value_type if prop_type.is_list else arrow_type(prop_type)
    if prop_type.scalar is Scalar.F32:
        item = pa.float64()
    elif prop_type.scalar in (Scalar.DATE, Scalar.DATETIME):
        item = pa.utf8()
    return pa.list_(item) if prop_type.is_list else item


def _build_checked_table(
    type_def: TypeDef, seed: str, file: int, lines: Lines, shape: _JsonShape, table: pa.Table
) -> pa.Table | None:
    columns = {name: to_single_chunk(table.column(name)) for name in table.column_names}
    bad = np.zeros(len(lines.numbers), bool)
    needed = np.zeros(len(lines.numbers), np.int64)
    by_stored_name = {column: columns.pop(name) for column, name in shape.ends}
    for end in by_stored_name.values():
        needed += 4 * valid_mask(end)
    if shape.name is not None:
        data = columns["data"]
        has_type_name = as_mask(pc.equal(columns["edge" if type_def.kind == "edge" else "type"], shape.name))
        bad |= ~has_type_name if type_def.kind == "edge" else ~(has_type_name & valid_mask(data))
        needed += 4 + 2 * valid_mask(data)
        columns = dict(zip([field.name for field in data.type], data.flatten(), strict=True))
    mentioned: dict[str, Mask | bool] = {}
    for name, column in columns.items():
        prop = type_def.by_name.get(name)
        is_present = valid_mask(column)
        needed += is_present * 2 + _count_value_quotes(column, is_present)
        by_stored_name[prop.id if prop is not None else "id"] = column
        if prop is not None:
            mentioned[prop.id] = True if is_present.all() else is_present
    _add_named_nulls(type_def, shape, lines, mentioned, needed)
    bad |= needed != lines.quotes
    return build_parsed_table(type_def, seed, file, RawColumns(by_stored_name, mentioned, lines.numbers), bad)


def _add_named_nulls(
    type_def: TypeDef, shape: _JsonShape, lines: Lines, mentioned: dict[str, Mask | bool], needed: np.ndarray
) -> None:
    """Adds explicit nulls to `mentioned`, and their quotes to `needed`, for lines that have more quotes than needed."""
    has_more_quotes = needed < lines.quotes
    if not has_more_quotes.any():
        return
    texts = lines.texts.filter(pa.array(has_more_quotes))
    before, can_match = "", np.ones(len(texts), bool)
    if shape.name is not None:
        before = r'"data"[ \t]*:[ \t]*\{.*'
        can_match = as_mask(pc.match_substring_regex(texts, r"\}[ \t]*\}[ \t\r\n]*$"))
    for prop in type_def.properties:
        is_present = mentioned[prop.id]
        if is_present is True:
            continue
        is_named_null = as_mask(pc.match_substring_regex(texts, rf'{before}"{re.escape(prop.name)}"[ \t]*:[ \t]*null'))
        is_named_null &= can_match & ~np.asarray(is_present)[has_more_quotes]
        if is_named_null.any():
            needed[has_more_quotes] += 2 * is_named_null
            mask = np.array(is_present)
            mask[has_more_quotes] |= is_named_null
            mentioned[prop.id] = mask


def _count_value_quotes(column: pa.Array, is_present: Mask) -> np.ndarray:
    """Counts, per line, the quotes around the texts of a column."""
    if pa.types.is_string(column.type):
        return np.asarray(is_present * 2)
    if pa.types.is_list(column.type) and pa.types.is_string(column.type.value_type):
        return np.asarray(pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False) * 2)
    return np.zeros(len(is_present), np.int64)
