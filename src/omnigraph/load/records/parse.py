"""`RecordParser` turns the raw batches of a split into typed rows by type, and rejects.

Records are parsed by column where possible (`parse_columns`, `parse_lines`) and the others one by one
(`parse_record`). Both ways give the same rows and the same rejects; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph.errors import DamagedInput
from omnigraph.load.records.batches import (
    LINE_COLUMN,
    ColumnBatch,
    ItemBatch,
    LineBatch,
    ParsedBatch,
    RawBatch,
    RecordProblem,
    Reject,
    Split,
)
from omnigraph.load.records.match_columns import ColumnMatch, match_columns
from omnigraph.load.records.parse_columns import parse_columns, parse_fields
from omnigraph.load.records.parse_lines import group_by_type, parse_lines, scan_lines
from omnigraph.load.records.parse_record import (
    BadRecord,
    RecordDraft,
    parse_cell_value,
    parse_csv_value,
    parse_mixed_record,
    parse_row_values,
    parse_typed_record,
)
from omnigraph.load.records.record_text import column_of_key, to_python_rows
from omnigraph.load.records.rows import build_table, drop_rows, find_value_problems
from omnigraph.schema.catalog import Catalog, TypeDef

_ParseRecord = Callable[[], RecordDraft]


@dataclass(frozen=True, slots=True)
class RecordParser:
    """Parses records under one schema. Picklable, so that Spark tasks can use it.

    `seed` is the ULID of the load, from which the ids of records without an id are derived. `partial` is for merge: a
    required property that a record does not mention is not a problem yet (see `ParsedBatch`). `reference` parses every
    record by itself, which is slow; tests compare the parsers by column with it.
    """

    catalog: Catalog
    seed: str
    partial: bool = False
    reference: bool = False

    def parse(self, raw: RawBatch) -> ParsedBatch:
        """Returns the typed rows of a batch, and a reject for each other record, in the order of lines.

        Raises `DamagedInput` if the columns of a file do not fit its type.
        """
        if self.reference or raw.split.format == "json":
            return parse_by_record(self, raw)
        return parse_by_column(self, raw)

    def type_of(self, split: Split) -> TypeDef | None:
        """Returns the type of all records of a file, or None for mixed records."""
        if split.type_name is None:
            return None
        type_def = self.catalog.edge(split.type_name) if split.kind == "edge" else self.catalog.node(split.type_name)
        if type_def is None:
            raise DamagedInput(
                f"{split.path}: there is no {split.kind} type {split.type_name!r}",
                code="type_not_found",
                advice=f"Known types: {', '.join(sorted(known_type.table_key for known_type in self.catalog.types))}",
                file=split.path,
            )
        return type_def


def parse_by_record(parser: RecordParser, raw: RawBatch) -> ParsedBatch:
    """Parses every record by itself. This defines what records mean."""
    builder = _BatchBuilder(parser, raw)
    for line, parse in _each_record(parser, raw):
        builder.add(line, parse)
    return builder.finish()


def parse_by_column(parser: RecordParser, raw: RawBatch) -> ParsedBatch:
    """Parses whole columns, and then one by one the records that no column parser accepted."""
    type_def = parser.type_of(raw.split)
    parsed_lines = np.zeros(0, np.int64)
    builder = _BatchBuilder(parser, raw)
    for type_id, table in _parse_tables(parser, type_def, raw):
        builder.tables.setdefault(type_id, []).append(table)
        parsed_lines = np.concatenate([parsed_lines, table.column(LINE_COLUMN).to_numpy()])
    if len(parsed_lines) < _count_lines(raw):
        for line, parse in _each_record(parser, raw, frozenset(parsed_lines.tolist())):
            builder.add(line, parse)
    return builder.finish()


def _count_lines(raw: RawBatch) -> int:
    """Counts the lines or rows of a batch: an upper bound of its records, since blank lines count."""
    if isinstance(raw, ColumnBatch):
        return int(raw.table.num_rows)
    if isinstance(raw, ItemBatch):
        return len(raw.items)
    return raw.data.count(b"\n") + (not raw.data.endswith(b"\n"))


def _parse_tables(parser: RecordParser, type_def: TypeDef | None, raw: RawBatch) -> Iterable[tuple[str, pa.Table]]:
    file = raw.split.source_index
    if isinstance(raw, LineBatch):
        yield from _parse_line_groups(parser, type_def, raw)
        return
    assert type_def is not None
    if isinstance(raw, ColumnBatch):
        match = match_columns(type_def, raw.split, raw.table.column_names)
        table = parse_columns(type_def, parser.seed, file, match, raw)
    else:
        table = parse_fields(type_def, parser.seed, file, match_columns(type_def, raw.split, raw.split.columns), raw)
    if table is not None:
        yield type_def.id, table


def _parse_line_groups(
    parser: RecordParser, type_def: TypeDef | None, raw: LineBatch
) -> Iterable[tuple[str, pa.Table]]:
    lines = scan_lines(raw)
    if lines is None:
        return
    groups = group_by_type(parser.catalog, lines) if type_def is None else [(type_def, None, lines.take(lines.plain))]
    for line_type, name, part in groups:
        for table in parse_lines(line_type, parser.seed, raw.split.source_index, part, name):
            yield line_type.id, table


class _BatchBuilder:
    """Collects the drafts, the tables and the rejects of one batch."""

    def __init__(self, parser: RecordParser, raw: RawBatch) -> None:
        self._parser = parser
        self._raw = raw
        self._drafts: dict[str, list[tuple[int, RecordDraft]]] = {}
        self._bad_records: list[tuple[int, BadRecord]] = []
        self.tables: dict[str, list[pa.Table]] = {}  # parsed by column; value constraints are not checked yet

    def add(self, line: int, parse: _ParseRecord) -> None:
        try:
            draft = parse()
        except BadRecord as bad:
            self._bad_records.append((line, bad))
        else:
            self._drafts.setdefault(draft.type.id, []).append((line, draft))

    def finish(self) -> ParsedBatch:
        split, parser = self._raw.split, self._parser
        rejects = [*self._raw.rejects, *_build_rejects(self._raw, self._bad_records)]
        for type_id, drafts in self._drafts.items():
            drafted = build_table(parser.catalog.by_id[type_id], parser.seed, split.source_index, drafts)
            self.tables.setdefault(type_id, []).append(drafted)
        tables: dict[str, pa.Table] = {}
        for type_id, parts in self.tables.items():
            rows = parts[0] if len(parts) == 1 else pa.concat_tables(parts).sort_by(LINE_COLUMN).combine_chunks()
            valid_rows, row_rejects = _reject_invalid_rows(parser, parser.catalog.by_id[type_id], rows, self._raw)
            rejects += row_rejects
            if valid_rows.num_rows:
                tables[type_id] = valid_rows
        return ParsedBatch(tables, tuple(sorted(rejects, key=lambda reject: reject.line)))


def _reject_invalid_rows(
    parser: RecordParser, type_def: TypeDef, rows: pa.Table, raw: RawBatch
) -> tuple[pa.Table, list[Reject]]:
    """Returns the rows that satisfy the value constraints of their type, and the other rows as rejects."""
    problems_by_position = find_value_problems(type_def, rows, partial=parser.partial)
    if not problems_by_position:
        return rows, []
    lines, ids = rows.column(LINE_COLUMN), rows.column("id")
    texts = raw.texts_of({lines[position].as_py() for position in problems_by_position})
    rejects = []
    for position, problems in problems_by_position.items():
        line, row_id = lines[position].as_py(), ids[position].as_py()
        text = texts[line]
        located = tuple(_locate_problem(raw, problem, text) for problem in problems)
        rejects.append(Reject.of(raw.split.path, line, text, located, type=type_def.table_key, id=row_id))
    return drop_rows(rows, problems_by_position), rejects


def _locate_problem(raw: RawBatch, problem: RecordProblem, text: str) -> RecordProblem:
    if problem.property is None or isinstance(raw, ColumnBatch) or raw.split.format == "csv":
        return problem
    path = (problem.property,) if raw.split.type_name is not None else ("data", problem.property)
    return RecordProblem(problem.code, problem.reason, problem.property, column_of_key(text, *path))


def _build_rejects(raw: RawBatch, bad_records: Sequence[tuple[int, BadRecord]]) -> list[Reject]:
    texts = raw.texts_of({line for line, _ in bad_records}) if bad_records else {}
    return [
        Reject.of(raw.split.path, line, texts[line], error.problems, type=error.type_key, id=error.row_id)
        for line, error in bad_records
    ]


# --- one record after the other -----------------------------------------------------------------------------------


def _each_record(
    parser: RecordParser, raw: RawBatch, parsed_lines: frozenset[int] = frozenset()
) -> Iterable[tuple[int, _ParseRecord]]:
    """Yields the line of each record that is not in `parsed_lines`, and a function that parses it."""
    type_def = parser.type_of(raw.split)
    if isinstance(raw, LineBatch):
        for line, data in _iterate_text_lines(raw):
            if line not in parsed_lines:
                yield line, partial(parse_line, parser, type_def, data)
    elif isinstance(raw, ItemBatch):
        match = (
            match_columns(type_def, raw.split, raw.split.columns)
            if type_def is not None and raw.split.format == "csv"
            else None
        )
        for line, item in zip(raw.lines, raw.items, strict=True):
            if line in parsed_lines:
                continue
            if isinstance(item, str):
                yield line, partial(_parse_text, parser, type_def, item)
            else:
                assert type_def is not None
                assert match is not None
                yield line, partial(_parse_fields, type_def, match, item)
    else:
        assert type_def is not None
        match = match_columns(type_def, raw.split, raw.table.column_names)
        unparsed = [index for index in range(raw.table.num_rows) if raw.first_line + index not in parsed_lines]
        rows = to_python_rows(raw.table.take(unparsed) if parsed_lines else raw.table)
        for index, row in zip(unparsed, rows, strict=True):
            yield raw.first_line + index, partial(_parse_cells, type_def, match, row)


def _iterate_text_lines(raw: LineBatch) -> Iterable[tuple[int, bytes]]:
    """Yields the lines that are not blank, with their numbers."""
    for number, data in enumerate(raw.data.split(b"\n"), raw.first_line):
        if data and not data.isspace():
            yield number, data


def parse_line(parser: RecordParser, type_def: TypeDef | None, data: bytes) -> RecordDraft:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: byte {data[error.start]:#04x} at byte {error.start + 1} of the line"
        column = len(data[: error.start].decode("utf-8")) + 1
        raise BadRecord(RecordProblem("not_utf8", reason, column=column)) from None
    return _parse_text(parser, type_def, text)


def _parse_text(parser: RecordParser, type_def: TypeDef | None, text: str) -> RecordDraft:
    return parse_mixed_record(parser.catalog, text) if type_def is None else parse_typed_record(type_def, text)


def _parse_fields(type_def: TypeDef, match: ColumnMatch, fields: tuple[str | None, ...]) -> RecordDraft:
    values = {
        name: parse_csv_value(match.properties[name], field)
        for name, field in zip(match.properties, fields, strict=True)
    }
    return parse_row_values(type_def, match.columns, values)


def _parse_cells(type_def: TypeDef, match: ColumnMatch, row: dict[str, object]) -> RecordDraft:
    values = {name: parse_cell_value(match.properties[name], value) for name, value in row.items()}
    return parse_row_values(type_def, match.columns, values)
