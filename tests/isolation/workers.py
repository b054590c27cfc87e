"""Transactions that read lists and append to them, run by real processes against one graph.

A list is the rows of one name, in the order of their positions; its end is found by reading it, and a strict insert at
that position fails if somebody else was there. A list that was only read is vouched for in the same way: the row at its
end is inserted and removed again within the transaction, which leaves nothing but the dependency.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import omnigraph
from omnigraph.api import Graph
from omnigraph.commit import publisher as publish
from omnigraph.config import Config
from omnigraph.errors import Conflict, PreconditionFailed, Unavailable, Unknown
from omnigraph.query.language.statements import Compare
from tests.support.processes import Link

SCHEMA = """
node Item { list: String  position: I32  value: I64  @key(list, position) }
node Warm { number: I32 @key }
"""

ADD = "query add($k: String, $p: I32, $v: I64) { insert Item { list: $k, position: $p, value: $v } }"
DROP = "query drop($k: String, $p: I32) { delete Item where list = $k and position = $p }"

_LISTS = 3
_OPERATIONS_PER_LISTS = 12
"""So many operations of a worker go to the same few lists, then to others: lists stay short, and everybody meets."""

Lists = dict[str, list[int]]


def run(link: Link, *, uri: str, seed: int, seconds_s: float, config: Mapping[str, Any], broken: bool = False) -> int:
    """Random transactions until the time is over; each is reported before it writes and after it ended."""
    if broken:
        vars(publish)["find_footprint_conflict"] = lambda *_: None
    worker_config = Config(fsync=False, publish_deadline_s=10.0, **config)
    graph = omnigraph.open(uri, config=worker_config)
    chance = random.Random(f"{seed}/{link.index}")
    _warm(graph, link.index)
    link.ready()
    until_s, number = time.monotonic() + seconds_s, 0
    while time.monotonic() < until_s:
        _one(link, graph, chance, number)
        number += 1
    return number


def _warm(graph: Graph, number: int) -> None:
    """Load and parse what the first transaction would otherwise have to: on a busy machine that takes seconds."""
    with graph.transaction() as transaction:
        transaction.mutate(ADD, {"k": "warm", "p": number, "v": 0})
        transaction.mutate(DROP, {"k": "warm", "p": number})
        transaction.mutate("query warm($n: I32) { insert Warm { number: $n } }", {"n": number})
    graph.fold()
    _read(graph.view(), "none")


def _one(link: Link, graph: Graph, chance: random.Random, number: int) -> None:
    kind = chance.choice(list(_KINDS))
    group = number // _OPERATIONS_PER_LISTS
    keys = chance.sample([f"{group}.{list_number}" for list_number in range(_LISTS)], chance.randint(1, _LISTS))
    began_s = time.monotonic()
    view = graph.view()
    lists_read = {key: _read(view, key) for key in keys}
    appended = [] if kind == "read" else keys[: chance.randint(1, len(keys))]
    if kind == "mutation":
        keys = appended  # what it only read would have nobody to vouch for it
    values = {key: (link.index * 1_000_000 + number) * 10 + position for position, key in enumerate(appended)}
    steps: list[tuple[str, str, Any]] = [("read", key, lists_read[key]) for key in keys]
    steps += [("append", key, value) for key, value in values.items()]
    link.send(begin=number, kind=kind, steps=steps, began_s=began_s)
    outcome = "ok"
    try:
        _KINDS[kind](graph, view.commit_id, lists_read, keys, values)
    except (Conflict, PreconditionFailed):
        outcome = "fail"
    except (Unknown, Unavailable):
        outcome = "unknown"
    link.send(end=number, outcome=outcome, ended_s=time.monotonic())


def _read(view: Any, key: str) -> list[int]:
    rows = view.table("Item").to_arrow(["position", "value"], where=Compare("list", "=", key)).to_pylist()
    rows.sort(key=lambda row: row["position"])
    assert [row["position"] for row in rows] == list(range(len(rows))), f"{key} has a gap: {rows}"
    return [row["value"] for row in rows]


def read_all(graph: Graph) -> Lists:
    """Every list as it is now."""
    view = graph.view()
    names = {row["list"] for row in view.table("Item").to_arrow(["list"]).to_pylist()}
    return {key: _read(view, key) for key in names}


def _only_read(graph: Graph, commit_id: str, lists: Lists, keys: Sequence[str], values: Mapping[str, int]) -> None:
    """A view is one state."""


def _if_commit(graph: Graph, commit_id: str, lists: Lists, keys: Sequence[str], values: Mapping[str, int]) -> None:
    """Nothing may have happened since the reads."""
    graph.mutate_many(ADD, _rows(lists, values), strict=True, if_commit=commit_id)


def _mutation(graph: Graph, commit_id: str, lists: Lists, keys: Sequence[str], values: Mapping[str, int]) -> None:
    """The strict inserts themselves tell whether the lists ended there."""
    graph.mutate_many(ADD, _rows(lists, values), strict=True)


def _transaction(graph: Graph, commit_id: str, lists: Lists, keys: Sequence[str], values: Mapping[str, int]) -> None:
    """Every list that was read is vouched for."""
    with graph.transaction() as transaction:
        for key in keys:
            append = {"k": key, "p": len(lists[key])}
            transaction.mutate(ADD, {**append, "v": values.get(key, 0)}, strict=True)
            if key not in values:
                transaction.mutate(DROP, append)


def _rows(lists: Lists, values: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"k": key, "p": len(lists[key]), "v": value} for key, value in values.items()]


_KINDS: Mapping[str, Callable[[Graph, str, Lists, Sequence[str], Mapping[str, int]], None]] = {
    "read": _only_read,
    "if_commit": _if_commit,
    "mutation": _mutation,
    "transaction": _transaction,
}
