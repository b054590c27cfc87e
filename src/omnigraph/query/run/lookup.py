"""Answers that need no statement: one row by its key, the neighbours of one row over one hop, any few rows of a type,
the number of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language.bind import ValueResolver
from omnigraph.query.language.checked import AggregateCall, Entity, Prop
from omnigraph.query.limits import Budget
from omnigraph.query.plan.facts import entity_columns, point_column
from omnigraph.query.plan.nodes import Aggregation, Edges, Limit, NaturalJoin, Pairs, Plan, Project, Scan, Sort, TopK
from omnigraph.query.run.leaf_rows import ReadStep
from omnigraph.query.run.storage_filters import exact_ids, is_exact, to_filter
from omnigraph.query.run.traverse import edge_columns_at

Outputs = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class LookupResult:
    """A flat result, and how its rows were found."""

    flat: pa.Table
    steps: tuple[ReadStep, ...]


def try_lookup(
    plan: Plan, outputs: Outputs, snapshot: Snapshot, given: ValueResolver, budget: Budget
) -> LookupResult | None:
    """The flat result of a plan of one of these shapes; None for all others.

    The one condition of a lookup names a row by its id or key, so that finding the row is the whole of it. Rows of
    which any will do are taken only where storage decides their conditions exactly.
    """
    if isinstance(plan, Aggregation):
        return _try_count(plan, outputs, snapshot)
    return _Lookup(snapshot, given, budget).run(plan, outputs)


def _try_count(plan: Aggregation, outputs: Outputs, snapshot: Snapshot) -> LookupResult | None:
    """All rows of a type, counted: the commit record tells their number."""
    leaf = plan.input
    values = [column.value for column in plan.columns]
    counts = [one for one in values if isinstance(one, AggregateCall) and isinstance(one.argument, Entity)]
    if plan.keys or plan.weights or len(counts) < len(values) or any(one.distinct for one in counts):
        return None
    if not isinstance(leaf, (Scan, Edges)) or leaf.where or leaf.searches:
        return None
    if isinstance(leaf, Edges) and (leaf.direction == "either" or leaf.left == leaf.right):
        return None
    rows = snapshot.count(snapshot.catalog.by_id[leaf.type.type_id])
    flat = pa.table({name: pa.array([rows], pa.int64()) for (name,) in outputs})
    return LookupResult(flat, (ReadStep(leaf, "number of rows in the commit", rows),))


@dataclass(frozen=True)
class _Lookup:
    snapshot: Snapshot
    resolve_value: ValueResolver
    budget: Budget
    steps: list[ReadStep] = field(default_factory=list)

    def run(self, plan: Plan, outputs: Outputs) -> LookupResult | None:
        skip, take, ordered = 0, None, False
        while isinstance(plan, (Limit, Sort, TopK)):
            ordered = ordered or not isinstance(plan, Limit)
            if not isinstance(plan, Sort):
                skip = self.resolve_value(plan.offset) if plan.offset is not None else skip
                take = self.resolve_value(plan.limit) if plan.limit is not None else take
            plan = plan.input
        if not isinstance(plan, Project):
            return None
        if not all(isinstance(column.value, (Prop, Entity)) for column in plan.columns):
            return None
        most = None if take is None else skip + take
        rows = self._rows(plan.input, self._output_columns(plan), ordered=ordered, most=most)
        if rows is None:
            return None
        flat = self._flat(plan, outputs, rows)
        flat = flat.slice(skip, take) if take is not None else flat.slice(skip)
        return LookupResult(flat, tuple(self.steps))

    def _output_columns(self, plan: Project) -> Mapping[str, list[str]]:
        """The columns of each variable that the result shows."""
        found: dict[str, list[str]] = {}
        for column in plan.columns:
            assert isinstance(column.value, (Prop, Entity))
            found.setdefault(column.value.var, []).extend(self._source_columns(column.value))
        return {var: list(dict.fromkeys(names)) for var, names in found.items()}

    def _source_columns(self, value: Prop | Entity) -> tuple[str, ...]:
        if isinstance(value, Prop):
            return (value.column,)
        return entity_columns(self.snapshot.catalog.by_id[value.type.type_id])

    def _rows(
        self, plan: Plan, shown: Mapping[str, list[str]], *, ordered: bool, most: int | None
    ) -> Mapping[str, pa.Table] | None:
        """The rows of each variable, side by side. At most one row of a single lookup: its order is no question."""
        if isinstance(plan, Scan):
            ids = self._point_ids(plan)
            if ids is not None:
                return {plan.var: self._find_by_id(plan, ids, shown, "lookup by id")}
            found = None if ordered or most is None else self._any_rows(plan, shown, most)
            return None if found is None else {plan.var: found}
        if ordered or not isinstance(plan, NaturalJoin):
            return None
        scans = [one for one in plan.inputs if isinstance(one, Scan)]
        hops = [one for one in plan.inputs if isinstance(one, Pairs)]
        if len(hops) != 1 or len(scans) + 1 != len(plan.inputs) or hops[0].left == hops[0].right:
            return None
        start = next((one for one in scans if one.where), None)
        far = next((one for one in scans if one is not start), None)
        if start is None or (far is not None and (far.where or far.searches)):
            return None
        return self._neighbours(start, hops[0], far, shown)

    def _any_rows(self, scan: Scan, shown: Mapping[str, list[str]], most: int) -> pa.Table | None:
        """Any so many rows of the scan, unless storage might let others through."""
        if scan.searches or not all(is_exact(one, self.resolve_value) for one in scan.where):
            return None
        view = self.snapshot.view(self.snapshot.catalog.by_id[scan.type.type_id])
        found = view.scan(shown.get(scan.var) or ["id"], to_filter(scan.where, self.resolve_value), most)
        return self._note_step(scan, f"scan up to {most} rows", found)

    def _note_step(self, scan: Scan, access: str, found: pa.Table) -> pa.Table:
        if found.num_rows > 1:
            self.budget.take(found.nbytes)
        self.steps.append(ReadStep(scan, access, found.num_rows))
        return found

    def _point_ids(self, scan: Scan) -> list[str] | None:
        """The only id that the scan can have, in a list that is empty if there can be none."""
        one = self.snapshot.catalog.by_id[scan.type.type_id]
        if scan.searches or len(scan.where) != 1 or point_column(one, scan.where[0]) is None:
            return None
        return exact_ids(one, scan.where, self.resolve_value)

    def _find_by_id(self, scan: Scan, ids: list[str], shown: Mapping[str, list[str]], access: str) -> pa.Table:
        one = self.snapshot.catalog.by_id[scan.type.type_id]
        found = self.snapshot.view(one).find(ids, shown.get(scan.var) or ["id"])
        return self._note_step(scan, access, found)

    def _neighbours(
        self, start: Scan, hop: Pairs, far: Scan | None, shown: Mapping[str, list[str]]
    ) -> Mapping[str, pa.Table] | None:
        ids = self._point_ids(start)
        if ids is None:
            return None
        near = pa.table({"id": pa.array(ids, pa.utf8())})
        if set(shown.get(start.var, ())) - {"id"}:
            near = self._find_by_id(start, ids, shown, "lookup by id")
            ids = ids if near.num_rows else []
        view = self.snapshot.view(self.snapshot.catalog.by_id[hop.edge])
        parts = []
        for column in edge_columns_at(hop, start.var):
            other = "dst" if column == "src" else "src"
            parts.append(view.find_by(column, ids, [other])[other])
        ends = pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.utf8()).unique()
        self.steps.append(ReadStep(hop, f"lookup by {' and '.join(edge_columns_at(hop, start.var))}", len(ends)))
        name = hop.right if hop.left == start.var else hop.left
        found = pa.table({"id": ends})
        if far is not None:
            found = self._find_by_id(far, ends.to_pylist(), shown, f"lookup of {len(ends)} known ids")
        # One start for all neighbours; a start that does not exist has none, since edges never dangle.
        places = np.zeros(found.num_rows, np.int64)
        return {start.var: near.take(pa.array(places)), name: found}

    def _flat(self, plan: Project, outputs: Outputs, rows: Mapping[str, pa.Table]) -> pa.Table:
        flat: dict[str, pa.ChunkedArray] = {}
        for column, names in zip(plan.columns, outputs, strict=True):
            value = column.value
            assert isinstance(value, (Prop, Entity))
            sources = self._source_columns(value)
            flat |= {name: rows[value.var][source] for name, source in zip(names, sources, strict=True)}
        return pa.table(flat)
