"""The records of a small input, all in memory: parsed once for each schema, found again by file and line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.load.inputs import Inputs, plan_splits
from omnigraph.load.options import LoadOptions
from omnigraph.load.records.mentioned import given_masks
from omnigraph.load.records.model import (
    BOOKKEEPING,
    LINE_COLUMN,
    MINTED_COLUMN,
    ColumnBatch,
    LineBatch,
    Problem,
    RawBatch,
    Reject,
)
from omnigraph.load.records.parser import RecordParser
from omnigraph.load.records.read_split import read_split
from omnigraph.mutate.table_state import Row
from omnigraph.progress import StepCounter
from omnigraph.schema.catalog import Catalog, TypeDef


@dataclass(frozen=True, slots=True)
class Record:
    """One good record: a new row as it stands, and which columns it speaks of."""

    type: TypeDef
    row: Row
    given: tuple[str, ...]
    minted: bool
    raw: RawBatch
    line: int

    @property
    def id(self) -> str:
        found: str = self.row["id"]
        return found

    @property
    def key(self) -> tuple[str, str]:
        return self.type.id, self.id

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands in the input."""
        return self.raw.split.source_index, self.line

    def over(self, existing: Row | None) -> Row:
        """The row that results: what the record does not mention stays as it is."""
        return self.row if existing is None else {**existing, **{name: self.row[name] for name in self.given}}

    def reject(self, *problems: Problem) -> Reject:
        text = self.raw.text_of(self.line)
        return Reject.of(self.raw.split.path, self.line, text, problems, type=self.type.table_key, id=self.id)


@dataclass(frozen=True, slots=True)
class Records:
    """What an input holds: records in the order of the input, and what could not be read as one."""

    good: tuple[Record, ...]
    rejects: tuple[Reject, ...]


def read_all(inputs: Inputs, options: LoadOptions) -> list[RawBatch]:
    """The whole input, within the bound of the local engine, which holds for decompressed text too."""
    batches: list[RawBatch] = []
    size_bytes = 0
    for split in plan_splits(inputs, options.split_bytes):
        for raw in read_split(split, inputs.files.open, options.limits):
            batches.append(raw)
            size_bytes += _size(raw)
            options.check_local_size(size_bytes)
    return batches


def _size(raw: RawBatch) -> int:
    if isinstance(raw, LineBatch):
        return len(raw.data)
    if isinstance(raw, ColumnBatch):
        return int(raw.table.nbytes)
    return sum(len(text) for text in raw.texts)


def parse_all(
    batches: Sequence[RawBatch], catalog: Catalog, seed: str, options: LoadOptions, counter: StepCounter
) -> Records:
    parser = RecordParser(catalog, seed, partial=options.mode == "merge")
    good: list[Record] = []
    rejects: list[Reject] = []
    for done, raw in enumerate(batches, 1):
        parsed = parser.parse(raw)
        rejects += parsed.rejects
        for type_id, table in parsed.tables.items():
            good += _records(catalog.by_id[type_id], table, raw)
        counter.advance(done, len(batches))
    good.sort(key=lambda one: one.place)
    return Records(tuple(good), tuple(rejects))


def _records(one: TypeDef, table: pa.Table, raw: RawBatch) -> Iterator[Record]:
    ends = ("src", "dst") if one.kind == "edge" else ()
    masks = given_masks(one, table)
    lines, minted = table.column(LINE_COLUMN).to_pylist(), table.column(MINTED_COLUMN).to_pylist()
    rows = table.drop_columns(list(BOOKKEEPING)).to_pylist()
    for at, row in enumerate(rows):
        given = tuple(name for name, mask in masks.items() if mask[at])
        yield Record(one, row, ("id", *ends, *given), minted[at], raw, lines[at])
