"""What a load has staged, checked as a whole: rows are taken back until no rule is broken, then replaced rows go."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from omnigraph.constraints.compile import ConstraintCode
from omnigraph.load.options import LoadOptions
from omnigraph.load.records.batches import Reject
from omnigraph.load.report import SAMPLE_SIZE, RejectSummary, load_rejected_error
from omnigraph.load.spark.reject import Origin, Taking, problems_of, remove_at, take_back
from omnigraph.load.spark.stage import StageJob
from omnigraph.load.spark.staging_result import Gathered, reject_of
from omnigraph.log.snapshot import Snapshot
from omnigraph.schema.arrow import arrow_schema
from omnigraph.spark.constraint_selection import REPEATED, RULES, TAKEN, Asking
from omnigraph.spark.constraints_by_shuffle import LoadedTable, Validation
from omnigraph.spark.constraints_in_one_task import OneTask
from omnigraph.spark.table_frames import TableRows
from omnigraph.spark.tasks import results, run_tasks
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import Removal
from omnigraph.storage.lance.row_address import NO_ADDRESS

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
            self._settle_repeated()
            if self._options.mode == "append" and any(one.replaces for one in self._loaded.values()):
                self._take_back_once(TAKEN)
            while self._take_back_once(RULES):
                pass
        summary = self._summary()
        failing = summary.count and self._options.on_error == "fail"
        kept = {} if failing else self._finish()
        path = self._job.rejects_at if summary.count else None
        return Work(self._snapshot, self._job, self._loaded, summary, self._duplicates, kept, path, self._round)

    def _summary(self) -> RejectSummary:
        sample = tuple(sorted(self._sample, key=self._order)[:SAMPLE_SIZE])
        return RejectSummary(sum(self._codes.values()), dict(self._codes), sample)

    @property
    def _by_one_task(self) -> bool:
        """Whether all rows that the rules may have to look at are few enough for one task."""
        rows = sum(one.staged.rows_written for one in self._loaded.values())
        rows += sum(pin.rows for pin in self._snapshot.record.pins.values())
        return rows <= self._backend.config.load_check_rows

    def _asking(self, codes: frozenset[ConstraintCode] = RULES) -> Asking:
        there = {table: not one.is_empty for table, one in self._job.bases.items()}
        known = {table: one.known for table, one in self._loaded.items()}
        return Asking(self._snapshot.catalog, known, there, codes)

    def _validation(self, asking: Asking) -> Validation:
        token = self._backend.ids.token(8)
        return Validation(self._session, asking, self._loaded, self._new_rows, self._base_rows, token)

    def _one_task(self, asking: Asking) -> OneTask:
        bases = {one.id: self._base_rows(one.id) for one in self._snapshot.catalog.types}
        return OneTask(
            self._job.place,
            asking,
            {table: self._new_rows(one) for table, one in self._loaded.items() if one.has_rows},
            {table: rows for table, rows in bases.items() if rows is not None},
        )

    def _told_by_one(self, work: Callable[[], Iterable[dict[str, Any]]]) -> list[dict[str, Any]]:
        return run_tasks(self._session, 1, lambda _: work())

    # --- an id twice in the input ------------------------------------------------------------------------------

    def _settle_repeated(self) -> None:
        """Where the last record of an id counts, the earlier ones go without a word; else the later are rejected."""
        if not any(one.repeats for one in self._loaded.values()):
            return
        if self._job.last_wins:
            self._remove_repeated()
        else:
            before = self._codes.total()
            self._take_back_once(REPEATED)
            self._duplicates += self._codes.total() - before
        self._loaded = {table: replace(one, repeats=False) for table, one in self._loaded.items()}

    def _remove_repeated(self) -> None:
        asking = self._asking(REPEATED)
        if self._by_one_task:
            found = self._told_by_one(self._one_task(asking).without_repeated)
        else:
            validation = self._validation(asking)
            with validation.views():
                frames = validation.superseded(validation.screen())
                found = [one for table, frame in frames.items() for one in self._removed(table, frame)]
        self._duplicates += self._put_all(found)

    # --- rules -------------------------------------------------------------------------------------------------

    def _take_back_once(self, codes: frozenset[ConstraintCode]) -> bool:
        """One round; whether rows were taken back."""
        asking = self._asking(codes)
        if self._by_one_task:
            (answer,) = self._told_by_one(self._one_task(asking).violations)
            if "problems" in answer:
                return self._take_back_few(answer["problems"])
        validation = self._validation(asking)
        with validation.views():
            checked = validation.violations(validation.screen())
            frames = [problems_of(question, rows, asking.catalog) for question, rows in checked]
            return self._take_back_many(_united(frames)) if frames else False

    def _take_back_few(self, problems: Sequence[Sequence[Any]]) -> bool:
        blamed: dict[tuple[str, int], list[tuple[int, str]]] = {}
        for type_id, fragment, at, _, problem in problems:
            if fragment != NO_ADDRESS:
                blamed.setdefault((type_id, fragment), []).append((at, problem))
        if not blamed:
            nobodys = [(type_id, row_id, problem) for type_id, _, _, row_id, problem in problems]
            self._refuse_unowned(nobodys[:SAMPLE_SIZE], len(nobodys))
            return False
        taking, places = self._taking(), sorted(blamed)
        return self._taken(
            run_tasks(self._session, len(places), lambda at: [taking.take(*places[at], blamed[places[at]])])
        )

    def _take_back_many(self, problems: DataFrame) -> bool:
        kept = problems.persist()
        try:
            found = results(take_back(kept.filter(kept["fragment"] >= 0), self._taking()))
            if not found:
                nobodys = kept.filter(kept["fragment"] < 0)
                first = [(row["type_id"], row["id"], row["problem"]) for row in nobodys.limit(SAMPLE_SIZE).collect()]
                self._refuse_unowned(first, nobodys.count())
                return False
            return self._taken(found)
        finally:
            kept.unpersist()

    def _taken(self, found: Sequence[Mapping[str, Any]]) -> bool:
        for one in found:
            self._codes.update(one["rejected"])
            self._sample += [reject_of(raw) for raw in one["sample"]]
        self._put_all(found)
        self._round += 1
        return True

    def _refuse_unowned(self, first: Sequence[tuple[str, str, str]], count: int) -> None:
        """Violations that no record can be blamed for are left: the load cannot be done, whatever is skipped."""
        if not count:
            return
        sample = []
        for type_id, row_id, text in first:
            problem, one = json.loads(text), self._snapshot.catalog.by_id[type_id]
            sample.append(Reject("", 0, None, problem["code"], problem["reason"], "", type=one.table_key, id=row_id))
        codes = self._codes + Counter({sample[0].code: count})
        shown = tuple([*sample, *self._summary().sample][:SAMPLE_SIZE])
        path = self._job.rejects_at if self._codes else None
        raise load_rejected_error(RejectSummary(sum(codes.values()), dict(codes), shown), path, even_skipping=True)

    # --- rows of the graph -------------------------------------------------------------------------------------

    def _finish(self) -> dict[str, int]:
        """Remove what the load replaces; how many rows of the graph an overwrite brings again, by table."""
        if not any(one.replaces and one.has_rows and not one.base.is_empty for one in self._loaded.values()):
            return {}
        asking = self._asking()
        if self._by_one_task:
            versions = {table: one.staged.version or "" for table, one in self._loaded.items()}
            task = self._one_task(asking)
            found = self._told_by_one(lambda: task.without_replaced(versions))
        else:
            found = self._replaced_by_spark(self._validation(asking))
        self._put_all([one for one in found if "removal" in one])
        return {one["type"]: one["again"] for one in found if "again" in one}

    def _replaced_by_spark(self, validation: Validation) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        with validation.views():
            for table, one in self._loaded.items():
                replaced = validation.replaced(table)
                if replaced is not None:
                    found += self._removed(table, replaced)
                if one.overwrite:
                    found.append({"type": table, "again": validation.kept_ids(table)})
        return found

    # --- staged versions ---------------------------------------------------------------------------------------

    def _removed(self, table: str, addresses: DataFrame) -> list[dict[str, Any]]:
        return results(remove_at(addresses, self._taking(), table))

    def _put_all(self, found: Sequence[Mapping[str, Any]]) -> int:
        """Put removals, which workers have written, under the staged versions; how many rows they say they removed."""
        by_table: dict[str, list[Removal]] = {}
        for one in found:
            by_table.setdefault(one["type"], []).append(Removal(*one["removal"]))
        bulk = self._backend.tables.bulk
        for table, removals in by_table.items():
            mine = self._loaded[table]
            staged = bulk.remove(mine.staged, removals)
            self._loaded[table] = replace(mine, staged=staged, own=tuple(bulk.own_fragments(staged)))
        return sum(one.get("rows", 0) for one in found)

    def _taking(self) -> Taking:
        versions = {table: one.staged.version or "" for table, one in self._loaded.items()}
        return Taking(self._job, versions, dict(self._origins()), self._round)

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
