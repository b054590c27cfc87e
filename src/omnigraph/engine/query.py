"""The door of the engine: a checked query on a snapshot gives a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from omnigraph.engine import duck
from omnigraph.engine.by_code import CodeAccess
from omnigraph.engine.by_id import IdAccess
from omnigraph.engine.codes import Codes
from omnigraph.engine.direct import looked_up
from omnigraph.engine.embed import Embedder
from omnigraph.engine.expand import Bounds
from omnigraph.engine.explain import Explanation, StepReport, plan_text, reads
from omnigraph.engine.images import Images, images_of
from omnigraph.engine.leaves import Loader, heaviest
from omnigraph.engine.limits import Budget, Deadline, QueryLimits
from omnigraph.engine.prepare import Prepared, prepare
from omnigraph.engine.pushdown import values_of
from omnigraph.engine.result import Result, assemble
from omnigraph.engine.searching import Searcher
from omnigraph.errors import InvalidInput
from omnigraph.lang.query import checked as c
from omnigraph.log.snapshot import Snapshot
from omnigraph.plan import nodes as n
from omnigraph.plan.facts import Facts
from omnigraph.storage.backend import Backend

Coding = Literal["auto", "ids", "codes"]

#: A query that touches more rows of one table than this codes its tables and keeps them in memory.
CODED_ROWS = 4_096


def run_query(
    snapshot: Snapshot,
    checked: c.CheckedQuery,
    bound: Mapping[str, Any],
    *,
    now: datetime,
    limits: QueryLimits | None = None,
    backend: Backend | None = None,
    embedder: Embedder | None = None,
    coding: Coding = "auto",
) -> Result:
    """The rows of a reading query at this snapshot. `bound` comes from `bind_params`."""
    run = _start(snapshot, checked, bound, now, limits, backend, embedder)
    flat = looked_up(run.prepared.plan, run.prepared.outputs, snapshot, values_of(bound, now))
    if flat is not None:
        return run.assembled(flat)
    return run.result(run.filled(coding))


def explain_query(
    snapshot: Snapshot,
    checked: c.CheckedQuery,
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
    run = _start(snapshot, checked, bound, now, limits, backend, embedder)
    clock, before = run.backend.clock, run.backend.tables.io_stats()
    started = clock.monotonic()
    filled = run.filled(coding)
    read_at = clock.monotonic()
    result = run.result(filled)
    ended = clock.monotonic()
    after = run.backend.tables.io_stats()
    table_of = {leaf: f"t{at}" for at, leaf in enumerate(run.prepared.leaves)}
    steps = {
        one.leaf: StepReport(table_of[one.leaf], reads(one.leaf), one.access, one.rows) for one in filled.loader.steps
    }
    seconds = {"read": read_at - started, "run": ended - read_at, "total": ended - started}
    return Explanation(
        plan_text(run.prepared.plan, steps),
        run.prepared.statement.text(pretty=True),
        run.prepared.statement.text("spark", pretty=True),
        "codes" if isinstance(filled.access, CodeAccess) else "ids",
        tuple(steps.values()),
        len(result),
        after.read_iops - before.read_iops,
        after.read_bytes - before.read_bytes,
        snapshot.commit_id,
        seconds if profile else None,
    )


def _start(
    snapshot: Snapshot,
    checked: c.CheckedQuery,
    bound: Mapping[str, Any],
    now: datetime,
    limits: QueryLimits | None,
    backend: Backend | None,
    embedder: Embedder | None,
) -> _Run:
    if not isinstance(checked.body, c.CheckedRead):
        raise InvalidInput(
            f"query `{checked.name}` changes the graph", code="not_a_query", advice="Run it as a mutation"
        )
    facts = Facts(snapshot.catalog, _rows(snapshot))
    prepared = prepare(checked, facts)
    backend = backend or snapshot.backend
    columns = checked.body.columns
    return _Run(snapshot, facts, prepared, columns, bound, now, limits or QueryLimits(), backend, embedder)


@dataclass(frozen=True)
class _Run:
    """One query on its way."""

    snapshot: Snapshot
    facts: Facts
    prepared: Prepared
    columns: tuple[c.Column, ...]
    bound: Mapping[str, Any]
    now: datetime
    limits: QueryLimits
    backend: Backend
    embedder: Embedder | None

    def filled(self, coding: Coding) -> _Filled:
        for leaf in self.prepared.leaves:
            if isinstance(leaf, n.Reach):
                Bounds.of(leaf, self.limits)
        given = values_of(self.bound, self.now)
        deadline = Deadline(self.backend.clock, self.limits.timeout_s, self.limits.cancellation)
        budget = Budget(self.limits.memory_bytes)
        images = images_of(self.backend.tables)
        searcher = Searcher(images, given, deadline, self.embedder)
        access: IdAccess | CodeAccess
        if coding == "codes" or (coding == "auto" and self._wants_codes(images)):
            access = CodeAccess(self.snapshot, images, searcher, given, deadline, budget, self.limits, self.facts)
        else:
            access = IdAccess(self.snapshot, images, searcher, given, deadline, budget, self.limits, self.facts)
        loader = Loader(access, self.facts, deadline, budget)
        loader.load(self.prepared.plan)
        return _Filled(loader, access, deadline, budget)

    def _wants_codes(self, images: Images) -> bool:
        """Coding pays for itself if much is touched, or if it is there already; and only if it fits into memory."""
        edges = {
            leaf.type.type_id if isinstance(leaf, n.Edges) else leaf.edge
            for leaf in self.prepared.leaves
            if not isinstance(leaf, n.Scan)
        }
        if not edges:
            return False
        codes = Codes(self.snapshot, images)
        if all(codes.has_ends(edge) for edge in edges):
            return True
        pins = [self.snapshot.record.pins.get(edge) for edge in edges]
        size = sum(pin.size_bytes for pin in pins if pin is not None)
        return heaviest(self.prepared.plan, self.facts) > CODED_ROWS and size * 2 < images.cache.bound_bytes

    def result(self, filled: _Filled) -> Result:
        given = values_of(self.bound, self.now)
        rows = {f"t{at}": filled.loader.filled[leaf] for at, leaf in enumerate(self.prepared.leaves)}
        tables = {name: one.table for name, one in rows.items()}
        lasting = [name for name, one in rows.items() if one.whole]
        values = {name: given(value) for name, value in self.prepared.parameters.items()}
        flat = duck.run(self.prepared.sql, tables, values, filled.deadline, filled.budget, lasting)
        return self.assembled(flat, tuple(dict.fromkeys(filled.access.warnings)))

    def assembled(self, flat: pa.Table, warnings: tuple[str, ...] = ()) -> Result:
        return assemble(
            flat, self.columns, self.prepared.outputs, self.snapshot.catalog, self.snapshot.commit_id, warnings
        )


@dataclass(frozen=True)
class _Filled:
    """A run whose leaves are filled."""

    loader: Loader
    access: IdAccess | CodeAccess
    deadline: Deadline
    budget: Budget


def _rows(snapshot: Snapshot) -> dict[str, int]:
    """Rows per type as the commit record tells them."""
    return {table: pin.rows for table, pin in snapshot.record.pins.items()}
