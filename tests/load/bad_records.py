"""Every kind of bad record, as one table: the line, and the code by which it is rejected. For all engines.

A case is one or more lines; a line without a code is good and must be loaded. All are for mode append into a graph that
`prepare` has made.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.config import Config
from omnigraph.query.language.statements import InsertNode

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    rank: U32?
    score: F64?
    small: F32?
    ok: Bool?
    email: String? @unique
    mood: enum(happy, sad)?
    born: Date?
    seen: DateTime?
    tags: [String]?
    place: Vector(2)?
    city: String @default("Rome")
    @range(age, 0..150)
    @check(email, "@")
}
node Point { x: I32  y: I32  @key(x, y) }
node Note { text: String }
node File { name: String @key  body: Blob? }
node Task { title: String @key }
edge Knows: Person -> Person { since: I32? }
edge Lives: Person -> Person @card(0..1)
edge Needs: Task -> Person @card(1..)
"""


@dataclass(frozen=True)
class BadRecordCase:
    """One kind of bad record."""

    name: str
    lines: tuple[bytes, ...]
    codes: tuple[str | None, ...]

    def __str__(self) -> str:
        return self.name


def _bytes(line: str | bytes | Mapping[str, Any]) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line)).encode()


def _one(name: str, code: str, line: str | bytes | Mapping[str, Any]) -> BadRecordCase:
    return BadRecordCase(name, (_bytes(line),), (code,))


def _several(name: str, *lines: tuple[Mapping[str, Any], str | None]) -> BadRecordCase:
    return BadRecordCase(name, tuple(_bytes(line) for line, _ in lines), tuple(code for _, code in lines))


def person(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


def edge(kind: str, source: Any, target: Any, **data: Any) -> dict[str, Any]:
    return {"edge": kind, "from": source, "to": target, "data": data}


_RAW = '{"type": "Person", "data": {"name": "bad"'

CASES: Sequence[BadRecordCase] = (
    # --- text ---
    _one("cut off", "not_json", _RAW),
    _one("text after the object", "not_json", _RAW + "}} x"),
    _one("two objects on a line", "not_json", _RAW + "}}" + _RAW + "}}"),
    _one("single quotes", "not_json", "{'type': 'Person', 'data': {'name': 'bad'}}"),
    _one("a comma too many", "not_json", _RAW + ",}}"),
    _one("NaN without quotes", "not_json", _RAW + ', "score": NaN}}'),
    _one("a control character", "not_json", '{"type": "Person", "data": {"name": "a\tb"}}'),
    _one("a number with a leading zero", "not_json", _RAW + ', "age": 01}}'),
    _one("nested too deeply", "not_json", _RAW + ', "age": ' + "[" * 100_000 + "]" * 100_000 + "}}"),
    _one("not UTF-8", "not_utf8", b'{"type": "Person", "data": {"name": "caf\xe9"}}'),
    _one("a key twice in data", "duplicate_field", _RAW + ', "age": 1, "age": 2}}'),
    _one("a key twice in the record", "duplicate_field", _RAW + '}, "data": {}}'),
    # --- envelope ---
    _one("an array", "not_an_object", '["Person"]'),
    _one("a number", "not_an_object", "42"),
    _one("no type", "missing_type", {"data": {"name": "bad"}}),
    _one("type and edge", "ambiguous_type", {"type": "Person", "edge": "Knows", "data": {}}),
    _one("a number for the type", "OG-V-002", {"type": 5, "data": {}}),
    _one("an unknown node type", "type_not_found", {"type": "Nobody", "data": {}}),
    _one("an unknown edge type", "type_not_found", edge("Hates", "good0", "good1")),
    _one("an edge type as node", "type_not_found", {"type": "Knows", "data": {}}),
    _one("no data", "missing_data", {"type": "Person"}),
    _one("data is a list", "bad_data", {"type": "Person", "data": ["bad"]}),
    _one("data is null", "bad_data", {"type": "Person", "data": None}),
    _one("a field too many", "unknown_field", {"type": "Person", "data": {"name": "bad"}, "note": 1}),
    _one("ends on a node", "unknown_field", {"type": "Person", "data": {"name": "bad"}, "from": "good0"}),
    _one("no from", "missing_end", {"edge": "Knows", "to": "good0", "data": {}}),
    _one("to is null", "missing_end", edge("Knows", "good0", None)),
    _one("from is a number", "OG-V-002", edge("Knows", 5, "good0")),
    # --- values ---
    _one("an unknown property", "unknown_property", person("bad", aeg=3)),
    _one("text for I32", "OG-V-002", person("bad", age="3")),
    _one("a float for I32", "OG-V-002", person("bad", age=3.0)),
    _one("a Bool for I32", "OG-V-002", person("bad", age=True)),
    _one("a number for String", "OG-V-002", person("bad", city=5)),
    _one("an object for String", "OG-V-002", person("bad", city={"a": 1})),
    _one("a number for Bool", "OG-V-002", person("bad", ok=1)),
    _one("text for a list", "OG-V-002", person("bad", tags="a")),
    _one("too large for I32", "OG-V-003", person("bad", age=2**31)),
    _one("negative for U32", "OG-V-003", person("bad", rank=-1)),
    _one("too large for F32", "OG-V-003", person("bad", small=1e39)),
    _one("too large for a double", "OG-V-003", _RAW + ', "score": 1e400}}'),
    _one("no such day", "OG-V-004", person("bad", born="2023-02-29")),
    _one("no such moment", "OG-V-004", person("bad", seen="2023-02-28T25:00:00Z")),
    _one("not one of the enum", "OG-V-005", person("bad", mood="grumpy")),
    _one("a vector too short", "OG-V-006", person("bad", place=[1.0])),
    _one("a vector that is not finite", "OG-V-007", person("bad", place=[1.0, 1e39])),
    _one("text in a vector", "OG-V-002", person("bad", place=[1.0, "x"])),
    _one("null in a list", "OG-V-008", person("bad", tags=["a", None])),
    _one("not base64", "OG-V-009", {"type": "File", "data": {"name": "bad", "body": "base64:???"}}),
    _one("half of a surrogate pair", "OG-V-010", _RAW + ', "city": "\\ud800"}}'),
    _one("no key", "OG-V-001", {"type": "Person", "data": {"age": 3}}),
    _one("a null key", "OG-V-001", {"type": "Person", "data": {"name": None}}),
    _one("half of a key", "OG-V-001", {"type": "Point", "data": {"x": 3}}),
    _one("an id that is not the key", "id_mismatch", person("bad", id="worse")),
    # --- rules of a row ---
    _one("out of range", "range", person("bad", age=151)),
    _one("not matching", "check", person("bad", email="nobody")),
    _one("required and not there", "required", {"type": "Note", "data": {}}),
    _one("required and null", "required", {"type": "Note", "data": {"text": None}}),
    # --- rules with other rows ---
    _one("from nobody", "endpoint", edge("Knows", "nobody", "good0")),
    _one("to nobody", "endpoint", edge("Knows", "good0", "nobody")),
    _one("to a node of another type", "endpoint", edge("Knows", "good0", "task0")),
    _one("an id of the graph", "key_conflict", person("taken")),
    _one("a unique value of the graph", "unique", person("bad", email="taken@x")),
    _several(
        "a unique value twice",
        (person("uniq-a", email="twice@x"), None),
        (person("uniq-b", email="twice@x"), "unique"),
    ),
    _several("an id twice", (person("double", age=1), None), (person("double", age=2), "key_conflict")),
    _several(
        "an edge id twice",
        (edge("Knows", "good0", "good1", id="e1"), None),
        (edge("Knows", "good1", "good0", id="e1"), "key_conflict"),
    ),
    _several(
        "too many edges",
        (edge("Lives", "good0", "good1"), "cardinality"),
        (edge("Lives", "good0", "good2"), "cardinality"),
    ),
    _one("too few edges", "cardinality", {"type": "Task", "data": {"title": "lonely"}}),
    _several(
        "an edge to a rejected node",
        (person("sick", age=999), "range"),
        (edge("Knows", "sick", "good0"), "endpoint"),
    ),
    _several(
        "a node whose only edge is rejected",
        ({"type": "Task", "data": {"title": "hopeless"}}, "cardinality"),
        (edge("Needs", "hopeless", "nobody"), "endpoint"),
    ),
)


def prepare(path: Path, config: Config | None = None) -> Graph:
    graph = og.init(str(path), SCHEMA, config=config or Config(fsync=False))
    graph.apply([InsertNode("Person", {"name": "taken", "email": "taken@x"})])
    return graph


def good_lines(count: int) -> list[bytes]:
    """Good records of every type; at least the people good0 to good2 and task0, which the cases mention."""
    lines = [_bytes(person(f"good{at}", age=at % 150, email=f"good{at}@x")) for at in range(max(count // 2, 3))]
    lines.append(_bytes({"type": "Task", "data": {"title": "task0"}}))
    lines.append(_bytes(edge("Needs", "task0", "good0")))
    lines.append(_bytes({"type": "Note", "data": {"text": "a note"}}))
    lines.append(_bytes({"type": "Point", "data": {"x": 1, "y": 2}}))
    lines.append(_bytes({"type": "File", "data": {"name": "f", "body": "base64:aGk="}}))
    while len(lines) < count:
        lines.append(_bytes(edge("Knows", f"good{len(lines) % 3}", "good1", since=len(lines))))
    return lines


@dataclass(frozen=True)
class Mixture:
    """Good records with bad ones among them."""

    data: bytes
    codes: Mapping[int, str]  # by line
    good: int


def mixture(cases: Sequence[BadRecordCase], good_count: int, seed: int = 7) -> Mixture:
    """All cases, each line at a place of its own, the lines of one case in their order."""
    chance = random.Random(seed)
    good = good_lines(good_count)
    placed: list[tuple[float, bytes, str | None]] = [(at + 0.5, line, None) for at, line in enumerate(good)]
    for case in cases:
        places = sorted(chance.uniform(0, len(good)) for _ in case.lines)
        placed += zip(places, case.lines, case.codes, strict=True)
    placed.sort(key=lambda record: record[0])
    codes = {line: code for line, (_, _, code) in enumerate(placed, 1) if code is not None}
    return Mixture(b"\n".join(text for _, text, _ in placed) + b"\n", codes, len(placed) - len(codes))
