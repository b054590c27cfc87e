"""Adjacencies of coded nodes, and breadth-first reachability from many sources at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from omnigraph.query.limits import Budget, Deadline

Int64Array = npt.NDArray[np.int64]

#: Memory for the marks of visited nodes; it bounds how many sources are searched at a time.
_MARKS_BYTES = 32 << 20


def unique_values(values: Int64Array) -> Int64Array:
    """Returns the distinct values, ascending. `np.unique` hashes, which takes seconds for millions of them."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


@dataclass(frozen=True)
class Adjacency:
    """Neighbours by node: the neighbours of node n are `targets[starts[n]:starts[n + 1]]`."""

    starts: Int64Array
    targets: npt.NDArray[np.int32]

    @classmethod
    def of(cls, left: npt.NDArray[np.int32], right: npt.NDArray[np.int32], nodes: int) -> Adjacency:
        """Builds the adjacency of these pairs; repeated pairs stay repeated. The neighbours of a node ascend."""
        starts = np.zeros(nodes + 1, np.int64)
        np.cumsum(np.bincount(left, minlength=nodes), out=starts[1:])
        # Sorting whole pairs as single numbers is several times faster than finding an order of their left ends.
        width = int(right.max(initial=0)) + 1
        joined = left.astype(np.int64) * width + right
        joined.sort()
        return cls(starts, (joined % width).astype(np.int32))

    def with_pairs(self, left: Int64Array, right: Int64Array, nodes: int) -> Adjacency:
        """Returns the adjacency with these pairs added, over `nodes` nodes."""
        order = np.argsort(left, kind="stable")
        left, right = left[order], right[order]
        starts = np.concatenate([self.starts, np.full(nodes - self.nodes, self.starts[-1])])
        targets = np.insert(self.targets, starts[left + 1], right.astype(np.int32))
        starts[1:] += np.cumsum(np.bincount(left, minlength=nodes))
        return Adjacency(starts, targets)

    def has(self, left: int, right: int) -> bool:
        """Whether the pair exists; only for an adjacency in which the neighbours of a node ascend."""
        if left >= self.nodes:
            return False
        neighbours = self.targets[self.starts[left] : self.starts[left + 1]]
        position = int(np.searchsorted(neighbours, right))
        return position < len(neighbours) and int(neighbours[position]) == right

    @property
    def nodes(self) -> int:
        return len(self.starts) - 1

    @property
    def nbytes(self) -> int:
        return int(self.starts.nbytes + self.targets.nbytes)

    @cached_property
    def is_function(self) -> bool:
        """Whether every node has exactly one neighbour, so that the neighbour of node n is `targets[n]`."""
        return len(self.targets) == self.nodes and bool((np.diff(self.starts) == 1).all())

    def count(self, nodes: Int64Array) -> int:
        """Returns how many pairs `neighbours` would return."""
        return int((self.starts[nodes + 1] - self.starts[nodes]).sum())

    def neighbours(self, nodes: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Returns for every neighbour of every node the position of the node in the input, and the neighbour."""
        begins = self.starts[nodes]
        counts = self.starts[nodes + 1] - begins
        positions = np.repeat(np.arange(len(nodes)), counts)
        ends = np.cumsum(counts)
        offsets = np.arange(len(positions)) - np.repeat(ends - counts, counts)
        return positions, self.targets[np.repeat(begins, counts) + offsets].astype(np.int64)


@dataclass(frozen=True)
class ReachedPairs:
    """Pairs of source and reached node. `is_cut`: more nodes are reachable beyond the last hop."""

    sources: Int64Array
    targets: Int64Array
    is_cut: bool


def reach(
    graph: Adjacency, sources: Int64Array, low: int, high: int, deadline: Deadline, budget: Budget, *, look_beyond: bool
) -> ReachedPairs:
    """Finds every node whose shortest distance from a source is in `low..high`, each pair once.

    A source reaches itself only through a loop, at distance 1.
    """
    group_size = max(1, _MARKS_BYTES // max(1, graph.nodes))
    parts: list[tuple[Int64Array, Int64Array]] = []
    is_cut = False
    for start in range(0, len(sources), group_size):
        pairs, has_more = _reach_group(graph, sources[start : start + group_size], low, high, deadline, look_beyond)
        is_cut = is_cut or has_more
        for pair_sources, pair_targets in pairs:
            budget.take(pair_sources.nbytes + pair_targets.nbytes)
        parts += pairs
    if not parts:
        empty = np.zeros(0, np.int64)
        return ReachedPairs(empty, empty, is_cut)
    return ReachedPairs(
        np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]), is_cut
    )


def _reach_group(
    graph: Adjacency, sources: Int64Array, low: int, high: int, deadline: Deadline, look_beyond: bool
) -> tuple[list[tuple[Int64Array, Int64Array]], bool]:
    """Searches from a few sources; with `look_beyond` also returns whether unvisited nodes follow the last hop."""
    nodes = graph.nodes
    is_visited = np.zeros(len(sources) * nodes, np.bool_)
    origins, frontier = np.arange(len(sources)), sources  # positions in `sources`, and the nodes reached from them
    is_visited[origins * nodes + frontier] = True
    pairs: list[tuple[Int64Array, Int64Array]] = []
    for depth in range(1, high + 1):
        deadline.check()
        positions, targets = graph.neighbours(frontier)
        target_origins = origins[positions]
        if depth == low == 1:
            loops = unique_values(target_origins[targets == sources[target_origins]])
            pairs.append((sources[loops], sources[loops]))
        marks = target_origins * nodes + targets
        marks = unique_values(marks[~is_visited[marks]])
        is_visited[marks] = True
        origins, frontier = marks // nodes, marks % nodes
        if depth >= low:
            pairs.append((sources[origins], frontier))
        if not len(frontier):
            return pairs, False
    if not look_beyond:
        return pairs, False
    positions, targets = graph.neighbours(frontier)
    return pairs, bool((~is_visited[origins[positions] * nodes + targets]).any())
