"""Fills the tables of a statement: reads the rows of every leaf, in the cheapest order.

Every leaf gets at least the rows that can contribute to the result. The cheapest leaf is read first; the keys found for
a variable let the next leaf be read by index instead of as a whole. Known keys are passed into `optional` and `not`
blocks, never out of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.adjacency.column_cache import ColumnCache
from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language.bind import ValueResolver
from omnigraph.query.limits import Budget, Deadline, QueryLimits
from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.leaf_columns import ENTITY, LEFT_END, RIGHT_END, property_column, search_column
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
from omnigraph.query.search.search_columns import Searcher

#: Rows are looked up key by key only if at most this many keys are known.
PROBE_KEYS = 4_096
#: The keys of a table that was read are collected for later leaves only if it has at most this many rows.
_LEARN_ROWS = PROBE_KEYS * 8

KnownKeys = dict[str, pa.Array]
"""The keys that a variable can have; a variable without an entry can have any."""


@dataclass(frozen=True, slots=True)
class LeafRows:
    """The rows of one leaf and how they were found.

    A whole table does not narrow the keys that its variables can have, so nothing is learned from it.
    """

    table: pa.Table
    access: str
    is_whole_table: bool = False


@dataclass(frozen=True, slots=True)
class ReadStep:
    """How the rows of one leaf were read, for `explain`."""

    leaf: Leaf
    access: str
    rows: int


@dataclass
class LeafAccess(ABC):
    """Reads leaves for one run, with one coding of keys."""

    snapshot: Snapshot
    column_cache: ColumnCache
    searcher: Searcher
    resolve_value: ValueResolver
    deadline: Deadline
    budget: Budget
    limits: QueryLimits
    facts: Facts
    warnings: list[str] = field(default_factory=list)

    @abstractmethod
    def scan(self, leaf: Scan, known_keys: KnownKeys) -> LeafRows: ...

    @abstractmethod
    def edges(self, leaf: Pairs | Edges, known_keys: KnownKeys) -> LeafRows: ...

    @abstractmethod
    def reach(self, leaf: Reach, known_keys: KnownKeys) -> LeafRows: ...

    @abstractmethod
    def degrees(self, leaf: Degrees, known_keys: KnownKeys) -> LeafRows: ...

    def count_bytes(self, table: pa.Table) -> pa.Table:
        """Charges the table to the query's memory."""
        self.budget.take(table.nbytes)
        return table


@dataclass
class LeafLoader:
    """Reads the leaves of one plan for one run."""

    access: LeafAccess
    rows_by_leaf: dict[Leaf, LeafRows] = field(default_factory=dict)
    steps: list[ReadStep] = field(default_factory=list)

    def load(self, plan: Plan, known_keys: KnownKeys | None = None) -> None:
        """Reads every leaf of `plan`; adds to `known_keys` the keys that its rows allow."""
        known_keys = {} if known_keys is None else known_keys
        match plan:
            case Scan() | Pairs() | Edges() | Reach() | Degrees():
                self._load_leaves([plan], known_keys)
            case NaturalJoin():
                leaves: list[Leaf] = [child for child in plan.inputs if is_leaf(child)]
                for child in plan.inputs:
                    if child not in leaves:
                        self.load(child, known_keys)
                self._load_leaves(leaves, known_keys)
            case LeftJoin() | AntiJoin():
                self.load(plan.left, known_keys)
                self.load(plan.right, dict(known_keys))
            case _:
                self.load(children(plan)[0], known_keys)

    def _load_leaves(self, pending: list[Leaf], known_keys: KnownKeys) -> None:
        while pending:
            key_counts = {var: float(len(keys)) for var, keys in known_keys.items()}
            leaf = _cheapest_leaf(pending, key_counts, self.access.facts)
            pending.remove(leaf)
            self.access.deadline.check()
            if leaf not in self.rows_by_leaf:
                self.rows_by_leaf[leaf] = rows = self._read(leaf, known_keys)
                self.steps.append(ReadStep(leaf, rows.access, rows.table.num_rows))
            if not self.rows_by_leaf[leaf].is_whole_table:
                _learn_keys(leaf, self.rows_by_leaf[leaf].table, known_keys)

    def _read(self, leaf: Leaf, known_keys: KnownKeys) -> LeafRows:
        match leaf:
            case Scan():
                return self.access.scan(leaf, known_keys)
            case Pairs() | Edges():
                return self.access.edges(leaf, known_keys)
            case Reach():
                return self.access.reach(leaf, known_keys)
            case Degrees():
                return self.access.degrees(leaf, known_keys)


def _cheapest_leaf(pending: list[Leaf], key_counts: dict[str, float], facts: Facts) -> Leaf:
    return min(pending, key=lambda leaf: (_estimate_cost(leaf, key_counts, facts), pending.index(leaf)))


def _estimate_cost(leaf: Leaf, key_counts: dict[str, float], facts: Facts) -> float:
    """Estimates how many rows reading the leaf touches, if its variables have this many known keys."""
    if isinstance(leaf, (Scan, Degrees)):
        return min(facts.estimate(leaf), key_counts.get(leaf.var, float("inf")))
    known_ends = [end for end in (leaf.left, leaf.right) if end in key_counts]
    # A hop without a known end waits for the scans that may provide its keys.
    return min(
        (key_counts[end] * max(1.0, facts.fan_out(leaf, end)) for end in known_ends),
        default=10.0 * facts.estimate(leaf),
    )


def estimate_heaviest_leaf(plan: Plan, facts: Facts, key_counts: dict[str, float] | None = None) -> float:
    """Estimates the largest number of rows that one leaf touches when `LeafLoader` reads the plan."""
    key_counts = {} if key_counts is None else key_counts
    match plan:
        case LeftJoin() | AntiJoin():
            left = estimate_heaviest_leaf(plan.left, facts, key_counts)
            return max(left, estimate_heaviest_leaf(plan.right, facts, dict(key_counts)))
        case Scan() | Pairs() | Edges() | Reach() | Degrees():
            return _simulate_reads([plan], facts, key_counts)
        case NaturalJoin():
            leaves: list[Leaf] = [child for child in plan.inputs if is_leaf(child)]
            inner = [estimate_heaviest_leaf(child, facts, key_counts) for child in plan.inputs if child not in leaves]
            return max(*inner, _simulate_reads(leaves, facts, key_counts), 0.0)
    return estimate_heaviest_leaf(children(plan)[0], facts, key_counts)


def _simulate_reads(pending: list[Leaf], facts: Facts, key_counts: dict[str, float]) -> float:
    heaviest = 0.0
    while pending:
        leaf = _cheapest_leaf(pending, key_counts, facts)
        pending.remove(leaf)
        rows = _estimate_cost(leaf, key_counts, facts)
        ends = (leaf.var,) if isinstance(leaf, (Scan, Degrees)) else (leaf.left, leaf.right)
        is_probed = any(end in key_counts for end in ends)
        heaviest = max(heaviest, rows if is_probed else facts.rows_touched(leaf))
        for var in ends:
            if rows <= PROBE_KEYS:
                key_counts[var] = min(rows, key_counts.get(var, rows))
    return heaviest


def _learn_keys(leaf: Leaf, table: pa.Table, known_keys: KnownKeys) -> None:
    if table.num_rows > _LEARN_ROWS:
        return
    if isinstance(leaf, (Scan, Degrees)):
        key_columns = {leaf.var: ENTITY.key}
    else:
        key_columns = {leaf.left: LEFT_END.key, leaf.right: RIGHT_END.key}
    for var, column in key_columns.items():
        keys = table[column].unique()
        if len(keys) <= PROBE_KEYS and (var not in known_keys or len(keys) < len(known_keys[var])):
            known_keys[var] = keys


def to_positional_columns(
    rows: pa.Table, columns: Sequence[str], searches: Sequence[pa.Array], keys: Sequence[str]
) -> pa.Table:
    """Returns the table of a leaf: the key columns as they are, properties and searches under positional names."""
    data = {name: rows[name] for name in keys}
    data |= {property_column(position): rows[name] for position, name in enumerate(columns)}
    return pa.table({**data, **{search_column(position): search for position, search in enumerate(searches)}})


def cheapest_end(leaf: HopLeaf, known_keys: KnownKeys, facts: Facts) -> str | None:
    """Returns the end with known keys from which the hop has the fewest estimated edges; None if neither has any."""
    ends = [end for end in (leaf.left, leaf.right) if end in known_keys]
    return min(ends, key=lambda end: len(known_keys[end]) * facts.fan_out(leaf, end)) if ends else None
