"""The door of the engine: a checked query on a snapshot gives a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from omnigraph.adjacency.coded_tables import CodedTables
from omnigraph.adjacency.column_cache import ColumnCache, column_cache_of
from omnigraph.embed.providers import Embedder
from omnigraph.errors import InvalidInput
from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language.bind import ValueResolver, value_resolver
from omnigraph.query.language.checked import CheckedQuery, CheckedRead
from omnigraph.query.limits import Budget, Deadline, QueryLimits
from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.join_tree import JoinTree
from omnigraph.query.plan.nodes import Edges, Reach, Scan
from omnigraph.query.run import duckdb_engine as duck
from omnigraph.query.run.aggregate import aggregate_tree
from omnigraph.query.run.code_access import CodeAccess
from omnigraph.query.run.count_trees import TreeCounter
from omnigraph.query.run.explain import Explanation, StepReport, annotate_plan, describe_leaf
from omnigraph.query.run.id_access import IdAccess
from omnigraph.query.run.leaf_rows import LeafLoader, ReadStep, estimate_heaviest_leaf
from omnigraph.query.run.lookup import try_lookup
from omnigraph.query.run.prepare import PreparedQuery, prepare
from omnigraph.query.run.ranked_columns import NeedsSqlFallback, RankedColumns
from omnigraph.query.run.result import Result
from omnigraph.query.run.traverse import HopBounds
from omnigraph.query.search.search_columns import Searcher
from omnigraph.storage.backend import Backend

Coding = Literal["auto", "ids", "codes", "arrays"]
"""How entities are told apart: by their ids, or by places in images, joined by the statement or counted as arrays."""

#: A query that touches more rows of one table than this codes its tables and keeps them in memory.
CODED_ROWS = 4_096
#: So does one that touches more than these, and more than one in so many of all edges that it would code.
FEW_ROWS, CODED_SHARE = 256, 16


def run_query(
    snapshot: Snapshot,
    checked: CheckedQuery,
    bound: Mapping[str, Any],
    *,
    now: datetime,
    limits: QueryLimits | None = None,
    backend: Backend | None = None,
    embedder: Embedder | None = None,
    coding: Coding = "auto",
) -> Result:
    """The rows of a reading query at this snapshot. `bound` comes from `bind_params`."""
    with snapshot.reading():
        return _prepare_run(snapshot, checked, bound, now, limits, backend, embedder).run(coding).result


def explain_query(
    snapshot: Snapshot,
    checked: CheckedQuery,
    bound: Mapping[str, Any],
    *,
    now: datetime,
    limits: QueryLimits | None = None,
    backend: Backend | None = None,
    embedder: Embedder | None = None,
    coding: Coding = "auto",
    profile: bool = False,
) -> Explanation:
    """Run the query and tell how: plan, SQL, access path and rows of every step, requests; `profile` adds seconds."""
    run = _prepare_run(snapshot, checked, bound, now, limits, backend, embedder)
    clock, before = run.backend.clock, run.backend.tables.io_stats()
    started = clock.monotonic()
    with snapshot.reading():
        answered = run.run(coding)
    total_s = clock.monotonic() - started
    after = run.backend.tables.io_stats()
    table_of = {leaf: f"t{at}" for at, leaf in enumerate(run.prepared.leaves)}
    steps = {
        one.leaf: StepReport(table_of.get(one.leaf, "-"), describe_leaf(one.leaf), one.access, one.rows)
        for one in answered.steps
    }
    seconds = {"read": answered.read_s, "run": total_s - answered.read_s, "total": total_s}
    return Explanation(
        annotate_plan(run.prepared.plan, steps),
        run.prepared.statement.text(pretty=True),
        run.prepared.statement.text("spark", pretty=True),
        answered.keys,
        tuple(steps.values()),
        len(answered.result),
        after.read_iops - before.read_iops,
        after.read_bytes - before.read_bytes,
        snapshot.commit_id,
        seconds if profile else None,
    )


def _prepare_run(
    snapshot: Snapshot,
    checked: CheckedQuery,
    bound: Mapping[str, Any],
    now: datetime,
    limits: QueryLimits | None,
    backend: Backend | None,
    embedder: Embedder | None,
) -> _QueryRun:
    if not isinstance(checked.body, CheckedRead):
        raise InvalidInput(
            f"query `{checked.name}` changes the graph", code="not_a_query", advice="Run it as a mutation"
        )
    facts = Facts(snapshot.catalog, _rows_by_type(snapshot))
    prepared = prepare(checked, facts)
    backend = backend or snapshot.backend
    return _QueryRun(snapshot, facts, prepared, bound, now, limits or QueryLimits(), backend, embedder)


@dataclass(frozen=True)
class _QueryRun:
    """One query on its way."""

    snapshot: Snapshot
    facts: Facts
    prepared: PreparedQuery
    bound: Mapping[str, Any]
    now: datetime
    limits: QueryLimits
    backend: Backend
    embedder: Embedder | None

    def run(self, coding: Coding) -> _RunOutcome:
        """By lookups alone, by counting arrays, or by the statement: the first of these that can."""
        given = value_resolver(self.bound, self.now)
        if coding in ("auto", "ids"):
            budget = Budget(self.limits.memory_bytes)
            found = try_lookup(self.prepared.plan, self.prepared.outputs, self.snapshot, given, budget)
            if found is not None:
                return _RunOutcome(self._assemble(found.flat), found.steps, "lookup")
        for leaf in self.prepared.leaves:
            if isinstance(leaf, Reach):
                HopBounds.of(leaf, self.limits)
        deadline = Deadline(self.backend.clock, self.limits.timeout_s, self.limits.cancellation)
        images = column_cache_of(self.backend.tables)
        coded = coding in ("codes", "arrays") or (coding == "auto" and self._is_coding_worthwhile(images))
        if coded and coding != "codes" and self.prepared.tree is not None:
            with suppress(NeedsSqlFallback):
                return self._run_on_arrays(self.prepared.tree, images, given, deadline)
        return self._run_sql(images, given, deadline, coded=coded)

    def _run_on_arrays(
        self, tree: JoinTree, images: ColumnCache, given: ValueResolver, deadline: Deadline
    ) -> _RunOutcome:
        codes = CodedTables(self.snapshot, images)
        deadline.check()
        counter = TreeCounter(codes, RankedColumns(codes, given), deadline, Budget(self.limits.memory_bytes))
        flat = aggregate_tree(tree, self.prepared.outputs, counter, given)
        return _RunOutcome(self._assemble(flat), counter.steps, "arrays")

    def _run_sql(self, images: ColumnCache, given: ValueResolver, deadline: Deadline, *, coded: bool) -> _RunOutcome:
        started = self.backend.clock.monotonic()
        budget = Budget(self.limits.memory_bytes)
        searcher = Searcher(images, given, deadline, self.embedder)
        made: type[CodeAccess] | type[IdAccess] = CodeAccess if coded else IdAccess
        access = made(self.snapshot, images, searcher, given, deadline, budget, self.limits, self.facts)
        loader = LeafLoader(access, self.facts, deadline, budget)
        loader.load(self.prepared.plan)
        read_s = self.backend.clock.monotonic() - started
        rows = {f"t{at}": loader.rows_by_leaf[leaf] for at, leaf in enumerate(self.prepared.leaves)}
        tables = {name: one.table for name, one in rows.items()}
        lasting = [name for name, one in rows.items() if one.is_whole_table]
        values = {name: given(value) for name, value in self.prepared.parameters.items()}
        flat = duck.run_statement(self.prepared.sql, tables, values, deadline, budget, lasting)
        result = self._assemble(flat, tuple(dict.fromkeys(access.warnings)))
        return _RunOutcome(result, loader.steps, "codes" if coded else "ids", read_s)

    def _is_coding_worthwhile(self, images: ColumnCache) -> bool:
        """Coding pays for itself if much is touched, or if it is there already; and only if it fits into memory."""
        edges = {
            leaf.type.type_id if isinstance(leaf, Edges) else leaf.edge
            for leaf in self.prepared.leaves
            if not isinstance(leaf, Scan)
        }
        if not edges:
            return False
        codes = CodedTables(self.snapshot, images)
        if all(codes.has_ends(edge) for edge in edges):
            return True
        pins = [self.snapshot.record.pins.get(edge) for edge in edges]
        if sum(pin.size_bytes for pin in pins if pin is not None) * 2 >= images.byte_cache.bound_bytes:
            return False
        most = estimate_heaviest_leaf(self.prepared.plan, self.facts)
        there = sum(self.facts.rows.get(edge, 0) for edge in edges)
        return most > CODED_ROWS or (most > FEW_ROWS and most * CODED_SHARE > there)

    def _assemble(self, flat: pa.Table, warnings: tuple[str, ...] = ()) -> Result:
        return self.prepared.shape.assemble(flat, self.snapshot.commit_id, warnings)


@dataclass(frozen=True)
class _RunOutcome:
    """A result and how it was found."""

    result: Result
    steps: Sequence[ReadStep]
    keys: str
    read_s: float = 0.0


def _rows_by_type(snapshot: Snapshot) -> dict[str, int]:
    """Rows per type as the commit record tells them."""
    return {table: pin.rows for table, pin in snapshot.record.pins.items()}
