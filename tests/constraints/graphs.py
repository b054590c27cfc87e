"""Random small graphs and changes of them, and an oracle that is right because it looks at everything.

A graph is rows by table and id. The oracle computes the graph after the change and judges all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from hypothesis import strategies as st

from omnigraph.schema.catalog import TypeDef
from tests.schema.helpers import compiled

SCHEMA = """
node Person { name: String @key  email: String? @unique  weight: F32?  born: Date?  @unique(weight, born) }
node Team { name: String @key }
edge Knows: Person -> Person { year: I32?  @unique(src, dst) }
edge In: Person -> Team @card(0..2)
edge Leads: Team -> Person @card(1..2)
edge Likes: Person -> Person @card(0..1)
"""
CATALOG = compiled(SCHEMA)
NAMES = {one.id: one.name for one in CATALOG.types}

Row = dict[str, Any]
Table = dict[str, Row]
Graph = dict[str, Table]
Found = set[tuple[Any, ...]]
"""(code, type, and what the rule returns)"""

_IDS = {"node": st.sampled_from("abc"), "edge": st.sampled_from("123")}
#: The two zeros are one value to a rule, and so is a number before and after it was stored in single precision.
_VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "email": st.sampled_from([None, "x", "y", "Y"]),
    "weight": st.sampled_from([None, 0.0, -0.0, 0.1]),
    "born": st.sampled_from([None, date(1970, 1, 1), date(2000, 2, 29)]),
    "year": st.sampled_from([None, 1999]),
}


@dataclass(frozen=True)
class GraphChange:
    """`changes` by table: new images, or None for what is removed. `overwritten` tables keep no other row."""

    base: Graph
    changes: Mapping[str, Mapping[str, Row | None]]
    overwritten: frozenset[str]

    def new(self, table: str) -> Table:
        return {key: row for key, row in self.changes.get(table, {}).items() if row is not None}

    def removed(self, table: str) -> set[str]:
        named = {key for key, row in self.changes.get(table, {}).items() if row is None}
        if table in self.overwritten:
            named |= self.base[table].keys() - self.new(table).keys()
        return named & self.base[table].keys()

    def old(self, table: str) -> Table:
        touched = self.new(table).keys() | self.removed(table)
        return {key: row for key, row in self.base[table].items() if key in touched}

    def kept(self, table: str) -> Table:
        return {key: row for key, row in self.base[table].items() if key not in self.old(table)}

    def after(self, table: str) -> Table:
        return {**self.kept(table), **self.new(table)}


def row_of(one: TypeDef, values: Mapping[str, Any]) -> Row:
    """Stored values by column id; properties that are not given are null, keys repeat the id."""
    row: Row = {"id": values["id"]}
    if one.kind == "edge":
        row |= {"src": values["src"], "dst": values["dst"]}
    for prop in one.properties:
        row[prop.id] = values["id"] if prop.id in one.key else values.get(prop.name)
    return row


@st.composite
def tables(draw: st.DrawFn, one: TypeDef, base: Table | None = None) -> Table:
    """Rows of a type; of a row that is in `base` sometimes only a property changes."""
    least, most = (2, 3) if base is None else (0, 2)
    ids = draw(st.lists(_IDS[one.kind], unique=True, min_size=least, max_size=most))
    found = {key: row_of(one, draw(_row_values(one, key))) for key in ids}
    for key in found.keys() & (base or {}).keys():
        if draw(st.booleans()):
            found[key] |= {column: value for column, value in (base or {})[key].items() if column in ("src", "dst")}
    return found


def _row_values(one: TypeDef, key: str) -> st.SearchStrategy[dict[str, Any]]:
    parts: dict[str, st.SearchStrategy[Any]] = {"id": st.just(key)}
    parts |= {prop.name: _VALUES[prop.name] for prop in one.properties if prop.id not in one.key}
    if one.kind == "edge":
        parts |= {"src": _IDS["node"], "dst": _IDS["node"]}
    return st.fixed_dictionaries(parts)


@st.composite
def changes(draw: st.DrawFn) -> GraphChange:
    base = repaired({one.id: draw(tables(one)) for one in CATALOG.types})
    touched: dict[str, dict[str, Row | None]] = {}
    for one in CATALOG.types:
        found: dict[str, Row | None] = dict(draw(tables(one, base[one.id])))
        found |= dict.fromkeys(draw(st.lists(_IDS[one.kind], max_size=1)))
        touched[one.id] = found
    overwritten = draw(st.sets(st.sampled_from([one.id for one in CATALOG.types]), max_size=1))
    return GraphChange(base, touched, frozenset(overwritten))


def repaired(graph: Graph) -> Graph:
    """The graph without the rows that break a rule, nor those that break one without them."""
    while True:
        blamed = {(table, key) for table, key in _bad_rows(graph)}
        if not blamed:
            return graph
        graph = {
            table: {key: row for key, row in rows.items() if (table, key) not in blamed}
            for table, rows in graph.items()
        }


def is_valid(graph: Graph) -> bool:
    return not list(_bad_rows(graph))


def _bad_rows(graph: Graph) -> Iterator[tuple[str, str]]:
    for one in CATALOG.types:
        rows = graph[one.id]
        for columns in one.uniques:
            for _, *others in _sharers(rows, columns):
                yield from ((one.id, other) for other in others)
        if one.kind == "edge":
            assert one.source is not None
            assert one.target is not None
            for key, row in rows.items():
                if row["src"] not in graph[one.source] or row["dst"] not in graph[one.target]:
                    yield one.id, key
            for node in graph[one.source]:
                count = _degree(rows, node)
                if not one.cardinality.low <= count <= (one.cardinality.high or count):
                    yield one.source, node


def _sharers(rows: Table, columns: Sequence[str]) -> list[list[str]]:
    groups: dict[tuple[Any, ...], list[str]] = {}
    for key in sorted(rows):
        values = tuple(rows[key][column] for column in columns)
        if None not in values:
            groups.setdefault(values, []).append(key)
    return list(groups.values())


def _degree(edges: Table, node: str) -> int:
    return sum(row["src"] == node for row in edges.values())


def oracle(change: GraphChange, *, strict: bool = False) -> Found:
    """What every rule must return, by looking at all rows of the graph before and after."""
    found: Found = set()
    for one in CATALOG.types:
        for columns in one.uniques:
            found |= {("unique", one.name, *rest) for rest in _broken_unique(change, one, columns)}
        if strict:
            found |= {("key_exists", one.name, key) for key in change.new(one.id) if key in change.base[one.id]}
        if one.kind == "edge":
            found |= {("endpoint", one.name, *rest) for rest in _broken_ends(change, one)}
            found |= {("orphan_edge", one.name, *rest) for rest in _orphans(change, one)}
            found |= {("cardinality", one.name, *rest) for rest in _broken_counts(change, one)}
    return found


def _broken_unique(change: GraphChange, one: TypeDef, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for sharers in _sharers(change.after(one.id), columns):
        new = [key for key in sharers if key in change.new(one.id)]
        for key in new[1:]:
            yield key, new[0]
        for key in sharers:
            if new and key not in new:
                yield new[0], key


def _broken_ends(change: GraphChange, one: TypeDef) -> Iterator[tuple[Any, ...]]:
    for word, column, node in (("from", "src", one.source), ("to", "dst", one.target)):
        assert node is not None
        for key, row in change.new(one.id).items():
            was = change.base[one.id].get(key, {}).get(column)
            if row[column] != was and row[column] not in change.after(node):
                yield key, row[column], word


def _orphans(change: GraphChange, one: TypeDef) -> Iterator[tuple[Any, ...]]:
    for word, column, node in (("from", "src", one.source), ("to", "dst", one.target)):
        assert node is not None
        for key, row in change.after(one.id).items():
            if row[column] in change.removed(node):
                yield key, row[column], word


def _broken_counts(change: GraphChange, one: TypeDef) -> Iterator[tuple[Any, ...]]:
    assert one.source is not None
    for node in change.after(one.source):
        count = _degree(change.after(one.id), node)
        if not one.cardinality.low <= count <= (count if one.cardinality.high is None else one.cardinality.high):
            yield node, count
