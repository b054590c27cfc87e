"""One split becomes data files: parsed, completed from the rows that are there, clustered, written. Runs in a worker.

A split is worked through in portions of bounded size. What a portion writes is a pure function of the split and the
snapshot, row order included, so that a row that is rejected later is found again by parsing its portion once more.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

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
from omnigraph.spark.base_table import BaseTable
from omnigraph.storage.lance import TablePlace
from omnigraph.storage.lance.arrow_fit import select_and_cast

Read = Callable[[], Iterable[RawBatch]]
"""The batches of a split, from its start each time."""

Broken = tuple[TypeDef, str, int, tuple[RecordProblem, ...]]
"""A row that is rejected after parsing: type, id, line and why."""

#: Rows of one portion, in memory.
PORTION_BYTES = 128 << 20
#: Rejects that a task sends along; all of them go into its part file.
SAMPLE = 20


@dataclass(frozen=True)
class StageJob:
    """Everything a worker needs. Picklable."""

    place: TablePlace
    parser: RecordParser
    splits: tuple[Split, ...]
    open_file: OpenFile
    bases: Mapping[str, BaseTable]
    mode: Literal["append", "merge", "overwrite"]
    last_wins: bool  # of records with one id; else the first stays and the others are rejected
    limits: ReadLimits = field(default_factory=ReadLimits)
    rejects_at: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict)

    def keep_rejects(self, name: str, rejects: Sequence[Reject]) -> None:
        """All rejects of one part, if they are to be kept. The name is that of the part: a second try replaces it."""
        if rejects and self.rejects_at is not None:
            write_rejects(self.rejects_at, name, rejects, self.storage_options)

    def type(self, type_id: str) -> TypeDef:
        return self.parser.catalog.by_id[type_id]


@dataclass(frozen=True, slots=True)
class Portion:
    """Parsed rows by type, with their bookkeeping columns, in the order in which they are written."""

    tables: Mapping[str, pa.Table]
    rejects: tuple[Reject, ...]
    duplicates: int
    present: Mapping[str, int]  # rows whose id the graph has already


def stage_split(job: StageJob, number: int) -> Iterator[dict[str, Any]]:
    """Write a split's rows; one result per portion."""
    for at, portion in enumerate(split_portions(job, number)):
        yield staged_result(job, portion, number, at)


def split_portions(job: StageJob, number: int) -> Iterator[Portion]:
    split = job.splits[number]
    return portions(job, split, lambda: read_split(split, job.open_file, job.limits))


def staged_result(job: StageJob, portion: Portion, split: int, at: int) -> dict[str, Any]:
    """Write a portion; what the driver needs to know of it."""
    job.keep_rejects(f"part-{split:05d}-{at:03d}.ndjson", portion.rejects)
    store = job.place.open()
    tables: dict[str, Any] = {}
    for type_id, rows in portion.tables.items():
        one = job.type(type_id)
        schema = arrow_schema(one)
        if job.bases[type_id].version is None:
            store.birth(type_id, one.kind)  # by many at once, if need be: all end with the same empty version
        written = store.write_rows(type_id, select_and_cast(rows, schema))
        minted = pc.all(rows.column(FRESH_ID_COLUMN)).as_py()
        tables[type_id] = {
            "fragments": [json.loads(one) for one in written],
            "present": portion.present.get(type_id, 0),
            "minted": bool(minted),
        }
    return {
        "split": split,
        "portion": at,
        "tables": tables,
        "rejected": dict(Counter(one.code for one in portion.rejects)),
        "sample": [one.to_json() for one in portion.rejects[:SAMPLE]],
        "duplicates": portion.duplicates,
    }


def portions(job: StageJob, split: Split, read: Read) -> Iterator[Portion]:
    """The split in portions; `read` gives its batches, and gives them again if it is asked again."""
    gathered: dict[str, list[pa.Table]] = {}
    rejects: list[Reject] = []
    size = 0
    for raw in read():
        parsed = job.parser.parse(raw)
        rejects += parsed.rejects
        for type_id, rows in parsed.tables.items():
            gathered.setdefault(type_id, []).append(rows)
            size += rows.nbytes
        size += sum(len(one.record) for one in parsed.rejects)
        if size >= PORTION_BYTES:
            yield _portion(job, split, read, gathered, rejects)
            gathered, rejects, size = {}, [], 0
    if gathered or rejects:
        yield _portion(job, split, read, gathered, rejects)


def _portion(
    job: StageJob, split: Split, read: Read, gathered: Mapping[str, list[pa.Table]], rejects: list[Reject]
) -> Portion:
    tables: dict[str, pa.Table] = {}
    present: dict[str, int] = {}
    duplicates = 0
    broken: list[Broken] = []
    for type_id, parts in gathered.items():
        one = job.type(type_id)
        rows = pa.concat_tables(parts)
        rows, extra = _once(rows, last=job.last_wins)
        duplicates += extra.num_rows
        if not job.last_wins:
            broken += [(one, row["id"], row[LINE_COLUMN], _twice(one, row["id"])) for row in extra.to_pylist()]
        rows, present[type_id], unfit = _completed(job, one, rows)
        broken += unfit
        if rows.num_rows:
            tables[type_id] = _clustered(one, rows)
    if broken:
        rejects = sorted([*rejects, *_rejects(split, read, broken)], key=lambda one: one.line)
    return Portion(tables, tuple(rejects), duplicates, present)


def _twice(one: TypeDef, row_id: str) -> tuple[RecordProblem, ...]:
    return (
        RecordProblem("key_conflict", f"{one.table_key}: the input has more than one row with id {row_id!r}", "id"),
    )


def _rejects(split: Split, read: Read, broken: Sequence[Broken]) -> Iterator[Reject]:
    texts = texts_of(read(), {line for _, _, line, _ in broken})
    for one, row_id, line, problems in broken:
        yield Reject.of(split.path, line, texts[line], problems, type=one.table_key, id=row_id)


def texts_of(batches: Iterable[RawBatch], lines: set[int]) -> dict[int, str]:
    """The records at these lines, as they stand in the input."""
    found: dict[int, str] = {}
    wanted = np.array(sorted(lines), np.int64)
    for raw in batches:
        first, last = _line_range(raw)
        here = wanted[(wanted >= first) & (wanted <= last)]
        if len(here):
            found.update(raw.texts_of(here.tolist()))
        if len(found) == len(lines):
            break
    return found


def _line_range(raw: RawBatch) -> tuple[int, int]:
    if isinstance(raw, ItemBatch):
        return (raw.lines[0], raw.lines[-1]) if raw.lines else (0, -1)
    if isinstance(raw, ColumnBatch):
        return raw.first_line, raw.first_line + raw.table.num_rows - 1
    return raw.first_line, raw.first_line + raw.data.count(b"\n") - (raw.data.endswith(b"\n") if raw.data else 1)


def _once(rows: pa.Table, *, last: bool) -> tuple[pa.Table, pa.Table]:
    """Each id once, as its first or last record has it, and the other records."""
    ids = rows.column("id")
    if pc.all(rows.column(FRESH_ID_COLUMN)).as_py() or pc.count_distinct(ids).as_py() == len(ids):
        return rows, rows.slice(0, 0)
    places = pa.table({"id": ids, "at": pa.array(np.arange(len(ids)))})
    which = "max" if last else "min"
    keep = np.zeros(len(ids), bool)
    keep[places.group_by("id").aggregate([("at", which)])[f"at_{which}"].to_numpy()] = True
    return rows.filter(pa.array(keep)), rows.filter(pa.array(~keep))


def _completed(job: StageJob, one: TypeDef, rows: pa.Table) -> tuple[pa.Table, int, list[Broken]]:
    """What a record does not mention comes from the row that is there; then the rules of a row are asked again."""
    base = job.bases[one.id]
    present = 0
    if job.mode != "overwrite" and not base.is_empty:
        rows, present = _merged(job, one, rows, base)
    if not job.parser.partial:
        return rows, present, []
    problems = find_value_problems(one, rows)
    if not problems:
        return rows, present, []
    ids, lines = rows.column("id"), rows.column(LINE_COLUMN)
    broken = [(one, ids[at].as_py(), lines[at].as_py(), found) for at, found in problems.items()]
    return drop_rows(rows, problems), present, broken


def _merged(job: StageJob, one: TypeDef, rows: pa.Table, base: BaseTable) -> tuple[pa.Table, int]:
    given = {prop.id: mentioned_mask(one, rows.column(MENTIONED_COLUMN), prop.id) for prop in one.properties}
    wanted = [name for name, mask in given.items() if job.mode == "merge" and not mask.all()]
    view = base.view(job.place, arrow_schema(one), one.id)
    asked = rows.filter(pc.invert(rows.column(FRESH_ID_COLUMN))).column("id").to_pylist()
    found = view.find(asked, ["id", *wanted]) if asked else None
    if found is None or not found.num_rows:
        return rows, 0
    place = pc.index_in(rows.column("id"), found.column("id").combine_chunks())
    places = place.combine_chunks() if isinstance(place, pa.ChunkedArray) else place
    there = places.is_valid().to_numpy(zero_copy_only=False)
    at = places.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    for name in wanted:
        index = np.where(there & ~given[name], rows.num_rows + at, np.arange(rows.num_rows))
        column = rows.schema.get_field_index(name)
        both = pa.chunked_array(
            [*rows.column(column).chunks, *found.column(name).chunks], rows.schema.field(column).type
        )
        rows = rows.set_column(column, rows.schema.field(column), both.take(pa.array(index)))
    return rows, int(there.sum())


def _clustered(one: TypeDef, rows: pa.Table) -> pa.Table:
    """Nodes by id; edges of one source together, in the order in which sources first appear."""
    if one.kind == "node":
        ids = rows.column("id").combine_chunks()
        if len(ids) < 2 or pc.all(pc.less_equal(ids[:-1], ids[1:])).as_py():
            return rows
        return rows.take(pc.sort_indices(ids))
    codes = rows.column("src").combine_chunks().dictionary_encode().indices.to_numpy()
    if len(codes) < 2 or bool((codes[:-1] <= codes[1:]).all()):
        return rows
    return rows.take(pa.array(np.argsort(codes, kind="stable")))
