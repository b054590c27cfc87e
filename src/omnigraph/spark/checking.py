"""What a load has staged, checked as a whole: rows are taken back until no rule is broken, then replaced rows go."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from omnigraph.lang.records.model import Reject
from omnigraph.lang.schema.arrow import arrow_schema
from omnigraph.load.options import LoadOptions
from omnigraph.load.report import SAMPLE_SIZE, RejectSummary, load_rejected
from omnigraph.log.snapshot import Snapshot
from omnigraph.spark.gathered import Gathered, reject_of
from omnigraph.spark.rejecting import Origin, Taking, problems_of, remove_at, take_back
from omnigraph.spark.scans import ADDRESS, TableRows
from omnigraph.spark.staging import StageJob
from omnigraph.spark.tasks import results
from omnigraph.spark.validation import LoadedTable, Validation
from omnigraph.storage.backend import Backend
from omnigraph.storage.tables import Removal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Work:
    """Everything staged and checked on one record."""

    snapshot: Snapshot
    job: StageJob
    loaded: Mapping[str, LoadedTable]
    summary: RejectSummary
    duplicates: int
    kept: Mapping[str, int]  # by overwritten table, how many rows of the graph come again
    rejects_path: str | None
    rounds: int  # in which rows were taken back


class Checks:
    """The rules, asked again after every row that was taken back, until none is broken."""

    def __init__(
        self,
        backend: Backend,
        session: SparkSession,
        options: LoadOptions,
        snapshot: Snapshot,
        job: StageJob,
        gathered: Gathered,
        loaded: Mapping[str, LoadedTable],
        order: Callable[[Reject], Any],
    ) -> None:
        self._backend = backend
        self._session = session
        self._options = options
        self._snapshot = snapshot
        self._job = job
        self._gathered = gathered
        self._loaded = dict(loaded)
        self._order = order
        self._duplicates = gathered.duplicates
        self._codes = Counter(gathered.rejected)
        self._sample = list(gathered.sample)
        self._round = 0

    def run(self) -> Work:
        """The tables as they are to be published. Raises LoadRejected for what no skipped record could mend."""
        if self._gathered.rows or self._options.mode == "overwrite":
            self._remove_repeated()
            while self._take_back_once():
                pass
        summary = self._summary()
        failing = summary.count and self._options.on_error == "fail"
        kept = {} if failing else self._finish()
        path = self._job.rejects_at if summary.count else None
        return Work(self._snapshot, self._job, self._loaded, summary, self._duplicates, kept, path, self._round)

    def _summary(self) -> RejectSummary:
        sample = tuple(sorted(self._sample, key=self._order)[:SAMPLE_SIZE])
        return RejectSummary(sum(self._codes.values()), dict(self._codes), sample)

    def _validation(self) -> Validation:
        return Validation(
            self._session,
            self._snapshot.catalog,
            self._loaded,
            self._new_rows,
            self._base_rows,
            self._backend.ids.token(8),
        )

    def _remove_repeated(self) -> None:
        """Where the last record of an id counts, the earlier ones go without a word."""
        if not self._job.last_wins or not any(one.repeats for one in self._loaded.values()):
            return
        validation = self._validation()
        with validation.views():
            validation.suspects()
            for table, frame in validation.superseded().items():
                self._duplicates += self._remove(table, frame.select(frame["at"].alias(ADDRESS)))
        self._loaded = {table: replace(one, repeats=False) for table, one in self._loaded.items()}

    def _take_back_once(self) -> bool:
        """One round; whether rows were taken back."""
        validation = self._validation()
        refuse_twice = not self._job.last_wins and self._round == 0
        with validation.views():
            clean = not validation.suspects()
            checked = validation.violations(
                strict=self._options.mode == "append" and self._round == 0,
                refuse_twice=refuse_twice,
                screened_clean=clean,
            )
            frames = [problems_of(one, self._snapshot.catalog) for one in checked]
            if not frames:
                return False
            problems = _united(frames).persist()
            try:
                return self._take_back(problems)
            finally:
                problems.unpersist()

    def _take_back(self, problems: DataFrame) -> bool:
        nobodys = problems.filter(problems["fragment"] < 0)
        blamed = problems.filter(problems["fragment"] >= 0)
        taking = self._taking(removes=True)
        found = results(take_back(blamed, taking))
        if not found:
            self._refuse_unowned(nobodys)
            return False
        for one in found:
            self._codes.update(one["rejected"])
            self._sample += [reject_of(raw) for raw in one["sample"]]
        by_table: dict[str, list[Removal]] = {}
        for one in found:
            by_table.setdefault(one["type"], []).append(Removal(*one["removal"]))
        for table, removals in by_table.items():
            self._put(table, removals)
        self._round += 1
        return True

    def _refuse_unowned(self, nobodys: DataFrame) -> None:
        """Violations that no record can be blamed for are left: the load cannot be done, whatever is skipped."""
        rows = nobodys.limit(SAMPLE_SIZE).collect()
        if not rows:
            return
        catalog = self._snapshot.catalog
        first = []
        for row in rows:
            problem, one = json.loads(row["problem"]), catalog.by_id[row["type_id"]]
            first.append(Reject("", 0, None, problem["code"], problem["reason"], "", type=one.table_key, id=row["id"]))
        codes = Counter(self._codes)
        codes[first[0].code] += nobodys.count()
        summary = RejectSummary(
            sum(codes.values()), dict(codes), tuple([*first, *self._summary().sample][:SAMPLE_SIZE])
        )
        raise load_rejected(summary, self._job.rejects_at if self._codes else None, even_skipping=True)

    def _finish(self) -> dict[str, int]:
        """Remove what the load replaces; count what an overwrite brings again."""
        validation = self._validation()
        kept: dict[str, int] = {}
        with validation.views():
            for table, one in list(self._loaded.items()):
                replaced = validation.replaced(table)
                if replaced is not None:
                    self._remove(table, replaced)
                if one.overwrite:
                    kept[table] = validation.kept_ids(table)
        return kept

    def _remove(self, table: str, addresses: DataFrame) -> int:
        found = results(remove_at(addresses, self._taking(removes=True), table))
        self._put(table, [Removal(*one["removal"]) for one in found])
        return sum(one["rows"] for one in found)

    def _put(self, table: str, removals: Iterable[Removal]) -> None:
        one, bulk = self._loaded[table], self._backend.tables.bulk
        staged = bulk.remove(one.staged, list(removals))
        self._loaded = {**self._loaded, table: replace(one, staged=staged, own=tuple(bulk.own_fragments(staged)))}

    def _taking(self, *, removes: bool) -> Taking:
        versions = {table: one.staged.version or "" for table, one in self._loaded.items()}
        return Taking(self._job, versions, dict(self._origins()), self._round, removes)

    def _origins(self) -> Iterator[tuple[str, dict[int, Origin]]]:
        for table, one in self._loaded.items():
            paths = self._backend.tables.bulk.own_paths(one.staged)
            yield (
                table,
                {paths[path]: origin for path, origin in self._gathered.origins[table].items() if path in paths},
            )

    def _new_rows(self, one: LoadedTable) -> TableRows:
        held = self._backend.tables.bulk.version_of(one.staged)
        return TableRows.of_fragments(self._job.place, one.staged.schema, held, one.own)

    def _base_rows(self, table: str) -> TableRows | None:
        base = self._job.bases.get(table)
        if base is None or base.is_empty:
            return None
        schema = arrow_schema(self._snapshot.catalog.by_id[table])
        if base.version is None:
            return TableRows(self._job.place, table, schema, None, (), base.overlay)
        pinned = self._backend.tables.open(table, base.version)
        rows = TableRows.of_fragments(self._job.place, schema, pinned, [one.id for one in pinned.metadata])
        return replace(rows, overlay=base.overlay)


def _united(frames: Sequence[DataFrame]) -> DataFrame:
    whole = frames[0]
    for one in frames[1:]:
        whole = whole.unionAll(one)
    return whole
