"""`optimize`: the same rows in fewer, fuller and indexed files.

The overlay is folded first. Then every table that needs it gets one new version (expired answers of `_ops` forgotten,
small fragments joined, removed rows purged, indexes brought up to date), and one `physical` commit names them all. It
goes through the ordinary publisher and depends on nothing but the pins it replaces: writers never fail because of it,
and a table that was written meanwhile is simply done again, a few times at most.

A cleanup that comes between makes it begin anew as well: what was staged before its fence may be condemned. Where that
would throw much work away, above `REWRITE_BYTES` or in other processes, an intent is left first. Cleanup honours it;
if this process dies, recovery publishes what was staged in full and gives up the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow.compute as pc

from omnigraph.commit.graph_runtime import Branch, GraphRuntime
from omnigraph.commit.idempotency import OPS_TYPE
from omnigraph.commit.publish_plan import FoldAction, PublishPlan, StagedMove, WriteOptions
from omnigraph.commit.publisher import PlanFailed, PlanPublished, Publisher, find_fence
from omnigraph.intents.run_bulk import REWRITE_BYTES
from omnigraph.intents.scope import IntentScope
from omnigraph.log.commit_record import CommitRecord, Header
from omnigraph.log.indexes import list_obsolete_indexes, list_schema_indexes
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.stream import StreamEntry
from omnigraph.schema.catalog import TypeDef
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import IndexSpec, PinnedTable, RewriteExecutor, RewriteOptions, plan_index, rewrite_groups

OPTIMIZE_ACTOR = "omnigraph:optimize"
_MAX_ROUNDS = 5
_TOGETHER_BYTES = 256 << 20
_ENDS_A_ROUND = frozenset({"gc", "schema", "close"})

_OPTIONS = WriteOptions(actor=OPTIMIZE_ACTOR)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class TableWork:
    """What one table needs, found without touching its rows."""

    one: TypeDef
    base: PinnedTable
    indexes: tuple[IndexSpec, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    missing: tuple[tuple[str, int], ...] = ()  # index, fragments that it does not know
    unwanted: tuple[str, ...] = ()
    expired_ids: tuple[str, ...] = ()

    @property
    def is_needed(self) -> bool:
        return bool(self.groups or self.missing or self.unwanted or self.expired_ids)

    def to_json(self) -> dict[str, Any]:
        removed = sum(one.physical_rows - one.num_rows for one in self.base.metadata)
        return {
            "table_key": self.one.table_key if self.one.id != OPS_TYPE.id else OPS_TYPE.id,
            "rows": self.base.rows,
            "removed_rows": removed,
            "fragments": self.base.fragments,
            "size_bytes": self.base.size_bytes,
            "rewrites": sum(len(group) for group in self.groups),
            "into": len(self.groups),
            "indexes": [{"index": name, "fragments": count} for name, count in self.missing],
            "drops": list(self.unwanted),
            "expired": len(self.expired_ids),
        }


@dataclass(frozen=True)
class TableDone:
    """What became of one table."""

    table_key: str
    outcome: str  # "done", or "busy" if writers moved it every time
    fragments_before: int
    fragments: int
    size_bytes_before: int
    size_bytes: int
    indexes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "table_key": self.table_key,
            "outcome": self.outcome,
            "fragments_before": self.fragments_before,
            "fragments": self.fragments,
            "size_bytes_before": self.size_bytes_before,
            "size_bytes": self.size_bytes,
            "indexes": list(self.indexes),
        }


@dataclass(frozen=True)
class OptimizeReport:
    """`planned` is what was found to do; `commits` are empty in a dry run and where there was nothing to do."""

    dry_run: bool
    folded: str | None
    overlay_entries: int
    commits: tuple[str, ...]
    planned: tuple[TableWork, ...]
    tables: tuple[TableDone, ...] = ()

    @property
    def commit_id(self) -> str | None:
        """The last commit of this run."""
        return self.commits[-1] if self.commits else None

    @property
    def is_complete(self) -> bool:
        return all(one.outcome == "done" for one in self.tables)

    def to_json(self) -> dict[str, Any]:
        return {
            "dry_run": self.dry_run,
            "folded": self.folded,
            "overlay_entries": self.overlay_entries,
            "commits": list(self.commits),
            "planned": [one.to_json() for one in self.planned],
            "tables": [one.to_json() for one in self.tables],
        }


class Optimizer:
    """Optimizes one branch. `types` bounds it to some tables; `progress` hears one line per step.

    `rebuild` names indexes by table that are to be made anew, though they seem to be there; `elsewhere` does the long
    work in other processes.
    """

    def __init__(
        self,
        site: GraphRuntime,
        branch: Branch,
        holder: str | None = None,
        *,
        types: Sequence[str] | None = None,
        options: RewriteOptions | None = None,
        rebuild: Mapping[str, Collection[str]] | None = None,
        progress: Progress | None = None,
        elsewhere: RewriteExecutor | None = None,
        intent_above_bytes: int = REWRITE_BYTES,
    ) -> None:
        self._site = site
        self._branch = branch
        self._holder = holder
        self._types = types
        self._options = options or RewriteOptions()
        self._rebuild = dict(rebuild or {})
        self._tell = progress or (lambda _: None)
        self._elsewhere = elsewhere
        self._intent_above_bytes = intent_above_bytes

    @property
    def _backend(self) -> Backend:
        return self._site.backend

    @property
    def _publisher(self) -> Publisher:
        return self._branch.publisher

    def preview(self) -> OptimizeReport:
        """What a run would do now. Nothing is written."""
        head = self._publisher.refresh()
        work = self._work(head, self._ids_wanted(head))
        entries = sum(one.entries for one in head.overlay.values())
        return OptimizeReport(True, None, entries, (), tuple(work))

    def run(self) -> OptimizeReport:
        head = self._publisher.refresh()
        fence = find_fence(self._plan(self._backend.ids.ulid(), head, ()), head)
        if fence is not None:
            raise fence
        wanted = self._ids_wanted(head)
        entries = sum(one.entries for one in head.overlay.values())
        folded = self._branch.folder.fold(self._holder) if entries else None
        first: dict[str, TableWork] = {}
        commits: list[str] = []
        left = wanted
        for _ in range(_MAX_ROUNDS):
            work = self._work(self._publisher.head, left)
            for one in work:
                first.setdefault(one.one.id, one)
            if not work:
                left = frozenset()
                break
            left, landed = self._round(self._publisher.head, work)
            commits += [landed] if landed else []
            self._rebuild = {table: names for table, names in self._rebuild.items() if table in left}
            if not left:
                break
            self._publisher.refresh()
        done = tuple(self._done(one, busy=one.one.id in left) for one in first.values())
        return OptimizeReport(
            False, folded.commit_id if folded else None, entries, tuple(commits), tuple(first.values()), done
        )

    def _ids_wanted(self, head: CommitRecord) -> frozenset[str]:
        catalog = self._site.catalogs.get(head.schema)
        if self._types is None:
            return frozenset({*catalog.by_id, OPS_TYPE.id})
        return frozenset(Snapshot(self._backend, head, catalog).type(name).id for name in self._types)

    def _work(self, head: CommitRecord, tables: frozenset[str]) -> list[TableWork]:
        """What is to be done, table by table; the lists of indexes are read at once."""
        pinned = [(table, pin.version) for table, pin in sorted(head.pins.items()) if pin.version and table in tables]
        found = self._backend.in_parallel(lambda item: self._table_work(head, *item), pinned)
        return [one for one in found if one.is_needed]

    def _table_work(self, head: CommitRecord, table: str, version: str) -> TableWork:
        one = OPS_TYPE if table == OPS_TYPE.id else self._site.catalogs.get(head.schema).by_id[table]
        base = self._backend.tables.open(table, version)
        wanted = list_schema_indexes(one, base)
        anew = set(self._rebuild.get(table, ())) & {info.name for info in base.indices()}
        segments = [one for one in base.segments() if one.name not in anew]
        rows = {fragment.id: fragment.num_rows for fragment in base.metadata}
        plans = [plan for plan in (plan_index(spec, segments, rows) for spec in wanted) if plan is not None]
        return TableWork(
            one,
            base,
            tuple(wanted),
            tuple(tuple(group) for group in rewrite_groups(base, self._options)),
            tuple((plan.spec.name, len(plan.fragments)) for plan in plans),
            tuple(sorted({*list_obsolete_indexes(base, wanted), *anew})),
            tuple(self._expired_answers(base)) if table == OPS_TYPE.id else (),
        )

    def _expired_answers(self, base: PinnedTable) -> Iterator[str]:
        cutoff = self._backend.clock.now() - timedelta(days=self._backend.config.idempotency_days)
        for batch in base.batches(["id"], pc.field("created_at") < pc.scalar(cutoff)):
            yield from batch.column("id").to_pylist()

    def _round(self, base: CommitRecord, work: Sequence[TableWork]) -> tuple[frozenset[str], str | None]:
        """Stage and publish once: the tables that are left, and the commit.

        A table is left if writers moved it meanwhile, all of them if a fence came between.
        """
        self._backend.pauses.reach("optimize.captured")
        op_id = self._backend.ids.ulid()
        with IntentScope(self._backend, "optimize", _OPTIONS, warn=self._tell) as intent:
            if self._is_large(work):
                intent.open(op_id, base)
            moves = [one for one in self._staged(work) if one is not None]
            self._backend.pauses.reach("optimize.staged")
            if not moves:
                return frozenset(), None
            left = frozenset(one.table for one in moves)
            plan = self._rebased(self._plan(op_id, base, moves))
            record = self._published(plan, intent) if plan is not None else None
            if record is None:
                return left, None
            intent.end(record.commit_id)
        named = record.touched.keys() if isinstance(record, CommitRecord) else left
        return left - named, record.commit_id

    def _is_large(self, work: Sequence[TableWork]) -> bool:
        """Whether it may take so long that it should be seen: what is compacted or indexed is read as a whole."""
        return self._elsewhere is not None or sum(one.base.size_bytes for one in work) > self._intent_above_bytes

    def _published(self, plan: PublishPlan, intent: IntentScope) -> StreamEntry | None:
        """The record; None if none of it can be used any more."""
        plan = intent.confirm(plan)
        deadline = self._backend.clock.monotonic() + self._backend.config.publish_deadline_s
        outcome = self._publisher.publish(plan, deadline)
        if isinstance(outcome, PlanFailed):
            raise outcome.error
        return outcome.record if isinstance(outcome, PlanPublished) else None

    def _staged(self, work: Sequence[TableWork]) -> list[FoldAction | None]:
        if sum(one.base.size_bytes for one in work) <= _TOGETHER_BYTES:
            return self._backend.in_parallel(self._stage, work)
        return [self._stage(one) for one in work]

    def _stage(self, work: TableWork) -> FoldAction | None:
        base = work.base
        self._tell(f"{work.one.table_key}: {base.fragments} fragments, {base.rows} rows")
        staged = self._backend.tables.stage_rewrite(
            base,
            work.indexes,
            self._options,
            drop=work.unwanted,
            delete_ids=work.expired_ids,
            executor=self._elsewhere,
        )
        if staged.is_empty:
            return None
        made = self._backend.tables.commit(base, staged)
        assert base.rows - made.rows == len(work.expired_ids), f"{base} and {made} do not hold the same rows"
        move = StagedMove(base.version, staged, made.version, made.size_bytes, made.fragments)
        return FoldAction(work.one.id, move, rows_removed=base.rows - made.rows)

    def _plan(self, op_id: str, base: CommitRecord, moves: Sequence[FoldAction]) -> PublishPlan:
        return PublishPlan(
            kind="physical",
            op_id=op_id,
            base=base,
            folds=tuple(moves),
            options=_OPTIONS,
            holder=self._holder,
        )

    def _rebased(self, plan: PublishPlan) -> PublishPlan | None:
        """The plan on the newest record; None if what was staged may no longer be named there.

        Staging takes long, and a publisher tests a plan only against the last few records. Which kinds of records
        came in between is enough for a plan that reads no row: their headers are in the trail, 32 to a request.
        """
        head = self._publisher.refresh()
        for header in self._publisher.records.headers(head):
            if header.seq <= plan.base.seq:
                break
            if header.kind in _ENDS_A_ROUND and not self._honours(header, plan.op_id):
                return None
        return replace(plan, base=head)

    def _honours(self, header: Header, op_id: str) -> bool:
        """Whether it is a fence of cleanup that spares what this operation has staged."""
        found = self._publisher.records.get(header.seq) if header.kind == "gc" else None
        return isinstance(found, CommitRecord) and op_id in (found.gc or {}).get("honours", ())

    def _done(self, work: TableWork, *, busy: bool) -> TableDone:
        pin = self._publisher.head.pins.get(work.one.id)
        key = work.to_json()["table_key"]
        built = () if busy else tuple(name for name, _ in work.missing)
        return TableDone(
            key,
            "busy" if busy else "done",
            work.base.fragments,
            pin.fragments if pin else 0,
            work.base.size_bytes,
            pin.size_bytes if pin else 0,
            built,
        )
