"""Runs reading queries: checks and binds the text, chooses the way to its rows, and assembles the result.

Plans are cached: a query that was planned for the same schema and similar table sizes is not planned again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from omnigraph.adjacency.coded_tables import CodedTables
from omnigraph.adjacency.column_cache import ColumnCache, column_cache_of
from omnigraph.embed.providers import Embedder, get_embedder
from omnigraph.errors import InvalidInput
from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language.bind import ValueResolver, bind_params, value_resolver
from omnigraph.query.language.checked import CheckedQuery, CheckedRead, Value
from omnigraph.query.language.query_cache import get_checked_query
from omnigraph.query.limits import Budget, Deadline, QueryLimits
from omnigraph.query.plan.build_plan import build_plan
from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.join_tree import JoinTree, find_join_tree
from omnigraph.query.plan.leaf_columns import leaf_table
from omnigraph.query.plan.nodes import Edges, Leaf, Plan, Reach, Scan
from omnigraph.query.plan.rules import rewrite_plan
from omnigraph.query.plan.sql import Statement, to_sql
from omnigraph.query.run.aggregate import aggregate_tree
from omnigraph.query.run.count_trees import TreeCounter
from omnigraph.query.run.duckdb_engine import run_statement
from omnigraph.query.run.explain import Explanation, StepReport, annotate_plan, describe_leaf
from omnigraph.query.run.leaf_access import CodeAccess, IdAccess
from omnigraph.query.run.leaf_rows import LeafAccess, LeafLoader, ReadStep, estimate_heaviest_leaf
from omnigraph.query.run.lookup import try_lookup
from omnigraph.query.run.ranked_columns import NeedsSqlFallback, RankedColumns
from omnigraph.query.run.result import Result, ResultShape
from omnigraph.query.run.traverse import HopBounds
from omnigraph.query.search.search_columns import Searcher
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.backend import Backend

Coding = Literal["auto", "ids", "codes", "arrays"]
"""How a run identifies entities: by id, or by code (position in the cached table); `codes` joins coded tables by SQL,
`arrays` counts on coded arrays without SQL if the plan is a join tree. Tests force one; users always get `auto`."""

#: A query that touches more rows of one table than this codes its tables and caches the codes.
CODED_ROWS = 4_096
#: So does a query that touches more than `FEW_ROWS` rows and more than 1 / `CODED_SHARE` of the edges it would code.
FEW_ROWS, CODED_SHARE = 256, 16

#: How many plans are cached.
_CACHE_SIZE = 256


@dataclass(frozen=True)
class PreparedQuery:
    """A query ready to run on any snapshot whose tables have about the same sizes."""

    plan: Plan
    statement: Statement
    sql: str
    tree: JoinTree | None
    shape: ResultShape

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return self.statement.leaves

    @property
    def parameters(self) -> Mapping[str, Value]:
        return self.statement.parameters

    @property
    def outputs(self) -> tuple[tuple[str, ...], ...]:
        return self.statement.outputs


_CACHE: OrderedDict[Any, tuple[PreparedQuery, CheckedQuery]] = OrderedDict()
_LOCK = threading.Lock()


def prepare_query(checked: CheckedQuery, facts: Facts) -> PreparedQuery:
    """Returns the plan of a reading query, from the cache if the schema is the same and the table sizes are similar."""
    assert isinstance(checked.body, CheckedRead)
    sizes = tuple(facts.rows.get(type_id, 0).bit_length() for type_id in checked.reads)
    # By identity: hashing a whole tree costs more than planning a small one. The entry holds the tree, so its id stays.
    key = (id(checked), facts.catalog.hash, sizes)
    with _LOCK:
        entry = _CACHE.get(key)
        if entry is not None:
            _CACHE.move_to_end(key)
            return entry[0]
    plan = rewrite_plan(build_plan(checked.body), facts)
    statement = to_sql(plan, facts.catalog)
    shape = ResultShape.of(checked.body.columns, statement.outputs, facts.catalog)
    prepared = PreparedQuery(plan, statement, statement.text(), find_join_tree(plan, facts.catalog), shape)
    with _LOCK:
        _CACHE[key] = (prepared, checked)
        while len(_CACHE) > _CACHE_SIZE:
            _CACHE.popitem(last=False)
    return prepared


def start_query(
    source: str,
    params: Mapping[str, Any] | None,
    name: str | None,
    catalog: Catalog,
    open_snapshot: Callable[[CheckedQuery], Snapshot],
    now: datetime,
    limits: QueryLimits | None = None,
) -> QueryRun:
    """Checks the query text, binds its parameters, and prepares the run with the configured embedding provider.

    `open_snapshot` returns the state to read; a transaction records there which tables the query depends on.
    """
    checked = get_checked_query(source, name, catalog)
    bound = bind_params(checked, params or {})
    snapshot = open_snapshot(checked)
    provider = snapshot.backend.config.embedding
    return prepare_run(
        snapshot, checked, bound, now=now, limits=limits, embedder=get_embedder(provider) if provider else None
    )


def prepare_run(
    snapshot: Snapshot,
    checked: CheckedQuery,
    bound: Mapping[str, Any],
    *,
    now: datetime,
    limits: QueryLimits | None = None,
    backend: Backend | None = None,
    embedder: Embedder | None = None,
) -> QueryRun:
    """Plans a checked query for one snapshot. `bound` comes from `bind_params`."""
    if not isinstance(checked.body, CheckedRead):
        raise InvalidInput(
            f"query `{checked.name}` changes the graph", code="not_a_query", advice="Run it as a mutation"
        )
    facts = Facts(snapshot.catalog, {table: pin.rows for table, pin in snapshot.record.pins.items()})
    return QueryRun(
        snapshot,
        facts,
        prepare_query(checked, facts),
        value_resolver(bound, now),
        limits or QueryLimits(),
        backend or snapshot.backend,
        embedder,
    )


@dataclass(frozen=True)
class QueryRun:
    """One query, planned and bound, on one snapshot."""

    snapshot: Snapshot
    facts: Facts
    prepared: PreparedQuery
    resolve_value: ValueResolver
    limits: QueryLimits
    backend: Backend
    embedder: Embedder | None

    def result(self, coding: Coding = "auto") -> Result:
        """Runs the query and returns its rows."""
        with self.snapshot.reading():
            return self._run(coding).result

    def explain(self, coding: Coding = "auto", *, profile: bool = False) -> Explanation:
        """Runs the query and reports plan, SQL, requests, and how each leaf was read; `profile` adds seconds."""
        clock, before = self.backend.clock, self.backend.tables.io_stats()
        started = clock.monotonic()
        with self.snapshot.reading():
            outcome = self._run(coding)
        total_s = clock.monotonic() - started
        after = self.backend.tables.io_stats()
        table_of = {leaf: leaf_table(position) for position, leaf in enumerate(self.prepared.leaves)}
        steps = {
            step.leaf: StepReport(table_of.get(step.leaf, "-"), describe_leaf(step.leaf), step.access, step.rows)
            for step in outcome.steps
        }
        seconds = {"read": outcome.read_s, "run": total_s - outcome.read_s, "total": total_s}
        return Explanation(
            annotate_plan(self.prepared.plan, steps),
            self.prepared.statement.text(pretty=True),
            self.prepared.statement.text("spark", pretty=True),
            outcome.keys,
            tuple(steps.values()),
            len(outcome.result),
            after.read_iops - before.read_iops,
            after.read_bytes - before.read_bytes,
            self.snapshot.commit_id,
            seconds if profile else None,
        )

    def _run(self, coding: Coding) -> _RunOutcome:
        """Takes the first way that can answer the query: lookups alone, counting on arrays, or SQL."""
        if coding in ("auto", "ids"):
            budget = Budget(self.limits.memory_bytes)
            lookup = try_lookup(self.prepared.plan, self.prepared.outputs, self.snapshot, self.resolve_value, budget)
            if lookup is not None:
                return _RunOutcome(self._assemble(lookup.flat), lookup.steps, "lookup")
        for leaf in self.prepared.leaves:
            if isinstance(leaf, Reach):
                HopBounds.of(leaf, self.limits)
        deadline = Deadline(self.backend.clock, self.limits.timeout_s, self.limits.cancellation)
        column_cache = column_cache_of(self.backend.tables)
        is_coded = coding in ("codes", "arrays") or (coding == "auto" and self._is_coding_worthwhile(column_cache))
        if is_coded and coding != "codes" and self.prepared.tree is not None:
            with suppress(NeedsSqlFallback):
                return self._run_on_arrays(self.prepared.tree, column_cache, deadline)
        return self._run_sql(column_cache, deadline, is_coded=is_coded)

    def _run_on_arrays(self, tree: JoinTree, column_cache: ColumnCache, deadline: Deadline) -> _RunOutcome:
        coded_tables = CodedTables(self.snapshot, column_cache)
        deadline.check()
        ranked_columns = RankedColumns(coded_tables, self.resolve_value)
        counter = TreeCounter(coded_tables, ranked_columns, deadline, Budget(self.limits.memory_bytes))
        flat = aggregate_tree(tree, self.prepared.outputs, counter, self.resolve_value)
        return _RunOutcome(self._assemble(flat), counter.steps, "arrays")

    def _run_sql(self, column_cache: ColumnCache, deadline: Deadline, *, is_coded: bool) -> _RunOutcome:
        started = self.backend.clock.monotonic()
        budget = Budget(self.limits.memory_bytes)
        searcher = Searcher(column_cache, self.resolve_value, deadline, self.embedder)
        access_type: type[LeafAccess] = CodeAccess if is_coded else IdAccess
        access = access_type(
            self.snapshot, column_cache, searcher, self.resolve_value, deadline, budget, self.limits, self.facts
        )
        loader = LeafLoader(access)
        loader.load(self.prepared.plan)
        read_s = self.backend.clock.monotonic() - started
        leaf_rows = {
            leaf_table(position): loader.rows_by_leaf[leaf] for position, leaf in enumerate(self.prepared.leaves)
        }
        tables = {name: rows.table for name, rows in leaf_rows.items()}
        cached_tables = [name for name, rows in leaf_rows.items() if rows.is_whole_table]
        values = {name: self.resolve_value(value) for name, value in self.prepared.parameters.items()}
        flat = run_statement(self.prepared.sql, tables, values, deadline, budget, cached_tables)
        result = self._assemble(flat, tuple(dict.fromkeys(access.warnings)))
        return _RunOutcome(result, loader.steps, "codes" if is_coded else "ids", read_s)

    def _is_coding_worthwhile(self, column_cache: ColumnCache) -> bool:
        """Whether to use codes: if they are cached already, or if the query reads much and they fit into the cache."""
        edges = {
            leaf.type.type_id if isinstance(leaf, Edges) else leaf.edge
            for leaf in self.prepared.leaves
            if not isinstance(leaf, Scan)
        }
        if not edges:
            return False
        coded_tables = CodedTables(self.snapshot, column_cache)
        if all(coded_tables.has_ends(edge) for edge in edges):
            return True
        pins = [self.snapshot.record.pins.get(edge) for edge in edges]
        if sum(pin.size_bytes for pin in pins if pin is not None) * 2 >= column_cache.byte_cache.bound_bytes:
            return False
        rows_touched = estimate_heaviest_leaf(self.prepared.plan, self.facts)
        edge_rows = sum(self.facts.rows.get(edge, 0) for edge in edges)
        return rows_touched > CODED_ROWS or (rows_touched > FEW_ROWS and rows_touched * CODED_SHARE > edge_rows)

    def _assemble(self, flat: pa.Table, warnings: tuple[str, ...] = ()) -> Result:
        return self.prepared.shape.assemble(flat, self.snapshot.commit_id, warnings)


@dataclass(frozen=True)
class _RunOutcome:
    """A result and how the run found it; `keys` is the coding that it used."""

    result: Result
    steps: Sequence[ReadStep]
    keys: str
    read_s: float = 0.0
