"""Turns edges into rows of hops: orientation, distinct pairs, reachability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.adjacency.reachability import Adjacency, ReachedPairs, reach, unique_values
from omnigraph.query.limits import Budget, Deadline, QueryLimits, limit_error
from omnigraph.query.plan.leaf_columns import LEFT_END, RIGHT_END
from omnigraph.query.plan.nodes import HopLeaf, Reach

Int32Array = np.ndarray[tuple[int], np.dtype[np.int32]]
Int64Array = np.ndarray[tuple[int], np.dtype[np.int64]]


def edge_columns_at(leaf: HopLeaf, end: str) -> Sequence[str]:
    """Returns the columns of the edge table that can hold this end of the hop."""
    if leaf.direction == "either":
        return ("src", "dst")
    return ("src",) if (leaf.left == end) == (leaf.direction == "forward") else ("dst",)


def orient_edges(
    rows: pa.Table, columns: Sequence[str], leaf: HopLeaf, source: str = "src", target: str = "dst"
) -> pa.Table:
    """Turns rows of edges into rows of the hop: the keys of both ends, and `columns`."""
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
    ends = {LEFT_END.key: rows[left], RIGHT_END.key: rows[right]}
    return pa.table({**ends, **{name: rows[name] for name in columns}})


def distinct_pairs(table: pa.Table) -> pa.Table:
    ends = [LEFT_END.key, RIGHT_END.key]
    return table.select(ends).group_by(ends).aggregate([])


def drop_repeated_ids(rows: pa.Table) -> pa.Table:
    """Keeps the first row of each id; an edge between two known nodes is found from both ends."""
    positions = pa.array(range(rows.num_rows), pa.int64())
    first = pa.table({"id": rows["id"], "position": positions}).group_by("id").aggregate([("position", "min")])
    return rows.take(first["position_min"])


# ---- reachability ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HopBounds:
    """How many hops a `Reach` goes in this run. One without an upper bound goes up to the ceiling of the limits."""

    low: int
    high: int
    is_open_ended: bool

    @classmethod
    def of(cls, leaf: Reach, limits: QueryLimits) -> HopBounds:
        """The bounds of the leaf. Raises `limit_exceeded`, before anything is read, if they pass the ceiling."""
        steps = leaf.high if leaf.high is not None else leaf.low
        if steps > limits.hop_ceiling:
            raise limit_error(
                "hop_ceiling",
                limits.hop_ceiling,
                steps,
                f"a hop of {steps} steps is beyond the ceiling of {limits.hop_ceiling}",
                "Ask for fewer steps, or raise the limit",
            )
        return cls(leaf.low, leaf.high or limits.hop_ceiling, leaf.high is None)


def ceiling_warning(bounds: HopBounds) -> str:
    return f"a hop without an end was cut at the ceiling of {bounds.high} steps (query limit hop_ceiling)"


@dataclass(frozen=True)
class BoundedReach:
    """Finds the pairs of a `Reach` within its bounds, between ids or between codes."""

    bounds: HopBounds
    deadline: Deadline
    budget: Budget

    def reach_ids(
        self, start: pa.Array | None, edges_from: Callable[[pa.Array | None], pa.Table]
    ) -> tuple[pa.Table, bool]:
        """Returns pairs of ids from the start ids (None: from everywhere), and whether the ceiling cut them.

        `edges_from` returns the pairs that leave the given ids; for None it returns all pairs.
        """
        edges = self._collect_edges(start, edges_from) if start is not None else edges_from(None)
        left_ids, right_ids = edges[LEFT_END.key], edges[RIGHT_END.key]
        nodes = pa.chunked_array([*left_ids.chunks, *right_ids.chunks], pa.utf8()).unique()
        left, right = _positions_in(left_ids, nodes), _positions_in(right_ids, nodes)
        sources = unique_values(left.astype(np.int64))
        if start is not None:
            positions = pc.index_in(start, value_set=nodes).drop_null()
            sources = unique_values(np.asarray(positions).astype(np.int64))
        pairs = self.reach_codes(Adjacency.of(left, right, len(nodes)), sources)
        source_ids, target_ids = nodes.take(pa.array(pairs.sources)), nodes.take(pa.array(pairs.targets))
        return pa.table({LEFT_END.key: source_ids, RIGHT_END.key: target_ids}), pairs.is_cut

    def reach_codes(self, graph: Adjacency, sources: Int64Array) -> ReachedPairs:
        bounds = self.bounds
        return reach(
            graph, sources, bounds.low, bounds.high, self.deadline, self.budget, look_beyond=bounds.is_open_ended
        )

    def _collect_edges(self, start: pa.Array, edges_from: Callable[[pa.Array | None], pa.Table]) -> pa.Table:
        """Returns the edges that a walk within the bounds can use, read breadth first from the start."""
        parts = [pa.schema([(LEFT_END.key, pa.utf8()), (RIGHT_END.key, pa.utf8())]).empty_table()]
        visited, frontier = start, start
        for _ in range(self.bounds.high + self.bounds.is_open_ended):
            self.deadline.check()
            if not len(frontier):
                break
            edges = edges_from(frontier)
            parts.append(edges)
            ends = edges[RIGHT_END.key].unique()
            frontier = ends.filter(pc.invert(pc.is_in(ends, value_set=visited)))
            visited = pa.concat_arrays([visited, frontier])
        return pa.concat_tables(parts)


def _positions_in(column: pa.ChunkedArray, nodes: pa.Array) -> Int32Array:
    positions: Int32Array = (
        pc.index_in(column, value_set=nodes).combine_chunks().to_numpy(zero_copy_only=False).astype(np.int32)
    )
    return positions
