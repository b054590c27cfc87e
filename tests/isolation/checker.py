"""Are these transactions serializable? The search for cycles over recorded list-append histories.

Every transaction reads whole lists and appends values, each value at most once ever. Then the longest list that anybody
read shows the order in which the values of its key were written, and every dependency follows from that:

    ww  one wrote the value after which the other wrote
    wr  one wrote the last value that the other read
    rw  one read the list before the other's value was in it
    rt  one was acknowledged before the other began (real time; so a cycle with it is a broken strict order)

A cycle of dependencies is an anomaly, named by what it takes (Adya): G0 only ww, G1c also wr, G-single one rw,
G2 several. Without dependencies at all: G1a, a value of a failed transaction was read; G1b, an unfinished one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

Outcome = Literal["ok", "fail", "unknown"]
Word = Literal["ww", "wr", "rw", "rt"]


@dataclass(frozen=True, slots=True)
class Read:
    """The whole list of a key, as it was seen."""

    key: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Append:
    """One value at the end of a list."""

    key: str
    value: int


Step = Read | Append


@dataclass(frozen=True, slots=True)
class Transaction:
    """What one transaction did, in order, and how it ended. Times are of one clock; None is not compared."""

    name: str
    steps: tuple[Step, ...]
    outcome: Outcome = "ok"
    began_s: float | None = None
    ended_s: float | None = None

    @property
    def appends(self) -> list[Append]:
        return [step for step in self.steps if isinstance(step, Append)]

    @classmethod
    def from_json(cls, name: str, raw: Mapping[str, Any]) -> Transaction:
        steps: list[Step] = []
        for word, key, value in raw["steps"]:
            steps.append(Read(key, tuple(value)) if word == "read" else Append(key, value))
        return cls(name, tuple(steps), raw["outcome"], raw["began_s"], raw["ended_s"])


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something no serial order explains."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass(frozen=True, slots=True)
class Dependency:
    """`before` must precede `after`."""

    before: str
    after: str
    word: Word
    why: str


def check(history: Sequence[Transaction], final: Mapping[str, Sequence[int]]) -> list[Anomaly]:
    """Every anomaly found; `final` is what the lists held in the end. Empty means strictly serializable."""
    impossible = list(_impossible(history, final))
    orders, torn = _orders(history, final)
    impossible += torn
    if not impossible:
        # Of an undecided transaction only what somebody saw is known to have happened.
        visible_values = {(key, value) for key, values in orders.items() for value in values}
        counted = [
            transaction
            for transaction in history
            if transaction.outcome == "ok" or _was_seen(transaction, visible_values)
        ]
        impossible += _cycles(list(dependencies(counted, orders)))
    return impossible


# ---- reads that no order explains ------------------------------------------------------------------------------------


def _impossible(history: Sequence[Transaction], final: Mapping[str, Sequence[int]]) -> Iterator[Anomaly]:
    writers = _writers(history)
    for transaction in history:
        if transaction.outcome == "ok":
            yield from _own_view(transaction)
    for name, key, values in _all_reads(history, final):
        if len(set(values)) < len(values):
            yield Anomaly("duplicate", f"{name} read {key} = {list(values)}")
        for position, value in enumerate(values):
            writer = writers.get((key, value))
            if writer is None:
                yield Anomaly("phantom value", f"{name} read {value} of {key}, which nobody appended")
            elif writer.outcome == "fail":
                yield Anomaly("G1a", f"{name} read {value} of {key}, which the failed {writer.name} appended")
            elif writer.name != name and position == len(values) - 1 and _goes_on(writer, key, value):
                yield Anomaly("G1b", f"{name} read {key} up to {value}, in the middle of {writer.name}")
    yield from _find_lost_writes(history, final)


def _own_view(transaction: Transaction) -> Iterator[Anomaly]:
    """Within a transaction a list only grows by the transaction's own values."""
    lists: dict[str, tuple[int, ...]] = {}
    unread: defaultdict[str, list[int]] = defaultdict(list)
    for step in transaction.steps:
        if isinstance(step, Append):
            if step.key in lists:
                lists[step.key] = (*lists[step.key], step.value)
            else:
                unread[step.key].append(step.value)
            continue
        expected = lists.get(step.key)
        own_values = unread.pop(step.key, [])
        if expected is not None and step.values != expected:
            yield Anomaly(
                "internal", f"{transaction.name} read {step.key} = {list(step.values)} after {list(expected)}"
            )
        elif own_values and list(step.values[-len(own_values) :]) != own_values:
            yield Anomaly("internal", f"{transaction.name} does not see its own {own_values} in {step.key}")
        lists[step.key] = step.values


def _find_lost_writes(history: Sequence[Transaction], final: Mapping[str, Sequence[int]]) -> Iterator[Anomaly]:
    for transaction in history:
        if transaction.outcome != "ok":
            continue
        for append in transaction.appends:
            if append.value not in final.get(append.key, ()):
                yield Anomaly("lost", f"{append.value} of {append.key}, which {transaction.name} was told had landed")


def _goes_on(writer: Transaction, key: str, value: int) -> bool:
    own_values = [append.value for append in writer.appends if append.key == key]
    return own_values[-1] != value


def _all_reads(
    history: Sequence[Transaction], final: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    for transaction in history:
        if transaction.outcome == "ok":
            yield from (
                (transaction.name, step.key, step.values) for step in transaction.steps if isinstance(step, Read)
            )
    yield from (("the end", key, tuple(values)) for key, values in final.items())


def _orders(
    history: Sequence[Transaction], final: Mapping[str, Sequence[int]]
) -> tuple[dict[str, tuple[int, ...]], list[Anomaly]]:
    """The order of each key's values; every read must be a beginning of it."""
    longest: dict[str, tuple[int, ...]] = {}
    for _, key, values in _all_reads(history, final):
        longest[key] = max(longest.get(key, ()), values, key=len)
    torn = [
        Anomaly("incompatible order", f"{name} read {key} = {list(values)}, others {list(longest[key])}")
        for name, key, values in _all_reads(history, final)
        if longest[key][: len(values)] != values
    ]
    return longest, torn


def _writers(history: Sequence[Transaction]) -> dict[tuple[str, int], Transaction]:
    writers: dict[tuple[str, int], Transaction] = {}
    for transaction in history:
        for append in transaction.appends:
            assert (append.key, append.value) not in writers, f"{append} is there twice: the history cannot be judged"
            writers[append.key, append.value] = transaction
    return writers


def _was_seen(transaction: Transaction, values_read: set[tuple[str, int]]) -> bool:
    return any((append.key, append.value) in values_read for append in transaction.appends)


# ---- dependencies ----------------------------------------------------------------------------------------------------


def dependencies(history: Sequence[Transaction], orders: Mapping[str, Sequence[int]]) -> Iterator[Dependency]:
    writers = {key_and_value: transaction.name for key_and_value, transaction in _writers(history).items()}
    for key, values in orders.items():
        for earlier, later in pairwise(values):
            yield from _unless_same(
                writers[key, earlier], writers[key, later], "ww", f"{key}: {earlier} before {later}"
            )
    for transaction in history:
        for step in transaction.steps if transaction.outcome == "ok" else ():
            if isinstance(step, Read):
                yield from _of_read(transaction.name, step, orders.get(step.key, ()), writers)
    yield from _real_time(history)


def _of_read(
    name: str, read: Read, order: Sequence[int], writers: Mapping[tuple[str, int], str]
) -> Iterator[Dependency]:
    if read.values:
        last = read.values[-1]
        yield from _unless_same(writers[read.key, last], name, "wr", f"{read.key}: {last} was read")
    if len(read.values) < len(order):
        missing = order[len(read.values)]
        yield from _unless_same(name, writers[read.key, missing], "rw", f"{read.key}: {missing} was not read")


def _unless_same(before: str, after: str, word: Word, why: str) -> Iterator[Dependency]:
    if before != after:
        yield Dependency(before, after, word, why)


def _real_time(history: Sequence[Transaction]) -> Iterator[Dependency]:
    """Only to those that began before the next one ended: the others follow from these."""
    timed = [transaction for transaction in history if transaction.began_s is not None]
    by_begin = sorted(timed, key=lambda transaction: transaction.began_s or 0.0)
    for transaction in timed:
        if transaction.ended_s is None or transaction.outcome != "ok":
            continue
        soonest = float("inf")
        for later in by_begin:
            assert later.began_s is not None
            if later.began_s <= transaction.ended_s:
                continue
            if later.began_s > soonest:
                break
            yield Dependency(transaction.name, later.name, "rt", "acknowledged before it began")
            if later.ended_s is not None and later.outcome == "ok":
                soonest = min(soonest, later.ended_s)


# ---- cycles ----------------------------------------------------------------------------------------------------------

#: From the worst to the mildest: which words a cycle may use, and how many rw it takes.
_KINDS: tuple[tuple[str, frozenset[Word], int], ...] = (
    ("G0", frozenset({"ww"}), 0),
    ("G1c", frozenset({"ww", "wr"}), 0),
    ("G-single", frozenset({"ww", "wr", "rw"}), 1),
    ("G2", frozenset({"ww", "wr", "rw"}), 2),
    ("real time", frozenset({"ww", "wr", "rw", "rt"}), 0),
)


def _cycles(edges: Sequence[Dependency]) -> list[Anomaly]:
    """One anomaly for every knot of transactions that wait for each other, by the worst cycle in it."""
    cycles = []
    for knot in _knots(edges):
        inside = [edge for edge in edges if edge.before in knot and edge.after in knot]
        kind, cycle = _worst(inside)
        cycles.append(Anomaly(kind, " → ".join(f"{edge.before} ({edge.word}, {edge.why})" for edge in cycle)))
    return cycles


def _worst(edges: Sequence[Dependency]) -> tuple[str, list[Dependency]]:
    for kind, words, least_rw in _KINDS:
        usable = [edge for edge in edges if edge.word in words]
        cycle = _shortest(usable, one_rw=least_rw == 1)
        if cycle:
            return kind, cycle
    raise AssertionError("a knot without a cycle")


def _shortest(edges: Sequence[Dependency], *, one_rw: bool) -> list[Dependency]:
    """The shortest cycle; with `one_rw` one that uses a single rw edge, and uses it."""
    start_edges = [edge for edge in edges if edge.word == "rw"] if one_rw else edges
    candidates = [edge for edge in edges if edge.word != "rw"] if one_rw else edges
    out: defaultdict[str, list[Dependency]] = defaultdict(list)
    for edge in candidates:
        out[edge.before].append(edge)
    cycles = ([first, *path] for first in start_edges if (path := _path(out, first.after, first.before)) is not None)
    return min(cycles, key=len, default=[])


def _path(out: Mapping[str, Sequence[Dependency]], start: str, goal: str) -> list[Dependency] | None:
    """Breadth first."""
    came: dict[str, Dependency | None] = {start: None}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if node == goal:
            return list(_back(came, goal))
        for edge in out.get(node, ()):
            if edge.after not in came:
                came[edge.after] = edge
                waiting.append(edge.after)
    return None


def _back(came: Mapping[str, Dependency | None], goal: str) -> Iterable[Dependency]:
    path = []
    edge = came[goal]
    while edge is not None:
        path.append(edge)
        edge = came[edge.before]
    return reversed(path)


def _knots(edges: Sequence[Dependency]) -> list[set[str]]:
    """Strongly connected sets of more than one transaction (Tarjan, without recursion)."""
    out: defaultdict[str, list[str]] = defaultdict(list)
    for edge in edges:
        out[edge.before].append(edge.after)
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    waiting: set[str] = set()
    knots: list[set[str]] = []
    for root in list(out):
        if root in number:
            continue
        work: list[tuple[str, Iterator[str]]] = []

        def enter(node: str, work: list[tuple[str, Iterator[str]]] = work) -> None:
            number[node] = low[node] = len(number)
            stack.append(node)
            waiting.add(node)
            work.append((node, iter(out.get(node, ()))))

        enter(root)
        while work:
            node, after = work[-1]
            step = next((successor for successor in after if successor not in number or successor in waiting), None)
            if step is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    knots.append(_pop_component(stack, waiting, node))
            elif step not in number:
                enter(step)
            else:
                low[node] = min(low[node], number[step])
    return [knot for knot in knots if len(knot) > 1]


def _pop_component(stack: list[str], waiting: set[str], until: str) -> set[str]:
    knot = set()
    while True:
        node = stack.pop()
        waiting.discard(node)
        knot.add(node)
        if node == until:
            return knot
