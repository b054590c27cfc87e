"""Small changes as records and as statements: a load and a mutation must do the same, or refuse for the same reason.

Each entry is what the graph holds before, the records, and the mode. `as_statements` says the same as a mutation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omnigraph.api import Graph
from omnigraph.query.language.statements import InsertEdge, InsertNode, Overwrite, Statement

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    email: String? @unique
    city: String @default("Rome")
    born: Date?
    seen: DateTime?
    mood: enum(happy, sad)?
    tags: [String]?
    place: Vector(2)?
    score: F64?
    small: F32?
    @range(age, 0..150)
    @check(email, "@")
}
node Point { x: I32  y: F64  label: String?  @key(x, y) }
node Note { text: String?  day: Date?  must: I32  @unique(text, day) }
node Task { title: String @key }
node File { name: String @key  body: Blob?  size: I32? }
edge Knows: Person -> Person { since: I32?  weight: F32? }
edge Likes: Person -> Person { why: String?  @unique(src, dst) }
edge Lives: Person -> Point @card(0..1)
edge Needs: Task -> Person @card(1..2)
"""
TYPES = ("Person", "Point", "Note", "Task", "File", "Knows", "Likes", "Lives", "Needs")

Line = Mapping[str, Any]


def node(kind: str, **data: Any) -> Line:
    return {"type": kind, "data": data}


def edge(kind: str, source: str, target: str, **data: Any) -> Line:
    return {"edge": kind, "from": source, "to": target, "data": data}


ADA, BOB = node("Person", name="ada", age=36, email="ada@x"), node("Person", name="bob")
HOME = node("Point", x=1, y=0.5)


@dataclass(frozen=True)
class Entry:
    """`codes`: rule or code of every violation, None if it must succeed."""

    name: str
    lines: Sequence[Line]
    before: Sequence[Line] = ()
    mode: str = "merge"
    codes: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def text(self) -> str:
        return "".join(json.dumps(line) + "\n" for line in self.lines)


CORPUS: Sequence[Entry] = (
    Entry("nothing", []),
    Entry("one node", [ADA]),
    Entry("nodes and an edge", [edge("Knows", "ada", "bob", since=3), ADA, BOB]),
    Entry("an edge without data", [{"edge": "Knows", "from": "ada", "to": "ada"}], [ADA]),
    Entry("an edge name in another case", [edge("knows", "ada", "ada", id="e")], [ADA]),
    Entry(
        "every kind of value",
        [
            node(
                "Person",
                name='é\u0000\n"',
                age=0,
                born="1815-12-10",
                seen="2026-01-31T10:00:00.123456+02:00",
                mood="sad",
                tags=["a", ""],
                place=[1, 2.5],
                score=1e-300,
                small=0.1,
            )
        ],
    ),
    Entry("dates as numbers", [node("Person", name="a", born=-1, seen=1700000000123)]),
    Entry("special floats as text", [node("Person", name="a", score="NaN", small="-Infinity")]),
    Entry("an empty list and nulls", [node("Person", name="a", tags=[], place=None, age=None)]),
    Entry("a composite key", [node("Point", x=-1, y=-0.0), node("Point", x=2, y=1e21)]),
    Entry("an id that agrees", [node("Person", name="a", id="a")]),
    Entry("a blob", [node("File", name="f", body="base64:aGk=")]),
    Entry("a blob stays", [node("File", name="f", size=3)], [node("File", name="f", body="base64:aGk=")]),
    Entry("merge keeps what is not mentioned", [node("Person", name="ada", city="Oslo")], [ADA]),
    Entry("merge sets null by name", [node("Person", name="ada", age=None)], [ADA]),
    Entry(
        "defaults are for new rows only", [node("Person", name="ada", age=1)], [node("Person", name="ada", city="Oslo")]
    ),
    Entry("a keyless node by id", [node("Note", id="n1", text="b")], [node("Note", id="n1", text="a", must=1)]),
    Entry(
        "an edge moves", [edge("Knows", "bob", "ada", id="e")], [ADA, BOB, edge("Knows", "ada", "bob", id="e", since=1)]
    ),
    Entry(
        "a freed unique value",
        [node("Person", name="ada", email="new@x"), node("Person", name="bob", email="ada@x")],
        [ADA, BOB],
    ),
    Entry("append", [BOB], [ADA], "append"),
    Entry("overwrite", [node("Person", name="cy", age=1)], [ADA, BOB], "overwrite"),
    Entry("overwrite keeps what is needed", [ADA, BOB], [ADA, BOB, edge("Knows", "ada", "bob", id="e")], "overwrite"),
    Entry(
        "overwrite of edges",
        [edge("Knows", "bob", "ada", id="f")],
        [ADA, BOB, edge("Knows", "ada", "bob", id="e")],
        "overwrite",
    ),
    Entry("overwrite takes defaults, not the old row", [node("Person", name="ada")], [ADA], "overwrite"),
    Entry("enough edges", [node("Task", title="t"), edge("Needs", "t", "ada")], [ADA]),
    Entry(
        "at the upper bound",
        [edge("Needs", "t", "bob")],
        [ADA, BOB, node("Task", title="t"), edge("Needs", "t", "ada")],
    ),
    # --- refused ---
    Entry("from nobody", [edge("Knows", "nobody", "ada")], [ADA], codes=("endpoint",)),
    Entry("both ends nobody", [edge("Knows", "nobody", "nothing")], [ADA], codes=("endpoint", "endpoint")),
    Entry("to another type", [edge("Lives", "ada", "ada")], [ADA], codes=("endpoint",)),
    Entry("a range", [node("Person", name="a", age=151)], codes=("range",)),
    Entry("a range, by merge", [node("Person", name="ada", age=-1)], [ADA], codes=("range",)),
    Entry("a check", [node("Person", name="a", email="x")], codes=("check",)),
    Entry("required", [node("Note", text="a")], codes=("required",)),
    Entry(
        "required, null by name",
        [node("Note", id="n1", must=None)],
        [node("Note", id="n1", must=1)],
        codes=("required",),
    ),
    Entry("two rules by one row", [node("Person", name="a", age=200, email="x")], codes=("check", "range")),
    Entry("unique against the graph", [node("Person", name="a", email="ada@x")], [ADA], codes=("unique",)),
    Entry(
        "unique within",
        [node("Person", name="a", email="z@x"), node("Person", name="b", email="z@x")],
        codes=("unique",),
    ),
    Entry(
        "unique of dates",
        [node("Note", id="b", text="t", day="2020-01-31", must=1)],
        [node("Note", id="a", text="t", day="2020-01-31", must=1)],
        codes=("unique",),
    ),
    Entry(
        "unique of ends",
        [edge("Likes", "ada", "bob", id="m")],
        [ADA, BOB, edge("Likes", "ada", "bob", id="l")],
        codes=("unique",),
    ),
    Entry("a null member exempts", [node("Note", id="b", text="t", must=1)], [node("Note", id="a", text="t", must=1)]),
    Entry(
        "too many edges",
        [edge("Lives", "ada", '["1","0.5"]', id="b")],
        [ADA, HOME, edge("Lives", "ada", '["1","0.5"]', id="a")],
        codes=("cardinality",),
    ),
    Entry("too few edges", [node("Task", title="t")], codes=("cardinality",)),
    Entry("a key of the graph", [ADA], [ADA], "append", codes=("key_conflict",)),
    Entry(
        "an edge id of the graph",
        [edge("Knows", "ada", "ada", id="e")],
        [ADA, edge("Knows", "ada", "ada", id="e")],
        "append",
        codes=("key_conflict",),
    ),
    Entry("a key twice", [node("Person", name="a"), node("Person", name="a")], [], "append", codes=("key_conflict",)),
    Entry(
        "a key twice, overwriting",
        [node("Person", name="a"), node("Person", name="a")],
        [],
        "overwrite",
        codes=("key_conflict",),
    ),
    Entry(
        "overwrite leaves an edge alone",
        [BOB],
        [ADA, BOB, edge("Knows", "ada", "bob", id="e")],
        "overwrite",
        codes=("orphan_edge",),
    ),
    Entry("an unknown property", [node("Person", name="a", aeg=1)], codes=("unknown_property",)),
    Entry("an unknown type", [node("Nobody", name="a")], codes=("type_not_found",)),
    Entry("text for a number", [node("Person", name="a", age="1")], codes=("OG-V-002",)),
    Entry("too large", [node("Person", name="a", age=2**40)], codes=("OG-V-003",)),
    Entry("no such day", [node("Person", name="a", born="2020-02-30")], codes=("OG-V-004",)),
    Entry("not of the enum", [node("Person", name="a", mood="x")], codes=("OG-V-005",)),
    Entry("a vector too long", [node("Person", name="a", place=[1, 2, 3])], codes=("OG-V-006",)),
    Entry("a vector with too much", [node("Person", name="a", place=[1e39, 0])], codes=("OG-V-007",)),
    Entry("null in a list", [node("Person", name="a", tags=[None])], codes=("OG-V-008",)),
    Entry("not base64", [node("File", name="a", body="base64:?")], codes=("OG-V-009",)),
    Entry("no key", [node("Person", age=1)], codes=("OG-V-001",)),
    Entry("an id that disagrees", [node("Person", name="a", id="b")], codes=("id_mismatch",)),
)


def as_statements(lines: Sequence[Line], mode: str) -> list[Statement]:
    """The same change as a mutation."""
    if mode == "overwrite":
        rows: dict[str, list[Mapping[str, Any]]] = {}
        for line in lines:
            ends = {"from": line["from"], "to": line["to"]} if "edge" in line else {}
            rows.setdefault(line.get("edge") or line["type"], []).append({**line.get("data", {}), **ends})
        return [Overwrite(name, type_rows) for name, type_rows in rows.items()]
    strict = mode == "append"
    return [
        InsertEdge(line["edge"], line["from"], line["to"], line.get("data", {}), strict)
        if "edge" in line
        else InsertNode(line["type"], line["data"], strict)
        for line in lines
    ]


def contents(graph: Graph) -> dict[str, list[str]]:
    """Every row of every type without ids that were made up, NaN and the sign of zero included."""
    rows_by_table = {}
    for name in TYPES:
        rows = graph.table(name).to_arrow().to_pylist()
        keyless = name in ("Note", "Knows", "Likes", "Lives", "Needs")
        rows_by_table[name] = sorted(repr({**row, "id": _existing_id(row["id"])} if keyless else row) for row in rows)
    return rows_by_table


def _existing_id(row_id: str) -> str:
    return row_id if len(row_id) < 10 else "made up"
