"""What operations mean, in plain Python on dictionaries: the half of the oracle that shares no code with the engine.

A state maps a type to its rows by id; a row maps property names (and `from`, `to`) to values. An operation is a list
of statements as JSON, applied in order and checked as a whole at the end.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique }
node Note { tag: String?  size: I32? }
node Task { title: String @key }
edge Knows: Person -> Person { tag: String?  since: I32? }
edge Likes: Person -> Person { tag: String?  @unique(src, dst) }
edge Owns: Person -> Note @card(0..2) { tag: String? }
edge Needs: Task -> Person @card(1..) { tag: String? }
"""

Row = dict[str, Any]
State = dict[str, dict[str, Row]]
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelType:
    """A type as the model knows it."""

    properties: tuple[str, ...]
    key: str | None = None
    unique: tuple[str, ...] | None = None
    ends: tuple[str, str] | None = None
    low: int = 0
    high: int | None = None


KINDS: Mapping[str, ModelType] = {
    "Person": ModelType(("name", "age", "email"), key="name", unique=("email",)),
    "Note": ModelType(("tag", "size")),
    "Task": ModelType(("title",), key="title"),
    "Knows": ModelType(("tag", "since"), ends=("Person", "Person")),
    "Likes": ModelType(("tag",), unique=("from", "to"), ends=("Person", "Person")),
    "Owns": ModelType(("tag",), ends=("Person", "Note"), high=2),
    "Needs": ModelType(("tag",), ends=("Task", "Person"), low=1),
}


class Refused(Exception):
    """The operation changes nothing: `answer` is what the caller must be told."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.answer = answer


@dataclass
class Applied:
    """The state after an operation, and what the caller is told about it."""

    state: State
    counts: dict[str, int]
    minted: dict[str, str] = field(default_factory=dict)  # placeholder id → type, for rows whose id the engine chose


def empty() -> State:
    return {name: {} for name in KINDS}


def apply(state: State, statements: Sequence[Json]) -> Applied:
    """The state after the statements. Raises Refused, with the answer, if they change nothing."""
    run = _Run(state)
    for statement in statements:
        run.execute(statement)
    return run.finish()


def selects(row: Row, where: Json) -> bool:
    """Three-valued logic: a comparison with null selects nothing."""
    if "all" in where:
        return all(selects(row, part) for part in where["all"])
    if "any" in where:
        return any(selects(row, part) for part in where["any"])
    if "null" in where:
        return (row[where["null"]] is None) is not where.get("negated", False)
    value, right = row[where["name"]], where["value"]
    if value is None or right is None:
        return False
    compared: bool = _COMPARE[where["op"]](value, right)
    return compared


_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "in": lambda left, right: left in right,
}


class _Run:
    def __init__(self, state: State) -> None:
        self._before = state
        self._now: State = {name: dict(rows) for name, rows in state.items()}
        self._touched: dict[str, set[str]] = {name: set() for name in KINDS}
        self._minted: dict[str, str] = {}

    def execute(self, statement: Json) -> None:
        getattr(self, f"_{statement['do']}")(statement)

    def finish(self) -> Applied:
        changes = [
            (self._before[name].get(row_id), self._now[name].get(row_id))
            for name, ids in self._touched.items()
            for row_id in ids
        ]
        changes = [change for change in changes if change != (None, None)]
        if not changes:
            raise Refused("nothing")
        if next(violations(self._now), None) is not None:
            raise Refused("violation")
        counts = Counter(
            "inserted" if before is None else "deleted" if after is None else "updated" for before, after in changes
        )
        return Applied(
            self._now,
            {count_name: counts[count_name] for count_name in ("inserted", "updated", "deleted")},
            self._minted,
        )

    def _insert(self, statement: Json) -> None:
        kind, rows = KINDS[statement["type"]], self._now[statement["type"]]
        values = dict(statement["values"])
        if kind.ends is not None:
            values |= {"from": statement["from"], "to": statement["to"]}
        key_value = values.pop("id", None) if kind.key is None else values[kind.key]
        row_id = key_value if key_value is not None else f"?{values['tag']}"
        if key_value is None:
            self._minted[row_id] = statement["type"]
        if row_id in rows and statement["strict"]:
            raise Refused("key_conflict")
        nothing = dict.fromkeys([*kind.properties, *(("from", "to") if kind.ends else ())])
        self._put(statement["type"], row_id, {**rows.get(row_id, nothing), **values, "id": row_id})

    def _update(self, statement: Json) -> None:
        for row in self._matching(statement):
            self._put(statement["type"], row["id"], {**row, **statement["values"]})

    def _delete(self, statement: Json) -> None:
        deleted_ids = {row["id"] for row in self._matching(statement)}
        for row_id in deleted_ids:
            self._remove(statement["type"], row_id)
        for name, kind in KINDS.items():
            for row in list(self._now[name].values()) if kind.ends else ():
                at = [
                    end
                    for end, type_name in zip(("from", "to"), kind.ends or (), strict=True)
                    if type_name == statement["type"]
                ]
                if any(row[end] in deleted_ids for end in at):
                    self._remove(name, row["id"])

    def _matching(self, statement: Json) -> list[Row]:
        return [row for row in self._now[statement["type"]].values() if selects(row, statement["where"])]

    def _put(self, name: str, row_id: str, row: Row) -> None:
        self._now[name][row_id] = row
        self._touched[name].add(row_id)

    def _remove(self, name: str, row_id: str) -> None:
        del self._now[name][row_id]
        self._touched[name].add(row_id)


def violations(state: State) -> Iterator[str]:
    """Every broken rule of a whole state: uniqueness, endpoints, cardinality."""
    for name, kind in KINDS.items():
        rows = state[name].values()
        if kind.unique:
            counter = Counter(tuple(row[columns] for columns in kind.unique) for row in rows)
            yield from (
                f"{name}: {value} is held {times} times"
                for value, times in counter.items()
                if times > 1 and None not in value
            )
        if kind.ends is None:
            continue
        for row in rows:
            for end, type_name in zip(("from", "to"), kind.ends, strict=True):
                if row[end] not in state[type_name]:
                    yield f"{name} {row['id']}: no {type_name} {row[end]}"
        counts = Counter(row["from"] for row in rows)
        for source in state[kind.ends[0]]:
            if counts[source] < kind.low or (kind.high is not None and counts[source] > kind.high):
                yield f"{name}: {source} has {counts[source]}"


def digest(state: State) -> str:
    """One text for a whole state: equal states have equal digests."""
    rows = {name: sorted(state[name].values(), key=lambda row: str(row["id"])) for name in sorted(state)}
    return hashlib.sha1(json.dumps(rows, sort_keys=True).encode()).hexdigest()
