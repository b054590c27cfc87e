"""The values that pass between reading, parsing and an engine: splits, raw batches, parsed batches, rejects.

All of them are plain and picklable, so that a Spark task can take a split and a parser. An engine does:

    for raw in read_split(split, open_file, limits):      # bounded batches, exact line numbers
        parsed = parser.parse(raw)                        # typed rows by type, and rejects
        ...                                               # check them together with the rows of the graph
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
"""Opens a path or an address as a seekable stream of bytes."""

#: Bookkeeping columns of parsed tables, behind the physical ones.
FILE_COLUMN = "_file"  # int32: `Split.source_index`
LINE_COLUMN = "_line"  # int64: line of the file, from 1; of Parquet and ORC the row, of a JSON array the item
MENTIONED_COLUMN = "_given"  # fixed-size binary: one bit per property, in the order of the type's properties
FRESH_ID_COLUMN = "_minted"  # bool: the id was generated for this record, so no row can have it yet
BOOKKEEPING = (FILE_COLUMN, LINE_COLUMN, MENTIONED_COLUMN, FRESH_ID_COLUMN)


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much of an input is in memory at once."""

    line_bytes: int = 32 * 1024 * 1024
    batch_bytes: int = 8 * 1024 * 1024
    batch_rows: int = 64 * 1024
    array_bytes: int = 512 * 1024 * 1024  # a JSON array has no line ends to cut at, so all of it is in memory


@dataclass(frozen=True, slots=True)
class Split:
    """A part of one input file that one task reads.

    Uncompressed text is cut at line ends: `start` and `end` are bytes, `first_line` is the number of the line at
    `start`. Parquet is cut at row groups and ORC at stripes: `start` and `end` count those, `first_line` is the number
    of the first row. Every other file is one split from 0 to None. `kind` and `type_name` are None for mixed records,
    each of which names its type. `columns` is the header of a CSV file.
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
class RecordProblem:
    """One thing that is wrong with a record. `code` is the code of a mutation that fails for the same reason."""

    code: str
    reason: str
    property: str | None = None
    column: int | None = None

    def sort_key(self) -> tuple[str, str, str]:
        """The order in which every engine reports the problems of one record."""
        return self.code, self.property or "", self.reason

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "reason": self.reason, "property": self.property, "column": self.column}


@dataclass(frozen=True, slots=True)
class Reject:
    """A rejected record and its problems: the first one in `code` to `property`, the rest in `others`.

    `column` counts the characters of the line from 1.
    """

    file: str
    line: int
    column: int | None
    code: str
    reason: str
    record: str
    property: str | None = None
    type: str | None = None
    id: str | None = None
    others: tuple[RecordProblem, ...] = ()

    @classmethod
    def of(
        cls,
        file: str,
        line: int,
        record: str,
        problems: tuple[RecordProblem, ...],
        *,
        type: str | None = None,
        id: str | None = None,
    ) -> Reject:
        first = problems[0]
        return cls(file, line, first.column, first.code, first.reason, record, first.property, type, id, problems[1:])

    def to_json(self) -> dict[str, Any]:
        """One line of a rejects file."""
        document: dict[str, Any] = {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "code": self.code,
            "reason": self.reason,
            "record": self.record,
        }
        optional = {"property": self.property, "type": self.type, "id": self.id}
        document.update({name: value for name, value in optional.items() if value is not None})
        if self.others:
            document["others"] = [problem.to_json() for problem in self.others]
        return document


@dataclass(frozen=True, slots=True)
class LineBatch:
    """Whole lines of JSON text. Blank lines are included, so that line numbers can be counted."""

    split: Split
    first_line: int
    data: bytes
    rejects: tuple[Reject, ...] = ()  # lines longer than `line_bytes`

    def text_of(self, line: int) -> str:
        return _decode_lossy(self.data.split(b"\n")[line - self.first_line].rstrip(b"\r"))

    def texts_of(self, lines: Any) -> dict[int, str]:
        """Returns the texts of several lines in one pass."""
        parts = self.data.split(b"\n")
        return {line: _decode_lossy(parts[line - self.first_line].rstrip(b"\r")) for line in lines}


@dataclass(frozen=True, slots=True)
class ItemBatch:
    """Records that may span lines: items of a JSON array, rows of a CSV file.

    An item is JSON text, or for CSV the tuple of fields, in which None is an empty field without quotes.
    """

    split: Split
    lines: tuple[int, ...]
    items: tuple[str | tuple[str | None, ...], ...]
    texts: tuple[str, ...]
    rejects: tuple[Reject, ...] = ()

    def text_of(self, line: int) -> str:
        return self.texts[self.lines.index(line)]

    def texts_of(self, lines: Any) -> dict[int, str]:
        text_by_line = dict(zip(self.lines, self.texts, strict=True))
        return {line: text_by_line[line] for line in lines}


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Rows of a Parquet or ORC file."""

    split: Split
    first_line: int
    table: pa.Table
    rejects: tuple[Reject, ...] = ()

    def text_of(self, line: int) -> str:
        return self.texts_of([line])[line]

    def texts_of(self, lines: Any) -> dict[int, str]:
        from omnigraph.load.records.record_text import format_row

        return {line: format_row(self.table, line - self.first_line) for line in lines}


RawBatch = LineBatch | ItemBatch | ColumnBatch


@dataclass(frozen=True, slots=True)
class ParsedBatch:
    """Typed rows by type id, in the order of the input, and the rejected records.

    A table has the physical columns of its type (`arrow_schema`), with ids and defaults filled in, and the bookkeeping
    columns. Its rows satisfy the value constraints, except that after a partial parse a required property may be null
    if its record does not mention it: whether that is wrong depends on the row onto which the record is merged.
    """

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    rejects: tuple[Reject, ...] = ()


def _decode_lossy(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
