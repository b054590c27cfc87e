"""The footprint of a plan, that is, what it read and wrote; and the test whether another commit conflicts with it.

| class         | written by                                        | read by                                          |
|---------------|---------------------------------------------------|--------------------------------------------------|
| `row` id      | insert, update, delete of the row                 | the same; every row used to compute the change   |
| `live` id     | delete of the node                                | insert or move of an edge, at both ends          |
| `inc` id      | insert, delete, move of an edge at that node      | delete of the node                               |
| `uniq:k` tuple| old and new tuple of a changed row                | the new tuple                                    |
| `card` src    | insert, delete, move of an edge, if `@card` binds | the same; insert of a node that needs edges      |
| `table|*`     | changes with too many keys to name                | plans that depend on the whole table             |

Keys are 64-bit hashes: a collision can only cause a needless retry, never a missed conflict.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.compute as pc
import xxhash

from omnigraph.log.commit_record import CommitRecord, Stub, WriteSet

OPS_SCOPE = "_ops|row"
"""The scope of claims on the receipts of client keys and intents."""

EXACT_KEYS_MAX = 4096
"""Above this many keys, the writes of one scope are stated as a wildcard."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition that selected rows of one table; a new row that satisfies it is a phantom."""

    table: str
    condition: pc.Expression


@dataclass(frozen=True)
class Footprint:
    """What a plan depends on and what it writes.

    `reads` has hashed keys by scope, which is `table|class` with a class of the table above; `reads_all` names tables
    read as a whole; `predicates` are conditions by which rows were selected.
    """

    reads: Mapping[str, frozenset[int]] = field(default_factory=dict)
    reads_all: frozenset[str] = frozenset()
    predicates: tuple[Predicate, ...] = ()
    writes: WriteSet = field(default_factory=WriteSet)

    @cached_property
    def read_keys(self) -> frozenset[int]:
        return frozenset().union(*self.reads.values())

    @cached_property
    def write_keys(self) -> frozenset[int]:
        return frozenset(self.writes.exact.tolist())

    def claims_only(self, scope: str) -> Footprint:
        """The footprint reduced to its reads in one scope."""
        return Footprint({scope: self.reads[scope]} if scope in self.reads else {})

    @property
    def is_broad(self) -> bool:
        """Whether the plan depends on, or writes, more than the keys that the footprint names."""
        return bool(self.reads_all or self.predicates or self.writes.wild)


@dataclass(frozen=True, slots=True)
class PlanConflict:
    """Why a plan no longer holds. `table` is the table concerned, or None if the reason concerns the whole graph."""

    table: str | None
    reason: str


class FootprintBuilder:
    """Collects reads and writes while a change is prepared."""

    def __init__(self) -> None:
        self._reads: defaultdict[str, set[int]] = defaultdict(set)
        self._writes: defaultdict[str, set[int]] = defaultdict(set)
        self._reads_all: set[str] = set()
        self._wild: set[str] = set()
        self._predicates: list[Predicate] = []

    def read(self, table: str, kind: str, key: str) -> None:
        self._reads[f"{table}|{kind}"].add(hash_claim(table, kind, key))

    def write(self, table: str, kind: str, key: str) -> None:
        self._writes[f"{table}|{kind}"].add(hash_claim(table, kind, key))

    def read_write(self, table: str, kind: str, key: str) -> None:
        self.read(table, kind, key)
        self.write(table, kind, key)

    def read_all(self, table: str) -> None:
        self._reads_all.add(table)

    def write_all(self, table: str, kind: str | None = None) -> None:
        self._wild.add(f"{table}|*" if kind is None else f"{table}|{kind}|*")

    def predicate(self, table: str, condition: pc.Expression) -> None:
        self._predicates.append(Predicate(table, condition))

    def build(self) -> Footprint:
        wild = set(self._wild)
        exact: set[int] = set()
        for scope, keys in self._writes.items():
            if len(keys) > EXACT_KEYS_MAX:
                wild.add(f"{scope}|*")
            else:
                exact |= keys
        scopes = frozenset(self._writes) | {wildcard.removesuffix("|*") for wildcard in wild}
        writes = WriteSet(np.array(sorted(exact), np.uint64), frozenset(wild), scopes)
        reads = {scope: frozenset(keys) for scope, keys in self._reads.items()}
        return Footprint(reads, frozenset(self._reads_all), tuple(self._predicates), writes)


def hash_claim(table: str, kind: str, key: str) -> int:
    return xxhash.xxh64_intdigest(f"{table}|{kind}|{key}".encode())


def tuple_key(values: Iterable[Any]) -> str:
    """One text for a tuple of values; JSON keeps `("a", "b")` and `("a,b",)` apart."""
    return json.dumps([value if isinstance(value, (str, int, float, bool)) else str(value) for value in values])


def merge_writes(parts: Iterable[WriteSet]) -> WriteSet:
    """The write set of a record with several members."""
    write_sets = list(parts)
    if len(write_sets) == 1:
        return write_sets[0]
    exact = np.unique(np.concatenate([np.empty(0, np.uint64), *(write_set.exact for write_set in write_sets)]))
    wild = frozenset().union(*(write_set.wild for write_set in write_sets))
    return WriteSet(exact, wild, frozenset().union(*(write_set.scopes for write_set in write_sets)))


def find_footprint_conflict(footprint: Footprint, schema: str, entry: CommitRecord | Stub) -> PlanConflict | None:
    """The conflict test: does `entry`, which landed after the plan's base, change what the footprint depends on?

    `schema` is the schema of the plan's base.
    """
    if isinstance(entry, Stub):
        return PlanConflict(None, "a commit in between was collected, so what it wrote is unknown")
    if not entry.is_logical:
        return None
    if entry.schema != schema:
        return PlanConflict(None, "the schema changed")
    return _find_key_conflict(footprint, entry.writes) or _find_phantom(footprint, entry)


def _find_key_conflict(footprint: Footprint, writes: WriteSet) -> PlanConflict | None:
    for scope in writes.wild:
        conflict = _find_wildcard_conflict(footprint, scope)
        if conflict:
            return conflict
    for table in footprint.reads_all:
        if any(scope.split("|", 1)[0] == table for scope in writes.scopes):
            return PlanConflict(table, "the table was written, and the change depends on all of it")
    for scope, keys in footprint.reads.items():
        if scope in writes.scopes and _intersects(keys, writes):
            return PlanConflict(scope.split("|", 1)[0], "a row or key that the change depends on was written")
    return None


def _find_wildcard_conflict(footprint: Footprint, wild: str) -> PlanConflict | None:
    table, _, kind = wild.removesuffix("|*").partition("|")
    depends = table in footprint.reads_all or any(
        scope == f"{table}|{kind}" if kind else scope.split("|", 1)[0] == table for scope in footprint.reads
    )
    by_predicate = not kind and any(predicate.table == table for predicate in footprint.predicates)
    return PlanConflict(table, "a bulk change wrote the table") if depends or by_predicate else None


def _intersects(keys: frozenset[int], writes: WriteSet) -> bool:
    if not keys or not len(writes.exact):
        return False
    return bool(np.isin(np.fromiter(keys, np.uint64, len(keys)), writes.exact, assume_unique=True).any())


def _find_phantom(footprint: Footprint, commit_record: CommitRecord) -> PlanConflict | None:
    """The conflict if `commit_record` wrote a row that a predicate of the footprint would have selected.

    Only new row images matter: a row that matched before the write is among the rows that the plan read.
    """
    for predicate in footprint.predicates:
        touched = commit_record.touched.get(predicate.table)
        if touched is None:
            continue
        if touched.staged:
            return PlanConflict(
                predicate.table, "a bulk change wrote the table, and the change selects rows of it by a condition"
            )
        own_entries = commit_record.own_entries(predicate.table)
        if own_entries is not None and own_entries.rows.filter(predicate.condition).num_rows:
            return PlanConflict(predicate.table, "a new row satisfies a condition of the change")
    return None


def depends_on_member(footprint: Footprint, other_footprint: Footprint, touched_rows: Mapping[str, Any]) -> bool:
    """Whether a plan with `footprint` depends on what another plan, prepared on the same base, writes.

    `touched_rows` maps a table to the Arrow rows that the other plan writes, for the predicates of `footprint`.
    """
    if _find_key_conflict(footprint, other_footprint.writes):
        return True
    for predicate in footprint.predicates:
        rows = touched_rows.get(predicate.table)
        if rows is not None and rows.filter(predicate.condition).num_rows:
            return True
    return False
