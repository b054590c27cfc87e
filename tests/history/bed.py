"""A small graph with branches for tests of merge, diff and feed, and short words for what is done to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.config import Config
from omnigraph.errors import MergeConflict
from omnigraph.history.diff import Change
from omnigraph.history.report import MergeReport
from omnigraph.query.language.statements import And, Compare, Delete, InsertEdge, InsertNode, Statement, Update

PEOPLE = """
node Person { name: String @key  nick: String?  age: I32?  tags: [String]? }
node Firm { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Firm
"""

QUIET = Config(fsync=False, fold="never")
FOLDING = Config(fsync=False, fold="always")
STAGING = Config(fsync=False, fold="never", inline_share=0)

#: How a side keeps what it writes: in the record, folded after each commit, or in the table at once.
LAYOUTS = {"inline": QUIET, "folded": FOLDING, "staged": STAGING}

Rows = dict[str, dict[str, Any]]
Content = dict[str, Rows]


@dataclass(frozen=True)
class MergeBed:
    """One graph; every handle may have its own way to lay rows out."""

    place: Path

    @classmethod
    def make(cls, path: Path, schema: str = PEOPLE) -> MergeBed:
        og.init(path, schema, config=QUIET)
        return cls(path)

    def on(self, branch: str = "main", layout: str = "inline") -> Graph:
        return og.open(self.place, branch, config=LAYOUTS[layout])

    @property
    def main(self) -> Graph:
        return self.on()

    def fork(self, name: str, source: str = "main") -> Graph:
        return self.main.branch.create(name, source)

    def merge(self, source: str, into: str = "main", **options: Any) -> MergeReport:
        return self.main.branch.merge(source, into, **options)


def people(*names: str) -> list[Statement]:
    return [InsertNode("Person", {"name": name}) for name in names]


def person(name: str, **values: Any) -> Statement:
    return InsertNode("Person", {"name": name, **values})


def change(name: str, **values: Any) -> Statement:
    return Update("Person", values, Compare("name", "=", name))


def remove(name: str, kind: str = "Person") -> Statement:
    return Delete(kind, Compare("name", "=", name))


def knows(source: str, target: str, edge: str | None = None, **values: Any) -> Statement:
    return InsertEdge("Knows", source, target, {**values, **({"id": edge} if edge else {})})


def forget(source: str, target: str) -> Statement:
    return Delete("Knows", And((Compare("from", "=", source), Compare("to", "=", target))))


def content(graph: Any) -> Content:
    """Everything a reader sees, by type and id; columns by name."""
    view = graph.view() if isinstance(graph, Graph) else graph
    return {type_def.name: rows(view, type_def.name) for type_def in view.catalog.types}


def rows(view: Any, kind: str) -> Rows:
    return {row["id"]: row for row in view.table(kind).to_arrow().to_pylist()}


def names(graph: Graph, kind: str = "Person") -> set[str]:
    return set(rows(graph, kind))


def ends(graph: Graph, kind: str = "Knows") -> list[tuple[str, str]]:
    return sorted((row["from"], row["to"]) for row in rows(graph, kind).values())


def tables_touched(graph: Graph) -> dict[str, Mapping[str, Any]]:
    """What the newest commit says it changed, by table; the engine's own table of answers left out."""
    touched = graph.view().commit()["touched"]
    return {one["table_key"]: one for one in touched if not one["table_key"].startswith("_")}


def difference(old: Content, new: Content) -> set[tuple[str, str, str]]:
    """(type, id, op) of every row that is not the same in two contents."""
    touched = set()
    for kind in old.keys() | new.keys():
        before, after = old.get(kind, {}), new.get(kind, {})
        for row_id in before.keys() | after.keys():
            if row_id not in before:
                touched.add((kind, row_id, "insert"))
            elif row_id not in after:
                touched.add((kind, row_id, "delete"))
            elif before[row_id] != after[row_id]:
                touched.add((kind, row_id, "update"))
    return touched


def summarize(changes: Iterable[Change]) -> set[tuple[str, str, str]]:
    return {(change.type, change.id, change.op) for change in changes}


def conflicts_of(merge: Callable[[], object]) -> Sequence[Mapping[str, Any]]:
    with pytest.raises(MergeConflict) as caught:
        merge()
    return caught.value.conflicts


def kinds_of(conflicts: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(conflict["kind"], conflict["entity_id"]) for conflict in conflicts]
