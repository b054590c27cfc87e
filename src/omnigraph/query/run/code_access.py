"""Access with codes as keys: everything comes from images in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.adjacency.coded_tables import CodedTables
from omnigraph.adjacency.column_cache import ColumnCache
from omnigraph.adjacency.reachability import sorted_unique
from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language.bind import ValueResolver
from omnigraph.query.limits import Budget, Deadline, QueryLimits
from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.nodes import Degrees, Edges, HopLeaf, Pairs, Reach, Scan
from omnigraph.query.run.leaf_rows import KnownKeys, LeafRows, cheapest_end, to_positional_columns
from omnigraph.query.run.push_filters import exact_ids, to_filter
from omnigraph.query.run.traverse import BoundedReach, HopBounds, ceiling_warning, edge_columns_at, orient_edges
from omnigraph.query.search.search_columns import Searcher, searched_columns, text_filter_mask

#: A filter that is thought to leave less than this share of the rows is applied before the statement runs.
_SELECTIVE = 0.05
#: Key and ends of coded edges; a property's id always has a tail, so that no column is called so.
_KEYS = ("k", "s", "t")
#: A known set of at least one in so many nodes is not worth a table of its own.
_WHOLE_RATIO = 4

Ints = npt.NDArray[np.int64]


@dataclass
class CodeAccess:
    """Keys are places in images. Tables that are images are shared, not copied, and not counted as the query's own."""

    snapshot: Snapshot
    column_cache: ColumnCache
    searcher: Searcher
    resolve_value: ValueResolver
    deadline: Deadline
    budget: Budget
    limits: QueryLimits
    facts: Facts
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def _coded_tables(self) -> CodedTables:
        return CodedTables(self.snapshot, self.column_cache)

    def scan(self, leaf: Scan, known: KnownKeys) -> LeafRows:
        codes = self._coded_tables
        one, view, key = codes.table(leaf.type.type_id)
        ids = exact_ids(one, leaf.where, self.resolve_value)
        chosen, access = known.get(leaf.var), "known nodes"
        if ids is not None:
            chosen, access = codes.codes_of_ids(one.id, ids), "lookup by id"
        if chosen is None and not leaf.searches and not self._is_selective(leaf):
            return LeafRows(self._whole_table(leaf), "whole table", is_whole_table=True)
        names = list(dict.fromkeys((*leaf.columns, *searched_columns(leaf))))
        rows = self.column_cache.columns(key, view, names) if names else None
        keys = codes.all_codes(one.id) if chosen is None else chosen
        if rows is not None and chosen is not None:
            rows = rows.take(chosen)
        table = pa.table({"k": keys}) if rows is None else rows.append_column("k", keys)
        searched = self.searcher.columns(leaf, table, key, view, whole=chosen is None)
        kept = text_filter_mask(leaf, searched)
        table = to_positional_columns(table, leaf.columns, searched, ["k"])
        if kept is not None:
            table, access = table.filter(kept), "search"
        elif chosen is None:
            table, access = self._filter_rows(leaf, table), "filter"
        return LeafRows(self._count_bytes(table), access)

    def _whole_table(self, leaf: Scan) -> pa.Table:
        """The image itself under positional names; the same object as long as it is kept, which engines recognise."""
        codes = self._coded_tables
        one, view, key = codes.table(leaf.type.type_id)

        def make() -> pa.Table:
            columns = self.column_cache.columns(key, view, leaf.columns) if leaf.columns else None
            data = {"k": codes.all_codes(one.id)}
            if columns is not None:
                data |= {f"c{at}": columns[name] for at, name in enumerate(leaf.columns)}
            return pa.table(data)

        return self.column_cache.derive(key, ("whole", leaf.columns), make)

    def _is_selective(self, leaf: Scan) -> bool:
        rows = self.facts.rows.get(leaf.type.type_id, 0)
        return bool(leaf.where) and self.facts.estimate(leaf) < rows * _SELECTIVE

    def _filter_rows(self, leaf: Scan, table: pa.Table) -> pa.Table:
        where = to_filter(leaf.where, self.resolve_value)
        if where is None:
            return table
        named = {f"c{at}": name for at, name in enumerate(leaf.columns)}
        own = table.rename_columns([named.get(name, name) for name in table.column_names])
        return own.filter(where).rename_columns(table.column_names)

    # ---- hops --------------------------------------------------------------------------------------------------------

    def edges(self, leaf: Pairs | Edges, known: KnownKeys) -> LeafRows:
        end = self._start(leaf, known)
        if isinstance(leaf, Edges):
            return self._stored_edges(leaf, known, end)
        codes = self._coded_tables
        if end is None:
            return LeafRows(self._all_pairs(leaf), "whole adjacency", is_whole_table=True)
        backwards = end != leaf.left
        graph = codes.adjacency(leaf.edge, leaf.direction, distinct=leaf.distinct, backwards=backwards)
        start = np.asarray(known[end]).astype(np.int64)
        at, ends = graph.neighbours(start)
        near, far = start[at].astype(np.int32), ends.astype(np.int32)
        table = pa.table({"l": far, "r": near} if backwards else {"l": near, "r": far})
        table = self._count_bytes(self._with_ids(table, leaf.edge, leaf))
        return LeafRows(table, f"adjacency of {len(start)} known nodes")

    def _start(self, leaf: HopLeaf, known: KnownKeys) -> str | None:
        """The known end to start from, unless it is so large a part of all nodes that the whole is as good."""
        end = cheapest_end(leaf, known, self.facts)
        if end is None:
            return None
        edge = leaf.type.type_id if isinstance(leaf, Edges) else leaf.edge
        nodes = self._coded_tables.sizes(edge, leaf.direction)[0 if end == leaf.left else 1]
        return end if len(known[end]) * _WHOLE_RATIO < nodes else None

    def _all_pairs(self, leaf: Pairs) -> pa.Table:
        def make() -> pa.Table:
            pairs = self._coded_tables.pairs(leaf.edge, leaf.direction, distinct=leaf.distinct)
            return self._with_ids(pa.table({"l": pairs.left, "r": pairs.right}), leaf.edge, leaf)

        ends = tuple(end for end, var in (("l", leaf.left), ("r", leaf.right)) if var in leaf.ids)
        what = ("pairs table", leaf.direction, leaf.distinct, ends)
        return self._coded_tables.derive(leaf.edge, what, make)

    def _stored_edges(self, leaf: Edges, known: KnownKeys, end: str | None) -> LeafRows:
        codes = self._coded_tables
        one, view, key = codes.table(leaf.type.type_id)
        ends = codes.ends(one.id)
        names = list(dict.fromkeys((*leaf.columns, *searched_columns(leaf))))
        rows = self.column_cache.columns(key, view, names) if names else None
        places: pa.Array | None = None
        access = "whole table"
        ids = exact_ids(one, leaf.where, self.resolve_value)
        if ids is not None:
            places, access = codes.codes_of_ids(one.id, ids), "lookup by id"
        elif end is not None:
            start = np.asarray(known[end]).astype(np.int64)
            found = [codes.incidence(one.id, column).neighbours(start)[1] for column in edge_columns_at(leaf, end)]
            places = pa.array(sorted_unique(np.concatenate(found)).astype(np.int32))
            access = f"adjacency of {len(start)} known nodes"
        whole = places is None
        taken = codes.all_codes(one.id) if places is None else places
        index = np.asarray(taken)
        data = {"k": taken, "s": pa.array(ends.source[index]), "t": pa.array(ends.target[index])}
        if rows is not None:
            part = rows if whole else rows.take(taken)
            data |= {name: part[name] for name in names}
        assert not set(_KEYS) & set(names)
        table = pa.table(data)
        searched = self.searcher.columns(leaf, table, key, view, whole=whole)
        kept = text_filter_mask(leaf, searched)
        flat = to_positional_columns(table, leaf.columns, searched, _KEYS)
        flat = flat if kept is None else flat.filter(kept)
        turned = orient_edges(flat, [name for name in flat.column_names if name not in ("s", "t")], leaf, "s", "t")
        turned = self._with_ids(turned, one.id, leaf)
        return LeafRows(turned if whole else self._count_bytes(turned), access, is_whole_table=whole)

    def reach(self, leaf: Reach, known: KnownKeys) -> LeafRows:
        bounds = HopBounds.of(leaf, self.limits)
        end = cheapest_end(leaf, known, self.facts)
        backwards = end is not None and end != leaf.left
        graph = self._coded_tables.adjacency(leaf.edge, leaf.direction, distinct=True, backwards=backwards)
        start = np.arange(graph.nodes) if end is None else np.asarray(known[end]).astype(np.int64)
        found = BoundedReach(bounds, self.deadline, self.budget).reach(graph, start)
        if found.is_cut:
            self.warnings.append(ceiling_warning(bounds))
        near, far = found.sources.astype(np.int32), found.targets.astype(np.int32)
        table = pa.table({"l": far, "r": near} if backwards else {"l": near, "r": far})
        place = "everywhere" if end is None else f"{len(start)} known nodes"
        return LeafRows(self._with_ids(table, leaf.edge, leaf), f"breadth first from {place}")

    def degrees(self, leaf: Degrees, known: KnownKeys) -> LeafRows:
        codes = self._coded_tables
        backwards = leaf.end == "right"
        if leaf.var in known:
            graph = codes.adjacency(leaf.edge, leaf.direction, distinct=True, backwards=backwards)
            start = np.asarray(known[leaf.var]).astype(np.int64)
            counts = graph.starts[start + 1] - graph.starts[start]
            table = self._degree_table(leaf, start[counts > 0], counts[counts > 0])
            return LeafRows(table, f"degrees of {len(start)} known nodes")

        def make() -> pa.Table:
            graph = codes.adjacency(leaf.edge, leaf.direction, distinct=True, backwards=backwards)
            counts = np.diff(graph.starts)
            return self._degree_table(leaf, np.flatnonzero(counts), counts[counts > 0])

        what = ("degrees", leaf.direction, leaf.end, bool(leaf.ids))
        return LeafRows(codes.derive(leaf.edge, what, make), "all degrees", is_whole_table=True)

    def _degree_table(self, leaf: Degrees, nodes: Ints, counts: Ints) -> pa.Table:
        table = pa.table({"k": pa.array(nodes, pa.int32()), "w": pa.array(counts, pa.int64())})
        if not leaf.ids:
            return table
        one = self.snapshot.catalog.by_id[leaf.edge]
        at_source = (leaf.end == "left") == (leaf.direction != "backward")
        ids = self._coded_tables.ids((one.source if at_source else one.target) or "")
        return table.append_column("ki", ids.take(table["k"].combine_chunks()))

    def _with_ids(self, table: pa.Table, edge: str, leaf: HopLeaf) -> pa.Table:
        one = self.snapshot.catalog.by_id[edge]
        ends = (one.target, one.source) if leaf.direction == "backward" else (one.source, one.target)
        for end, name, type_id in ((leaf.left, "l", ends[0]), (leaf.right, "r", ends[1])):
            if end in leaf.ids:
                column = table[name].combine_chunks()
                shown = pa.DictionaryArray.from_arrays(column, self._coded_tables.ids(type_id or ""))
                table = table.append_column(f"{name}i", shown)
        return table

    def _count_bytes(self, table: pa.Table) -> pa.Table:
        self.budget.take(table.nbytes)
        return table
