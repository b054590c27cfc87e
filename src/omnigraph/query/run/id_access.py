"""Reads leaves with ids as keys: lookups through the indexes of the store, and scans with pushed filters."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.adjacency.column_cache import CachedTableKey
from omnigraph.log.table_view import TableView
from omnigraph.query.plan.leaf_columns import DEGREE, ENTITY, LEFT_END, RIGHT_END
from omnigraph.query.plan.nodes import Degrees, Edges, HopLeaf, Pairs, Reach, Scan
from omnigraph.query.run.leaf_rows import (
    PROBE_KEYS,
    KnownKeys,
    LeafAccess,
    LeafRows,
    cheapest_end,
    to_positional_columns,
)
from omnigraph.query.run.storage_filters import exact_ids, to_filter
from omnigraph.query.run.traverse import (
    BoundedReach,
    HopBounds,
    ceiling_warning,
    distinct_pairs,
    drop_repeated_ids,
    edge_columns_at,
    orient_edges,
)
from omnigraph.query.search.search_columns import columns_to_search, text_filter_mask
from omnigraph.schema.catalog import Catalog, TypeDef


class IdAccess(LeafAccess):
    """The `LeafAccess` whose keys are the ids that users see."""

    @property
    def _catalog(self) -> Catalog:
        return self.snapshot.catalog

    def scan(self, leaf: Scan, known_keys: KnownKeys) -> LeafRows:
        type_def = self._catalog.by_id[leaf.type.type_id]
        view = self.snapshot.view(type_def)
        rows, access, is_whole = self._node_rows(leaf, type_def, view, known_keys.get(leaf.var))
        searches = self.searcher.columns(leaf, rows, CachedTableKey.of(type_def.id, view), view, is_whole=is_whole)
        mask = text_filter_mask(leaf, searches)
        rows = rows.append_column(ENTITY.key, rows["id"])
        table = to_positional_columns(rows, leaf.columns, searches, [ENTITY.key])
        return LeafRows(self.count_bytes(table if mask is None else table.filter(mask)), access)

    def _node_rows(
        self, leaf: Scan, type_def: TypeDef, view: TableView, known_ids: pa.Array | None
    ) -> tuple[pa.Table, str, bool]:
        """Returns the id and all columns that the leaf needs, and whether these are the whole cached table in order."""
        columns = list(dict.fromkeys(("id", *leaf.columns, *columns_to_search(leaf))))
        ids = exact_ids(type_def, leaf.where, self.resolve_value)
        if ids is not None:
            return view.find(ids, columns), "lookup by id", False
        if known_ids is not None:
            return view.find(known_ids.to_pylist(), columns), f"lookup of {len(known_ids)} known ids", False
        if leaf.searches:
            return self.column_cache.columns(CachedTableKey.of(type_def.id, view), view, columns), "search", True
        where = to_filter(leaf.where, self.resolve_value)
        return view.scan(columns, where), "scan" if where is None else "filtered scan", False

    def edges(self, leaf: Pairs | Edges, known_keys: KnownKeys) -> LeafRows:
        type_def = self._catalog.by_id[leaf.type.type_id if isinstance(leaf, Edges) else leaf.edge]
        view = self.snapshot.view(type_def)
        if isinstance(leaf, Pairs):
            rows, access, _ = self._edge_rows(leaf, type_def, view, ["id", "src", "dst"], known_keys)
            table = orient_edges(rows, (), leaf)
            table = distinct_pairs(table) if leaf.distinct else table
            return LeafRows(self.count_bytes(_add_ids(table, leaf)), access)
        columns = list(dict.fromkeys(("id", "src", "dst", *leaf.columns, *columns_to_search(leaf))))
        rows, access, is_whole = self._edge_rows(leaf, type_def, view, columns, known_keys)
        searches = self.searcher.columns(leaf, rows, CachedTableKey.of(type_def.id, view), view, is_whole=is_whole)
        mask = text_filter_mask(leaf, searches)
        flat = to_positional_columns(rows, leaf.columns, searches, ["id", "src", "dst"])
        flat = flat if mask is None else flat.filter(mask)
        table = orient_edges(flat, [name for name in flat.column_names if name not in ("src", "dst")], leaf)
        table = table.rename_columns([ENTITY.key if name == "id" else name for name in table.column_names])
        return LeafRows(self.count_bytes(_add_ids(table, leaf)), access)

    def _edge_rows(
        self, leaf: Pairs | Edges, type_def: TypeDef, view: TableView, columns: list[str], known_keys: KnownKeys
    ) -> tuple[pa.Table, str, bool]:
        """Returns the edges that the leaf needs, and whether these are the whole cached table in order."""
        where = leaf.where if isinstance(leaf, Edges) else ()
        ids = exact_ids(type_def, where, self.resolve_value)
        if ids is not None:
            return view.find(ids, columns), "lookup by id", False
        end = cheapest_end(leaf, known_keys, self.facts)
        if end is not None:
            return *self._edges_at(leaf, end, known_keys[end], view, columns), False
        if isinstance(leaf, Edges) and leaf.searches:
            return self.column_cache.columns(CachedTableKey.of(type_def.id, view), view, columns), "search", True
        pushed = to_filter(where, self.resolve_value)
        return view.scan(columns, pushed), "scan" if pushed is None else "filtered scan", False

    def _edges_at(
        self, leaf: HopLeaf, end: str, keys: pa.Array, view: TableView, columns: list[str]
    ) -> tuple[pa.Table, str]:
        node_ids = keys.to_pylist()
        end_columns = edge_columns_at(leaf, end)
        parts = [view.find_by(column, node_ids, columns) for column in end_columns]
        rows = parts[0] if len(parts) == 1 else drop_repeated_ids(pa.concat_tables(parts))
        return rows, f"lookup by {' and '.join(end_columns)} of {len(node_ids)} known ids"

    def reach(self, leaf: Reach, known_keys: KnownKeys) -> LeafRows:
        bounds = HopBounds.of(leaf, self.limits)
        view = self.snapshot.view(self._catalog.by_id[leaf.edge])
        known_end = cheapest_end(leaf, known_keys, self.facts)
        start = known_end or leaf.left
        columns = ["id", "src", "dst"]

        def edges_from(keys: pa.Array | None) -> pa.Table:
            if keys is None or len(keys) > PROBE_KEYS:
                rows = self.column_cache.columns(CachedTableKey.of(leaf.edge, view), view, columns)
            else:
                rows, _ = self._edges_at(leaf, start, keys, view, columns)
            table = orient_edges(rows, (), leaf)
            return table if start == leaf.left else _swap_ends(table)

        reach = BoundedReach(bounds, self.deadline, self.budget)
        pairs, is_cut = reach.reach_ids(known_keys.get(start), edges_from)
        if is_cut:
            self.warnings.append(ceiling_warning(bounds))
        if start != leaf.left:
            pairs = _swap_ends(pairs)
        origin = "everywhere" if known_end is None else f"{len(known_keys[start])} known ids"
        return LeafRows(_add_ids(pairs, leaf), f"breadth first from {origin}")

    def degrees(self, leaf: Degrees, known_keys: KnownKeys) -> LeafRows:
        """Counts pairs; the counted end gets a name that no variable can have."""
        ends = (leaf.var, "#") if leaf.end == "left" else ("#", leaf.var)
        pairs = self.edges(Pairs(*ends, leaf.edge, leaf.direction), known_keys)
        column = LEFT_END.key if leaf.end == "left" else RIGHT_END.key
        counts = pairs.table.group_by(column).aggregate([(column, "count")])
        table = pa.table({ENTITY.key: counts[column], DEGREE: counts[f"{column}_count"]})
        return LeafRows(table.append_column(ENTITY.id, table[ENTITY.key]) if leaf.ids else table, pairs.access)


def _swap_ends(pairs: pa.Table) -> pa.Table:
    return pairs.rename_columns([RIGHT_END.key, LEFT_END.key]).select([LEFT_END.key, RIGHT_END.key])


def _add_ids(table: pa.Table, leaf: HopLeaf) -> pa.Table:
    for var, end in ((leaf.left, LEFT_END), (leaf.right, RIGHT_END)):
        if var in leaf.ids:
            table = table.append_column(end.id, table[end.key])
    return table
