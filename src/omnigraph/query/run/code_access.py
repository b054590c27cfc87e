"""Access with codes as keys: everything comes from images in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.adjacency.coded_tables import Codes
from omnigraph.adjacency.column_cache import Images
from omnigraph.adjacency.reachability import each_once
from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language.bind import Given
from omnigraph.query.limits import Budget, Deadline, QueryLimits
from omnigraph.query.plan import nodes as n
from omnigraph.query.plan.facts import Facts
from omnigraph.query.run.leaf_rows import Filled, Known, laid_out, narrowest
from omnigraph.query.run.push_filters import exact_ids, to_filter
from omnigraph.query.run.traverse import Bounds, IdReach, ceiling_warning, columns_of, oriented
from omnigraph.query.search.search_columns import Searcher, matching, sources

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
    images: Images
    searcher: Searcher
    given: Given
    deadline: Deadline
    budget: Budget
    limits: QueryLimits
    facts: Facts
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def _codes(self) -> Codes:
        return Codes(self.snapshot, self.images)

    def scan(self, leaf: n.Scan, known: Known) -> Filled:
        codes = self._codes
        one, view, key = codes.image(leaf.type.type_id)
        ids = exact_ids(one, leaf.where, self.given)
        chosen, access = known.get(leaf.var), "known nodes"
        if ids is not None:
            chosen, access = codes.of_ids(one.id, ids), "lookup by id"
        if chosen is None and not leaf.computed and not self._is_selective(leaf):
            return Filled(self._whole(leaf), "whole table", whole=True)
        names = list(dict.fromkeys((*leaf.columns, *sources(leaf))))
        rows = self.images.columns(key, view, names) if names else None
        keys = codes.places(one.id) if chosen is None else chosen
        if rows is not None and chosen is not None:
            rows = rows.take(chosen)
        table = pa.table({"k": keys}) if rows is None else rows.append_column("k", keys)
        searched = self.searcher.columns(leaf, table, key, view, whole=chosen is None)
        kept = matching(leaf, searched)
        table = laid_out(table, leaf.columns, searched, ["k"])
        if kept is not None:
            table, access = table.filter(kept), "search"
        elif chosen is None:
            table, access = self._filtered(leaf, table), "filter"
        return Filled(self._counted(table), access)

    def _whole(self, leaf: n.Scan) -> pa.Table:
        """The image itself under positional names; the same object as long as it is kept, which engines recognise."""
        codes = self._codes
        one, view, key = codes.image(leaf.type.type_id)

        def make() -> pa.Table:
            columns = self.images.columns(key, view, leaf.columns) if leaf.columns else None
            data = {"k": codes.places(one.id)}
            if columns is not None:
                data |= {f"c{at}": columns[name] for at, name in enumerate(leaf.columns)}
            return pa.table(data)

        return self.images.derived(key, ("whole", leaf.columns), make)

    def _is_selective(self, leaf: n.Scan) -> bool:
        rows = self.facts.rows.get(leaf.type.type_id, 0)
        return bool(leaf.where) and self.facts.estimate(leaf) < rows * _SELECTIVE

    def _filtered(self, leaf: n.Scan, table: pa.Table) -> pa.Table:
        where = to_filter(leaf.where, self.given)
        if where is None:
            return table
        named = {f"c{at}": name for at, name in enumerate(leaf.columns)}
        own = table.rename_columns([named.get(name, name) for name in table.column_names])
        return own.filter(where).rename_columns(table.column_names)

    # ---- hops --------------------------------------------------------------------------------------------------------

    def edges(self, leaf: n.Pairs | n.Edges, known: Known) -> Filled:
        end = self._start(leaf, known)
        if isinstance(leaf, n.Edges):
            return self._stored_edges(leaf, known, end)
        codes = self._codes
        if end is None:
            return Filled(self._all_pairs(leaf), "whole adjacency", whole=True)
        backwards = end != leaf.left
        graph = codes.adjacency(leaf.edge, leaf.direction, distinct=leaf.distinct, backwards=backwards)
        start = np.asarray(known[end]).astype(np.int64)
        at, ends = graph.neighbours(start)
        near, far = start[at].astype(np.int32), ends.astype(np.int32)
        table = pa.table({"l": far, "r": near} if backwards else {"l": near, "r": far})
        table = self._counted(self._with_ids(table, leaf.edge, leaf))
        return Filled(table, f"adjacency of {len(start)} known nodes")

    def _start(self, leaf: n.Hop, known: Known) -> str | None:
        """The known end to start from, unless it is so large a part of all nodes that the whole is as good."""
        end = narrowest(leaf, known, self.facts)
        if end is None:
            return None
        edge = leaf.type.type_id if isinstance(leaf, n.Edges) else leaf.edge
        nodes = self._codes.sizes(edge, leaf.direction)[0 if end == leaf.left else 1]
        return end if len(known[end]) * _WHOLE_RATIO < nodes else None

    def _all_pairs(self, leaf: n.Pairs) -> pa.Table:
        def make() -> pa.Table:
            pairs = self._codes.pairs(leaf.edge, leaf.direction, distinct=leaf.distinct)
            return self._with_ids(pa.table({"l": pairs.left, "r": pairs.right}), leaf.edge, leaf)

        ends = tuple(end for end, var in (("l", leaf.left), ("r", leaf.right)) if var in leaf.ids)
        what = ("pairs table", leaf.direction, leaf.distinct, ends)
        return self._codes.derived(leaf.edge, what, make)

    def _stored_edges(self, leaf: n.Edges, known: Known, end: str | None) -> Filled:
        codes = self._codes
        one, view, key = codes.image(leaf.type.type_id)
        ends = codes.ends(one.id)
        names = list(dict.fromkeys((*leaf.columns, *sources(leaf))))
        rows = self.images.columns(key, view, names) if names else None
        places: pa.Array | None = None
        access = "whole table"
        ids = exact_ids(one, leaf.where, self.given)
        if ids is not None:
            places, access = codes.of_ids(one.id, ids), "lookup by id"
        elif end is not None:
            start = np.asarray(known[end]).astype(np.int64)
            found = [codes.incidence(one.id, column).neighbours(start)[1] for column in columns_of(leaf, end)]
            places = pa.array(each_once(np.concatenate(found)).astype(np.int32))
            access = f"adjacency of {len(start)} known nodes"
        whole = places is None
        taken = codes.places(one.id) if places is None else places
        index = np.asarray(taken)
        data = {"k": taken, "s": pa.array(ends.source[index]), "t": pa.array(ends.target[index])}
        if rows is not None:
            part = rows if whole else rows.take(taken)
            data |= {name: part[name] for name in names}
        assert not set(_KEYS) & set(names)
        table = pa.table(data)
        searched = self.searcher.columns(leaf, table, key, view, whole=whole)
        kept = matching(leaf, searched)
        flat = laid_out(table, leaf.columns, searched, _KEYS)
        flat = flat if kept is None else flat.filter(kept)
        turned = oriented(flat, [name for name in flat.column_names if name not in ("s", "t")], leaf, "s", "t")
        turned = self._with_ids(turned, one.id, leaf)
        return Filled(turned if whole else self._counted(turned), access, whole=whole)

    def reach(self, leaf: n.Reach, known: Known) -> Filled:
        bounds = Bounds.of(leaf, self.limits)
        end = narrowest(leaf, known, self.facts)
        backwards = end is not None and end != leaf.left
        graph = self._codes.adjacency(leaf.edge, leaf.direction, distinct=True, backwards=backwards)
        start = np.arange(graph.nodes) if end is None else np.asarray(known[end]).astype(np.int64)
        found = IdReach(bounds, self.deadline, self.budget).reach(graph, start)
        if found.cut:
            self.warnings.append(ceiling_warning(bounds))
        near, far = found.sources.astype(np.int32), found.targets.astype(np.int32)
        table = pa.table({"l": far, "r": near} if backwards else {"l": near, "r": far})
        place = "everywhere" if end is None else f"{len(start)} known nodes"
        return Filled(self._with_ids(table, leaf.edge, leaf), f"breadth first from {place}")

    def degrees(self, leaf: n.Degrees, known: Known) -> Filled:
        codes = self._codes
        backwards = leaf.end == "right"
        if leaf.var in known:
            graph = codes.adjacency(leaf.edge, leaf.direction, distinct=True, backwards=backwards)
            start = np.asarray(known[leaf.var]).astype(np.int64)
            counts = graph.starts[start + 1] - graph.starts[start]
            table = self._degree_table(leaf, start[counts > 0], counts[counts > 0])
            return Filled(table, f"degrees of {len(start)} known nodes")

        def make() -> pa.Table:
            graph = codes.adjacency(leaf.edge, leaf.direction, distinct=True, backwards=backwards)
            counts = np.diff(graph.starts)
            return self._degree_table(leaf, np.flatnonzero(counts), counts[counts > 0])

        what = ("degrees", leaf.direction, leaf.end, bool(leaf.ids))
        return Filled(codes.derived(leaf.edge, what, make), "all degrees", whole=True)

    def _degree_table(self, leaf: n.Degrees, nodes: Ints, counts: Ints) -> pa.Table:
        table = pa.table({"k": pa.array(nodes, pa.int32()), "w": pa.array(counts, pa.int64())})
        if not leaf.ids:
            return table
        one = self.snapshot.catalog.by_id[leaf.edge]
        at_source = (leaf.end == "left") == (leaf.direction != "backward")
        ids = self._codes.ids((one.source if at_source else one.target) or "")
        return table.append_column("ki", ids.take(table["k"].combine_chunks()))

    def _with_ids(self, table: pa.Table, edge: str, leaf: n.Hop) -> pa.Table:
        one = self.snapshot.catalog.by_id[edge]
        ends = (one.target, one.source) if leaf.direction == "backward" else (one.source, one.target)
        for end, name, type_id in ((leaf.left, "l", ends[0]), (leaf.right, "r", ends[1])):
            if end in leaf.ids:
                column = table[name].combine_chunks()
                shown = pa.DictionaryArray.from_arrays(column, self._codes.ids(type_id or ""))
                table = table.append_column(f"{name}i", shown)
        return table

    def _counted(self, table: pa.Table) -> pa.Table:
        self.budget.take(table.nbytes)
        return table
