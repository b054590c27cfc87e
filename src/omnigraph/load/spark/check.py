"""Check: constraints on everything that a load has staged. Rows are rejected until none is violated.

A round evaluates the constraints in one task if the rows are few enough, else by shuffles of Spark. Then the rows of
the graph that the load replaces are removed from the staged versions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.constraints.compile import ConstraintCode
from omnigraph.constraints.relations import ImageKind
from omnigraph.load.options import LoadOptions
from omnigraph.load.records.batches import Reject
from omnigraph.load.report import SAMPLE_SIZE, RejectSummary, load_rejected_error
from omnigraph.load.spark.parse import StageJob
from omnigraph.load.spark.reject import (
    RejectRemover,
    describe_problems,
    problem_frame,
    reject_in_tasks,
    remove_in_tasks,
)
from omnigraph.load.spark.stage import FragmentOrigin, StagedInput, StagingResult, decode_reject
from omnigraph.log.snapshot import Snapshot
from omnigraph.schema.arrow import arrow_schema
from omnigraph.spark.constraint_runner import ConstraintRunner, ImageContent
from omnigraph.spark.constraint_selection import (
    DUPLICATE_KEYS,
    EXISTING_KEYS,
    SCHEMA_CONSTRAINTS,
    ConstraintSelection,
    LoadedTable,
)
from omnigraph.spark.duckdb_images import collect_violations, run_in_duckdb
from omnigraph.spark.spark_images import run_in_spark
from omnigraph.spark.table_rows import TableRows
from omnigraph.spark.tasks import collect_results, run_tasks
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import Removal
from omnigraph.storage.lance.row_address import NO_ADDRESS, ROW_ADDRESS, group_by_fragment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Up to this many rows on one side of a join are sent to every task instead of being shuffled.
_BROADCAST_ROWS = 300_000


@dataclass(frozen=True)
class CheckedLoad:
    """Everything that a load staged on one commit record, checked."""

    snapshot: Snapshot
    job: StageJob
    tables: Mapping[str, StagedInput]
    summary: RejectSummary
    duplicates: int
    rewritten_rows: Mapping[str, int]  # by overwritten table, rows of the graph whose id the input has
    rejects_path: str | None
    rounds: int  # in which rows were rejected


@dataclass(frozen=True)
class LoadImages:
    """What the images of a load hold. `new_rows` and `base_rows` read the rows of the input and of the graph."""

    loaded_tables: Mapping[str, LoadedTable]
    tables_with_few_rows: frozenset[str]
    new_rows: Callable[[str], TableRows | None]
    base_rows: Callable[[str], TableRows | None]

    def content_of(self, kind: ImageKind, table: str) -> ImageContent | None:
        rows = self.new_rows(table) if kind == "new" else self.base_rows(table)
        if rows is None:
            return None
        loaded = self.loaded_tables.get(table)
        if kind == "new" or loaded is None or (kind == "kept" and not loaded.may_replace_existing_ids):
            return ImageContent(rows)
        if kind == "old":
            return ImageContent(rows) if loaded.is_overwritten else self.rows_with_new_ids(table, rows)
        if not loaded.input_has_rows:
            return ImageContent(rows)
        return ImageContent(rows, "ids_not_in_new", table in self.tables_with_few_rows)

    def rows_with_new_ids(self, table: str, rows: TableRows) -> ImageContent | None:
        if not self.loaded_tables[table].input_has_rows:
            return None
        return ImageContent(rows, "ids_in_new", table in self.tables_with_few_rows)

    def pinned_rows_with_new_ids(self, table: str) -> ImageContent | None:
        """Rows of the pinned version whose id the input has, also those that the overlay hides."""
        rows = self.base_rows(table)
        assert rows is not None
        return self.rows_with_new_ids(table, replace(rows, overlay=None))


@dataclass(frozen=True)
class CheckTask:
    """A check that runs in one task of a worker, in DuckDB. Picklable."""

    selection: ConstraintSelection
    images: LoadImages
    remover: RejectRemover

    def find_problems(self) -> Iterator[dict[str, Any]]:
        """One result: all violations, as rows of `PROBLEMS`, or that there are too many to list."""
        catalog = self.selection.catalog
        with self._runner() as runner:
            problems = collect_violations(runner, lambda query, rows: describe_problems(catalog, query, rows))
        yield {"too_many": True} if problems is None else {"problems": problems}

    def remove_repeated_rows(self) -> Iterator[dict[str, Any]]:
        """Remove input rows that a later row with the same id replaces; one result per fragment."""
        with self._runner() as runner:
            for table, addresses in runner.repeated_rows():
                yield from self._remove(table, addresses)

    def remove_replaced_rows(self) -> Iterator[dict[str, Any]]:
        """Remove rows of the graph whose id the input has; of an overwritten table they are only counted."""
        with self._runner() as runner:
            for table, loaded in self.selection.loaded_tables.items():
                rows = self.images.base_rows(table)
                if rows is None or not loaded.input_has_rows or not loaded.may_replace_existing_ids:
                    continue
                if loaded.is_overwritten:
                    content = self.images.rows_with_new_ids(table, rows)
                    assert content is not None
                    yield {"type": table, "again": runner.images.read(content, table, []).num_rows}
                elif rows.version is not None:
                    replaced = self.images.pinned_rows_with_new_ids(table)
                    assert replaced is not None
                    yield from self._remove(table, runner.images.read(replaced, table, []))

    def _runner(self) -> AbstractContextManager[ConstraintRunner[pa.Table]]:
        return run_in_duckdb(self.selection, self.images.content_of)

    def _remove(self, table: str, rows: pa.Table) -> Iterator[dict[str, Any]]:
        for fragment, offsets in group_by_fragment(rows[ROW_ADDRESS].to_numpy().astype(np.uint64)):
            yield {"type": table, "removal": self.remover.remove(table, fragment, offsets), "rows": len(offsets)}


class LoadChecker:
    """Evaluates the constraints, and rejects rows, until no constraint is violated."""

    def __init__(
        self,
        backend: Backend,
        session: SparkSession,
        options: LoadOptions,
        snapshot: Snapshot,
        job: StageJob,
        staging: StagingResult,
        tables: Mapping[str, StagedInput],
        sort_key: Callable[[Reject], Any],
    ) -> None:
        self._backend = backend
        self._session = session
        self._options = options
        self._snapshot = snapshot
        self._job = job
        self._staging = staging
        self._tables = dict(tables)
        self._sort_key = sort_key
        self._duplicates = staging.duplicates
        self._codes = Counter(staging.rejected)
        self._sample = list(staging.sample)
        self._rounds = 0

    def run(self) -> CheckedLoad:
        """The tables as they are to be published.

        Raises LoadRejected if only rows that are not of the input violate a constraint: rejecting records of the input
        cannot mend that.
        """
        if self._staging.rows or self._options.mode == "overwrite":
            self._settle_repeated_ids()
            may_replace = any(table.may_replace_existing_ids for table in self._tables.values())
            if self._options.mode == "append" and may_replace:
                self._reject_round(EXISTING_KEYS)
            while self._reject_round(SCHEMA_CONSTRAINTS):
                pass
        summary = self._summarize()
        is_refused = summary.count and self._options.on_error == "fail"
        rewritten_rows = {} if is_refused else self._remove_replaced_rows()
        return CheckedLoad(
            self._snapshot,
            self._job,
            self._tables,
            summary,
            self._duplicates,
            rewritten_rows,
            self._job.rejects_path if summary.count else None,
            self._rounds,
        )

    def _summarize(self) -> RejectSummary:
        sample = tuple(sorted(self._sample, key=self._sort_key)[:SAMPLE_SIZE])
        return RejectSummary(sum(self._codes.values()), dict(self._codes), sample)

    # --- one of two engines ------------------------------------------------------------------------------------

    @property
    def _fits_one_task(self) -> bool:
        """Whether all rows that the constraints may have to look at are few enough for one task."""
        rows = sum(table.staged.rows_written for table in self._tables.values())
        rows += sum(pin.rows for pin in self._snapshot.record.pins.values())
        return rows <= self._backend.config.load_check_rows

    def _select(self, codes: frozenset[ConstraintCode] = SCHEMA_CONSTRAINTS) -> ConstraintSelection:
        tables_with_rows = frozenset(table for table, base in self._job.bases.items() if not base.is_empty)
        loaded_tables = {table: staged_input.facts for table, staged_input in self._tables.items()}
        return ConstraintSelection(self._snapshot.catalog, loaded_tables, tables_with_rows, codes)

    def _images(
        self,
        selection: ConstraintSelection,
        new_rows: Callable[[str], TableRows | None],
        base_rows: Callable[[str], TableRows | None],
    ) -> LoadImages:
        tables_with_few_rows = frozenset(
            table for table, staged_input in self._tables.items() if staged_input.staged.rows_written <= _BROADCAST_ROWS
        )
        return LoadImages(selection.loaded_tables, tables_with_few_rows, new_rows, base_rows)

    def _task(self, selection: ConstraintSelection) -> CheckTask:
        new_rows = {table: self._new_rows(table) for table in self._tables}
        base_rows = {type_def.id: self._base_rows(type_def.id) for type_def in self._snapshot.catalog.types}
        images = self._images(selection, new_rows.get, base_rows.get)
        return CheckTask(selection, images, self._remover(with_origins=False))

    def _run_in_task(self, work: Callable[[], Iterator[dict[str, Any]]]) -> list[dict[str, Any]]:
        return run_tasks(self._session, 1, lambda _: work())

    def _run_in_spark(
        self, selection: ConstraintSelection, images: LoadImages
    ) -> AbstractContextManager[ConstraintRunner[DataFrame]]:
        return run_in_spark(self._session, selection, images.content_of, self._backend.ids.token(8))

    # --- the same id twice in the input ------------------------------------------------------------------------

    def _settle_repeated_ids(self) -> None:
        """Where the last record of an id counts, the earlier ones are dropped; else the later ones are rejected."""
        if not any(table.may_repeat_ids for table in self._tables.values()):
            return
        if self._job.last_wins:
            self._remove_repeated_rows()
        else:
            before = self._codes.total()
            self._reject_round(DUPLICATE_KEYS)
            self._duplicates += self._codes.total() - before
        self._tables = {table: replace(staged, may_repeat_ids=False) for table, staged in self._tables.items()}

    def _remove_repeated_rows(self) -> None:
        selection = self._select(DUPLICATE_KEYS)
        if self._fits_one_task:
            removals = self._run_in_task(self._task(selection).remove_repeated_rows)
        else:
            images = self._images(selection, self._new_rows, self._base_rows)
            with self._run_in_spark(selection, images) as runner:
                frames = list(runner.repeated_rows())
                removals = [removal for table, frame in frames for removal in self._remove_at(table, frame)]
        self._duplicates += self._apply_removals(removals)

    # --- constraints -------------------------------------------------------------------------------------------

    def _reject_round(self, codes: frozenset[ConstraintCode]) -> bool:
        """Reject the rows that violate one of these constraints. Returns whether there were any."""
        selection = self._select(codes)
        if self._fits_one_task:
            (answer,) = self._run_in_task(self._task(selection).find_problems)
            if "problems" in answer:
                return self._reject_listed(answer["problems"])
        images = self._images(selection, self._new_rows, self._base_rows)
        with self._run_in_spark(selection, images) as runner:
            frames = [problem_frame(selection.catalog, query, rows) for query, rows in runner.violations()]
            return self._reject_in_frame(_union(frames)) if frames else False

    def _reject_listed(self, problems: Sequence[Sequence[Any]]) -> bool:
        by_fragment: dict[tuple[str, int], list[tuple[int, str]]] = {}
        for type_id, fragment, offset, _, problem in problems:
            if fragment != NO_ADDRESS:
                by_fragment.setdefault((type_id, fragment), []).append((offset, problem))
        if not by_fragment:
            unowned = [(type_id, row_id, problem) for type_id, _, _, row_id, problem in problems]
            self._refuse_unowned(unowned[:SAMPLE_SIZE], len(unowned))
            return False
        remover, fragments = self._remover(), sorted(by_fragment)

        def reject(number: int) -> list[dict[str, Any]]:
            return [remover.reject(*fragments[number], by_fragment[fragments[number]])]

        return self._apply_rejects(run_tasks(self._session, len(fragments), reject))

    def _reject_in_frame(self, problems: DataFrame) -> bool:
        problems = problems.persist()
        try:
            rejected = collect_results(reject_in_tasks(problems.filter(problems["fragment"] >= 0), self._remover()))
            if not rejected:
                unowned = problems.filter(problems["fragment"] < 0)
                first = [(row["type_id"], row["id"], row["problem"]) for row in unowned.limit(SAMPLE_SIZE).collect()]
                self._refuse_unowned(first, unowned.count())
                return False
            return self._apply_rejects(rejected)
        finally:
            problems.unpersist()

    def _apply_rejects(self, rejected: Sequence[Mapping[str, Any]]) -> bool:
        for task_result in rejected:
            self._codes.update(task_result["rejected"])
            self._sample += [decode_reject(raw) for raw in task_result["sample"]]
        self._apply_removals(rejected)
        self._rounds += 1
        return True

    def _refuse_unowned(self, first: Sequence[tuple[str, str, str]], count: int) -> None:
        """Raise LoadRejected if violations remain that no record of the input can be rejected for."""
        if not count:
            return
        unowned = []
        for type_id, row_id, text in first:
            problem, table_key = json.loads(text), self._snapshot.catalog.by_id[type_id].table_key
            unowned.append(Reject("", 0, None, problem["code"], problem["reason"], "", type=table_key, id=row_id))
        codes = self._codes + Counter({unowned[0].code: count})
        sample = tuple([*unowned, *self._summarize().sample][:SAMPLE_SIZE])
        path = self._job.rejects_path if self._codes else None
        raise load_rejected_error(RejectSummary(sum(codes.values()), dict(codes), sample), path, even_skipping=True)

    # --- rows of the graph that the load replaces --------------------------------------------------------------

    def _remove_replaced_rows(self) -> dict[str, int]:
        """Remove them from the staged versions; by overwritten table, how many of its ids the input has."""
        if not any(
            table.may_replace_existing_ids and table.has_rows and not table.base.is_empty
            for table in self._tables.values()
        ):
            return {}
        selection = self._select()
        if self._fits_one_task:
            answers = self._run_in_task(self._task(selection).remove_replaced_rows)
        else:
            answers = self._remove_replaced_in_spark(selection)
        self._apply_removals([answer for answer in answers if "removal" in answer])
        return {answer["type"]: answer["again"] for answer in answers if "again" in answer}

    def _remove_replaced_in_spark(self, selection: ConstraintSelection) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        images = self._images(selection, self._new_rows, self._base_rows)
        with self._run_in_spark(selection, images) as runner:
            for table, staged in self._tables.items():
                if staged.is_overwritten:
                    rows = images.base_rows(table)
                    content = images.rows_with_new_ids(table, rows) if rows is not None else None
                    count = runner.images.read(content, table, []).count() if content is not None else 0
                    answers.append({"type": table, "again": count})
                elif staged.base.version is not None and staged.has_rows and staged.may_replace_existing_ids:
                    replaced = images.pinned_rows_with_new_ids(table)
                    assert replaced is not None
                    answers += self._remove_at(table, runner.images.read(replaced, table, []))
        return answers

    # --- staged versions ---------------------------------------------------------------------------------------

    def _remove_at(self, table: str, addresses: DataFrame) -> list[dict[str, Any]]:
        return collect_results(remove_in_tasks(addresses, self._remover(), table))

    def _apply_removals(self, task_results: Sequence[Mapping[str, Any]]) -> int:
        """Add the deletion files that workers wrote to the staged versions; how many rows the workers removed."""
        by_table: dict[str, list[Removal]] = {}
        for task_result in task_results:
            by_table.setdefault(task_result["type"], []).append(Removal(*task_result["removal"]))
        bulk = self._backend.tables.bulk
        for table, removals in by_table.items():
            staged = bulk.remove(self._tables[table].staged, removals)
            input_fragments = tuple(bulk.ids_of_new_fragments(staged))
            self._tables[table] = replace(self._tables[table], staged=staged, input_fragments=input_fragments)
        return sum(task_result.get("rows", 0) for task_result in task_results)

    def _remover(self, *, with_origins: bool = True) -> RejectRemover:
        versions = {table: staged_input.staged.version or "" for table, staged_input in self._tables.items()}
        return RejectRemover(self._job, versions, dict(self._origins()) if with_origins else {}, self._rounds)

    def _origins(self) -> Iterator[tuple[str, dict[int, FragmentOrigin]]]:
        for table, staged_input in self._tables.items():
            fragments = self._backend.tables.bulk.new_fragments_by_path(staged_input.staged)
            origins = self._staging.origins[table].items()
            yield table, {fragments[path]: origin for path, origin in origins if path in fragments}

    def _new_rows(self, table: str) -> TableRows | None:
        staged_input = self._tables.get(table)
        if staged_input is None or not staged_input.has_rows:
            return None
        staged = staged_input.staged
        version = self._backend.tables.bulk.open_staged(staged)
        return TableRows.of_fragments(self._job.location, staged.schema, version, staged_input.input_fragments)

    def _base_rows(self, table: str) -> TableRows | None:
        base = self._job.bases.get(table)
        if base is None or base.is_empty:
            return None
        schema = arrow_schema(self._snapshot.catalog.by_id[table])
        if base.version is None:
            return TableRows(self._job.location, table, schema, None, (), base.overlay)
        pinned = self._backend.tables.open(table, base.version)
        fragments = [fragment.id for fragment in pinned.metadata]
        return TableRows.of_fragments(self._job.location, schema, pinned, fragments, base.overlay)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    union = frames[0]
    for frame in frames[1:]:
        union = union.unionAll(frame)
    return union
