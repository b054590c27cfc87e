"""Access with ids as keys: lookups through the store's indexes, and scans with pushed filters."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.adjacency.column_cache import CachedTableKey, ColumnCache
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.table_view import TableView
from omnigraph.query.language.bind import ValueResolver
from omnigraph.query.limits import Budget, Deadline, QueryLimits
from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.nodes import Degrees, Edges, HopLeaf, Pairs, Reach, Scan
from omnigraph.query.run.leaf_rows import PROBE_KEYS, KnownKeys, LeafRows, cheapest_end, to_positional_columns
from omnigraph.query.run.push_filters import exact_ids, to_filter
from omnigraph.query.run.traverse import (
    BoundedReach,
    HopBounds,
    ceiling_warning,
    distinct_pairs,
    drop_repeated_ids,
    edge_columns_at,
    orient_edges,
)
from omnigraph.query.search.search_columns import Searcher, searched_columns, text_filter_mask
from omnigraph.schema.catalog import Catalog, TypeDef


@dataclass
class IdAccess:
    """Keys are the users' ids."""

    snapshot: Snapshot
    column_cache: ColumnCache
    searcher: Searcher
    resolve_value: ValueResolver
    deadline: Deadline
    budget: Budget
    limits: QueryLimits
    facts: Facts
    warnings: list[str] = field(default_factory=list)

    @property
    def _catalog(self) -> Catalog:
        return self.snapshot.catalog

    def scan(self, leaf: Scan, known: KnownKeys) -> LeafRows:
        one = self._catalog.by_id[leaf.type.type_id]
        view = self.snapshot.view(one)
        rows, access, whole = self._rows(leaf, one, view, known.get(leaf.var))
        searched = self.searcher.columns(leaf, rows, CachedTableKey.of(one.id, view), view, whole=whole)
        kept = text_filter_mask(leaf, searched)
        table = to_positional_columns(rows.append_column("k", rows["id"]), leaf.columns, searched, ["k"])
        return LeafRows(self._count_bytes(table if kept is None else table.filter(kept)), access)

    def _rows(self, leaf: Scan, one: TypeDef, view: TableView, known: pa.Array | None) -> tuple[pa.Table, str, bool]:
        """Rows with the id and all columns that the leaf needs; whether they are the whole table in image order."""
        columns = list(dict.fromkeys(("id", *leaf.columns, *searched_columns(leaf))))
        ids = exact_ids(one, leaf.where, self.resolve_value)
        if ids is not None:
            return view.find(ids, columns), "lookup by id", False
        if known is not None:
            return view.find(known.to_pylist(), columns), f"lookup of {len(known)} known ids", False
        if leaf.searches:
            return self.column_cache.columns(CachedTableKey.of(one.id, view), view, columns), "search", True
        where = to_filter(leaf.where, self.resolve_value)
        return view.scan(columns, where), "scan" if where is None else "filtered scan", False

    def edges(self, leaf: Pairs | Edges, known: KnownKeys) -> LeafRows:
        one = self._catalog.by_id[leaf.type.type_id if isinstance(leaf, Edges) else leaf.edge]
        view = self.snapshot.view(one)
        if isinstance(leaf, Pairs):
            rows, access, _ = self._edge_rows(leaf, one, view, ["id", "src", "dst"], known)
            table = orient_edges(rows, (), leaf)
            return LeafRows(
                self._count_bytes(_with_ids(distinct_pairs(table) if leaf.distinct else table, leaf)), access
            )
        columns = list(dict.fromkeys(("id", "src", "dst", *leaf.columns, *searched_columns(leaf))))
        rows, access, whole = self._edge_rows(leaf, one, view, columns, known)
        searched = self.searcher.columns(leaf, rows, CachedTableKey.of(one.id, view), view, whole=whole)
        kept = text_filter_mask(leaf, searched)
        flat = to_positional_columns(rows, leaf.columns, searched, ["id", "src", "dst"])
        flat = flat if kept is None else flat.filter(kept)
        names = [name for name in flat.column_names if name not in ("src", "dst")]
        table = orient_edges(flat, names, leaf)
        table = table.rename_columns(["k" if name == "id" else name for name in table.column_names])
        return LeafRows(self._count_bytes(_with_ids(table, leaf)), access)

    def _edge_rows(
        self, leaf: Pairs | Edges, one: TypeDef, view: TableView, columns: list[str], known: KnownKeys
    ) -> tuple[pa.Table, str, bool]:
        where = leaf.where if isinstance(leaf, Edges) else ()
        ids = exact_ids(one, where, self.resolve_value)
        if ids is not None:
            return view.find(ids, columns), "lookup by id", False
        end = cheapest_end(leaf, known, self.facts)
        if end is not None:
            return *self._edges_at(leaf, end, known[end], view, columns), False
        if isinstance(leaf, Edges) and leaf.searches:
            return self.column_cache.columns(CachedTableKey.of(one.id, view), view, columns), "search", True
        pushed = to_filter(where, self.resolve_value)
        return view.scan(columns, pushed), "scan" if pushed is None else "filtered scan", False

    def _edges_at(
        self, leaf: HopLeaf, end: str, keys: pa.Array, view: TableView, columns: list[str]
    ) -> tuple[pa.Table, str]:
        wanted = keys.to_pylist()
        names = edge_columns_at(leaf, end)
        parts = [view.find_by(name, wanted, columns) for name in names]
        rows = parts[0] if len(parts) == 1 else drop_repeated_ids(pa.concat_tables(parts))
        return rows, f"lookup by {' and '.join(names)} of {len(wanted)} known ids"

    def reach(self, leaf: Reach, known: KnownKeys) -> LeafRows:
        bounds = HopBounds.of(leaf, self.limits)
        view = self.snapshot.view(self._catalog.by_id[leaf.edge])
        known_end = cheapest_end(leaf, known, self.facts)
        start = known_end or leaf.left
        columns = ["id", "src", "dst"]

        def edges_from(keys: pa.Array | None) -> pa.Table:
            if keys is None or len(keys) > PROBE_KEYS:
                rows = self.column_cache.columns(CachedTableKey.of(leaf.edge, view), view, columns)
            else:
                rows, _ = self._edges_at(leaf, start, keys, view, columns)
            table = orient_edges(rows, (), leaf)
            return table if start == leaf.left else table.rename_columns(["r", "l"]).select(["l", "r"])

        pairs, cut = BoundedReach(bounds, self.deadline, self.budget).run(known.get(start), edges_from)
        if cut:
            self.warnings.append(ceiling_warning(bounds))
        if start != leaf.left:
            pairs = pairs.rename_columns(["r", "l"]).select(["l", "r"])
        place = "everywhere" if known_end is None else f"{len(known[start])} known ids"
        return LeafRows(_with_ids(pairs, leaf), f"breadth first from {place}")

    def degrees(self, leaf: Degrees, known: KnownKeys) -> LeafRows:
        """Counted from the pairs; the other end gets a name that no variable can have."""
        ends = (leaf.var, "#") if leaf.end == "left" else ("#", leaf.var)
        pairs = self.edges(Pairs(*ends, leaf.edge, leaf.direction), known)
        column = "l" if leaf.end == "left" else "r"
        counted = pairs.table.group_by(column).aggregate([(column, "count")])
        table = pa.table({"k": counted[column], "w": counted[f"{column}_count"]})
        return LeafRows(table.append_column("ki", table["k"]) if leaf.ids else table, pairs.access)

    def _count_bytes(self, table: pa.Table) -> pa.Table:
        self.budget.take(table.nbytes)
        return table


def _with_ids(table: pa.Table, leaf: HopLeaf) -> pa.Table:
    for end, name in ((leaf.left, "l"), (leaf.right, "r")):
        if end in leaf.ids:
            table = table.append_column(f"{name}i", table[name])
    return table
