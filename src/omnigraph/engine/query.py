"""The door of the engine: a checked query on a snapshot gives a result."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from omnigraph.engine import duck
from omnigraph.engine.by_id import IdAccess
from omnigraph.engine.embed import Embedder
from omnigraph.engine.expand import Bounds
from omnigraph.engine.images import images_of
from omnigraph.engine.leaves import Loader
from omnigraph.engine.limits import Budget, Deadline, QueryLimits
from omnigraph.engine.pushdown import values_of
from omnigraph.engine.result import Result, assemble
from omnigraph.engine.searching import Searcher
from omnigraph.errors import InvalidInput
from omnigraph.lang.query import checked as c
from omnigraph.log.snapshot import Snapshot
from omnigraph.plan import nodes as n
from omnigraph.plan.build import build
from omnigraph.plan.facts import Facts
from omnigraph.plan.rules import optimise
from omnigraph.plan.sql import to_sql
from omnigraph.storage.backend import Backend


def run_query(
    snapshot: Snapshot,
    checked: c.CheckedQuery,
    bound: Mapping[str, Any],
    *,
    now: datetime,
    limits: QueryLimits | None = None,
    backend: Backend | None = None,
    embedder: Embedder | None = None,
) -> Result:
    """The rows of a reading query at this snapshot. `bound` comes from `bind_params`."""
    backend = backend or snapshot.backend
    limits = limits or QueryLimits()
    if not isinstance(checked.body, c.CheckedRead):
        raise InvalidInput(
            f"query `{checked.name}` changes the graph", code="not_a_query", advice="Run it as a mutation"
        )
    facts = Facts(snapshot.catalog, _rows(snapshot))
    plan = optimise(build(checked.body), facts)
    statement = to_sql(plan, snapshot.catalog)
    deadline = Deadline(backend.clock, limits.timeout_s)
    budget = Budget(limits.memory_bytes)
    given = values_of(bound, now)
    for leaf in statement.leaves:
        if isinstance(leaf, n.Reach):
            Bounds.of(leaf, limits)
    images = images_of(backend.tables)
    searcher = Searcher(images, given, deadline, embedder)
    access = IdAccess(snapshot, images, searcher, given, deadline, budget, limits)
    loader = Loader(access, facts, deadline, budget)
    loader.load(plan)
    tables = {f"t{at}": loader.tables[leaf] for at, leaf in enumerate(statement.leaves)}
    values = {name: given(value) for name, value in statement.parameters.items()}
    flat = duck.run(statement.text(), tables, values, deadline, budget)
    return assemble(
        flat, checked.body.columns, statement.outputs, snapshot.catalog, snapshot.commit_id, tuple(access.warnings)
    )


def _rows(snapshot: Snapshot) -> dict[str, int]:
    """Rows per type as the commit record tells them."""
    sizes: dict[str, int] = {}
    for one in snapshot.catalog.types:
        pin = snapshot.record.pins.get(one.id)
        sizes[one.id] = pin.rows if pin else 0
    return sizes
