"""Many lines of JSON at once, by Arrow's reader, for lines that are plainly right.

Arrow's reader is not trusted to refuse: it drops unknown fields, takes a missing field for null, and reads two objects
on one line. So a line counts as read only if

- it begins with `{` and ends with `}`, and there are as many objects as lines: since after `}` no `{` can follow but
  at the outermost level, every line then is one object;
- the type that it names is the one that it was read as;
- it has exactly as many quotes as the fields and texts that were read from it need. A field that was dropped, or that
  is there twice, has quotes of its own, so that the count differs. A null that is there by name is looked for in the
  text of `data`, which must come last then: elsewhere a field of that name would be one too many.

Everything else is read by the reference. A block that Arrow refuses is halved until the culprit is alone.
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

from omnigraph.load.records.arrow_values import Mask, as_mask, one_chunk, valid
from omnigraph.load.records.fast_rows import RawColumns, has_fast_way, parsed_table
from omnigraph.load.records.model import LineBatch
from omnigraph.load.records.reference import end_name
from omnigraph.schema.arrow import arrow_type
from omnigraph.schema.catalog import Catalog, Property, Scalar, TypeDef

_PREFIX = re.compile(r'\{[ \t]*"(type|edge)"[ \t]*:[ \t]*"([^"\\]*)"')
_MAX_MARKS = 64
_TOO_FEW = 64  # lines for which setting up Arrow's reader costs more than reading them one by one
_NEWLINE, _RETURN, _QUOTE, _BACKSLASH, _OPEN, _CLOSE = b'\n\r"\\{}'


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a batch, each with its newline, and what was counted in them."""

    texts: pa.Array
    numbers: np.ndarray
    quotes: np.ndarray
    plain: Mask  # begins with { and ends with }, and no doubled backslash blurs the count of quotes

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
        """All texts behind each other."""
        offsets = np.frombuffer(self.texts.buffers()[1], np.int32)[self.texts.offset :]
        start, end = int(offsets[0]), int(offsets[len(self.texts)])
        return self.texts.buffers()[2].slice(start, end - start)


def lines_of(raw: LineBatch) -> Lines | None:
    """None if the batch is not UTF-8 throughout."""
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
    """Escaped quotes do not count. After a doubled backslash it is not known what is escaped: such lines are left."""
    after = octets[np.minimum(backslashes + 1, len(octets) - 1)]
    line = np.searchsorted(offsets, backslashes, side="right") - 1
    np.subtract.at(quotes, line[after == _QUOTE], 1)
    plain[line[after == _BACKSLASH]] = False


def by_type(catalog: Catalog, lines: Lines) -> Iterator[tuple[TypeDef, str, Lines]]:
    """Lines of mixed records that seem to be of one type, with the name that they call it by; the rest is left out."""
    left = lines.take(lines.plain)
    for _ in range(_MAX_MARKS):
        if len(left.numbers) < _TOO_FEW:
            return
        mark = _mark_of(left.texts[0].as_py())
        if mark.at_start:
            same = as_mask(pc.starts_with(left.texts, mark.text))
        else:
            same = as_mask(pc.match_substring(left.texts, mark.text))
        one = catalog.edge(mark.name) if mark.word == "edge" else catalog.node(mark.name) if mark.word else None
        if one is not None and same.sum() >= _TOO_FEW:
            yield one, mark.name, left.take(same)
        left = left.take(~same)


@dataclass(frozen=True, slots=True)
class _Mark:
    """A text by which lines of one type are told apart. Without a word it only stands for the line itself."""

    text: str
    word: str = ""
    name: str = ""
    at_start: bool = True


def _mark_of(text: str) -> _Mark:
    found = _PREFIX.match(text)
    if found is not None:
        return _Mark(found.group(0), found.group(1), found.group(2))
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return _Mark(text)
    for word in ("type", "edge"):
        name = record.get(word)
        if isinstance(name, str):
            found = re.search(rf'"{word}"[ \t]*:[ \t]*"{re.escape(name)}"', text)
            return _Mark(found.group(0), word, name, at_start=False) if found else _Mark(text)
    return _Mark(text)


def read_lines(one: TypeDef, seed: str, file: int, lines: Lines, name: str | None) -> Iterator[pa.Table]:
    """Parsed rows of the lines that were read; the caller tells by their numbers which were not.

    `name` is what mixed records call the type; None: the lines hold properties only.
    """
    if not has_fast_way(one) or len(lines.numbers) < _TOO_FEW:
        return
    shape = _Shape.of(one, name, lines)
    try:
        table = pj.read_json(
            pa.BufferReader(lines.data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(lines.data) + 1),
            parse_options=pj.ParseOptions(explicit_schema=shape.schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        for half in lines.halves() if len(lines.numbers) >= 2 * _TOO_FEW else ():
            yield from read_lines(one, seed, file, half, name)
        return
    if table.num_rows == len(lines.numbers):
        made = _checked(one, seed, file, lines, shape, table)
        if made is not None:
            yield made


@dataclass(frozen=True, slots=True)
class _Shape:
    """What Arrow's reader is told to look for."""

    schema: pa.Schema
    ends: tuple[tuple[str, str], ...]  # stored column, name in the text
    name: str | None

    @classmethod
    def of(cls, one: TypeDef, name: str | None, lines: Lines) -> _Shape:
        data = [pa.field("id", pa.utf8()), *(pa.field(prop.name, _read_as(prop)) for prop in one.properties)]
        if name is not None:
            ends = (("src", "from"), ("dst", "to")) if one.kind == "edge" else ()
            top = [one.kind if ends else "type", *(word for _, word in ends)]
            fields = [*(pa.field(word, pa.utf8()) for word in top), pa.field("data", pa.struct(data))]
            return cls(pa.schema(fields), ends, name)
        first = lines.texts[0].as_py()
        words = [word for word in ("src", "dst", "from", "to") if f'"{word}"' in first]
        plain = tuple((column, end_name(one, words, column)) for column in ("src", "dst") if one.kind == "edge")
        return cls(pa.schema([*data, *(pa.field(word, pa.utf8()) for _, word in plain)]), plain, None)


def _read_as(prop: Property) -> pa.DataType:
    """Numbers as exact as the reference sees them, dates as the text that they are."""
    kind = prop.type
    if kind.vector_size is not None:
        return pa.list_(pa.float64())
    item = arrow_type(kind).value_type if kind.is_list else arrow_type(kind)
    if kind.scalar is Scalar.F32:
        item = pa.float64()
    elif kind.scalar in (Scalar.DATE, Scalar.DATETIME):
        item = pa.utf8()
    return pa.list_(item) if kind.is_list else item


def _checked(one: TypeDef, seed: str, file: int, lines: Lines, shape: _Shape, table: pa.Table) -> pa.Table | None:
    columns = {name: one_chunk(table.column(name)) for name in table.column_names}
    bad = np.zeros(len(lines.numbers), bool)
    needed = np.zeros(len(lines.numbers), np.int64)
    found = {column: columns.pop(name) for column, name in shape.ends}
    for end in found.values():
        needed += 4 * valid(end)
    if shape.name is not None:
        data = columns["data"]
        named = as_mask(pc.equal(columns["edge" if one.kind == "edge" else "type"], shape.name))
        bad |= ~named if one.kind == "edge" else ~(named & valid(data))
        needed += 4 + 2 * valid(data)
        columns = dict(zip([field.name for field in data.type], data.flatten(), strict=True))
    given: dict[str, Mask | bool] = {}
    for name, column in columns.items():
        prop = one.by_name.get(name)
        there = valid(column)
        needed += there * 2 + _quotes_of(column, there)
        found[prop.id if prop is not None else "id"] = column
        if prop is not None:
            given[prop.id] = True if there.all() else there
    _find_nulls(one, shape, lines, given, needed)
    bad |= needed != lines.quotes
    return parsed_table(one, seed, file, RawColumns(found, given, lines.numbers), bad)


def _find_nulls(one: TypeDef, shape: _Shape, lines: Lines, given: dict[str, Mask | bool], needed: np.ndarray) -> None:
    """Add to `given` and to `needed` the properties that are null by name, in lines that have quotes too many."""
    short = needed < lines.quotes
    if not short.any():
        return
    texts = lines.texts.filter(pa.array(short))
    before, can_be = "", np.ones(len(texts), bool)
    if shape.name is not None:
        before = r'"data"[ \t]*:[ \t]*\{.*'
        can_be = as_mask(pc.match_substring_regex(texts, r"\}[ \t]*\}[ \t\r\n]*$"))
    for prop in one.properties:
        there = given[prop.id]
        if there is True:
            continue
        named = as_mask(pc.match_substring_regex(texts, rf'{before}"{re.escape(prop.name)}"[ \t]*:[ \t]*null'))
        named &= can_be & ~np.asarray(there)[short]
        if named.any():
            needed[short] += 2 * named
            mask = np.array(there)
            mask[short] |= named
            given[prop.id] = mask


def _quotes_of(column: pa.Array, there: Mask) -> np.ndarray:
    """Quotes that the values themselves have."""
    if pa.types.is_string(column.type):
        return np.asarray(there * 2)
    if pa.types.is_list(column.type) and pa.types.is_string(column.type.value_type):
        return np.asarray(pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False) * 2)
    return np.zeros(len(there), np.int64)
