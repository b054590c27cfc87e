"""Reject: rows that violate a constraint are found again in the input, written as rejects, and removed from staging.

Rows are named by their address in a staged version. A fragment belongs to one portion of one split, and parsing the
portion again yields its rows in the same order; so fragment and offset lead back to the record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.load.records.batches import LINE_COLUMN, RecordProblem, Reject
from omnigraph.load.records.read_split import read_split
from omnigraph.load.records.record_text import format_row
from omnigraph.load.spark.parse import StageJob, parse_split, read_record_texts
from omnigraph.load.spark.stage import FragmentOrigin, summarize_rejects
from omnigraph.schema.catalog import Catalog
from omnigraph.spark.constraint_runner import read_violation
from omnigraph.spark.constraint_selection import ConstraintQuery
from omnigraph.spark.tasks import RESULT, encode_results
from omnigraph.storage.lance import delete_offsets
from omnigraph.storage.lance.row_address import FRAGMENT_SHIFT, NO_ADDRESS, ROW_ADDRESS, offsets_of, split_address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PROBLEMS = "type_id string, fragment bigint, at bigint, id string, problem string"
_PROBLEM_COLUMNS = ["type_id", "fragment", "at", "id", "problem"]
#: The path of a split that is a frame, and no file, begins like this.
FRAME_PREFIX = "frame:"


@dataclass(frozen=True)
class RejectRemover:
    """Removes rows of the input from the staged `versions`, in a worker."""

    job: StageJob
    versions: Mapping[str, str]
    origins: Mapping[str, Mapping[int, FragmentOrigin]]
    round: int

    def reject(self, type_id: str, fragment: int, problems: Iterable[tuple[int, str]]) -> dict[str, Any]:
        """Reject rows of one fragment: (offset, problem) each. Several problems of one row are one reject."""
        by_offset: dict[int, list[RecordProblem]] = {}
        for offset, text in problems:
            problem = RecordProblem(**json.loads(text))
            if problem not in by_offset.setdefault(offset, []):
                by_offset[offset].append(problem)
        rejects = list(self._build_rejects(type_id, fragment, by_offset))
        origin = self.origins[type_id][fragment]
        name = f"rows-{origin.split:05d}-{origin.portion:03d}-{type_id}-{fragment}-{self.round}.ndjson"
        self.job.write_rejects(name, rejects)
        removal = self.remove(type_id, fragment, np.array(sorted(by_offset), np.uint64))
        return {"type": type_id, "removal": removal, **summarize_rejects(rejects)}

    def remove(self, type_id: str, fragment: int, offsets: np.ndarray) -> list[Any]:
        """Write the deletions of one fragment; the fields of a `Removal`."""
        pinned = self.job.location.open().open(type_id, self.versions[type_id])
        removal = delete_offsets(pinned, fragment, offsets)
        return [removal.fragment_id, removal.fragment]

    def _build_rejects(
        self, type_id: str, fragment: int, problems: Mapping[int, Sequence[RecordProblem]]
    ) -> Iterator[Reject]:
        origin = self.origins[type_id][fragment]
        split = self.job.splits[origin.split]
        if split.path.startswith(FRAME_PREFIX):
            yield from self._rejects_of_frame(type_id, fragment, problems, split.path)
            return
        portion = next(islice(parse_split(self.job, origin.split), origin.portion, None))
        rows = portion.tables[type_id]
        rejected_rows = {offset: rows.slice(origin.first_row + offset, 1) for offset in problems}
        lines = {offset: row.column(LINE_COLUMN)[0].as_py() for offset, row in rejected_rows.items()}
        texts = read_record_texts(read_split(split, self.job.open_file, self.job.limits), set(lines.values()))
        table_key = self.job.type_def(type_id).table_key
        for offset in sorted(problems, key=lambda offset: lines[offset]):
            row_id = rejected_rows[offset].column("id")[0].as_py()
            row_problems = tuple(sorted(problems[offset], key=RecordProblem.sort_key))
            line = lines[offset]
            yield Reject.of(split.path, line, texts[line], row_problems, type=table_key, id=row_id)

    def _rejects_of_frame(
        self, type_id: str, fragment: int, problems: Mapping[int, Sequence[RecordProblem]], path: str
    ) -> Iterator[Reject]:
        """Rows of a frame have no line: the reject shows the row as it was staged."""
        type_def = self.job.type_def(type_id)
        pinned = self.job.location.open().open(type_id, self.versions[type_id])
        names = {prop.id: prop.name for prop in type_def.properties} | {"src": "from", "dst": "to"}
        for offset in sorted(problems):
            row = pinned.row_at(fragment, offset)
            row_id = row.column("id")[0].as_py()
            text = format_row(row.rename_columns([names.get(name, name) for name in row.column_names]), 0)
            yield Reject.of(path, 0, text, tuple(problems[offset]), type=type_def.table_key, id=row_id)


def describe_problems(catalog: Catalog, query: ConstraintQuery, rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """The violations as rows of `PROBLEMS`. The fragment is -1 where no row of the input can be rejected for it."""
    problems: list[list[Any]] = []
    for row in rows:
        violation = read_violation(catalog, query.constraint, row)
        address = row.get(ROW_ADDRESS, NO_ADDRESS)
        fragment, offset = (NO_ADDRESS, NO_ADDRESS) if address == NO_ADDRESS else split_address(address)
        # The constraints key_exists and duplicate_key are both told to users as "key_conflict" (`describe_violation`),
        # which names no property: what both are about is the id.
        prop = "id" if violation.rule == "key_conflict" else violation.property
        problem = {"code": violation.rule, "reason": violation.message, "property": prop}
        problems.append([query.table, fragment, offset, violation.id, json.dumps(problem)])
    return problems


def problem_frame(catalog: Catalog, query: ConstraintQuery, rows: DataFrame) -> DataFrame:
    """The violations of one constraint as a frame of `PROBLEMS`."""

    def describe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            problems = describe_problems(catalog, query, batch.to_pylist())
            if problems:
                columns = (pa.array(column) for column in zip(*problems, strict=True))
                yield pa.RecordBatch.from_arrays(list(columns), names=_PROBLEM_COLUMNS)

    return rows.mapInArrow(describe, PROBLEMS)


def reject_in_tasks(problems: DataFrame, remover: RejectRemover) -> DataFrame:
    """Reject the rows of a frame of `PROBLEMS`, one task per fragment; results as `RejectRemover.reject` returns."""

    def reject(key: tuple[Any, ...], rows: pa.Table) -> pa.Table:
        type_id, fragment = key[0].as_py(), key[1].as_py()
        pairs = list(zip(rows.column("at").to_pylist(), rows.column("problem").to_pylist(), strict=True))
        return pa.Table.from_batches(encode_results(lambda: [remover.reject(type_id, fragment, pairs)]))

    return problems.groupBy("type_id", "fragment").applyInArrow(reject, RESULT)


def remove_in_tasks(addresses: DataFrame, remover: RejectRemover, type_id: str) -> DataFrame:
    """Remove rows of one staged version by their address, without rejects: one task per fragment."""
    from pyspark.sql.functions import col, shiftright

    def remove_offsets(fragment: int, offsets: np.ndarray) -> list[dict[str, Any]]:
        removal = remover.remove(type_id, fragment, np.unique(offsets))
        return [{"type": type_id, "removal": removal, "rows": len(offsets)}]

    def remove(key: tuple[Any, ...], rows: pa.Table) -> pa.Table:
        offsets = offsets_of(rows.column(ROW_ADDRESS).to_numpy())
        return pa.Table.from_batches(encode_results(lambda: remove_offsets(key[0].as_py(), offsets)))

    by_fragment = addresses.withColumn("fragment", shiftright(col(ROW_ADDRESS), FRAGMENT_SHIFT))
    return by_fragment.groupBy("fragment").applyInArrow(remove, RESULT)
