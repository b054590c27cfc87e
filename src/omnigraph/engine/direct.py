"""A lookup by key needs no statement: one row of one table, found by its id, and some of its columns."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.engine.pushdown import Given, exact_ids
from omnigraph.lang.query import checked as c
from omnigraph.log.snapshot import Snapshot
from omnigraph.plan import nodes as n
from omnigraph.plan.facts import point_column, shown_columns


def looked_up(plan: n.Plan, outputs: tuple[tuple[str, ...], ...], snapshot: Snapshot, given: Given) -> pa.Table | None:
    """The flat result of a plan that names one row by its id or key and returns columns of it; None for other plans."""
    skip, take = 0, 1
    while isinstance(plan, (n.Limit, n.Sort, n.TopK)):
        # At most one row: its order is no question.
        if not isinstance(plan, n.Sort):
            skip = given(plan.offset) if plan.offset is not None else skip
            take = given(plan.limit) if plan.limit is not None else take
        plan = plan.input
    if not isinstance(plan, n.Project) or not isinstance(plan.input, n.Scan):
        return None
    scan = plan.input
    one = snapshot.catalog.by_id[scan.type.type_id]
    if scan.computed or len(scan.where) != 1 or point_column(one, scan.where[0]) is None:
        return None
    ids = exact_ids(one, scan.where, given)
    if ids is None or not all(isinstance(column.value, (c.Prop, c.Entity)) for column in plan.columns):
        return None
    rows = snapshot.view(one).find(ids, list(dict.fromkeys(("id", *scan.columns)))).slice(skip, take)
    flat: dict[str, pa.ChunkedArray] = {}
    for column, names in zip(plan.columns, outputs, strict=True):
        value = column.value
        sources = shown_columns(one) if isinstance(value, c.Entity) else (value.column,)  # type: ignore[union-attr]
        flat |= {name: rows[source] for name, source in zip(names, sources, strict=True)}
    return pa.table(flat)
