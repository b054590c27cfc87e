"""Helpers of the parser tests: a schema with every kind of property, and functions that parse texts under it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from omnigraph.load.records.batches import ParsedBatch, RawBatch, ReadLimits, Reject, Split
from omnigraph.load.records.parse import RecordParser
from omnigraph.load.records.read_split import read_split
from tests.schema.helpers import compile_text

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    big: I64?
    u: U32?
    ubig: U64?
    f: F32?
    d: F64?
    ok: Bool?
    born: Date?
    at: DateTime?
    mood: enum(happy, sad)?
    tags: [String]?
    ints: [I32]?
    days: [Date]?
    v: Vector(2)?
    @range(age, 0..150)
    @check(name, "^[^!]*$")
}
node Simple { name: String @key  age: I32?  d: F64?  f: F32?  born: Date?  at: DateTime?  mood: enum(happy, sad)?
              tags: [String]?  ints: [U32]?  v: Vector(2)?  ok: Bool?  ubig: U64? }
node Point { x: I32  y: F64  label: String?  @key(x, y) }
node Day { day: Date @key  note: String? }
node Number { n: I64 @key }
node Flag { flag: Bool @key }
node Note { text: String?  size: I32 @default(7)  must: String }
node File { name: String @key  body: Blob? }
edge Knows: Person -> Person { since: I32?  weight: F32? }
edge Odd: Person -> Person { from: String?  to: I32? }
"""
CATALOG = compile_text(SCHEMA)
SEED = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def split_of(**fields: Any) -> Split:
    return Split(**{"source_index": 0, "path": "input", "format": "ndjson", **fields})


def batches(data: bytes, limits: ReadLimits | None = None, **fields: Any) -> list[RawBatch]:
    return list(read_split(split_of(**fields), lambda _: io.BytesIO(data), limits))


def parse(data: bytes | str, *, limits: ReadLimits | None = None, partial: bool = False, reference: bool = False,
          **fields: Any) -> ParsedBatch:  # fmt: skip
    """Parses all batches of a text and joins the results."""
    parser = RecordParser(CATALOG, SEED, partial=partial, reference=reference)
    content = data.encode() if isinstance(data, str) else data
    parts = [parser.parse(raw) for raw in batches(content, limits, **fields)]
    tables: dict[str, list[Any]] = {}
    for part in parts:
        for name, table in part.tables.items():
            tables.setdefault(name, []).append(table)
    import pyarrow as pa

    return ParsedBatch(
        {name: pa.concat_tables(type_tables).combine_chunks() for name, type_tables in tables.items()},
        tuple(reject for part in parts for reject in part.rejects),
    )


def rows(parsed: ParsedBatch, type_name: str) -> list[dict[str, Any]]:
    """Returns the rows of a type, with property names instead of column ids."""
    type_def = CATALOG.node(type_name) or CATALOG.edge(type_name)
    assert type_def is not None
    if type_def.id not in parsed.tables:
        return []
    names = {prop.id: prop.name for prop in type_def.properties}
    return [
        {names.get(name, name): value for name, value in row.items()} for row in parsed.tables[type_def.id].to_pylist()
    ]


def codes(rejects: Sequence[Reject]) -> list[str]:
    return [reject.code for reject in rejects]
