"""A large merge on Spark: one shuffle brings the rows of an id together, workers decide and write, one commit.

Only what differs between base and source, and between base and target, is read. The row rule and the rules of the
schema are those of the merge in this process; the files are staged like those of a load, under an intent. If the
target moves on meanwhile the merge is made anew on its newest record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.commit.footprint import Footprint, FootprintBuilder
from omnigraph.commit.publish_plan import PublishPlan, StagedMove, TableAction, WriteOptions
from omnigraph.commit.staging import base_table, version_in_record
from omnigraph.errors import Unsupported
from omnigraph.history.adoption import adopting, can_adopt
from omnigraph.history.merge import MergeEngine, MergeInput, merge_conflict
from omnigraph.history.spark.check_merged import MergeChecker, MergedTable
from omnigraph.history.spark.merge_rows import (
    BASE,
    BASE_OF_TARGET,
    CONFLICT,
    DECIDED,
    MARKED,
    PLACED,
    REMOVAL,
    SOURCE,
    STAGED,
    TARGET,
    Bucket,
    TableMerge,
)
from omnigraph.intents.scope import IntentScope
from omnigraph.log.commit_record import CommitRecord
from omnigraph.mutate.changed_rows import open_pinned_table
from omnigraph.progress import Progress
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.spark.shuffle_by_id import (
    BySide,
    GivenUnit,
    LookupUnit,
    Parting,
    Unit,
    bucket_count,
    entry_ids,
    piece_units,
    state_of,
)
from omnigraph.spark.tasks import RESULT, collect_results, encode_results, spark_errors
from omnigraph.spark.watch_tasks import watch_tasks
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import Removal, TableLocation, delete_offsets, fragment_differences, map_shared_fragments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: So many conflicts an error lists, the first in their order; all are counted.
CONFLICTS_MAX = 10_000
#: A virtual base is made in this process: it may differ from the commits it is made of in so many rows.
VIRTUAL_ROWS_MAX = 100_000


def changed_rows_at_least(merge: MergeInput, bound: int) -> bool:
    """Whether the source may have changed more rows than `bound`, by the pins and their manifests alone."""
    tables = [one.id for one in merge.types]
    states = (merge.base.snapshot, merge.source)
    pinned = [sum(state.record.pins[table].rows for table in tables if table in state.record.pins) for state in states]
    if max(pinned) <= bound:
        return False
    rows = 0
    for table in tables:
        before, after = (open_pinned_table(state, table) for state in states)
        removed, added = (
            sum(one.rows for one in fragment_differences(*pair)) for pair in ((before, after), (after, before))
        )
        rows += max(removed, added)
        rows += len(entry_ids(*(state.record.overlay.get(table) for state in states))[0])
    return rows > bound


class SparkMerge:
    """The Spark plane of one merge; for use in a `with` block around the run of its operation."""

    def __init__(
        self,
        backend: Backend,
        write: WriteOptions,
        engine: MergeEngine,
        session: Callable[[], SparkSession],
        progress: Progress,
    ) -> None:
        self._backend = backend
        self._engine = engine
        self._session = session
        self._progress = progress
        self._intent = IntentScope(backend, "merge", write)
        self._is_mine = False

    def __enter__(self) -> SparkMerge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._intent.__exit__(kind, error, trace)

    def takes(self, merge: MergeInput) -> bool:
        bound = self._backend.config.merge_spark_rows
        self._is_mine = self._engine == "spark" or changed_rows_at_least(merge, bound)
        return self._is_mine

    def plan(self, merge: MergeInput) -> PublishPlan:
        if len(merge.base.rows) > VIRTUAL_ROWS_MAX:
            raise Unsupported(
                f"the branches were merged crosswise, and their bases differ in {len(merge.base.rows)} rows",
                code="merge_too_crossed",
                advice="Merge with engine='local' on a machine that holds those rows in memory",
            )
        session = self._session()
        adopts = all(self._can_adopt(merge, one) for one in merge.types)
        if not adopts:
            # Pins of another stream are no files that an intent could keep: a plan that only adopts needs none.
            self._intent.open(merge.op_id, merge.txn.record)
        with spark_errors():
            plan = _Attempt(self._backend, session, merge, self._progress).plan()
        if not adopts:
            return plan
        return adopting(plan, merge.base, merge.source, merge.target, merge.catalog, merge.records)

    def confirm(self, plan: PublishPlan) -> PublishPlan:
        if not self._intent.is_open or not self._is_mine:
            return plan
        # What names no staged file is worth no word to those who come after, and what is adopted can have none.
        kept = [one.adopted is None for one in plan.actions if one.move is not None]
        return self._intent.confirm(plan) if kept and all(kept) else plan

    def done(self, commit_id: str | None) -> None:
        """The merge has landed, or there was nothing to do."""
        if commit_id is not None:
            self._intent.end(commit_id)

    def _can_adopt(self, merge: MergeInput, one: TypeDef) -> bool:
        return can_adopt(one.id, merge.base, merge.source, merge.target, merge.catalog)


@dataclass(frozen=True)
class _Attempt:
    """One attempt, on one record of the target."""

    backend: Backend
    session: SparkSession
    merge: MergeInput
    progress: Progress

    def plan(self) -> PublishPlan:
        merge, types = self.merge, self.merge.types
        with self.progress.step("merge", watch_tasks(self.session)):
            decided = self._decided(types).persist()
        try:
            with self.progress.step("stage", watch_tasks(self.session)):
                merged = self._merged(types, decided)
            self.backend.pauses.reach("merge.staged")
            with self.progress.step("check", watch_tasks(self.session)):
                self._refuse(decided, self._checks(merged).find_conflicts())
        finally:
            decided.unpersist()
        self.backend.pauses.reach("merge.checked")
        actions = [self._action(merge.target.record, one) for one in merged.values()]
        return PublishPlan(
            kind="merge",
            op_id=merge.op_id,
            base=merge.txn.record,
            footprint=self._footprint(types, merged),
            actions=tuple(actions),
            catalog=merge.new_catalog,
            merged=merge.source.record.header,
            result={"outcome": merge.outcome},
        )

    # --- the rows that meet ------------------------------------------------------------------------------------

    def _decided(self, types: list[TypeDef]) -> DataFrame:
        place = self.backend.tables.location
        tables = tuple(map(self._table, types))
        units = tuple(unit for at, one in enumerate(types) for unit in self._units(at, one))
        buckets = tuple(bucket_count(units, at) for at in range(len(types)))

        def work(at: int, sides: BySide) -> pa.Table:
            return Bucket(tables[at], sides).settle(place, at)

        return Parting(place, units, buckets).made(self.session, work, DECIDED)

    def _table(self, one: TypeDef) -> TableMerge:
        base, target, options = self.merge.base, self.merge.target, self.merge.options
        entries = target.record.overlay.get(one.id)
        own = {place: chosen for place, chosen in options.per_entity.items() if place[0] == one.table_key}
        return TableMerge(
            type=one,
            is_born=version_in_record(target.record, one.id) is not None,
            twins=map_shared_fragments(open_pinned_table(base.snapshot, one.id), open_pinned_table(target, one.id)),
            overlay_ids=frozenset(entries.index) if entries is not None else frozenset(),
            unsettled=frozenset(row_id for table, row_id in base.unsettled if table == one.id),
            options=replace(options, per_entity=own),
        )

    def _units(self, at: int, one: TypeDef) -> Iterator[Unit]:
        """What is read of a table. Ids with entries in a record, and rows of a virtual base, are looked up apart."""
        base, states = self.merge.base, (self.merge.base.snapshot, self.merge.source, self.merge.target)
        differing, entries = entry_ids(*(state.record.overlay.get(one.id) for state in states))
        virtual = {row_id: row for (table, row_id), row in base.rows.items() if table == one.id}
        unsettled = {row_id for table, row_id in base.unsettled if table == one.id}
        asked = tuple(sorted({*differing, *virtual, *unsettled}))
        apart = sorted({*entries, *asked})
        before, theirs, ours = (open_pinned_table(state, one.id) for state in states)
        for side, here, there in (
            (BASE, before, theirs),
            (SOURCE, theirs, before),
            (BASE_OF_TARGET, before, ours),
            (TARGET, ours, before),
        ):
            yield from piece_units(at, side, one, here, there, apart)
        if not asked:
            return
        settled = tuple(row_id for row_id in asked if row_id not in virtual and row_id not in unsettled)
        of_base, of_source, of_target = (state_of(state, one.id) for state in states)
        yield LookupUnit(at, (BASE, BASE_OF_TARGET), one, of_base, settled)
        yield LookupUnit(at, (SOURCE,), one, of_source, asked)
        yield LookupUnit(at, (TARGET,), one, of_target, asked, PLACED)
        rows = tuple(row for row in virtual.values() if row is not None)
        yield GivenUnit(at, (BASE, BASE_OF_TARGET), one, rows, MARKED, tuple(sorted(unsettled)))

    # --- what was decided, staged ------------------------------------------------------------------------------

    def _merged(self, types: list[TypeDef], decided: DataFrame) -> dict[str, MergedTable]:
        """Every table that changes, as a version that nobody names."""
        rows = decided.filter(f"what = '{STAGED}'").select("at", "data").collect()
        told: dict[int, list[dict[str, Any]]] = {}
        for at, text in sorted((row["at"], bytes(row["data"]).decode()) for row in rows):
            told.setdefault(at, []).append(json.loads(text))
        found = {at: self._staged(types[at], parts) for at, parts in told.items()}
        versions = {at: one.staged.version or "" for at, one in found.items() if one.staged is not None}
        removals = self._removals(types, decided, versions) if versions else {}
        changed = ((at, one) for at, one in found.items() if one.inserted or one.updated or one.removed)
        return {one.type_def.id: self._without(one, removals.get(at, ())) for at, one in changed}

    def _staged(self, one: TypeDef, parts: list[dict[str, Any]]) -> MergedTable:
        tables, record = self.backend.tables, self.merge.target.record
        fragments = [json.dumps(fragment) for part in parts for fragment in part["fragments"]]
        bare = tuple(sorted(row_id for part in parts for row_id in part["bare"]))
        counts = {name: sum(part[name] for part in parts) for name in ("inserted", "updated", "removed")}
        staged = None
        if fragments or counts["removed"] > len(bare):
            _, pinned = base_table(self.backend, record, one.id, one.kind)
            staged = replace(tables.bulk.stage(pinned, arrow_schema(one), fragments), delete_ids=bare)
        return MergedTable(
            type_def=one,
            base=state_of(self.merge.target, one.id),
            staged=staged,
            written_fragments=tuple(tables.bulk.ids_of_new_fragments(staged)) if staged is not None else (),
            superseded=frozenset(row_id for part in parts for row_id in part["superseded"]),
            overlay_only=bare,
            **counts,
        )

    def _removals(
        self, types: list[TypeDef], decided: DataFrame, versions: Mapping[int, str]
    ) -> dict[int, list[Removal]]:
        """Deletion files for what is replaced or removed, by one task per fragment."""
        place = self.backend.tables.location
        ids = [one.id for one in types]

        def remove(key: tuple[Any, ...], rows: pa.Table) -> pa.Table:
            at, fragment = key[0].as_py(), key[1].as_py()
            return pa.Table.from_batches(encode_results(lambda: [_removed(place, ids[at], versions[at], at, fragment, rows)]))

        some = decided.filter(f"what = '{REMOVAL}'").select("at", "fragment", "data")
        found: dict[int, list[Removal]] = {}
        for one in collect_results(some.groupBy("at", "fragment").applyInArrow(remove, RESULT)):
            found.setdefault(one["at"], []).append(Removal(*one["removal"]))
        return found

    def _without(self, one: MergedTable, removals: Iterable[Removal]) -> MergedTable:
        if one.staged is None:
            return one
        bulk = self.backend.tables.bulk
        staged = bulk.remove(one.staged, sorted(removals, key=lambda removal: removal.fragment_id))
        return replace(one, staged=staged, written_fragments=tuple(bulk.ids_of_new_fragments(staged)))

    # --- rules -------------------------------------------------------------------------------------------------

    def _checks(self, merged: Mapping[str, MergedTable]) -> MergeChecker:
        bases = {one.id: state_of(self.merge.target, one.id) for one in self.merge.catalog.types}
        return MergeChecker(self.backend, self.session, self.merge.catalog, bases, merged)

    def _refuse(self, decided: DataFrame, broken: list[dict[str, Any]] | DataFrame) -> None:
        """Raise MergeConflict if there is any: the first of them listed, all of them counted."""
        frame = decided.filter(f"what = '{CONFLICT}'")
        listed: list[dict[str, Any]] = []
        if isinstance(broken, list):
            listed += broken
        else:
            frame = frame.unionAll(broken)
        count = frame.count()
        if count:
            first = frame.orderBy("name").limit(CONFLICTS_MAX).select("data").collect()
            listed += [json.loads(bytes(row["data"]).decode()) for row in first]
        total = count + (len(broken) if isinstance(broken, list) else 0)
        if not isinstance(broken, list):
            broken.unpersist()
        if total:
            error = merge_conflict(listed, total)
            error.details["merge_conflicts"] = error.conflicts[:CONFLICTS_MAX]
            raise error

    # --- the plan ----------------------------------------------------------------------------------------------

    def _action(self, record: CommitRecord, one: MergedTable) -> TableAction:
        action = TableAction(
            one.type_def.id,
            arrow_schema(one.type_def),
            inserted=one.inserted,
            updated=one.updated,
            removed=one.removed,
            superseded=tuple(sorted(one.superseded)),
        )
        if one.staged is None:
            # Without a new version a fold that took these rows could still land: only tombstones keep them away.
            return replace(action, superseded=(), deleted=one.overlay_only)
        held = self.backend.tables.bulk.open_staged(one.staged)
        expected = version_in_record(record, one.type_def.id)
        return replace(action, move=StagedMove(expected, one.staged, held.version, held.size_bytes, held.fragments))

    def _footprint(self, types: list[TypeDef], merged: Mapping[str, MergedTable]) -> Footprint:
        """Everything in the tables that were looked at and in those that their rules look at.

        That a fast-forward has nothing of its own to keep is part of the answer: then it is every table.
        """
        claims, catalog = FootprintBuilder(), self.merge.catalog
        for changed in merged.values():
            claims.write_all(changed.type_def.id)
            for end in (changed.type_def.source, changed.type_def.target):
                if end is not None:
                    claims.write_all(end, "inc")
        read = {one.id for one in catalog.types} if self.merge.outcome == "fast_forward" else {one.id for one in types}
        for one in types:
            read |= {end for end in (one.source, one.target) if end is not None}
            read |= {edge.id for edge in catalog.edges_at(one.id)} if one.kind == "node" else set()
        for table in read:
            claims.read_all(table)
        return claims.build()


def _removed(place: TableLocation, table: str, version: str, at: int, fragment: int, rows: pa.Table) -> dict[str, Any]:
    offsets = np.concatenate([np.frombuffer(one.as_buffer(), "<u4") for one in rows["data"]]).astype(np.uint64)
    removal = delete_offsets(place.open().open(table, version), fragment, np.unique(offsets))
    return {"at": at, "removal": [removal.fragment_id, removal.fragment]}
