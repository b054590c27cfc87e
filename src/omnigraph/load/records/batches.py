"""The values between reading, parsing and an engine: splits, raw batches, parsed batches, rejects.

All of them are plain and picklable, so that a Spark worker can be handed a split and a parser. An engine does:

    for raw in read_split(split, open_file, limits):      # bounded batches, exact line numbers
        parsed = parser.parse(raw)                        # typed rows by type, and rejects
        ...                                               # merge: fill what was not given, then `check_images`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal

import pyarrow as pa

from omnigraph.schema.catalog import EntityKind

Format = Literal["ndjson", "json", "csv", "parquet", "orc"]
Compression = Literal["gzip", "zstd"]
OpenFile = Callable[[str], BinaryIO]
"""A path or address → a seekable stream of its bytes."""

#: Bookkeeping columns beside the physical ones.
FILE_COLUMN = "_file"  # int32: `Split.source_index`
LINE_COLUMN = "_line"  # int64: line of the file, from 1; of Parquet and ORC the row, of a JSON array the item
GIVEN_COLUMN = "_given"  # fixed-size binary: one bit per property, in the order of the type's properties
MINTED_COLUMN = "_minted"  # bool: the id was made for this record, so no row can have it yet
BOOKKEEPING = (FILE_COLUMN, LINE_COLUMN, GIVEN_COLUMN, MINTED_COLUMN)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of reading."""

    line_bytes: int = 32 * 1024 * 1024
    batch_bytes: int = 8 * 1024 * 1024
    batch_rows: int = 64 * 1024
    array_bytes: int = 512 * 1024 * 1024  # a JSON array has no line to cut at: it is held whole


@dataclass(frozen=True, slots=True)
class Split:
    """A part of one input file that one task reads.

    Text without compression is cut at line ends: `start` and `end` are bytes, `first_line` the number of the line at
    `start`. Parquet is cut at row groups, ORC at stripes: `start` and `end` count those, `first_line` the first row.
    Everything else is one split from 0 to None. `kind` and `type_name` are None for mixed records, which name their
    type themselves. `columns` is the header of a CSV file.
    """

    source_index: int
    path: str
    format: Format
    kind: EntityKind | None = None
    type_name: str | None = None
    compression: Compression | None = None
    start: int = 0
    end: int | None = None
    first_line: int = 1
    columns: tuple[str, ...] = ()
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a record: `code` is that of the mutation that would fail the same way."""

    code: str
    reason: str
    property: str | None = None
    column: int | None = None

    def order(self) -> tuple[str, str, str]:
        """Problems that rules found in no particular order are told in this one, by every engine."""
        return self.code, self.property or "", self.reason

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "reason": self.reason, "property": self.property, "column": self.column}


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that is not loaded, and why. `column` counts characters of the line from 1; `others`: more reasons."""

    file: str
    line: int
    column: int | None
    code: str
    reason: str
    record: str
    property: str | None = None
    type: str | None = None
    id: str | None = None
    others: tuple[Problem, ...] = ()

    @classmethod
    def of(
        cls,
        file: str,
        line: int,
        record: str,
        problems: tuple[Problem, ...],
        *,
        type: str | None = None,
        id: str | None = None,
    ) -> Reject:
        first = problems[0]
        return cls(file, line, first.column, first.code, first.reason, record, first.property, type, id, problems[1:])

    def to_json(self) -> dict[str, Any]:
        """One line of a rejects file."""
        found: dict[str, Any] = {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "code": self.code,
            "reason": self.reason,
            "record": self.record,
        }
        more = {"property": self.property, "type": self.type, "id": self.id}
        found.update({name: value for name, value in more.items() if value is not None})
        if self.others:
            found["others"] = [one.to_json() for one in self.others]
        return found


@dataclass(frozen=True, slots=True)
class LineBatch:
    """Whole lines of JSON text; blank ones are there and count."""

    split: Split
    first_line: int
    data: bytes
    rejects: tuple[Reject, ...] = ()  # lines that were too long to be held

    def text_of(self, line: int) -> str:
        return _as_text(self.data.split(b"\n")[line - self.first_line].rstrip(b"\r"))

    def texts_of(self, lines: Any) -> dict[int, str]:
        """The texts of several lines, in one pass."""
        parts = self.data.split(b"\n")
        return {line: _as_text(parts[line - self.first_line].rstrip(b"\r")) for line in lines}


@dataclass(frozen=True, slots=True)
class ItemBatch:
    """Records that do not end where lines end: items of a JSON array, rows of a CSV file.

    An item is JSON text, or for CSV the list of fields, in which None is an empty field without quotes.
    """

    split: Split
    lines: tuple[int, ...]
    items: tuple[str | tuple[str | None, ...], ...]
    texts: tuple[str, ...]
    rejects: tuple[Reject, ...] = ()

    def text_of(self, line: int) -> str:
        return self.texts[self.lines.index(line)]

    def texts_of(self, lines: Any) -> dict[int, str]:
        found = dict(zip(self.lines, self.texts, strict=True))
        return {line: found[line] for line in lines}


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Rows of a typed file."""

    split: Split
    first_line: int
    table: pa.Table
    rejects: tuple[Reject, ...] = ()

    def text_of(self, line: int) -> str:
        return self.texts_of([line])[line]

    def texts_of(self, lines: Any) -> dict[int, str]:
        from omnigraph.load.records.texts import row_text

        return {line: row_text(self.table, line - self.first_line) for line in lines}


RawBatch = LineBatch | ItemBatch | ColumnBatch


@dataclass(frozen=True, slots=True)
class ParsedBatch:
    """Typed rows by type identity, each in the order of the input, and the records that have none.

    A table has the physical columns of its type (`arrow_schema`), with ids made and defaults filled in, and the
    bookkeeping columns. Value rules hold for it, except that in a partial parse a required property which the record
    does not mention is null: whether that is wrong depends on the row that it is merged onto.
    """

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    rejects: tuple[Reject, ...] = ()


def _as_text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
