"""Answers small queries without SQL: one row by key, neighbours of one row over one hop, any few rows, a row count."""

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
    """A result in flat columns, and the steps that read it."""

    flat: pa.Table
    steps: tuple[ReadStep, ...]


def try_lookup(
    plan: Plan, outputs: Outputs, snapshot: Snapshot, resolve_value: ValueResolver, budget: Budget
) -> LookupResult | None:
    """Returns the flat result of a plan of one of these forms; None for every other plan.

    The only condition of a lookup fixes the id or key of a row, so that finding the row decides the condition too. A
    limit without an order takes any rows, but only if storage evaluates the conditions exactly.
    """
    if isinstance(plan, Aggregation):
        return _try_count(plan, outputs, snapshot)
    return _Lookup(snapshot, resolve_value, budget).run(plan, outputs)


def _try_count(plan: Aggregation, outputs: Outputs, snapshot: Snapshot) -> LookupResult | None:
    """Counts all rows of a type: the commit record contains the number."""
    leaf = plan.input
    values = [column.value for column in plan.columns]
    counts = [value for value in values if isinstance(value, AggregateCall) and isinstance(value.argument, Entity)]
    if plan.keys or plan.weights or len(counts) < len(values) or any(count.distinct for count in counts):
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
    """One attempt to answer a plan by lookups; `columns` arguments are the result's columns of each variable."""

    snapshot: Snapshot
    resolve_value: ValueResolver
    budget: Budget
    steps: list[ReadStep] = field(default_factory=list)

    def run(self, plan: Plan, outputs: Outputs) -> LookupResult | None:
        offset, limit, is_ordered = 0, None, False
        while isinstance(plan, (Limit, Sort, TopK)):
            is_ordered = is_ordered or not isinstance(plan, Limit)
            if not isinstance(plan, Sort):
                offset = self.resolve_value(plan.offset) if plan.offset is not None else offset
                limit = self.resolve_value(plan.limit) if plan.limit is not None else limit
            plan = plan.input
        if not isinstance(plan, Project):
            return None
        if not all(isinstance(column.value, (Prop, Entity)) for column in plan.columns):
            return None
        max_rows = None if limit is None else offset + limit
        rows = self._rows(plan.input, self._output_columns(plan), is_ordered=is_ordered, max_rows=max_rows)
        if rows is None:
            return None
        flat = self._flat(plan, outputs, rows)
        flat = flat.slice(offset, limit) if limit is not None else flat.slice(offset)
        return LookupResult(flat, tuple(self.steps))

    def _output_columns(self, plan: Project) -> Mapping[str, list[str]]:
        """Returns the columns of each variable that the result contains."""
        columns: dict[str, list[str]] = {}
        for column in plan.columns:
            assert isinstance(column.value, (Prop, Entity))
            columns.setdefault(column.value.var, []).extend(self._source_columns(column.value))
        return {var: list(dict.fromkeys(names)) for var, names in columns.items()}

    def _source_columns(self, value: Prop | Entity) -> tuple[str, ...]:
        if isinstance(value, Prop):
            return (value.column,)
        return entity_columns(self.snapshot.catalog.by_id[value.type.type_id])

    def _rows(
        self, plan: Plan, columns: Mapping[str, list[str]], *, is_ordered: bool, max_rows: int | None
    ) -> Mapping[str, pa.Table] | None:
        """Returns the rows of each variable, side by side. A lookup by id has at most one row and needs no order."""
        if isinstance(plan, Scan):
            ids = self._point_ids(plan)
            if ids is not None:
                return {plan.var: self._find_by_id(plan, ids, columns, "lookup by id")}
            rows = None if is_ordered or max_rows is None else self._any_rows(plan, columns, max_rows)
            return None if rows is None else {plan.var: rows}
        if is_ordered or not isinstance(plan, NaturalJoin):
            return None
        scans = [child for child in plan.inputs if isinstance(child, Scan)]
        hops = [child for child in plan.inputs if isinstance(child, Pairs)]
        if len(hops) != 1 or len(scans) + 1 != len(plan.inputs) or hops[0].left == hops[0].right:
            return None
        start = next((scan for scan in scans if scan.where), None)
        far = next((scan for scan in scans if scan is not start), None)
        if start is None or (far is not None and (far.where or far.searches)):
            return None
        return self._neighbours(start, hops[0], far, columns)

    def _any_rows(self, scan: Scan, columns: Mapping[str, list[str]], max_rows: int) -> pa.Table | None:
        """Returns any `max_rows` rows of the scan; None if storage might pass rows that do not satisfy it."""
        if scan.searches or not all(is_exact(condition, self.resolve_value) for condition in scan.where):
            return None
        view = self.snapshot.view(self.snapshot.catalog.by_id[scan.type.type_id])
        where = to_filter(scan.where, self.resolve_value)
        rows = view.scan(columns.get(scan.var) or ["id"], where, max_rows)
        return self._note_step(scan, f"scan up to {max_rows} rows", rows)

    def _note_step(self, scan: Scan, access: str, rows: pa.Table) -> pa.Table:
        if rows.num_rows > 1:
            self.budget.take(rows.nbytes)
        self.steps.append(ReadStep(scan, access, rows.num_rows))
        return rows

    def _point_ids(self, scan: Scan) -> list[str] | None:
        """Returns the only id that the scan can match, or no id if nothing can; None if its condition fixes no id."""
        type_def = self.snapshot.catalog.by_id[scan.type.type_id]
        if scan.searches or len(scan.where) != 1 or point_column(type_def, scan.where[0]) is None:
            return None
        return exact_ids(type_def, scan.where, self.resolve_value)

    def _find_by_id(self, scan: Scan, ids: list[str], columns: Mapping[str, list[str]], access: str) -> pa.Table:
        type_def = self.snapshot.catalog.by_id[scan.type.type_id]
        return self._note_step(scan, access, self.snapshot.view(type_def).find(ids, columns.get(scan.var) or ["id"]))

    def _neighbours(
        self, start: Scan, hop: Pairs, far: Scan | None, columns: Mapping[str, list[str]]
    ) -> Mapping[str, pa.Table] | None:
        ids = self._point_ids(start)
        if ids is None:
            return None
        near_rows = pa.table({"id": pa.array(ids, pa.utf8())})
        if set(columns.get(start.var, ())) - {"id"}:
            near_rows = self._find_by_id(start, ids, columns, "lookup by id")
            ids = ids if near_rows.num_rows else []
        view = self.snapshot.view(self.snapshot.catalog.by_id[hop.edge])
        near_columns = edge_columns_at(hop, start.var)
        parts = []
        for near_column in near_columns:
            far_column = "dst" if near_column == "src" else "src"
            parts.append(view.find_by(near_column, ids, [far_column])[far_column])
        far_ids = pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.utf8()).unique()
        self.steps.append(ReadStep(hop, f"lookup by {' and '.join(near_columns)}", len(far_ids)))
        far_var = hop.right if hop.left == start.var else hop.left
        far_rows = pa.table({"id": far_ids})
        if far is not None:
            far_rows = self._find_by_id(far, far_ids.to_pylist(), columns, f"lookup of {len(far_ids)} known ids")
        # All neighbours belong to the one start row. A start that does not exist has none, since edges never dangle.
        positions = np.zeros(far_rows.num_rows, np.int64)
        return {start.var: near_rows.take(pa.array(positions)), far_var: far_rows}

    def _flat(self, plan: Project, outputs: Outputs, rows: Mapping[str, pa.Table]) -> pa.Table:
        flat: dict[str, pa.ChunkedArray] = {}
        for column, names in zip(plan.columns, outputs, strict=True):
            value = column.value
            assert isinstance(value, (Prop, Entity))
            sources = self._source_columns(value)
            flat |= {name: rows[value.var][source] for name, source in zip(names, sources, strict=True)}
        return pa.table(flat)
