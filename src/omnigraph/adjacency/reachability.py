"""Breadth-first reachability for many sources at once, over integer-coded edges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from omnigraph.query.limits import Budget, Deadline

Int64Array = npt.NDArray[np.int64]

#: Marks of visited nodes held at a time: sources are done in groups of this many bytes.
_MARKS_BYTES = 32 << 20


def sorted_unique(values: Int64Array) -> Int64Array:
    """The distinct values, ascending. `np.unique` hashes them, which takes seconds for millions of regular numbers."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


@dataclass(frozen=True)
class Adjacency:
    """Neighbours by node: those of node n are `targets[starts[n]:starts[n + 1]]`."""

    starts: Int64Array
    targets: npt.NDArray[np.int32]

    @classmethod
    def of(cls, left: npt.NDArray[np.int32], right: npt.NDArray[np.int32], nodes: int) -> Adjacency:
        """From pairs; repeated pairs stay repeated. The neighbours of a node ascend."""
        starts = np.zeros(nodes + 1, np.int64)
        np.cumsum(np.bincount(left, minlength=nodes), out=starts[1:])
        # Sorting whole pairs as single numbers is several times faster than finding an order of their left ends.
        width = int(right.max(initial=0)) + 1
        joined = left.astype(np.int64) * width + right
        joined.sort()
        return cls(starts, (joined % width).astype(np.int32))

    def with_pairs(self, left: Int64Array, right: Int64Array, nodes: int) -> Adjacency:
        """With further pairs, between so many nodes."""
        order = np.argsort(left, kind="stable")
        left, right = left[order], right[order]
        starts = np.concatenate([self.starts, np.full(nodes - self.nodes, self.starts[-1])])
        targets = np.insert(self.targets, starts[left + 1], right.astype(np.int32))
        starts[1:] += np.cumsum(np.bincount(left, minlength=nodes))
        return Adjacency(starts, targets)

    def has(self, left: int, right: int) -> bool:
        """Whether the pair is here; only where the neighbours of a node ascend."""
        if left >= self.nodes:
            return False
        own = self.targets[self.starts[left] : self.starts[left + 1]]
        at = int(np.searchsorted(own, right))
        return at < len(own) and int(own[at]) == right

    @property
    def nodes(self) -> int:
        return len(self.starts) - 1

    @property
    def nbytes(self) -> int:
        return int(self.starts.nbytes + self.targets.nbytes)

    @cached_property
    def is_function(self) -> bool:
        """Whether every node has exactly one neighbour, which then stands at the node's own place."""
        return len(self.targets) == self.nodes and bool((np.diff(self.starts) == 1).all())

    def count(self, nodes: Int64Array) -> int:
        """How many neighbours `neighbours` would give."""
        return int((self.starts[nodes + 1] - self.starts[nodes]).sum())

    def neighbours(self, nodes: Int64Array) -> tuple[Int64Array, Int64Array]:
        """For every neighbour of every node: the place of the node in the input, and the neighbour."""
        begins = self.starts[nodes]
        counts = self.starts[nodes + 1] - begins
        places = np.repeat(np.arange(len(nodes)), counts)
        ends = np.cumsum(counts)
        offsets = np.arange(len(places)) - np.repeat(ends - counts, counts)
        return places, self.targets[np.repeat(begins, counts) + offsets].astype(np.int64)


@dataclass(frozen=True)
class ReachedPairs:
    """Pairs of source and destination. `cut`: something was left beyond the last hop."""

    sources: Int64Array
    targets: Int64Array
    is_cut: bool


def reach(
    graph: Adjacency, sources: Int64Array, low: int, high: int, deadline: Deadline, budget: Budget, *, look_beyond: bool
) -> ReachedPairs:
    """Every node whose shortest distance from a source is in `low..high`, each pair once.

    A source reaches itself only through a loop, at distance 1.
    """
    group = max(1, _MARKS_BYTES // max(1, graph.nodes))
    parts: list[tuple[Int64Array, Int64Array]] = []
    cut = False
    for at in range(0, len(sources), group):
        found, more = _reach_group(graph, sources[at : at + group], low, high, deadline, look_beyond)
        cut = cut or more
        for pair in found:
            budget.take(pair[0].nbytes + pair[1].nbytes)
        parts += found
    if not parts:
        empty = np.zeros(0, np.int64)
        return ReachedPairs(empty, empty, cut)
    return ReachedPairs(np.concatenate([one[0] for one in parts]), np.concatenate([one[1] for one in parts]), cut)


def _reach_group(
    graph: Adjacency, sources: Int64Array, low: int, high: int, deadline: Deadline, look_beyond: bool
) -> tuple[list[tuple[Int64Array, Int64Array]], bool]:
    nodes = graph.nodes
    seen = np.zeros(len(sources) * nodes, np.bool_)
    places, frontier = np.arange(len(sources)), sources
    seen[places * nodes + frontier] = True
    found: list[tuple[Int64Array, Int64Array]] = []
    for depth in range(1, high + 1):
        deadline.check()
        at, targets = graph.neighbours(frontier)
        owners = places[at]
        if depth == low == 1:
            own = sorted_unique(owners[targets == sources[owners]])
            found.append((sources[own], sources[own]))
        keys = owners * nodes + targets
        keys = sorted_unique(keys[~seen[keys]])
        seen[keys] = True
        places, frontier = keys // nodes, keys % nodes
        if depth >= low:
            found.append((sources[places], frontier))
        if not len(frontier):
            return found, False
    if not look_beyond:
        return found, False
    at, targets = graph.neighbours(frontier)
    return found, bool((~seen[places[at] * nodes + targets]).any())
