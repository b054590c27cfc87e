"""Answers that need no statement: one row by its key, the neighbours of one row over one hop, any few rows of a type,
the number of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language import checked as c
from omnigraph.query.language.bind import Given
from omnigraph.query.limits import Budget
from omnigraph.query.plan import nodes as n
from omnigraph.query.plan.facts import point_column, shown_columns
from omnigraph.query.run.leaf_rows import Step
from omnigraph.query.run.push_filters import exact_ids, is_exact, to_filter
from omnigraph.query.run.traverse import columns_of

Outputs = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class LookedUp:
    """A flat result, and how its rows were found."""

    flat: pa.Table
    steps: tuple[Step, ...]


def looked_up(plan: n.Plan, outputs: Outputs, snapshot: Snapshot, given: Given, budget: Budget) -> LookedUp | None:
    """The flat result of a plan of one of these shapes; None for all others.

    The one condition of a lookup names a row by its id or key, so that finding the row is the whole of it. Rows of
    which any will do are taken only where storage decides their conditions exactly.
    """
    if isinstance(plan, n.Aggregate):
        return _counted(plan, outputs, snapshot)
    return _Lookup(snapshot, given, budget).run(plan, outputs)


def _counted(plan: n.Aggregate, outputs: Outputs, snapshot: Snapshot) -> LookedUp | None:
    """All rows of a type, counted: the commit record tells their number."""
    leaf = plan.input
    values = [column.value for column in plan.columns]
    counts = [one for one in values if isinstance(one, c.Aggregate) and isinstance(one.argument, c.Entity)]
    if plan.keys or plan.weights or len(counts) < len(values) or any(one.distinct for one in counts):
        return None
    if not isinstance(leaf, (n.Scan, n.Edges)) or leaf.where or leaf.computed:
        return None
    if isinstance(leaf, n.Edges) and (leaf.direction == "either" or leaf.left == leaf.right):
        return None
    rows = snapshot.count(snapshot.catalog.by_id[leaf.type.type_id])
    flat = pa.table({name: pa.array([rows], pa.int64()) for (name,) in outputs})
    return LookedUp(flat, (Step(leaf, "number of rows in the commit", rows),))


@dataclass(frozen=True)
class _Lookup:
    snapshot: Snapshot
    given: Given
    budget: Budget
    steps: list[Step] = field(default_factory=list)

    def run(self, plan: n.Plan, outputs: Outputs) -> LookedUp | None:
        skip, take, ordered = 0, None, False
        while isinstance(plan, (n.Limit, n.Sort, n.TopK)):
            ordered = ordered or not isinstance(plan, n.Limit)
            if not isinstance(plan, n.Sort):
                skip = self.given(plan.offset) if plan.offset is not None else skip
                take = self.given(plan.limit) if plan.limit is not None else take
            plan = plan.input
        if not isinstance(plan, n.Project):
            return None
        if not all(isinstance(column.value, (c.Prop, c.Entity)) for column in plan.columns):
            return None
        most = None if take is None else skip + take
        rows = self._rows(plan.input, self._shown(plan), ordered=ordered, most=most)
        if rows is None:
            return None
        flat = self._flat(plan, outputs, rows)
        flat = flat.slice(skip, take) if take is not None else flat.slice(skip)
        return LookedUp(flat, tuple(self.steps))

    def _shown(self, plan: n.Project) -> Mapping[str, list[str]]:
        """The columns of each variable that the result shows."""
        found: dict[str, list[str]] = {}
        for column in plan.columns:
            assert isinstance(column.value, (c.Prop, c.Entity))
            found.setdefault(column.value.var, []).extend(self._sources(column.value))
        return {var: list(dict.fromkeys(names)) for var, names in found.items()}

    def _sources(self, value: c.Prop | c.Entity) -> tuple[str, ...]:
        if isinstance(value, c.Prop):
            return (value.column,)
        return shown_columns(self.snapshot.catalog.by_id[value.type.type_id])

    def _rows(
        self, plan: n.Plan, shown: Mapping[str, list[str]], *, ordered: bool, most: int | None
    ) -> Mapping[str, pa.Table] | None:
        """The rows of each variable, side by side. At most one row of a single lookup: its order is no question."""
        if isinstance(plan, n.Scan):
            ids = self._point(plan)
            if ids is not None:
                return {plan.var: self._found(plan, ids, shown, "lookup by id")}
            found = None if ordered or most is None else self._some(plan, shown, most)
            return None if found is None else {plan.var: found}
        if ordered or not isinstance(plan, n.Join):
            return None
        scans = [one for one in plan.inputs if isinstance(one, n.Scan)]
        hops = [one for one in plan.inputs if isinstance(one, n.Pairs)]
        if len(hops) != 1 or len(scans) + 1 != len(plan.inputs) or hops[0].left == hops[0].right:
            return None
        start = next((one for one in scans if one.where), None)
        far = next((one for one in scans if one is not start), None)
        if start is None or (far is not None and (far.where or far.computed)):
            return None
        return self._neighbours(start, hops[0], far, shown)

    def _some(self, scan: n.Scan, shown: Mapping[str, list[str]], most: int) -> pa.Table | None:
        """Any so many rows of the scan, unless storage might let others through."""
        if scan.computed or not all(is_exact(one, self.given) for one in scan.where):
            return None
        view = self.snapshot.view(self.snapshot.catalog.by_id[scan.type.type_id])
        found = view.scan(shown.get(scan.var) or ["id"], to_filter(scan.where, self.given), most)
        return self._taken(scan, f"scan up to {most} rows", found)

    def _taken(self, scan: n.Scan, access: str, found: pa.Table) -> pa.Table:
        if found.num_rows > 1:
            self.budget.take(found.nbytes)
        self.steps.append(Step(scan, access, found.num_rows))
        return found

    def _point(self, scan: n.Scan) -> list[str] | None:
        """The only id that the scan can have, in a list that is empty if there can be none."""
        one = self.snapshot.catalog.by_id[scan.type.type_id]
        if scan.computed or len(scan.where) != 1 or point_column(one, scan.where[0]) is None:
            return None
        return exact_ids(one, scan.where, self.given)

    def _found(self, scan: n.Scan, ids: list[str], shown: Mapping[str, list[str]], access: str) -> pa.Table:
        one = self.snapshot.catalog.by_id[scan.type.type_id]
        found = self.snapshot.view(one).find(ids, shown.get(scan.var) or ["id"])
        return self._taken(scan, access, found)

    def _neighbours(
        self, start: n.Scan, hop: n.Pairs, far: n.Scan | None, shown: Mapping[str, list[str]]
    ) -> Mapping[str, pa.Table] | None:
        ids = self._point(start)
        if ids is None:
            return None
        near = pa.table({"id": pa.array(ids, pa.utf8())})
        if set(shown.get(start.var, ())) - {"id"}:
            near = self._found(start, ids, shown, "lookup by id")
            ids = ids if near.num_rows else []
        view = self.snapshot.view(self.snapshot.catalog.by_id[hop.edge])
        parts = []
        for column in columns_of(hop, start.var):
            other = "dst" if column == "src" else "src"
            parts.append(view.find_by(column, ids, [other])[other])
        ends = pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.utf8()).unique()
        self.steps.append(Step(hop, f"lookup by {' and '.join(columns_of(hop, start.var))}", len(ends)))
        name = hop.right if hop.left == start.var else hop.left
        found = pa.table({"id": ends})
        if far is not None:
            found = self._found(far, ends.to_pylist(), shown, f"lookup of {len(ends)} known ids")
        # One start for all neighbours; a start that does not exist has none, since edges never dangle.
        places = np.zeros(found.num_rows, np.int64)
        return {start.var: near.take(pa.array(places)), name: found}

    def _flat(self, plan: n.Project, outputs: Outputs, rows: Mapping[str, pa.Table]) -> pa.Table:
        flat: dict[str, pa.ChunkedArray] = {}
        for column, names in zip(plan.columns, outputs, strict=True):
            value = column.value
            assert isinstance(value, (c.Prop, c.Entity))
            sources = self._sources(value)
            flat |= {name: rows[value.var][source] for name, source in zip(names, sources, strict=True)}
        return pa.table(flat)
