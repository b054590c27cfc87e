"""A graph with every kind of value, laid out in every way a table can be: pin, overlay, both, neither."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.config import Config
from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode, Statement, Update

SCHEMA = """
node Thing {
  name: String @key
  required: I64
  small: I32?
  big: I64?
  count: U32?
  huge: U64?
  single: F32?
  double: F64?
  day: Date?
  at: DateTime?
  on: Bool?
  role: enum(admin, user)?
  words: [String]?
  numbers: [U64]?
  flags: [Bool]?
  days: [Date]?
  moments: [DateTime]?
  singles: [F32]?
  face: Vector(3)?
}
node Picture { name: String @key  data: Blob?  face: Vector(2)? }
node Loose { title: String? }
node Pair { row: I64  place: String  @key(row, place) }
node Nothing { name: String @key }
node KNOWS { name: String @key }
edge Knows: Thing -> Thing { since: Date?  weight: F64? }
edge Has: Thing -> Loose
edge Empty: Nothing -> Thing
"""

#: Nothing folds by itself: a test says when.
INLINE = Config(fsync=False, fold="never", overlay_soft_bytes=1 << 20)
#: Every change goes into the table at once.
STAGED = Config(fsync=False, fold="never", inline_share=0)

FULL: Mapping[str, Any] = {
    "required": -1,
    "small": -(2**31),
    "big": 2**63 - 1,
    "count": 2**32 - 1,
    "huge": 2**64 - 1,
    "single": 0.1,
    "double": -0.0,
    "day": "0001-01-01",
    "at": "9999-12-31T23:59:59.999Z",
    "on": True,
    "role": "admin",
    "words": ["a", "", "数学", "x' or 1=1 \\ \" \n\t"],
    "numbers": [0, 2**64 - 1],
    "flags": [True, False],
    "days": ["1969-12-31", "2026-02-28"],
    "moments": ["1969-12-31T23:59:59.001Z"],
    "singles": [1.5, "NaN", "-Infinity"],
    "face": [0.1, -2.0, 3e38],
}
_SMALL: Mapping[str, Any] = {
    "required": 0,
    "words": [],
    "double": "NaN",
    "single": "Infinity",
    "at": "1970-01-01T00:00:00Z",
    "huge": 0,
    "face": [0.0, 0.0, 0.0],
}

STATEMENTS: tuple[Statement, ...] = (
    InsertNode("Thing", {"name": "full", **FULL}),
    InsertNode("Thing", {"name": "Ünï↵ 🎉\n\"'\\", **_SMALL}),
    InsertNode("Thing", {"name": "", "required": 7, "double": 1e300}),
    InsertNode("Thing", {"name": "void", "required": 2**53 + 1, "on": False, "role": "user", "small": 3}),
    InsertNode("Loose", {"id": "l2", "title": "two"}),
    InsertNode("Loose", {"id": "l10"}),
    InsertNode("Pair", {"row": -2, "place": "b"}),
    InsertNode("KNOWS", {"name": "k"}),
    InsertEdge("Knows", "full", "void", {"id": "e1", "since": "2020-02-29", "weight": 0.25}),
    InsertEdge("Knows", "void", "void", {"id": "e2"}),
    InsertEdge("Has", "full", "l2", {"id": "h1"}),
)
#: Blobs never ride in a record, so these have a commit of their own.
PICTURES: tuple[Statement, ...] = (
    InsertNode("Picture", {"name": "p", "data": "base64:AP8BAg==", "face": [0.5, -0.1]}),
    InsertNode("Picture", {"name": "blank", "data": "base64:"}),
    InsertNode("Picture", {"name": "none"}),
)
LATER: tuple[Statement, ...] = (
    InsertNode("Thing", {"name": "later", "required": 1, "words": ["new"], "small": 40}),
    Update("Thing", {"small": 41, "huge": 2**63}, Compare("name", "=", "void")),
    Delete("Knows", Compare("id", "=", "e2")),
    Delete("Thing", Compare("name", "=", "")),
    InsertEdge("Has", "later", "l10", {"id": "h2"}),
)
LAYOUTS = ("overlay only", "pin only", "pin and overlay", "many fragments", "empty")


def make_graph(path: Path, layout: str = "overlay only") -> Graph:
    """The content of STATEMENTS (and LATER, if both a pin and an overlay are wanted), laid out as the name says."""
    config = STAGED if layout == "many fragments" else INLINE
    graph = og.init(path, SCHEMA, config=config)
    if layout == "empty":
        return graph
    if layout == "many fragments":
        for statement in (*PICTURES, *STATEMENTS, *LATER):
            graph.apply([statement])
        return graph
    graph.apply(list(PICTURES))
    graph.apply(list(STATEMENTS))
    if layout != "overlay only":
        assert graph.fold() is not None
    if layout == "pin and overlay":
        graph.apply(list(LATER))
    return graph


def comparable(rows: pa.Table) -> list[str]:
    """Rows in no order as texts that differ where a value does: NaN, -0.0 and the type of a number included."""
    return sorted(json.dumps({name: _plain(value) for name, value in row.items()}) for row in rows.to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value)
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    return [_plain(statement) for statement in value] if isinstance(value, list) else value
