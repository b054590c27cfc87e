"""What an operation cost, what it may cost, and the comparison of the two. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.storage.lance.open_versions import IoStats
from omnigraph.storage.metering import Measurement
from tests.support.traffic import Traffic

_TABLE = "table"
_WRITES = frozenset({"WRITE", "PUT", "COPY", "DELETE", "DELETE_MANY", "PART_START", "PART", "PART_END", "PART_ABORT"})


class OverBudget(AssertionError):
    """An operation cost more than it may."""

    def __init__(self, message: str, cost: Cost) -> None:
        super().__init__(message)
        self.cost = cost


@dataclass(frozen=True, slots=True)
class Cost:
    """Requests by (kind, key class), Lance's own included, and the longest chain that had to wait in turn.

    Seen from inside, Lance tells only how often it read and wrote: kinds `READ` and `WRITE` of class `table`. On the
    wire its requests have kinds and classes (`table-data`, `table-manifest` …) like all others.
    """

    counts: tuple[tuple[tuple[str, str], int], ...]
    hops: int

    @classmethod
    def of(cls, counts: Mapping[tuple[str, str], int], hops: int) -> Cost:
        return cls(tuple(sorted((key, count) for key, count in counts.items() if count)), hops)

    @classmethod
    def from_meters(cls, measurement: Measurement, lance: IoStats) -> Cost:
        """From our own meter and Lance's counters. Hops are those of our own requests only."""
        counts = Counter(
            {(kind.value, part.value): count for (kind, part), count in measurement.by_kind_and_class.items()}
        )
        counts[("READ", _TABLE)] = lance.read_iops
        counts[("WRITE", _TABLE)] = lance.write_iops
        return cls.of(counts, measurement.hops)

    @classmethod
    def on_the_wire(cls, traffic: Traffic) -> Cost:
        return cls.of(traffic.counts, traffic.hops)

    @property
    def requests(self) -> int:
        return sum(count for _, count in self.counts)

    @property
    def lists(self) -> int:
        """Listings of anything, by anybody."""
        return sum(count for (kind, _), count in self.counts if kind == "LIST")

    @property
    def table_reads(self) -> int:
        return sum(count for (kind, part), count in self.counts if part.startswith(_TABLE) and kind not in _WRITES)

    @property
    def table_writes(self) -> int:
        return sum(count for (kind, part), count in self.counts if part.startswith(_TABLE) and kind in _WRITES)

    def own(self, kind: str, part: str | None = None) -> int:
        """Requests that are not Lance's, of one kind and perhaps one part of the layout."""
        return sum(
            count
            for (verb, where), count in self.counts
            if verb == kind and not where.startswith(_TABLE) and part in (None, where)
        )

    @property
    def without_tables(self) -> dict[tuple[str, str], int]:
        return {(kind, part): count for (kind, part), count in self.counts if not part.startswith(_TABLE)}

    def __str__(self) -> str:
        parts = ", ".join(f"{count} {kind} {part}" for (kind, part), count in self.counts)
        return f"{self.requests} requests in {self.hops} hops ({parts or 'none'})"


#: What opening for writing may look at, once: whether a dead bulk operation is to be ended.
NEVER_BUT_INTENTS = frozenset({"archive", "trash", "lease", "tag", "lock", "other"})


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that an operation may cost. What is not mentioned may not happen at all.

    `exactly`: nothing may be missing either, except that `table_reads` stays a bound: what Lance has cached already
    it does not read. `total` and `hops` bound the whole, where that is less than the sum.
    """

    puts: int = 0
    gets: int = 0
    lists: int = 0
    heads: int = 0
    deletes: int = 0
    table_reads: int = 0
    table_writes: int = 0
    total: int | None = None
    hops: int | None = None
    exactly: bool = False
    never: frozenset[str] = field(default=NEVER_BUT_INTENTS | {"intent"})

    def breaches(self, cost: Cost) -> list[str]:
        """What is over the budget, in words; empty if the cost is within it."""
        breaches = [
            f"{actual} {measure} instead of {'exactly' if exact else 'at most'} {allowed}"
            for measure, allowed, actual, exact in self._limits(cost)
            if actual > allowed or (exact and actual != allowed)
        ]
        breaches += [f"{count} {kind} of {part}" for (kind, part), count in cost.counts if part in self.never]
        return breaches

    def hold(self, cost: Cost, what: str) -> None:
        """Raise OverBudget unless `cost` is within this budget."""
        breaches = self.breaches(cost)
        if breaches:
            raise OverBudget(f"{what}: {'; '.join(breaches)}. It cost {cost}", cost)

    def _limits(self, cost: Cost) -> list[tuple[str, int, int, bool]]:
        limits = [
            ("PUT", self.puts, cost.own("PUT"), self.exactly),
            ("GET", self.gets, cost.own("GET"), self.exactly),
            ("LIST", self.lists, cost.lists, self.exactly),
            ("HEAD", self.heads, cost.own("HEAD"), self.exactly),
            ("DELETE", self.deletes, cost.own("DELETE"), self.exactly),
            ("reads by Lance", self.table_reads, cost.table_reads, False),
            ("writes by Lance", self.table_writes, cost.table_writes, self.exactly),
        ]
        if self.total is not None:
            limits.append(("requests", self.total, cost.requests, False))
        if self.hops is not None:
            limits.append(("hops", self.hops, cost.hops, False))
        return limits


def cold_open(*, read_only: bool) -> Budget:
    """What opening a graph costs, exactly, whatever it holds."""
    if read_only:
        return Budget(gets=3, lists=1, hops=3, exactly=True)
    return Budget(gets=3, lists=2, puts=1, hops=4, exactly=True, never=NEVER_BUT_INTENTS)
