"""Taking rows of the input back: found again by file and line, written as rejects, removed from the staged version.

Rows are named by their address in a staged version. A fragment belongs to one portion of one split, and a portion is
written in an order that parsing it again repeats; so fragment and offset lead back to the record.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.load.records.batches import LINE_COLUMN, RecordProblem, Reject
from omnigraph.load.records.read_split import read_split
from omnigraph.load.records.record_text import format_row
from omnigraph.load.spark.stage import SAMPLE, StageJob, split_portions, texts_of
from omnigraph.schema.catalog import Catalog
from omnigraph.spark.constraint_selection import Question
from omnigraph.spark.problem_rows import problem_rows
from omnigraph.spark.tasks import told
from omnigraph.storage.lance import delete_at
from omnigraph.storage.lance.row_address import FRAGMENT_SHIFT, ROW_ADDRESS, offsets_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PROBLEMS = "type_id string, fragment bigint, at bigint, id string, problem string"
_PROBLEM_COLUMNS = ["type_id", "fragment", "at", "id", "problem"]
_RESULT = "result string"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the rows of one fragment come from: a portion of a split, from this row of its table on."""

    split: int
    portion: int
    first: int


@dataclass(frozen=True)
class Taking:
    """What a worker needs to take rows back: the versions as they are now, and where their fragments come from."""

    job: StageJob
    versions: Mapping[str, str]
    origins: Mapping[str, Mapping[int, Origin]]
    attempt: int

    def take(self, type_id: str, fragment: int, problems: Iterable[tuple[int, str]]) -> dict[str, Any]:
        """Take rows of one fragment back: (offset, problem) each; several problems of one row are one reject."""
        found: dict[int, list[RecordProblem]] = {}
        for at, text in problems:
            problem = RecordProblem(**json.loads(text))
            if problem not in found.setdefault(at, []):
                found[at].append(problem)
        rejects = list(self._rejects(type_id, fragment, found))
        origin = self.origins[type_id][fragment]
        name = f"rows-{origin.split:05d}-{origin.portion:03d}-{type_id}-{fragment}-{self.attempt}.ndjson"
        self.job.keep_rejects(name, rejects)
        left = self.left(type_id, fragment, np.array(sorted(found), np.uint64))
        return {
            "type": type_id,
            "removal": left,
            "rejected": dict(Counter(one.code for one in rejects)),
            "sample": [one.to_json() for one in rejects[:SAMPLE]],
        }

    def left(self, type_id: str, fragment: int, offsets: np.ndarray) -> list[Any]:
        pinned = self.job.place.open().open(type_id, self.versions[type_id])
        removal = delete_at(pinned, fragment, offsets)
        return [removal.fragment_id, removal.left]

    def _rejects(self, type_id: str, fragment: int, found: Mapping[int, Sequence[RecordProblem]]) -> Iterator[Reject]:
        origin = self.origins[type_id][fragment]
        one, split = self.job.type(type_id), self.job.splits[origin.split]
        if split.path.startswith(FRAME):
            yield from self._from_version(type_id, fragment, found, split.path)
            return
        written = next(
            portion for at, portion in enumerate(split_portions(self.job, origin.split)) if at == origin.portion
        ).tables[type_id]
        places = {at: written.slice(origin.first + at, 1) for at in found}
        lines = {at: row.column(LINE_COLUMN)[0].as_py() for at, row in places.items()}
        texts = texts_of(read_split(split, self.job.open_file, self.job.limits), set(lines.values()))
        for at in sorted(found, key=lambda at: lines[at]):
            row_id = places[at].column("id")[0].as_py()
            problems = tuple(sorted(found[at], key=RecordProblem.sort_key))
            yield Reject.of(split.path, lines[at], texts[lines[at]], problems, type=one.table_key, id=row_id)

    def _from_version(
        self, type_id: str, fragment: int, found: Mapping[int, Sequence[RecordProblem]], path: str
    ) -> Iterator[Reject]:
        """Rows of a frame have no line; what was staged of them tells which they are."""
        one = self.job.type(type_id)
        pinned = self.job.place.open().open(type_id, self.versions[type_id])
        names = {prop.id: prop.name for prop in one.properties} | {"src": "from", "dst": "to"}
        for at in sorted(found):
            row = pinned.row_at(fragment, at)
            row_id = row.column("id")[0].as_py()
            shown = row.rename_columns([names.get(name, name) for name in row.column_names])
            yield Reject.of(path, 0, format_row(shown, 0), tuple(found[at]), type=one.table_key, id=row_id)


#: How the path of a split begins that is a frame and no file.
FRAME = "frame:"


def problems_of(question: Question, rows: DataFrame, catalog: Catalog) -> DataFrame:
    """The violations of one rule as rows of `PROBLEMS`; `fragment` is -1 where no row of the input is to blame."""
    rule, table = question.rule, question.table

    def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = problem_rows(catalog, rule, table, batch.to_pylist())
            if found:
                columns = (pa.array(column) for column in zip(*found, strict=True))
                yield pa.RecordBatch.from_arrays(list(columns), names=_PROBLEM_COLUMNS)

    return rows.mapInArrow(tell, PROBLEMS)


def take_back(problems: DataFrame, taking: Taking) -> DataFrame:
    """One task per fragment; the results are texts of what `Taking.take` says."""

    def take(key: tuple[Any, ...], rows: pa.Table) -> pa.Table:
        type_id, fragment = key[0].as_py(), key[1].as_py()
        pairs = list(zip(rows.column("at").to_pylist(), rows.column("problem").to_pylist(), strict=True))
        return pa.Table.from_batches(told(lambda: [taking.take(type_id, fragment, pairs)]))

    return problems.groupBy("type_id", "fragment").applyInArrow(take, _RESULT)


def remove_at(addresses: DataFrame, taking: Taking, type_id: str) -> DataFrame:
    """Remove rows of one staged version by `_rowaddr`, without a word about them: one task per fragment."""
    from pyspark.sql.functions import col, shiftright

    def removed(fragment: int, offsets: np.ndarray) -> list[dict[str, Any]]:
        left = taking.left(type_id, fragment, np.unique(offsets))
        return [{"type": type_id, "removal": left, "rows": len(offsets)}]

    def remove(key: tuple[Any, ...], rows: pa.Table) -> pa.Table:
        offsets = offsets_of(rows.column(ROW_ADDRESS).to_numpy())
        return pa.Table.from_batches(told(lambda: removed(key[0].as_py(), offsets)))

    placed = addresses.withColumn("fragment", shiftright(col(ROW_ADDRESS), FRAGMENT_SHIFT))
    return placed.groupBy("fragment").applyInArrow(remove, _RESULT)
