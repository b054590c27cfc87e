"""Rows of hops: which end stands in which column, both ways of an undirected hop, sets of pairs, reachability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.adjacency.reachability import Adjacency, ReachedPairs, reach, sorted_unique
from omnigraph.query.limits import Budget, Deadline, QueryLimits, limit_error
from omnigraph.query.plan.nodes import HopLeaf, Reach


def edge_columns_at(leaf: HopLeaf, end: str) -> Sequence[str]:
    """The columns of the edge table where an end of the hop can stand."""
    if leaf.direction == "either":
        return ("src", "dst")
    return ("src",) if (leaf.left == end) == (leaf.direction == "forward") else ("dst",)


def orient_edges(
    rows: pa.Table, columns: Sequence[str], leaf: HopLeaf, source: str = "src", target: str = "dst"
) -> pa.Table:
    """Rows of edges as rows of the hop: `l`, `r` and the columns."""
    parts = []
    if leaf.direction != "backward":
        parts.append(_as_pairs(rows, columns, source, target))
    if leaf.direction != "forward":
        if leaf.direction == "either":
            # A loop read the other way is the same row.
            rows = rows.filter(pc.not_equal(rows[source], rows[target]))
        parts.append(_as_pairs(rows, columns, target, source))
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


def _as_pairs(rows: pa.Table, columns: Sequence[str], left: str, right: str) -> pa.Table:
    return pa.table({"l": rows[left], "r": rows[right], **{name: rows[name] for name in columns}})


def distinct_pairs(table: pa.Table) -> pa.Table:
    """Each pair once."""
    return table.select(["l", "r"]).group_by(["l", "r"]).aggregate([])


def drop_repeated_ids(rows: pa.Table) -> pa.Table:
    """One row per id, of rows that were found in two ways."""
    places = pa.array(range(rows.num_rows), pa.int64())
    kept = pa.table({"id": rows["id"], "at": places}).group_by("id").aggregate([("at", "min")])
    return rows.take(kept["at_min"])


# ---- reachability ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HopBounds:
    """How far a hop goes in this run. `open_ended`: only the ceiling ends it."""

    low: int
    high: int
    is_open_ended: bool

    @classmethod
    def of(cls, leaf: Reach, limits: QueryLimits) -> HopBounds:
        """Refuses bounds beyond the ceiling, before anything is read."""
        asked = leaf.high if leaf.high is not None else leaf.low
        if asked > limits.hop_ceiling:
            raise limit_error(
                "hop_ceiling",
                limits.hop_ceiling,
                asked,
                f"a hop of {asked} steps is beyond the ceiling of {limits.hop_ceiling}",
                "Ask for fewer steps, or raise the limit",
            )
        return cls(leaf.low, leaf.high or limits.hop_ceiling, leaf.high is None)


def ceiling_warning(bounds: HopBounds) -> str:
    return f"a hop without an end was cut at the ceiling of {bounds.high} steps (query limit hop_ceiling)"


@dataclass(frozen=True)
class BoundedReach:
    """Reachability between ids, from edges that a function finds by their starting ends."""

    bounds: HopBounds
    deadline: Deadline
    budget: Budget

    def run(self, start: pa.Array | None, edges_from: Callable[[pa.Array | None], pa.Table]) -> tuple[pa.Table, bool]:
        """Pairs `l`, `r` from the start, or from everywhere. `edges_from` gives `l`, `r`; from None it gives all."""
        edges = self._collect_edges(start, edges_from) if start is not None else edges_from(None)
        nodes = pa.chunked_array([*edges["l"].chunks, *edges["r"].chunks], pa.utf8()).unique()
        left = _codes(edges["l"], nodes)
        right = _codes(edges["r"], nodes)
        sources = sorted_unique(left.astype(np.int64))
        if start is not None:
            wanted = pc.index_in(start, value_set=nodes).drop_null()
            sources = sorted_unique(np.asarray(wanted).astype(np.int64))
        graph = Adjacency.of(left, right, len(nodes))
        found = self.reach(graph, sources)
        return pa.table(
            {"l": nodes.take(pa.array(found.sources)), "r": nodes.take(pa.array(found.targets))}
        ), found.is_cut

    def reach(self, graph: Adjacency, sources: np.ndarray[tuple[int], np.dtype[np.int64]]) -> ReachedPairs:
        bounds = self.bounds
        return reach(
            graph, sources, bounds.low, bounds.high, self.deadline, self.budget, look_beyond=bounds.is_open_ended
        )

    def _collect_edges(self, start: pa.Array, edges_from: Callable[[pa.Array | None], pa.Table]) -> pa.Table:
        """The edges that a walk of so many steps from the start can meet, step by step."""
        found = [pa.schema([("l", pa.utf8()), ("r", pa.utf8())]).empty_table()]
        seen, frontier = start, start
        for _ in range(self.bounds.high + self.bounds.is_open_ended):
            self.deadline.check()
            if not len(frontier):
                break
            edges = edges_from(frontier)
            found.append(edges)
            ends = edges["r"].unique()
            frontier = ends.filter(pc.invert(pc.is_in(ends, value_set=seen)))
            seen = pa.concat_arrays([seen, frontier])
        return pa.concat_tables(found)


def _codes(column: pa.ChunkedArray, nodes: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    found: np.ndarray[tuple[int], np.dtype[np.int32]] = (
        pc.index_in(column, value_set=nodes).combine_chunks().to_numpy(zero_copy_only=False).astype(np.int32)
    )
    return found
