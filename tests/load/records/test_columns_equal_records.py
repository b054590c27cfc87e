"""The fast ways give what the reference gives, row by row and reject by reject, whatever the text."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from omnigraph.load.records import parse_lines
from omnigraph.load.records.batches import ParsedBatch
from tests.load.records.parsing import CATALOG, parse

NAMES = sorted({prop.name for one in CATALOG.types for prop in one.properties})
TYPES = [one.name for one in CATALOG.types if one.kind == "node"]
EDGES = [one.name for one in CATALOG.types if one.kind == "edge"]
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "name": st.text(max_size=6),
    "age": st.integers(0, 150),
    "big": st.integers(-(2**63), 2**63 - 1),
    "u": st.integers(0, 2**32 - 1),
    "ubig": st.integers(0, 2**64 - 1),
    "f": st.floats(width=32, allow_nan=False, allow_infinity=False) | st.integers(-5, 5),
    "d": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**30), 10**30),
    "ok": st.booleans(),
    "born": st.dates().map(str),
    "at": st.datetimes().map(lambda moment: moment.isoformat()[:19] + "Z"),
    "mood": st.sampled_from(["happy", "sad"]),
    "tags": st.lists(st.text(max_size=3), max_size=3),
    "ints": st.lists(st.integers(0, 9), max_size=3),
    "v": st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=2),
    "x": st.integers(-9, 9),
    "y": st.floats(-5, 5),
    "day": st.dates().map(str),
    "n": st.integers(-(2**63), 2**63 - 1),
    "flag": st.booleans(),
    "text": st.text(max_size=8),
    "size": st.integers(-5, 5),
    "must": st.text(max_size=3),
    "since": st.integers(0, 3000),
    "weight": st.floats(width=32, allow_nan=False, allow_infinity=False),
}
ODD = st.sampled_from(
    [
        None, True, 0, -0.0, 1.5, 10**40, -1, 2**31, 1e300, 3.5e38, "", "x", "NaN", "Infinity", [], [None], [1, None],
        ["a", None], [1.5, "x"], {}, {"a": 1}, [[1]], "2020-02-30", "0000-01-01", "2020-1-1", "2020-01-01T00:00",
        "2020-01-01T00:00:60Z", "2020-01-01T00:00:00.123456+02:00", "2020-01-01T00:00:00.5Z", "happy ", "base64:aGk=",
        "\ud800", "\x00", "\x7f", "é", 5, [1, 2], [1e39, 0], [-0.0, 0], [1, 2, 3],
    ]
)  # fmt: skip


TYPOS = [*'"\\{}[],:0e-. \tn/\r', "\\\\", '\\"', '"x":1,', '"x":null,', "\\u0061"]


@st.composite
def data_of(draw: st.DrawFn, type_name: str) -> dict[str, Any]:
    type_def = CATALOG.node(type_name) or CATALOG.edge(type_name)
    assert type_def is not None
    values = {}
    for prop in type_def.properties:
        if prop.id in type_def.key or draw(st.integers(0, 2)):
            way = draw(st.integers(0, 30))
            values[prop.name] = None if way in (1, 2, 3) else draw(ODD if way == 0 else GOOD.get(prop.name, ODD))
    if draw(st.integers(0, 20)) == 0:
        values[draw(st.sampled_from(["id", "nobody", *NAMES]))] = draw(ODD)
    return values


@st.composite
def record(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.booleans()):
        name = draw(st.sampled_from(TYPES))
        return {"type": name, "data": draw(data_of(name))}
    name = draw(st.sampled_from(EDGES))
    edge: dict[str, Any] = {"edge": name, "from": draw(st.text(max_size=3)), "to": draw(st.text(max_size=3))}
    if draw(st.booleans()):
        edge["data"] = draw(data_of(name))
    if draw(st.integers(0, 20)) == 0:
        edge[draw(st.sampled_from(["from", "to", "data", "type", "x", "since"]))] = draw(ODD)
    return edge


@st.composite
def line(draw: st.DrawFn) -> str:
    fields = draw(record())
    order = draw(st.permutations(list(fields))) if draw(st.integers(0, 8)) == 0 else list(fields)
    text = json.dumps({name: fields[name] for name in order}, ensure_ascii=draw(st.booleans()))
    if draw(st.integers(0, 12)) == 0:
        return draw(
            st.sampled_from(["", " ", "[]", "1", "{}", text + text, text + " x", text[:-1], text[1:], "{" + text])
        )
    if draw(st.integers(0, 12)) == 0:
        # One character more, less or another one: brackets, quotes, backslashes, digits.
        at = draw(st.integers(0, len(text) - 1))
        more = draw(st.sampled_from(TYPOS))
        return str(text[:at] + more + text[at + draw(st.integers(0, 1)) :])
    return text


def encode_lines(lines: list[str]) -> bytes:
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def comparable_batch(parsed: ParsedBatch) -> tuple[Any, ...]:
    """Exact: also the sign of zero, and the order."""
    tables = {name: repr(parsed.tables[name].to_pylist()) for name in sorted(parsed.tables)}
    schemas = {name: str(parsed.tables[name].schema) for name in sorted(parsed.tables)}
    return tables, schemas, [reject.to_json() for reject in parsed.rejects]


@pytest.fixture(autouse=True)
def _few_lines_are_enough() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(parse_lines, "_MIN_LINES", 1)
    yield
    patch.undo()


CHECKS = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@CHECKS
@given(st.lists(line(), max_size=8), st.booleans())
@example(['{"type": "Simple", "data": {"name": "a", "d": -0}}'], False)
@example(['{"type": "Simple", "data": {"name": "a", "name": "b"}}'], False)
@example(['{"type": "Simple", "data": {"name": "a"}}{"type": "Simple", "data": {"name": "b"}}', ""], False)
@example(['{"type": "Simple", "data": {"name": "a", "x": [{"y": 1}]}}'], False)
@example(['{"type": "Note", "data": {"size": null}}', '{"type": "Note", "data": {}}'], True)
@example(['{"type": "Simple", "data": {"name": "a", "age": null}}', '{"type": "Simple", "data": {"name": "b"}}'], True)
@example(['{"type": "Simple", "age": null, "data": {"name": "a"}}'], False)
@example(['{"type": "Simple", "data": {"name": "a"}, "age": null}'], False)
@example(['{"type": "Simple", "data": {"name": "a"}, "age": null, "x": {}}'], False)
@example(['{"type": "Simple", "data": {"name": "\\"age\\": null", "x": 1}}'], False)
@example(['{"type": "Simple", "data": {"name": "age", "x": 1, "tags": ["age"]}}'], False)
@example(['{"edge": "Knows", "from": "a"}', '{"edge": "Knows", "from": "a", "to": null}'], False)
def test_mixed_lines(lines: list[str], partial: bool) -> None:
    data = encode_lines(lines)
    assert comparable_batch(parse(data, partial=partial)) == comparable_batch(
        parse(data, partial=partial, reference=True)
    )


@CHECKS
@given(st.data(), st.sampled_from([*TYPES, *EDGES]), st.booleans())
def test_lines_of_one_type(draw: st.DataObject, name: str, partial: bool) -> None:
    kind = "node" if name in TYPES else "edge"
    records = draw.draw(st.lists(data_of(name), max_size=6))
    words = draw.draw(st.sampled_from([("from", "to"), ("src", "dst")]))
    for record in records:
        if kind == "edge":
            record.update(dict.fromkeys(words, "a"))
    data = encode_lines([json.dumps(record) for record in records])
    fields: dict[str, Any] = {"kind": kind, "type_name": name, "partial": partial}
    assert comparable_batch(parse(data, **fields)) == comparable_batch(parse(data, reference=True, **fields))


CELLS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.utf8(), st.text(max_size=5) | st.sampled_from(["happy", "2020-01-31", "2020-01-31T10:00:00Z", "x"])),
    (pa.large_utf8(), st.text(max_size=5)),
    (pa.dictionary(pa.int32(), pa.utf8()), st.sampled_from(["happy", "sad", "odd"])),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(0, 200)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2100, 1, 1))),
    (pa.timestamp("ns", "UTC"), st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))),
    (pa.timestamp("ms", "Europe/Oslo"), st.datetimes(datetime(1970, 1, 1), timezones=st.just(UTC))),
    (pa.decimal128(20, 0), st.integers(0, 2**64 - 1).map(Decimal)),
    (pa.list_(pa.utf8()), st.lists(st.text(max_size=2) | st.none(), max_size=3)),
    (pa.list_(pa.int64()), st.lists(st.integers(-5, 5), max_size=3)),
    (pa.list_(pa.float32(), 2), st.lists(st.floats(width=32), min_size=2, max_size=2)),
    (pa.list_(pa.float64()), st.lists(st.floats(-9, 9), max_size=3)),
    (pa.null(), st.none()),
    (pa.binary(), st.binary(max_size=3)),
]  # fmt: skip


@CHECKS
@given(st.data(), st.sampled_from(TYPES), st.booleans())
def test_typed_columns(draw: st.DataObject, name: str, partial: bool) -> None:
    type_def = CATALOG.node(name)
    assert type_def is not None
    count = draw.draw(st.integers(0, 5))
    columns: dict[str, pa.Array] = {}
    for prop in type_def.properties:
        if prop.id not in type_def.key and draw.draw(st.booleans()):
            continue
        kind, cells = draw.draw(st.sampled_from(CELLS))
        values = draw.draw(st.lists(cells | st.none(), min_size=count, max_size=count))
        columns[prop.name] = pa.array(values, kind)
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    fields: dict[str, Any] = {"format": "parquet", "kind": "node", "type_name": name, "partial": partial}
    assert comparable_batch(parse(file.getvalue(), **fields)) == comparable_batch(
        parse(file.getvalue(), reference=True, **fields)
    )


FIELDS = st.sampled_from(
    [
        "", '""', "a", "happy", "true", "TRUE", "false", "0", "-0", "+5", "007", "5", "-1", "150", "99999999999",
        "1" * 25, "1.5", "-0.0", ".5", "5.", "1e3", "1e400", "NaN", "nan", "Infinity", "2020-01-31", "2020-02-30",
        "0000-01-01", "2020-01-31T10:00:00Z", "2020-01-31T10:00:00.123Z", "2020-01-31 10:00",
        '"[1,2]"', '"[""x""]"', '"[1"', '"a\nb"',
        " 5", "é", "x\"y",
    ]
)  # fmt: skip


@CHECKS
@given(st.data(), st.sampled_from([*TYPES, *EDGES]), st.booleans())
def test_csv(draw: st.DataObject, name: str, partial: bool) -> None:
    type_def = CATALOG.node(name) or CATALOG.edge(name)
    assert type_def is not None
    keys = [type_def.by_id[column].name for column in type_def.key]
    optional_names = [prop.name for prop in type_def.properties if prop.id not in type_def.key]
    columns = draw.draw(st.lists(st.sampled_from([*optional_names, "id"]), unique=True, max_size=4))
    header = [*keys, *(["src", "dst"] if type_def.kind == "edge" else []), *columns]
    rows = draw.draw(st.lists(st.lists(FIELDS, min_size=len(header), max_size=len(header)), max_size=5))
    text = "\n".join(",".join(row) for row in [header, *rows]) if header else ""
    fields: dict[str, Any] = {"format": "csv", "kind": type_def.kind, "type_name": name, "partial": partial}
    assert comparable_batch(parse(text, **fields)) == comparable_batch(parse(text, reference=True, **fields))


def test_plain_records_are_parsed_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests above compare the reference with itself."""
    monkeypatch.setattr("omnigraph.load.records.parse.parse_line", lambda *_: pytest.fail("read one by one"))
    person = {"name": "a", "age": 3, "d": 0.5, "f": 2, "born": "2020-01-31", "at": "2020-01-31T01:02:03Z", "ok": True,
              "mood": "sad", "tags": ["x", 'é"\n'], "ints": [1, 2], "v": [1, 2.5], "ubig": 2**64 - 1}  # fmt: skip
    lines = [
        {"type": "Simple", "data": person},
        {"data": {"name": "b"}, "type": "Simple"},
        {"type": "Point", "data": {"x": 1, "y": 0.5}},
        {"type": "Day", "data": {"day": "0999-01-31", "note": "n"}},
        {"type": "Flag", "data": {"flag": True}},
        {"type": "Note", "data": {"must": "x"}},
        {"type": "Note", "data": {"text": None, "must": "x"}},
        {"edge": "Knows", "from": "a", "to": "b", "data": {"since": 1, "weight": 0.25}},
        {"edge": "knows", "from": "a", "to": "b"},
    ]
    parsed = parse("\r\n".join(json.dumps(line) for line in lines))
    assert not parsed.rejects
    assert sum(table.num_rows for table in parsed.tables.values()) == len(lines)
    rows = parsed.tables[CATALOG.types[1].id].to_pylist()[0]
    assert date(2020, 1, 31) in rows.values()
    assert math.inf not in rows.values()
