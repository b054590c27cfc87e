"""The two ways to read the leaves of a plan.

`IdAccess` takes ids as keys and reads only the rows needed. `CodeAccess` takes codes and reads from the column cache.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from omnigraph.adjacency.coded_tables import CodedTables
from omnigraph.adjacency.column_cache import CachedTableKey
from omnigraph.adjacency.reachability import unique_values
from omnigraph.log.table_view import TableView
from omnigraph.query.plan.leaf_columns import DEGREE, ENTITY, LEFT_END, RIGHT_END, property_column
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
    Int64Array,
    ceiling_warning,
    distinct_pairs,
    drop_repeated_ids,
    edge_columns_at,
    orient_edges,
)
from omnigraph.query.search.search_columns import columns_to_search, text_filter_mask
from omnigraph.schema.catalog import Catalog, TypeDef

#: A filter that is estimated to select less than this share of the rows is applied before the statement runs.
_SELECTIVE = 0.05
#: Ends of coded edges before they are oriented. No property has such a column: its id always has a suffix.
_SOURCE, _TARGET = "s", "t"
#: If the known keys are more than 1 / `_WHOLE_RATIO` of all nodes, the cached whole table is used instead.
_WHOLE_RATIO = 4


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
        """Counts the pairs of each node. The other end is named `#`, which is the name of no variable."""
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


class CodeAccess(LeafAccess):
    """The `LeafAccess` whose keys are codes. Whole tables are shared with the cache and not charged to the query."""

    @cached_property
    def _coded_tables(self) -> CodedTables:
        return CodedTables(self.snapshot, self.column_cache)

    def scan(self, leaf: Scan, known_keys: KnownKeys) -> LeafRows:
        coded_tables = self._coded_tables
        type_def, view, key = coded_tables.table(leaf.type.type_id)
        ids = exact_ids(type_def, leaf.where, self.resolve_value)
        codes, access = known_keys.get(leaf.var), "known nodes"
        if ids is not None:
            codes, access = coded_tables.codes_of_ids(type_def.id, ids), "lookup by id"
        if codes is None and not leaf.searches and not self._is_selective(leaf):
            return LeafRows(self._whole_table(leaf), "whole table", is_whole_table=True)
        names = list(dict.fromkeys((*leaf.columns, *columns_to_search(leaf))))
        rows = self.column_cache.columns(key, view, names) if names else None
        keys = coded_tables.all_codes(type_def.id) if codes is None else codes
        if rows is not None and codes is not None:
            rows = rows.take(codes)
        table = pa.table({ENTITY.key: keys}) if rows is None else rows.append_column(ENTITY.key, keys)
        searches = self.searcher.columns(leaf, table, key, view, is_whole=codes is None)
        mask = text_filter_mask(leaf, searches)
        table = to_positional_columns(table, leaf.columns, searches, [ENTITY.key])
        if mask is not None:
            table, access = table.filter(mask), "search"
        elif codes is None:
            table, access = self._filter_rows(leaf, table), "filter"
        return LeafRows(self.count_bytes(table), access)

    def _whole_table(self, leaf: Scan) -> pa.Table:
        """Returns the cached table with columns named by position.

        It is always the same object, so that DuckDB registers it once.
        """
        type_def, view, key = self._coded_tables.table(leaf.type.type_id)

        def make() -> pa.Table:
            columns = self.column_cache.columns(key, view, leaf.columns) if leaf.columns else None
            data = {ENTITY.key: self._coded_tables.all_codes(type_def.id)}
            if columns is not None:
                data |= {property_column(position): columns[name] for position, name in enumerate(leaf.columns)}
            return pa.table(data)

        return self.column_cache.derive(key, ("whole", leaf.columns), make)

    def _is_selective(self, leaf: Scan) -> bool:
        rows = self.facts.rows.get(leaf.type.type_id, 0)
        return bool(leaf.where) and self.facts.estimate(leaf) < rows * _SELECTIVE

    def _filter_rows(self, leaf: Scan, table: pa.Table) -> pa.Table:
        where = to_filter(leaf.where, self.resolve_value)
        if where is None:
            return table
        property_of = {property_column(position): name for position, name in enumerate(leaf.columns)}
        renamed = table.rename_columns([property_of.get(name, name) for name in table.column_names])
        return renamed.filter(where).rename_columns(table.column_names)

    # ---- hops --------------------------------------------------------------------------------------------------------

    def edges(self, leaf: Pairs | Edges, known_keys: KnownKeys) -> LeafRows:
        end = self._start_end(leaf, known_keys)
        if isinstance(leaf, Edges):
            return self._edge_rows(leaf, known_keys, end)
        if end is None:
            return LeafRows(self._all_pairs(leaf), "whole adjacency", is_whole_table=True)
        backwards = end != leaf.left
        graph = self._coded_tables.adjacency(leaf.edge, leaf.direction, distinct=leaf.distinct, backwards=backwards)
        start = np.asarray(known_keys[end]).astype(np.int64)
        positions, neighbours = graph.neighbours(start)
        table = _pairs_table(start[positions], neighbours, backwards=backwards)
        table = self.count_bytes(self._add_ids(table, leaf.edge, leaf))
        return LeafRows(table, f"adjacency of {len(start)} known nodes")

    def _start_end(self, leaf: HopLeaf, known_keys: KnownKeys) -> str | None:
        """Returns the end with known keys to start from, or None if the whole table is as good."""
        end = cheapest_end(leaf, known_keys, self.facts)
        if end is None:
            return None
        edge = leaf.type.type_id if isinstance(leaf, Edges) else leaf.edge
        nodes = self._coded_tables.sizes(edge, leaf.direction)[0 if end == leaf.left else 1]
        return end if len(known_keys[end]) * _WHOLE_RATIO < nodes else None

    def _all_pairs(self, leaf: Pairs) -> pa.Table:
        def make() -> pa.Table:
            pairs = self._coded_tables.pairs(leaf.edge, leaf.direction, distinct=leaf.distinct)
            table = pa.table({LEFT_END.key: pairs.left, RIGHT_END.key: pairs.right})
            return self._add_ids(table, leaf.edge, leaf)

        shown_ends = tuple(end.key for end, var in ((LEFT_END, leaf.left), (RIGHT_END, leaf.right)) if var in leaf.ids)
        return self._coded_tables.derive(leaf.edge, ("pairs table", leaf.direction, leaf.distinct, shown_ends), make)

    def _edge_rows(self, leaf: Edges, known_keys: KnownKeys, end: str | None) -> LeafRows:
        coded_tables = self._coded_tables
        type_def, view, key = coded_tables.table(leaf.type.type_id)
        ends = coded_tables.ends(type_def.id)
        names = list(dict.fromkeys((*leaf.columns, *columns_to_search(leaf))))
        rows = self.column_cache.columns(key, view, names) if names else None
        codes: pa.Array | None = None
        access = "whole table"
        ids = exact_ids(type_def, leaf.where, self.resolve_value)
        if ids is not None:
            codes, access = coded_tables.codes_of_ids(type_def.id, ids), "lookup by id"
        elif end is not None:
            start = np.asarray(known_keys[end]).astype(np.int64)
            columns = edge_columns_at(leaf, end)
            incident = [coded_tables.incidence(type_def.id, column).neighbours(start)[1] for column in columns]
            codes = pa.array(unique_values(np.concatenate(incident)).astype(np.int32))
            access = f"adjacency of {len(start)} known nodes"
        is_whole = codes is None
        edge_codes = coded_tables.all_codes(type_def.id) if codes is None else codes
        index = np.asarray(edge_codes)
        data = {ENTITY.key: edge_codes, _SOURCE: pa.array(ends.source[index]), _TARGET: pa.array(ends.target[index])}
        assert not set(data) & set(names)
        if rows is not None:
            selected = rows if is_whole else rows.take(edge_codes)
            data |= {name: selected[name] for name in names}
        table = pa.table(data)
        searches = self.searcher.columns(leaf, table, key, view, is_whole=is_whole)
        mask = text_filter_mask(leaf, searches)
        flat = to_positional_columns(table, leaf.columns, searches, (ENTITY.key, _SOURCE, _TARGET))
        flat = flat if mask is None else flat.filter(mask)
        columns = [name for name in flat.column_names if name not in (_SOURCE, _TARGET)]
        oriented = self._add_ids(orient_edges(flat, columns, leaf, _SOURCE, _TARGET), type_def.id, leaf)
        return LeafRows(oriented if is_whole else self.count_bytes(oriented), access, is_whole_table=is_whole)

    def reach(self, leaf: Reach, known_keys: KnownKeys) -> LeafRows:
        bounds = HopBounds.of(leaf, self.limits)
        end = cheapest_end(leaf, known_keys, self.facts)
        backwards = end is not None and end != leaf.left
        graph = self._coded_tables.adjacency(leaf.edge, leaf.direction, distinct=True, backwards=backwards)
        start = np.arange(graph.nodes) if end is None else np.asarray(known_keys[end]).astype(np.int64)
        pairs = BoundedReach(bounds, self.deadline, self.budget).reach_codes(graph, start)
        if pairs.is_cut:
            self.warnings.append(ceiling_warning(bounds))
        table = _pairs_table(pairs.sources, pairs.targets, backwards=backwards)
        origin = "everywhere" if end is None else f"{len(start)} known nodes"
        return LeafRows(self._add_ids(table, leaf.edge, leaf), f"breadth first from {origin}")

    def degrees(self, leaf: Degrees, known_keys: KnownKeys) -> LeafRows:
        coded_tables = self._coded_tables
        backwards = leaf.end == "right"
        if leaf.var in known_keys:
            graph = coded_tables.adjacency(leaf.edge, leaf.direction, distinct=True, backwards=backwards)
            start = np.asarray(known_keys[leaf.var]).astype(np.int64)
            counts = graph.starts[start + 1] - graph.starts[start]
            table = self._degree_table(leaf, start[counts > 0], counts[counts > 0])
            return LeafRows(table, f"degrees of {len(start)} known nodes")

        def make() -> pa.Table:
            graph = coded_tables.adjacency(leaf.edge, leaf.direction, distinct=True, backwards=backwards)
            counts = np.diff(graph.starts)
            return self._degree_table(leaf, np.flatnonzero(counts), counts[counts > 0])

        table = coded_tables.derive(leaf.edge, ("degrees", leaf.direction, leaf.end, bool(leaf.ids)), make)
        return LeafRows(table, "all degrees", is_whole_table=True)

    def _degree_table(self, leaf: Degrees, nodes: Int64Array, counts: Int64Array) -> pa.Table:
        table = pa.table({ENTITY.key: pa.array(nodes, pa.int32()), DEGREE: pa.array(counts, pa.int64())})
        if not leaf.ids:
            return table
        edge = self.snapshot.catalog.by_id[leaf.edge]
        at_source = (leaf.end == "left") == (leaf.direction != "backward")
        ids = self._coded_tables.ids((edge.source if at_source else edge.target) or "")
        return table.append_column(ENTITY.id, ids.take(table[ENTITY.key].combine_chunks()))

    def _add_ids(self, table: pa.Table, edge_type: str, leaf: HopLeaf) -> pa.Table:
        edge = self.snapshot.catalog.by_id[edge_type]
        left, right = (edge.target, edge.source) if leaf.direction == "backward" else (edge.source, edge.target)
        for var, end, type_id in ((leaf.left, LEFT_END, left), (leaf.right, RIGHT_END, right)):
            if var in leaf.ids:
                codes = table[end.key].combine_chunks()
                ids = pa.DictionaryArray.from_arrays(codes, self._coded_tables.ids(type_id or ""))
                table = table.append_column(end.id, ids)
        return table


def _pairs_table(near: Int64Array, far: Int64Array, *, backwards: bool) -> pa.Table:
    """Returns pairs as rows of a hop, which starts at its right end if `backwards`."""
    left, right = (far, near) if backwards else (near, far)
    return pa.table({LEFT_END.key: left.astype(np.int32), RIGHT_END.key: right.astype(np.int32)})
