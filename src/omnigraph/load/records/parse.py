"""`RecordParser`: raw batches to typed rows and rejects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph.errors import DamagedInput
from omnigraph.load.records.columns import ColumnPlan, column_plan
from omnigraph.load.records.fast_columns import read_columns
from omnigraph.load.records.fast_fields import read_fields
from omnigraph.load.records.fast_lines import by_type, lines_of, read_lines
from omnigraph.load.records.model import (
    LINE_COLUMN,
    ColumnBatch,
    ItemBatch,
    LineBatch,
    ParsedBatch,
    Problem,
    RawBatch,
    Reject,
    Split,
)
from omnigraph.load.records.reference import (
    BadRecord,
    Draft,
    mixed_draft,
    plain_draft,
    value_of_cell,
    value_of_text,
    values_draft,
)
from omnigraph.load.records.rows import rule_problems, table_of_drafts, without_rows
from omnigraph.load.records.texts import column_of_key, plain_rows
from omnigraph.schema.catalog import Catalog, TypeDef

_Read = Callable[[], Draft]


@dataclass(frozen=True, slots=True)
class RecordParser:
    """Parses under one schema. Picklable.

    `seed` is the ULID of the load, from which ids of records without one are made. `partial` is for merge: a required
    property that a record does not mention is no problem yet (see `ParsedBatch`). `reference` reads record by record
    whatever the input: slow, and what the fast ways are compared with.
    """

    catalog: Catalog
    seed: str
    partial: bool = False
    reference: bool = False

    def parse(self, raw: RawBatch) -> ParsedBatch:
        """The typed rows of a batch and the records that have none, rejects in the order of lines.

        Raises DamagedInput if the columns of a file do not fit its type.
        """
        if self.reference or raw.split.format == "json":
            return parse_by_record(self, raw)
        return parse_at_once(self, raw)

    def type_of(self, split: Split) -> TypeDef | None:
        """The type that a file is about; None for mixed records."""
        if split.type_name is None:
            return None
        found = self.catalog.edge(split.type_name) if split.kind == "edge" else self.catalog.node(split.type_name)
        if found is None:
            raise DamagedInput(
                f"{split.path}: there is no {split.kind} type {split.type_name!r}",
                code="type_not_found",
                advice=f"Known types: {', '.join(sorted(one.table_key for one in self.catalog.types))}",
                file=split.path,
            )
        return found


def parse_by_record(parser: RecordParser, raw: RawBatch) -> ParsedBatch:
    """The reference: every record by itself."""
    gathered = _Gathered(parser, raw)
    for line, read in _readers(parser, raw):
        gathered.take(line, read)
    return gathered.finish()


def parse_at_once(parser: RecordParser, raw: RawBatch) -> ParsedBatch:
    """Whole columns where they are plainly right, and the reference for the other records."""
    one = parser.type_of(raw.split)
    done = np.zeros(0, np.int64)
    gathered = _Gathered(parser, raw)
    for type_id, table in _fast_tables(parser, one, raw):
        gathered.tables.setdefault(type_id, []).append(table)
        done = np.concatenate([done, table.column(LINE_COLUMN).to_numpy()])
    if len(done) < _record_count(raw):
        for line, read in _readers(parser, raw, frozenset(done.tolist())):
            gathered.take(line, read)
    return gathered.finish()


def _record_count(raw: RawBatch) -> int:
    """At most so many records are there; blank lines are among them."""
    if isinstance(raw, ColumnBatch):
        return int(raw.table.num_rows)
    if isinstance(raw, ItemBatch):
        return len(raw.items)
    return raw.data.count(b"\n") + (not raw.data.endswith(b"\n"))


def _fast_tables(parser: RecordParser, one: TypeDef | None, raw: RawBatch) -> Iterable[tuple[str, pa.Table]]:
    file = raw.split.source_index
    if isinstance(raw, LineBatch):
        yield from _fast_lines(parser, one, raw)
        return
    assert one is not None
    if isinstance(raw, ColumnBatch):
        plan = column_plan(one, raw.split, raw.table.column_names)
        table = read_columns(one, parser.seed, file, plan, raw)
    else:
        table = read_fields(one, parser.seed, file, column_plan(one, raw.split, raw.split.columns), raw)
    if table is not None:
        yield one.id, table


def _fast_lines(parser: RecordParser, one: TypeDef | None, raw: LineBatch) -> Iterable[tuple[str, pa.Table]]:
    lines = lines_of(raw)
    if lines is None:
        return
    groups = by_type(parser.catalog, lines) if one is None else [(one, None, lines.take(lines.plain))]
    for found, name, part in groups:
        for table in read_lines(found, parser.seed, raw.split.source_index, part, name):
            yield found.id, table


class _Gathered:
    """Drafts and rejects of one batch."""

    def __init__(self, parser: RecordParser, raw: RawBatch) -> None:
        self._parser = parser
        self._raw = raw
        self._drafts: dict[str, list[tuple[int, Draft]]] = {}
        self._bad: list[tuple[int, BadRecord]] = []
        self.tables: dict[str, list[pa.Table]] = {}  # made otherwise, not judged yet

    def take(self, line: int, read: _Read) -> None:
        try:
            draft = read()
        except BadRecord as bad:
            self._bad.append((line, bad))
        else:
            self._drafts.setdefault(draft.type.id, []).append((line, draft))

    def finish(self) -> ParsedBatch:
        split, parser = self._raw.split, self._parser
        rejects = [*self._raw.rejects, *rejects_of(self._raw, self._bad)]
        for type_id, drafts in self._drafts.items():
            made = table_of_drafts(parser.catalog.by_id[type_id], parser.seed, split.source_index, drafts)
            self.tables.setdefault(type_id, []).append(made)
        tables: dict[str, pa.Table] = {}
        for type_id, parts in self.tables.items():
            rows = parts[0] if len(parts) == 1 else pa.concat_tables(parts).sort_by(LINE_COLUMN).combine_chunks()
            good, broken = judged(parser, parser.catalog.by_id[type_id], rows, self._raw)
            rejects += broken
            if good.num_rows:
                tables[type_id] = good
        return ParsedBatch(tables, tuple(sorted(rejects, key=lambda one: one.line)))


def judged(parser: RecordParser, one: TypeDef, rows: pa.Table, raw: RawBatch) -> tuple[pa.Table, list[Reject]]:
    """The rows that hold the value rules, and the others as rejects."""
    return split_broken(one, rows, rule_problems(one, rows, partial=parser.partial), raw)


def check_images(one: TypeDef, rows: pa.Table, raw: RawBatch) -> tuple[pa.Table, list[Reject]]:
    """The same for rows that have become full images: what merge must ask after it filled what was not given."""
    return split_broken(one, rows, rule_problems(one, rows), raw)


def split_broken(
    one: TypeDef, rows: pa.Table, broken: dict[int, tuple[Problem, ...]], raw: RawBatch
) -> tuple[pa.Table, list[Reject]]:
    if not broken:
        return rows, []
    lines, ids = rows.column(LINE_COLUMN), rows.column("id")
    texts = raw.texts_of({lines[at].as_py() for at in broken})
    rejects = []
    for at, problems in broken.items():
        line = lines[at].as_py()
        text = texts[line]
        placed = tuple(_placed(raw, problem, text) for problem in problems)
        rejects.append(Reject.of(raw.split.path, line, text, placed, type=one.table_key, id=ids[at].as_py()))
    return without_rows(rows, broken), rejects


def _placed(raw: RawBatch, problem: Problem, text: str) -> Problem:
    if problem.property is None or isinstance(raw, ColumnBatch) or raw.split.format == "csv":
        return problem
    path = (problem.property,) if raw.split.type_name is not None else ("data", problem.property)
    return Problem(problem.code, problem.reason, problem.property, column_of_key(text, *path))


def rejects_of(raw: RawBatch, bad: Iterable[tuple[int, BadRecord]]) -> list[Reject]:
    found = list(bad)
    texts = raw.texts_of({line for line, _ in found}) if found else {}
    return [
        Reject.of(raw.split.path, line, texts[line], one.problems, type=one.type_key, id=one.row_id)
        for line, one in found
    ]


# --- what each kind of batch gives, record by record --------------------------------------------------------------


def _readers(parser: RecordParser, raw: RawBatch, done: frozenset[int] = frozenset()) -> Iterable[tuple[int, _Read]]:
    """Records with their lines, but for those that are done."""
    one = parser.type_of(raw.split)
    if isinstance(raw, LineBatch):
        for line, data in text_lines(raw):
            if line not in done:
                yield line, partial(line_draft, parser, one, data)
    elif isinstance(raw, ItemBatch):
        plan = column_plan(one, raw.split, raw.split.columns) if one is not None and raw.split.format == "csv" else None
        for line, item in zip(raw.lines, raw.items, strict=True):
            if line in done:
                continue
            if isinstance(item, str):
                yield line, partial(_text_draft, parser, one, item)
            else:
                assert one is not None
                assert plan is not None
                yield line, partial(_fields_draft, one, plan, item)
    else:
        assert one is not None
        plan = column_plan(one, raw.split, raw.table.column_names)
        left = [at for at in range(raw.table.num_rows) if raw.first_line + at not in done]
        for at, row in zip(left, plain_rows(raw.table.take(left) if done else raw.table), strict=True):
            yield raw.first_line + at, partial(_cells_draft, one, plan, row)


def text_lines(raw: LineBatch) -> Iterable[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers."""
    for at, data in enumerate(raw.data.split(b"\n")):
        if data and not data.isspace():
            yield raw.first_line + at, data


def line_draft(parser: RecordParser, one: TypeDef | None, data: bytes) -> Draft:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: byte {data[error.start]:#04x} at byte {error.start + 1} of the line"
        column = len(data[: error.start].decode("utf-8")) + 1
        raise BadRecord(Problem("not_utf8", reason, column=column)) from None
    return _text_draft(parser, one, text)


def _text_draft(parser: RecordParser, one: TypeDef | None, text: str) -> Draft:
    return mixed_draft(parser.catalog, text) if one is None else plain_draft(one, text)


def _fields_draft(one: TypeDef, plan: ColumnPlan, fields: tuple[str | None, ...]) -> Draft:
    values = {name: value_of_text(plan.props[name], field) for name, field in zip(plan.props, fields, strict=True)}
    return values_draft(one, plan.columns, values)


def _cells_draft(one: TypeDef, plan: ColumnPlan, row: dict[str, object]) -> Draft:
    values = {name: value_of_cell(plan.props[name], value) for name, value in row.items()}
    return values_draft(one, plan.columns, values)
