"""Reads and parses a whole input into memory. Each record knows its batch and line, for its reject."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.load.inputs import Inputs, plan_splits
from omnigraph.load.options import LoadOptions
from omnigraph.load.records.batches import (
    BOOKKEEPING,
    FRESH_ID_COLUMN,
    LINE_COLUMN,
    ColumnBatch,
    LineBatch,
    RawBatch,
    RecordProblem,
    Reject,
)
from omnigraph.load.records.mentioned import mentioned_masks
from omnigraph.load.records.parse import RecordParser
from omnigraph.load.records.read_split import read_split
from omnigraph.mutate.pending_table import Row
from omnigraph.progress import StepCounter
from omnigraph.schema.catalog import Catalog, TypeDef


@dataclass(frozen=True, slots=True)
class ParsedRecord:
    """A well-formed record: its new row, and the columns that it mentions."""

    type: TypeDef
    row: Row
    mentioned: tuple[str, ...]
    has_fresh_id: bool
    batch: RawBatch
    line: int

    @property
    def id(self) -> str:
        row_id: str = self.row["id"]
        return row_id

    @property
    def key(self) -> tuple[str, str]:
        return self.type.id, self.id

    @property
    def position(self) -> tuple[int, int]:
        """The position in the input: file, then line."""
        return self.batch.split.source_index, self.line

    def merge_onto(self, existing: Row | None) -> Row:
        """Returns the existing row with the values of the columns that the record mentions."""
        return self.row if existing is None else {**existing, **{name: self.row[name] for name in self.mentioned}}

    def reject(self, *problems: RecordProblem) -> Reject:
        text = self.batch.text_of(self.line)
        return Reject.of(self.batch.split.path, self.line, text, problems, type=self.type.table_key, id=self.id)


@dataclass(frozen=True, slots=True)
class ParsedRecords:
    """The well-formed records of an input in its order, and the rejects."""

    accepted: tuple[ParsedRecord, ...]
    rejects: tuple[Reject, ...]


def read_all(inputs: Inputs, options: LoadOptions) -> list[RawBatch]:
    """Reads the whole input. Raises if it is too large for the local engine; decompressed text counts."""
    batches: list[RawBatch] = []
    size_bytes = 0
    for split in plan_splits(inputs, options.split_bytes):
        for raw in read_split(split, inputs.files.open, options.limits):
            batches.append(raw)
            size_bytes += _batch_bytes(raw)
            options.check_local_size(size_bytes)
    return batches


def _batch_bytes(raw: RawBatch) -> int:
    if isinstance(raw, LineBatch):
        return len(raw.data)
    if isinstance(raw, ColumnBatch):
        return int(raw.table.nbytes)
    return sum(len(text) for text in raw.texts)


def parse_all(
    batches: Sequence[RawBatch], catalog: Catalog, seed: str, options: LoadOptions, counter: StepCounter
) -> ParsedRecords:
    parser = RecordParser(catalog, seed, partial=options.mode == "merge")
    accepted: list[ParsedRecord] = []
    rejects: list[Reject] = []
    for parsed_batches, raw in enumerate(batches, 1):
        parsed = parser.parse(raw)
        rejects += parsed.rejects
        for type_id, table in parsed.tables.items():
            accepted += _records_of_table(catalog.by_id[type_id], table, raw)
        counter.advance(parsed_batches, len(batches))
    accepted.sort(key=lambda record: record.position)
    return ParsedRecords(tuple(accepted), tuple(rejects))


def _records_of_table(type_def: TypeDef, table: pa.Table, raw: RawBatch) -> Iterator[ParsedRecord]:
    ends = ("src", "dst") if type_def.kind == "edge" else ()
    masks = mentioned_masks(type_def, table)
    lines, has_fresh_id = table.column(LINE_COLUMN).to_pylist(), table.column(FRESH_ID_COLUMN).to_pylist()
    rows = table.drop_columns(list(BOOKKEEPING)).to_pylist()
    for index, row in enumerate(rows):
        mentioned = tuple(name for name, mask in masks.items() if mask[index])
        yield ParsedRecord(type_def, row, ("id", *ends, *mentioned), has_fresh_id[index], raw, lines[index])
