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
from omnigraph.query.plan import nodes as n
from omnigraph.query.plan.facts import Facts

#: Sets of keys larger than this are not used to look up rows one by one.
PROBE_KEYS = 4_096
_LEARN_ROWS = PROBE_KEYS * 8

Known = dict[str, pa.Array]
"""Keys that a variable can have; a variable that is not named can have any."""


@dataclass(frozen=True, slots=True)
class Filled:
    """The rows of one leaf and how they were found. `whole`: all there are, so that nothing is learnt from them."""

    table: pa.Table
    access: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """How one leaf was filled, for explain."""

    leaf: n.Leaf
    access: str
    rows: int


class Access(Protocol):
    """One coding of keys, and the ways to rows under it."""

    def scan(self, leaf: n.Scan, known: Known) -> Filled: ...

    def edges(self, leaf: n.Pairs | n.Edges, known: Known) -> Filled: ...

    def reach(self, leaf: n.Reach, known: Known) -> Filled: ...

    def degrees(self, leaf: n.Degrees, known: Known) -> Filled: ...


@dataclass
class Loader:
    """Fills the leaves of one plan for one run."""

    access: Access
    facts: Facts
    deadline: Deadline
    budget: Budget
    filled: dict[n.Leaf, Filled] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def load(self, plan: n.Plan, known: Known | None = None) -> None:
        """Fill every leaf of `plan`; `known` learns what the rows of this part can be."""
        known = {} if known is None else known
        match plan:
            case n.Scan() | n.Pairs() | n.Edges() | n.Reach() | n.Degrees():
                self._fill([plan], known)
            case n.Join():
                leaves: list[n.Leaf] = [one for one in plan.inputs if n.is_leaf(one)]
                for one in plan.inputs:
                    if one not in leaves:
                        self.load(one, known)
                self._fill(leaves, known)
            case n.LeftJoin() | n.AntiJoin():
                self.load(plan.left, known)
                self.load(plan.right, dict(known))
            case _:
                self.load(n.children(plan)[0], known)

    def _fill(self, todo: list[n.Leaf], known: Known) -> None:
        while todo:
            best = min(todo, key=lambda leaf: (cost(leaf, sizes(known), self.facts), todo.index(leaf)))
            todo.remove(best)
            self.deadline.check()
            if best not in self.filled:
                self.filled[best] = found = self._read(best, known)
                self.steps.append(Step(best, found.access, found.table.num_rows))
            if not self.filled[best].whole:
                _learn(best, self.filled[best].table, known)

    def _read(self, leaf: n.Leaf, known: Known) -> Filled:
        match leaf:
            case n.Scan():
                return self.access.scan(leaf, known)
            case n.Pairs() | n.Edges():
                return self.access.edges(leaf, known)
            case n.Reach():
                return self.access.reach(leaf, known)
            case n.Degrees():
                return self.access.degrees(leaf, known)


def sizes(known: Known) -> dict[str, float]:
    return {var: float(len(keys)) for var, keys in known.items()}


def cost(leaf: n.Leaf, known: dict[str, float], facts: Facts) -> float:
    """Rows that reading the leaf is thought to touch, given how many keys its variables can have."""
    if isinstance(leaf, (n.Scan, n.Degrees)):
        return min(facts.estimate(leaf), known.get(leaf.var, float("inf")))
    probes = [known[end] * max(1.0, facts.fan_out(leaf, end)) for end in (leaf.left, leaf.right) if end in known]
    # Without a known end a hop waits for the scans that may tell one.
    return min(probes) if probes else 10.0 * facts.estimate(leaf)


def heaviest(plan: n.Plan, facts: Facts, known: dict[str, float] | None = None) -> float:
    """The most rows that one leaf is thought to touch, if leaves are filled in their order."""
    known = {} if known is None else known
    match plan:
        case n.LeftJoin() | n.AntiJoin():
            return max(heaviest(plan.left, facts, known), heaviest(plan.right, facts, dict(known)))
        case n.Scan() | n.Pairs() | n.Edges() | n.Reach() | n.Degrees():
            return _simulated([plan], facts, known)
        case n.Join():
            leaves: list[n.Leaf] = [one for one in plan.inputs if n.is_leaf(one)]
            others = [heaviest(one, facts, known) for one in plan.inputs if one not in leaves]
            return max(*others, _simulated(leaves, facts, known), 0.0)
    return heaviest(n.children(plan)[0], facts, known)


def _simulated(todo: list[n.Leaf], facts: Facts, known: dict[str, float]) -> float:
    most = 0.0
    while todo:
        best = min(todo, key=lambda leaf: (cost(leaf, known, facts), todo.index(leaf)))
        todo.remove(best)
        rows = cost(best, known, facts)
        ends = (best.var,) if isinstance(best, (n.Scan, n.Degrees)) else (best.left, best.right)
        probed = any(end in known for end in ends)
        most = max(most, rows if probed else facts.touched(best))
        for var in ends:
            if rows <= PROBE_KEYS:
                known[var] = min(rows, known.get(var, rows))
    return most


def _learn(leaf: n.Leaf, table: pa.Table, known: Known) -> None:
    if table.num_rows > _LEARN_ROWS:
        return
    ends = {leaf.var: "k"} if isinstance(leaf, (n.Scan, n.Degrees)) else {leaf.left: "l", leaf.right: "r"}
    for var, column in ends.items():
        keys = table[column].unique()
        if len(keys) <= PROBE_KEYS and (var not in known or len(keys) < len(known[var])):
            known[var] = keys


def laid_out(rows: pa.Table, columns: Sequence[str], computed: Sequence[pa.Array], keys: Sequence[str]) -> pa.Table:
    """The table of a leaf: its keys as they are, columns and searches under their positional names."""
    data = {name: rows[name] for name in keys}
    data |= {f"c{at}": rows[name] for at, name in enumerate(columns)}
    return pa.table({**data, **{f"x{at}": one for at, one in enumerate(computed)}})


def narrowest(leaf: n.Hop, known: Known, facts: Facts) -> str | None:
    """The end of a hop from which the fewest edges are thought to be met; None if nothing is known of either."""
    ends = [end for end in (leaf.left, leaf.right) if end in known]
    return min(ends, key=lambda end: len(known[end]) * facts.fan_out(leaf, end)) if ends else None
