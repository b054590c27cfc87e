"""Access with codes as keys: everything comes from images in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from omnigraph.engine.codes import Codes
from omnigraph.engine.expand import Bounds, IdReach, ceiling_warning, columns_of, oriented
from omnigraph.engine.images import Images
from omnigraph.engine.leaves import Known, laid_out
from omnigraph.engine.limits import Budget, Deadline, QueryLimits
from omnigraph.engine.pushdown import Given, exact_ids, to_filter
from omnigraph.engine.searching import Searcher, matching, sources
from omnigraph.log.snapshot import Snapshot
from omnigraph.plan import nodes as n
from omnigraph.plan.facts import Facts

#: A filter that is thought to leave less than this share of the rows is applied before the statement runs.
_SELECTIVE = 0.05
#: Key and ends of coded edges; a property's id always has a tail, so that no column is called so.
_KEYS = ("k", "s", "t")


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

    @property
    def _codes(self) -> Codes:
        return Codes(self.snapshot, self.images)

    def scan(self, leaf: n.Scan, known: Known) -> tuple[pa.Table, str]:
        codes = self._codes
        one, view, key = codes.image(leaf.type.type_id)
        names = list(dict.fromkeys((*leaf.columns, *sources(leaf))))
        rows = self.images.columns(key, view, names) if names else None
        places = codes.places(one.id)
        ids = exact_ids(one, leaf.where, self.given)
        chosen, access = known.get(leaf.var), "known nodes"
        if ids is not None:
            chosen, access = codes.of_ids(one.id, ids), "lookup by id"
        if chosen is not None:
            table = pa.table({"k": chosen}) if rows is None else rows.take(chosen).append_column("k", chosen)
        else:
            access = "whole table"
            table = pa.table({"k": places}) if rows is None else rows.append_column("k", places)
        searched = self.searcher.columns(leaf, table, key, view, whole=chosen is None)
        kept = matching(leaf, searched)
        table = laid_out(table, leaf.columns, searched, ["k"])
        if kept is not None:
            table, access = table.filter(kept), "search"
        elif chosen is None and self._is_selective(leaf):
            table, access = self._filtered(leaf, table), "filter"
        return self._counted(table, own=access != "whole table"), access

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

    def edges(self, leaf: n.Pairs | n.Edges, known: Known) -> tuple[pa.Table, str]:
        end = _known_end(leaf, known)
        if isinstance(leaf, n.Edges):
            return self._stored_edges(leaf, known, end)
        codes = self._codes
        if end is None:
            pairs = codes.pairs(leaf.edge, leaf.direction, distinct=leaf.distinct)
            table = pa.table({"l": pairs.left, "r": pairs.right})
            return self._with_ids(table, leaf.edge, leaf), "whole adjacency"
        backwards = end != leaf.left
        graph = codes.adjacency(leaf.edge, leaf.direction, distinct=leaf.distinct, backwards=backwards)
        start = np.asarray(known[end]).astype(np.int64)
        at, ends = graph.neighbours(start)
        near, far = start[at].astype(np.int32), ends.astype(np.int32)
        table = pa.table({"l": far, "r": near} if backwards else {"l": near, "r": far})
        return self._counted(self._with_ids(table, leaf.edge, leaf)), f"adjacency of {len(start)} known nodes"

    def _stored_edges(self, leaf: n.Edges, known: Known, end: str | None) -> tuple[pa.Table, str]:
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
            places = pa.array(np.unique(np.concatenate(found)).astype(np.int32))
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
        return self._counted(self._with_ids(turned, one.id, leaf), own=not whole), access

    def reach(self, leaf: n.Reach, known: Known) -> tuple[pa.Table, str]:
        bounds = Bounds.of(leaf, self.limits)
        end = _known_end(leaf, known)
        backwards = end is not None and end != leaf.left
        graph = self._codes.adjacency(leaf.edge, leaf.direction, distinct=True, backwards=backwards)
        start = np.arange(graph.nodes) if end is None else np.asarray(known[end]).astype(np.int64)
        found = IdReach(bounds, self.deadline, self.budget).reach(graph, start)
        if found.cut:
            self.warnings.append(ceiling_warning(bounds))
        near, far = found.sources.astype(np.int32), found.targets.astype(np.int32)
        table = pa.table({"l": far, "r": near} if backwards else {"l": near, "r": far})
        access = "breadth first from everywhere" if end is None else f"breadth first from {len(start)} known nodes"
        return self._with_ids(table, leaf.edge, leaf), access

    def _with_ids(self, table: pa.Table, edge: str, leaf: n.Hop) -> pa.Table:
        one = self.snapshot.catalog.by_id[edge]
        ends = (one.target, one.source) if leaf.direction == "backward" else (one.source, one.target)
        for end, name, type_id in ((leaf.left, "l", ends[0]), (leaf.right, "r", ends[1])):
            if end in leaf.ids:
                column = table[name].combine_chunks()
                shown = pa.DictionaryArray.from_arrays(column, self._codes.ids(type_id or ""))
                table = table.append_column(f"{name}i", shown)
        return table

    def _counted(self, table: pa.Table, *, own: bool = True) -> pa.Table:
        if own:
            self.budget.take(table.nbytes)
        return table


def _known_end(leaf: n.Hop, known: Known) -> str | None:
    ends = [end for end in (leaf.left, leaf.right) if end in known]
    return min(ends, key=lambda var: len(known[var])) if ends else None
