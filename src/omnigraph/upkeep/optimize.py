"""`Optimizer` rewrites tables so that the same rows are in fewer, fuller and indexed files.

It folds the overlay first. Then it stages one new version of every table that needs it (without expired answers of
`_ops`, with small fragments joined, deleted rows purged and indexes brought up to date), and publishes one `physical`
commit that names them all. The commit depends only on the pins that it replaces: writers never fail because of it, and
a table that is written meanwhile is optimized again, in at most `_MAX_ROUNDS` rounds.

A cleanup in between also makes it start again, since cleanup may condemn what was staged before its fence. If much
work could be lost (more than `REWRITE_BYTES`, or work in other processes), the optimizer opens an intent first. Cleanup
honours the intent; if this process dies, recovery publishes what was staged completely and gives up the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow.compute as pc

from omnigraph.commit.back_pressure import tables_in_need
from omnigraph.commit.graph_runtime import Branch, GraphRuntime
from omnigraph.commit.idempotency import OPS_TYPE
from omnigraph.commit.publish_plan import PinReplacement, PublishPlan, StagedMove, WriteOptions
from omnigraph.commit.publisher import PlanFailed, PlanPublished, Publisher, find_fence
from omnigraph.config import Config
from omnigraph.intents.run_bulk import REWRITE_BYTES
from omnigraph.intents.scope import IntentScope
from omnigraph.log.commit_record import CommitRecord, Header
from omnigraph.log.indexes import list_obsolete_indexes, list_schema_indexes
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.stream import StreamEntry
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import IndexSpec, PinnedTable, RewriteExecutor, RewriteOptions, plan_index, rewrite_groups

OPTIMIZE_ACTOR = "omnigraph:optimize"
_MAX_ROUNDS = 5
_PARALLEL_BYTES = 256 << 20  # tables of more bytes together are staged one after the other, to bound the memory
_ENDS_A_ROUND = frozenset({"gc", "schema", "close"})

_OPTIONS = WriteOptions(actor=OPTIMIZE_ACTOR)

ReportLine = Callable[[str], None]


@dataclass(frozen=True)
class TableWork:
    """What one table needs, found without reading its rows."""

    type_def: TypeDef
    base: PinnedTable
    indexes: tuple[IndexSpec, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    missing: tuple[tuple[str, int], ...] = ()  # index, number of fragments that it does not cover
    unwanted: tuple[str, ...] = ()
    expired_ids: tuple[str, ...] = ()

    @property
    def is_needed(self) -> bool:
        return bool(self.groups or self.missing or self.unwanted or self.expired_ids)

    def to_json(self) -> dict[str, Any]:
        removed_rows = sum(fragment.physical_rows - fragment.num_rows for fragment in self.base.metadata)
        return {
            "table_key": self.type_def.table_key if self.type_def.id != OPS_TYPE.id else OPS_TYPE.id,
            "rows": self.base.rows,
            "removed_rows": removed_rows,
            "fragments": self.base.fragments,
            "size_bytes": self.base.size_bytes,
            "rewrites": sum(len(group) for group in self.groups),
            "into": len(self.groups),
            "indexes": [{"index": name, "fragments": count} for name, count in self.missing],
            "drops": list(self.unwanted),
            "expired": len(self.expired_ids),
        }


@dataclass(frozen=True)
class TableOutcome:
    """What became of one table."""

    table_key: str
    outcome: str  # "done", or "busy" if writers changed the table in every round
    fragments_before: int
    fragments: int
    size_bytes_before: int
    size_bytes: int
    indexes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "indexes": list(self.indexes)}


@dataclass(frozen=True)
class OptimizeReport:
    """`planned` is the work that was found; `commits` is empty in a dry run and if there was no work."""

    dry_run: bool
    folded: str | None
    overlay_entries: int
    commits: tuple[str, ...]
    planned: tuple[TableWork, ...]
    tables: tuple[TableOutcome, ...] = ()

    @property
    def commit_id(self) -> str | None:
        """The last commit of this run."""
        return self.commits[-1] if self.commits else None

    @property
    def is_complete(self) -> bool:
        return all(table.outcome == "done" for table in self.tables)

    def to_json(self) -> dict[str, Any]:
        return {
            "dry_run": self.dry_run,
            "folded": self.folded,
            "overlay_entries": self.overlay_entries,
            "commits": list(self.commits),
            "planned": [work.to_json() for work in self.planned],
            "tables": [table.to_json() for table in self.tables],
        }


def types_needing_optimize(head: CommitRecord, catalog: Catalog, config: Config) -> list[str]:
    """Returns the names of types with so many small fragments that optimize should run. Reads only the record."""
    return [catalog.by_id[table].name for table in tables_in_need(head, config) if table in catalog.by_id]


class Optimizer:
    """Optimizes one branch. `types` limits it to some types; `progress` is called with one line per step.

    `rebuild` names indexes, by table, that are built again though they exist; `executor` does the long work in other
    processes.
    """

    def __init__(
        self,
        runtime: GraphRuntime,
        branch: Branch,
        holder: str | None = None,
        *,
        types: Sequence[str] | None = None,
        options: RewriteOptions | None = None,
        rebuild: Mapping[str, Collection[str]] | None = None,
        progress: ReportLine | None = None,
        executor: RewriteExecutor | None = None,
        intent_above_bytes: int = REWRITE_BYTES,
    ) -> None:
        self._runtime = runtime
        self._branch = branch
        self._holder = holder
        self._types = types
        self._options = options or RewriteOptions()
        self._rebuild = dict(rebuild or {})
        self._report_line = progress or (lambda _: None)
        self._executor = executor
        self._intent_above_bytes = intent_above_bytes

    @property
    def _backend(self) -> Backend:
        return self._runtime.backend

    @property
    def _publisher(self) -> Publisher:
        return self._branch.publisher

    def preview(self) -> OptimizeReport:
        """Reports what a run would do now. Writes nothing."""
        head = self._publisher.refresh()
        work = self._find_work(head, self._select_tables(head))
        entries = sum(overlay_table.entries for overlay_table in head.overlay.values())
        return OptimizeReport(True, None, entries, (), tuple(work))

    def run(self) -> OptimizeReport:
        head = self._publisher.refresh()
        fence = find_fence(self._plan(self._backend.ids.ulid(), head, ()), head)
        if fence is not None:
            raise fence
        selected = self._select_tables(head)
        entries = sum(overlay_table.entries for overlay_table in head.overlay.values())
        folded = self._branch.folder.fold(self._holder) if entries else None
        planned: dict[str, TableWork] = {}
        commits: list[str] = []
        remaining = selected
        for _ in range(_MAX_ROUNDS):
            work = self._find_work(self._publisher.head, remaining)
            for table_work in work:
                planned.setdefault(table_work.type_def.id, table_work)
            if not work:
                remaining = frozenset()
                break
            remaining, commit_id = self._run_round(self._publisher.head, work)
            commits += [commit_id] if commit_id else []
            self._rebuild = {table: names for table, names in self._rebuild.items() if table in remaining}
            if not remaining:
                break
            self._publisher.refresh()
        outcomes = tuple(
            self._describe_outcome(table_work, busy=table in remaining) for table, table_work in planned.items()
        )
        return OptimizeReport(
            False, folded.commit_id if folded else None, entries, tuple(commits), tuple(planned.values()), outcomes
        )

    def _select_tables(self, head: CommitRecord) -> frozenset[str]:
        catalog = self._runtime.catalogs.get(head.schema)
        if self._types is None:
            return frozenset({*catalog.by_id, OPS_TYPE.id})
        return frozenset(Snapshot(self._backend, head, catalog).type(name).id for name in self._types)

    def _find_work(self, head: CommitRecord, tables: frozenset[str]) -> list[TableWork]:
        """Returns the tables that need work. Their lists of indexes are read in parallel."""
        pinned = [(table, pin.version) for table, pin in sorted(head.pins.items()) if pin.version and table in tables]
        works = self._backend.in_parallel(lambda item: self._find_table_work(head, *item), pinned)
        return [work for work in works if work.is_needed]

    def _find_table_work(self, head: CommitRecord, table: str, version: str) -> TableWork:
        type_def = OPS_TYPE if table == OPS_TYPE.id else self._runtime.catalogs.get(head.schema).by_id[table]
        base = self._backend.tables.open(table, version)
        indexes = list_schema_indexes(type_def, base)
        rebuilt = set(self._rebuild.get(table, ())) & {info.name for info in base.indices()}
        segments = [segment for segment in base.segments() if segment.name not in rebuilt]
        rows = {fragment.id: fragment.num_rows for fragment in base.metadata}
        plans = [plan for plan in (plan_index(spec, segments, rows) for spec in indexes) if plan is not None]
        return TableWork(
            type_def,
            base,
            tuple(indexes),
            tuple(tuple(group) for group in rewrite_groups(base, self._options)),
            tuple((plan.spec.name, len(plan.fragments)) for plan in plans),
            tuple(sorted({*list_obsolete_indexes(base, indexes), *rebuilt})),
            tuple(self._find_expired_answers(base)) if table == OPS_TYPE.id else (),
        )

    def _find_expired_answers(self, base: PinnedTable) -> Iterator[str]:
        cutoff = self._backend.clock.now() - timedelta(days=self._backend.config.idempotency_days)
        for batch in base.batches(["id"], pc.field("created_at") < pc.scalar(cutoff)):
            yield from batch.column("id").to_pylist()

    def _run_round(self, base: CommitRecord, work: Sequence[TableWork]) -> tuple[frozenset[str], str | None]:
        """Stages and publishes once. Returns the tables that remain to be done, and the commit.

        A table remains if writers changed it meanwhile; all of them remain if a fence came in between.
        """
        self._backend.pauses.reach("optimize.captured")
        op_id = self._backend.ids.ulid()
        with IntentScope(self._backend, "optimize", _OPTIONS, warn=self._report_line) as intent:
            if self._is_large(work):
                intent.open(op_id, base)
            replacements = [replacement for replacement in self._stage_tables(work) if replacement is not None]
            self._backend.pauses.reach("optimize.staged")
            if not replacements:
                return frozenset(), None
            remaining = frozenset(replacement.table for replacement in replacements)
            plan = self._rebase(self._plan(op_id, base, replacements))
            record = self._publish(plan, intent) if plan is not None else None
            if record is None:
                return remaining, None
            intent.end(record.commit_id)
        published_tables = record.touched.keys() if isinstance(record, CommitRecord) else remaining
        return remaining - published_tables, record.commit_id

    def _is_large(self, work: Sequence[TableWork]) -> bool:
        """Whether the work may take so long that an intent should protect it. Rewritten tables are read completely."""
        return self._executor is not None or _total_bytes(work) > self._intent_above_bytes

    def _publish(self, plan: PublishPlan, intent: IntentScope) -> StreamEntry | None:
        """Publishes the plan. Returns the record, or None if nothing of the plan can be used any more."""
        plan = intent.confirm(plan)
        deadline = self._backend.clock.monotonic() + self._backend.config.publish_deadline_s
        outcome = self._publisher.publish(plan, deadline)
        if isinstance(outcome, PlanFailed):
            raise outcome.error
        return outcome.record if isinstance(outcome, PlanPublished) else None

    def _stage_tables(self, work: Sequence[TableWork]) -> list[PinReplacement | None]:
        if _total_bytes(work) <= _PARALLEL_BYTES:
            return self._backend.in_parallel(self._stage, work)
        return [self._stage(table_work) for table_work in work]

    def _stage(self, work: TableWork) -> PinReplacement | None:
        base = work.base
        self._report_line(f"{work.type_def.table_key}: {base.fragments} fragments, {base.rows} rows")
        staged = self._backend.tables.stage_rewrite(
            base,
            work.indexes,
            self._options,
            drop=work.unwanted,
            delete_ids=work.expired_ids,
            executor=self._executor,
        )
        if staged.is_empty:
            return None
        committed = self._backend.tables.commit(base, staged)
        assert base.rows - committed.rows == len(work.expired_ids), f"{base} and {committed} do not hold the same rows"
        move = StagedMove(base.version, staged, committed.version, committed.size_bytes, committed.fragments)
        return PinReplacement(work.type_def.id, move, rows_removed=base.rows - committed.rows)

    def _plan(self, op_id: str, base: CommitRecord, replacements: Sequence[PinReplacement]) -> PublishPlan:
        return PublishPlan(
            "physical", op_id, base, pin_replacements=tuple(replacements), options=_OPTIONS, holder=self._holder
        )

    def _rebase(self, plan: PublishPlan) -> PublishPlan | None:
        """Rebases the plan onto the newest record. Returns None if a plan may not name the staged versions there.

        Staging takes long, and a publisher tests a plan only against the last few records. For a plan that reads no
        rows it is enough to know the kinds of the records in between: their headers are in the trail, 32 per request.
        """
        head = self._publisher.refresh()
        for header in self._publisher.records.headers(head):
            if header.seq <= plan.base.seq:
                break
            if header.kind in _ENDS_A_ROUND and not self._honours(header, plan.op_id):
                return None
        return replace(plan, base=head)

    def _honours(self, header: Header, op_id: str) -> bool:
        """Whether the record is a fence of cleanup that honours the intent of this operation."""
        entry = self._publisher.records.get(header.seq) if header.kind == "gc" else None
        return isinstance(entry, CommitRecord) and op_id in (entry.gc or {}).get("honours", ())

    def _describe_outcome(self, work: TableWork, *, busy: bool) -> TableOutcome:
        pin = self._publisher.head.pins.get(work.type_def.id)
        key = work.to_json()["table_key"]
        built = () if busy else tuple(name for name, _ in work.missing)
        fragments, size_bytes = (pin.fragments, pin.size_bytes) if pin else (0, 0)
        return TableOutcome(
            key, "busy" if busy else "done", work.base.fragments, fragments, work.base.size_bytes, size_bytes, built
        )


def _total_bytes(work: Sequence[TableWork]) -> int:
    return sum(table_work.base.size_bytes for table_work in work)
