"""Branches, commits and merges on plain dictionaries: what a graph with history means, without any of its code.

A commit is a node with parents and a whole content. A merge base is found by comparing sets of ancestors; the row
rule is the table of the design, cell by cell.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
State = dict[tuple[str, str], Row]
"""Rows by (type, id)."""

ENDS = {"Knows": ("from", "to")}


@dataclass(frozen=True)
class Commit:
    number: int
    parents: tuple[Commit, ...]
    state: State = field(compare=False, hash=False)

    def ancestors(self) -> set[Commit]:
        """Itself included."""
        return {self}.union(*(parent.ancestors() for parent in self.parents))


@dataclass(frozen=True)
class Base:
    """The state that two commits have in common; about `unsettled` rows the bases disagree."""

    state: State
    unsettled: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Merged:
    """`outcome` as users are told, or `conflict` with its kinds and ids."""

    outcome: str
    state: State
    conflicts: frozenset[tuple[str, str]] = frozenset()


class Model:
    """All branches by name."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.heads: dict[str, Commit] = {"main": Commit(next(self._numbers), (), {})}

    def state(self, branch: str) -> State:
        return self.heads[branch].state

    def commit(self, branch: str, state: State, *commit: Commit) -> None:
        self.heads[branch] = Commit(next(self._numbers), (self.heads[branch], *commit), state)

    def merge(self, source: str, target: str, *, cells: bool = False, resolve: str | None = None) -> Merged:
        """What merging would do; `commit` makes it so."""
        source_side, target_side = self.heads[source], self.heads[target]
        if source_side in target_side.ancestors():
            return Merged("already_up_to_date", target_side.state)
        forward = target_side in source_side.ancestors()
        base = base_of([target_side], source_side)
        state, conflicts = _join(base, source_side.state, target_side.state, cells, resolve)
        conflicts |= {("orphan_edge", orphan[1]) for orphan in orphans(state)}
        if conflicts:
            return Merged("conflict", target_side.state, frozenset(conflicts))
        return Merged("fast_forward" if forward else "merged", state)


def base_of(target_side: list[Commit], commit: Commit) -> Base:
    """Of one commit, or of several that were made one; several bases are made one in the same way."""
    common = set().union(*(our.ancestors() for our in target_side)) & commit.ancestors()
    below = {other for one in common for other in one.ancestors() - {one}}
    first, *further = sorted(common - below, key=lambda one: one.number)
    base, joined = Base(first.state), [first]
    for other in further:
        base = _settle(base, base_of(joined, other), other)
        joined.append(other)
    return base


def _settle(base: Base, below: Base, commit: Commit) -> Base:
    state, unsettled = dict(base.state), set(base.unsettled)
    for entity in {*base.state, *below.state, *commit.state} | below.unsettled:
        target_side, before, source_side = (one.get(entity) for one in (base.state, below.state, commit.state))
        if (before == source_side and entity not in below.unsettled) or target_side == source_side:
            continue
        if target_side == before and entity not in below.unsettled:
            _put(state, entity, source_side)
        else:
            _put(state, entity, None)
            unsettled.add(entity)
    return Base(state, frozenset(unsettled))


def _join(
    base: Base, source_side: State, target_side: State, cells: bool, resolve: str | None
) -> tuple[State, set[tuple[str, str]]]:
    state, conflicts = dict(target_side), set()
    for entity in {*base.state, *source_side, *target_side} | base.unsettled:
        b, s, t = base.state.get(entity), source_side.get(entity), target_side.get(entity)
        settled = entity not in base.unsettled
        if (settled and s == b) or s == t:
            continue
        if settled and t == b:
            _put(state, entity, s)
        elif cells and b and s and t and not differing_columns(b, s) & differing_columns(b, t):
            state[entity] = {**t, **{name: s[name] for name in differing_columns(b, s)}}
        elif resolve is not None:
            _put(state, entity, s if resolve == "theirs" else t)
        else:
            conflicts.add((_kind(b, s, t, settled), entity[1]))
    return state, conflicts


def _kind(b: Row | None, s: Row | None, t: Row | None, settled: bool) -> str:
    if s is None or t is None:
        return "delete_vs_update"
    return "divergent_insert" if b is None and settled else "divergent_update"


def _put(state: State, entity: tuple[str, str], row: Row | None) -> None:
    if row is None:
        state.pop(entity, None)
    else:
        state[entity] = row


def differing_columns(row: Row, other: Row) -> set[str]:
    return {name for name in row if row[name] != other[name]}


def orphans(state: Mapping[tuple[str, str], Row]) -> Iterable[tuple[str, str]]:
    for (kind, row_id), row in state.items():
        if any(("Person", row[end]) not in state for end in ENDS.get(kind, ())):
            yield kind, row_id


def difference(old: State, new: State) -> set[tuple[str, str, str]]:
    """(type, id, op) of every row that differs."""
    found = set()
    for kind, row_id in {*old, *new}:
        before, after = old.get((kind, row_id)), new.get((kind, row_id))
        if before != after:
            op = "insert" if before is None else "delete" if after is None else "update"
            found.add((kind, row_id, op))
    return found
