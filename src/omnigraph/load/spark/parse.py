"""Parse: one split of the input becomes portions of typed rows, completed from the rows of the graph. Runs in a worker.

A portion has a bounded size. What it holds is a pure function of the split and the snapshot, row order included, so
that a row that is rejected later is found again by parsing its portion once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.load.records.batches import (
    FRESH_ID_COLUMN,
    LINE_COLUMN,
    MENTIONED_COLUMN,
    ColumnBatch,
    ItemBatch,
    OpenFile,
    RawBatch,
    ReadLimits,
    RecordProblem,
    Reject,
    Split,
)
from omnigraph.load.records.mentioned import mentioned_mask
from omnigraph.load.records.parse import RecordParser
from omnigraph.load.records.read_split import read_split
from omnigraph.load.records.rows import drop_rows, find_value_problems
from omnigraph.load.rejects import write_rejects
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.spark.table_rows import BaseTable
from omnigraph.storage.lance import TableLocation

ReadBatches = Callable[[], Iterable[RawBatch]]
"""Reads the batches of a split, from its start on every call."""

InvalidRow = tuple[TypeDef, str, int, tuple[RecordProblem, ...]]
"""A row that is rejected after it was parsed: its type, id, line and problems."""

#: Bytes of the rows of one portion, in memory.
PORTION_BYTES = 128 << 20


@dataclass(frozen=True)
class StageJob:
    """Everything that a worker needs to parse and stage splits. Picklable."""

    location: TableLocation
    parser: RecordParser
    splits: tuple[Split, ...]
    open_file: OpenFile
    bases: Mapping[str, BaseTable]
    mode: Literal["append", "merge", "overwrite"]
    last_wins: bool  # of several records with one id; else the first stays and the others are rejected
    limits: ReadLimits = field(default_factory=ReadLimits)
    rejects_path: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict)

    def write_rejects(self, name: str, rejects: Sequence[Reject]) -> None:
        """Write the rejects of one part, if the caller asked for them. A repeated task replaces the file."""
        if rejects and self.rejects_path is not None:
            write_rejects(self.rejects_path, name, rejects, self.storage_options)

    def type_def(self, type_id: str) -> TypeDef:
        return self.parser.catalog.by_id[type_id]


@dataclass(frozen=True, slots=True)
class Portion:
    """Parsed rows by type, with their bookkeeping columns, in the order in which they are written."""

    tables: Mapping[str, pa.Table]
    rejects: tuple[Reject, ...]
    duplicates: int
    existing_ids: Mapping[str, int]  # how many rows have an id that the graph already has


def parse_split(job: StageJob, split_number: int) -> Iterator[Portion]:
    split = job.splits[split_number]
    return parse_portions(job, split, lambda: read_split(split, job.open_file, job.limits))


def parse_portions(job: StageJob, split: Split, read_batches: ReadBatches) -> Iterator[Portion]:
    """The portions of a split. `read_batches` is called again for the texts of rows that are rejected."""
    tables: dict[str, list[pa.Table]] = {}
    rejects: list[Reject] = []
    size = 0
    for raw in read_batches():
        parsed = job.parser.parse(raw)
        rejects += parsed.rejects
        for type_id, rows in parsed.tables.items():
            tables.setdefault(type_id, []).append(rows)
            size += rows.nbytes
        size += sum(len(reject.record) for reject in parsed.rejects)
        if size >= PORTION_BYTES:
            yield _build_portion(job, split, read_batches, tables, rejects)
            tables, rejects, size = {}, [], 0
    if tables or rejects:
        yield _build_portion(job, split, read_batches, tables, rejects)


def read_record_texts(batches: Iterable[RawBatch], lines: set[int]) -> dict[int, str]:
    """The records at these lines, as they stand in the input."""
    texts: dict[int, str] = {}
    sorted_lines = np.array(sorted(lines), np.int64)
    for raw in batches:
        first, last = _line_range(raw)
        lines_of_batch = sorted_lines[(sorted_lines >= first) & (sorted_lines <= last)]
        if len(lines_of_batch):
            texts.update(raw.texts_of(lines_of_batch.tolist()))
        if len(texts) == len(lines):
            break
    return texts


def _build_portion(
    job: StageJob,
    split: Split,
    read_batches: ReadBatches,
    parsed_tables: Mapping[str, list[pa.Table]],
    rejects: list[Reject],
) -> Portion:
    tables: dict[str, pa.Table] = {}
    existing_ids: dict[str, int] = {}
    duplicates = 0
    invalid_rows: list[InvalidRow] = []
    for type_id, parts in parsed_tables.items():
        type_def = job.type_def(type_id)
        rows, repeated = _separate_repeated_ids(pa.concat_tables(parts), keep_last=job.last_wins)
        duplicates += repeated.num_rows
        if not job.last_wins:
            invalid_rows += [
                (type_def, row["id"], row[LINE_COLUMN], _duplicate_problem(type_def, row["id"]))
                for row in repeated.to_pylist()
            ]
        rows, existing_ids[type_id], incomplete = _complete_rows(job, type_def, rows)
        invalid_rows += incomplete
        if rows.num_rows:
            tables[type_id] = _cluster(type_def, rows)
    if invalid_rows:
        late_rejects = _build_rejects(split, read_batches, invalid_rows)
        rejects = sorted([*rejects, *late_rejects], key=lambda reject: reject.line)
    return Portion(tables, tuple(rejects), duplicates, existing_ids)


def _duplicate_problem(type_def: TypeDef, row_id: str) -> tuple[RecordProblem, ...]:
    reason = f"{type_def.table_key}: the input has more than one row with id {row_id!r}"
    return (RecordProblem("key_conflict", reason, "id"),)


def _build_rejects(split: Split, read_batches: ReadBatches, invalid_rows: Sequence[InvalidRow]) -> Iterator[Reject]:
    texts = read_record_texts(read_batches(), {line for _, _, line, _ in invalid_rows})
    for type_def, row_id, line, problems in invalid_rows:
        yield Reject.of(split.path, line, texts[line], problems, type=type_def.table_key, id=row_id)


def _line_range(raw: RawBatch) -> tuple[int, int]:
    if isinstance(raw, ItemBatch):
        return (raw.lines[0], raw.lines[-1]) if raw.lines else (0, -1)
    if isinstance(raw, ColumnBatch):
        return raw.first_line, raw.first_line + raw.table.num_rows - 1
    return raw.first_line, raw.first_line + raw.data.count(b"\n") - (raw.data.endswith(b"\n") if raw.data else 1)


def _separate_repeated_ids(rows: pa.Table, *, keep_last: bool) -> tuple[pa.Table, pa.Table]:
    """Each id once, as its first or last record has it; and the rows of the other records."""
    ids = rows.column("id")
    if pc.all(rows.column(FRESH_ID_COLUMN)).as_py() or pc.count_distinct(ids).as_py() == len(ids):
        return rows, rows.slice(0, 0)
    positions = pa.table({"id": ids, "position": pa.array(np.arange(len(ids)))})
    extreme = "max" if keep_last else "min"
    keep = np.zeros(len(ids), bool)
    keep[positions.group_by("id").aggregate([("position", extreme)])[f"position_{extreme}"].to_numpy()] = True
    return rows.filter(pa.array(keep)), rows.filter(pa.array(~keep))


def _complete_rows(job: StageJob, type_def: TypeDef, rows: pa.Table) -> tuple[pa.Table, int, list[InvalidRow]]:
    """Properties that a merging record does not mention come from the graph's row; then the row is checked again."""
    base = job.bases[type_def.id]
    existing = 0
    if job.mode != "overwrite" and not base.is_empty:
        rows, existing = _fill_from_graph(job, type_def, rows, base)
    if not job.parser.partial:
        return rows, existing, []
    problems = find_value_problems(type_def, rows)
    if not problems:
        return rows, existing, []
    ids, lines = rows.column("id"), rows.column(LINE_COLUMN)
    invalid_rows = [
        (type_def, ids[position].as_py(), lines[position].as_py(), row_problems)
        for position, row_problems in problems.items()
    ]
    return drop_rows(rows, problems), existing, invalid_rows


def _fill_from_graph(job: StageJob, type_def: TypeDef, rows: pa.Table, base: BaseTable) -> tuple[pa.Table, int]:
    """The rows with their unmentioned properties filled in; and how many ids the graph already has."""
    mentioned = {
        prop.id: mentioned_mask(type_def, rows.column(MENTIONED_COLUMN), prop.id) for prop in type_def.properties
    }
    to_fill = [name for name, mask in mentioned.items() if job.mode == "merge" and not mask.all()]
    view = base.view(job.location, arrow_schema(type_def), type_def.id)
    input_ids = rows.filter(pc.invert(rows.column(FRESH_ID_COLUMN))).column("id").to_pylist()
    graph_rows = view.find(input_ids, ["id", *to_fill]) if input_ids else None
    if graph_rows is None or not graph_rows.num_rows:
        return rows, 0
    matches = pc.index_in(rows.column("id"), graph_rows.column("id").combine_chunks())
    matches = matches.combine_chunks() if isinstance(matches, pa.ChunkedArray) else matches
    is_existing = matches.is_valid().to_numpy(zero_copy_only=False)
    graph_positions = matches.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    for name in to_fill:
        from_graph = is_existing & ~mentioned[name]
        positions = np.where(from_graph, rows.num_rows + graph_positions, np.arange(rows.num_rows))
        column = rows.schema.get_field_index(name)
        input_then_graph = pa.chunked_array(
            [*rows.column(column).chunks, *graph_rows.column(name).chunks], rows.schema.field(column).type
        )
        rows = rows.set_column(column, rows.schema.field(column), input_then_graph.take(pa.array(positions)))
    return rows, int(is_existing.sum())


def _cluster(type_def: TypeDef, rows: pa.Table) -> pa.Table:
    """Nodes by id; edges of one source together, in the order in which sources first appear."""
    if type_def.kind == "node":
        ids = rows.column("id").combine_chunks()
        if len(ids) < 2 or pc.all(pc.less_equal(ids[:-1], ids[1:])).as_py():
            return rows
        return rows.take(pc.sort_indices(ids))
    codes = rows.column("src").combine_chunks().dictionary_encode().indices.to_numpy()
    if len(codes) < 2 or bool((codes[:-1] <= codes[1:]).all()):
        return rows
    return rows.take(pa.array(np.argsort(codes, kind="stable")))
