"""Filling the tables of a statement: which rows of which table version, and by which way.

Every leaf gets at least the rows that can matter. Leaves are filled smallest first; what is known then about a
variable, a set of keys, lets the next leaf be read by its index instead of whole. What is known flows into `optional`
and `not` blocks, never out of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from omnigraph.query.limits import Budget, Deadline
from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.nodes import (
    AntiJoin,
    Degrees,
    Edges,
    HopLeaf,
    Leaf,
    LeftJoin,
    NaturalJoin,
    Pairs,
    Plan,
    Reach,
    Scan,
    children,
    is_leaf,
)

#: Sets of keys larger than this are not used to look up rows one by one.
PROBE_KEYS = 4_096
_LEARN_ROWS = PROBE_KEYS * 8

KnownKeys = dict[str, pa.Array]
"""Keys that a variable can have; a variable that is not named can have any."""


@dataclass(frozen=True, slots=True)
class LeafRows:
    """The rows of one leaf and how they were found. `whole`: all there are, so that nothing is learnt from them."""

    table: pa.Table
    access: str
    is_whole_table: bool = False


@dataclass(frozen=True, slots=True)
class ReadStep:
    """How one leaf was filled, for explain."""

    leaf: Leaf
    access: str
    rows: int


class LeafAccess(Protocol):
    """One coding of keys, and the ways to rows under it."""

    def scan(self, leaf: Scan, known: KnownKeys) -> LeafRows: ...

    def edges(self, leaf: Pairs | Edges, known: KnownKeys) -> LeafRows: ...

    def reach(self, leaf: Reach, known: KnownKeys) -> LeafRows: ...

    def degrees(self, leaf: Degrees, known: KnownKeys) -> LeafRows: ...


@dataclass
class LeafLoader:
    """Fills the leaves of one plan for one run."""

    access: LeafAccess
    facts: Facts
    deadline: Deadline
    budget: Budget
    rows_by_leaf: dict[Leaf, LeafRows] = field(default_factory=dict)
    steps: list[ReadStep] = field(default_factory=list)

    def load(self, plan: Plan, known: KnownKeys | None = None) -> None:
        """Fill every leaf of `plan`; `known` learns what the rows of this part can be."""
        known = {} if known is None else known
        match plan:
            case Scan() | Pairs() | Edges() | Reach() | Degrees():
                self._fill([plan], known)
            case NaturalJoin():
                leaves: list[Leaf] = [one for one in plan.inputs if is_leaf(one)]
                for one in plan.inputs:
                    if one not in leaves:
                        self.load(one, known)
                self._fill(leaves, known)
            case LeftJoin() | AntiJoin():
                self.load(plan.left, known)
                self.load(plan.right, dict(known))
            case _:
                self.load(children(plan)[0], known)

    def _fill(self, todo: list[Leaf], known: KnownKeys) -> None:
        while todo:
            best = min(todo, key=lambda leaf: (estimate_cost(leaf, count_keys(known), self.facts), todo.index(leaf)))
            todo.remove(best)
            self.deadline.check()
            if best not in self.rows_by_leaf:
                self.rows_by_leaf[best] = found = self._read(best, known)
                self.steps.append(ReadStep(best, found.access, found.table.num_rows))
            if not self.rows_by_leaf[best].is_whole_table:
                _learn_keys(best, self.rows_by_leaf[best].table, known)

    def _read(self, leaf: Leaf, known: KnownKeys) -> LeafRows:
        match leaf:
            case Scan():
                return self.access.scan(leaf, known)
            case Pairs() | Edges():
                return self.access.edges(leaf, known)
            case Reach():
                return self.access.reach(leaf, known)
            case Degrees():
                return self.access.degrees(leaf, known)


def count_keys(known: KnownKeys) -> dict[str, float]:
    return {var: float(len(keys)) for var, keys in known.items()}


def estimate_cost(leaf: Leaf, known: dict[str, float], facts: Facts) -> float:
    """Rows that reading the leaf is thought to touch, given how many keys its variables can have."""
    if isinstance(leaf, (Scan, Degrees)):
        return min(facts.estimate(leaf), known.get(leaf.var, float("inf")))
    probes = [known[end] * max(1.0, facts.fan_out(leaf, end)) for end in (leaf.left, leaf.right) if end in known]
    # Without a known end a hop waits for the scans that may tell one.
    return min(probes) if probes else 10.0 * facts.estimate(leaf)


def estimate_heaviest_leaf(plan: Plan, facts: Facts, known: dict[str, float] | None = None) -> float:
    """The most rows that one leaf is thought to touch, if leaves are filled in their order."""
    known = {} if known is None else known
    match plan:
        case LeftJoin() | AntiJoin():
            return max(
                estimate_heaviest_leaf(plan.left, facts, known), estimate_heaviest_leaf(plan.right, facts, dict(known))
            )
        case Scan() | Pairs() | Edges() | Reach() | Degrees():
            return _simulate_reads([plan], facts, known)
        case NaturalJoin():
            leaves: list[Leaf] = [one for one in plan.inputs if is_leaf(one)]
            others = [estimate_heaviest_leaf(one, facts, known) for one in plan.inputs if one not in leaves]
            return max(*others, _simulate_reads(leaves, facts, known), 0.0)
    return estimate_heaviest_leaf(children(plan)[0], facts, known)


def _simulate_reads(todo: list[Leaf], facts: Facts, known: dict[str, float]) -> float:
    most = 0.0
    while todo:
        best = min(todo, key=lambda leaf: (estimate_cost(leaf, known, facts), todo.index(leaf)))
        todo.remove(best)
        rows = estimate_cost(best, known, facts)
        ends = (best.var,) if isinstance(best, (Scan, Degrees)) else (best.left, best.right)
        probed = any(end in known for end in ends)
        most = max(most, rows if probed else facts.rows_touched(best))
        for var in ends:
            if rows <= PROBE_KEYS:
                known[var] = min(rows, known.get(var, rows))
    return most


def _learn_keys(leaf: Leaf, table: pa.Table, known: KnownKeys) -> None:
    if table.num_rows > _LEARN_ROWS:
        return
    ends = {leaf.var: "k"} if isinstance(leaf, (Scan, Degrees)) else {leaf.left: "l", leaf.right: "r"}
    for var, column in ends.items():
        keys = table[column].unique()
        if len(keys) <= PROBE_KEYS and (var not in known or len(keys) < len(known[var])):
            known[var] = keys


def to_positional_columns(
    rows: pa.Table, columns: Sequence[str], computed: Sequence[pa.Array], keys: Sequence[str]
) -> pa.Table:
    """The table of a leaf: its keys as they are, columns and searches under their positional names."""
    data = {name: rows[name] for name in keys}
    data |= {f"c{at}": rows[name] for at, name in enumerate(columns)}
    return pa.table({**data, **{f"x{at}": one for at, one in enumerate(computed)}})


def cheapest_end(leaf: HopLeaf, known: KnownKeys, facts: Facts) -> str | None:
    """The end of a hop from which the fewest edges are thought to be met; None if nothing is known of either."""
    ends = [end for end in (leaf.left, leaf.right) if end in known]
    return min(ends, key=lambda end: len(known[end]) * facts.fan_out(leaf, end)) if ends else None
