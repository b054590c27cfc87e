"""Random small graphs and changes of them, and an oracle that finds violations by reading the whole graph.

A graph is rows by table and id. The oracle computes the graph after the change and checks all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from hypothesis import strategies as st

from omnigraph.schema.catalog import TypeDef
from tests.schema.helpers import compile_text

SCHEMA = """
node Person { name: String @key  email: String? @unique  weight: F32?  born: Date?  @unique(weight, born) }
node Team { name: String @key }
edge Knows: Person -> Person { year: I32?  @unique(src, dst) }
edge In: Person -> Team @card(0..2)
edge Leads: Team -> Person @card(1..2)
edge Likes: Person -> Person @card(0..1)
"""
CATALOG = compile_text(SCHEMA)
NAMES = {type_def.id: type_def.name for type_def in CATALOG.types}

Row = dict[str, Any]
Table = dict[str, Row]
Graph = dict[str, Table]
Violations = set[tuple[Any, ...]]
"""(code, type, and the columns that the constraint returns)"""

_IDS = {"node": st.sampled_from("abc"), "edge": st.sampled_from("123")}
#: Constraints treat the two zeros as one value, and also a number before and after it is stored in single precision.
_VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "email": st.sampled_from([None, "x", "y", "Y"]),
    "weight": st.sampled_from([None, 0.0, -0.0, 0.1]),
    "born": st.sampled_from([None, date(1970, 1, 1), date(2000, 2, 29)]),
    "year": st.sampled_from([None, 1999]),
}


@dataclass(frozen=True)
class GraphChange:
    """`changes` by table: new images, or None for removed rows. `overwritten` tables keep no other row."""

    base: Graph
    changes: Mapping[str, Mapping[str, Row | None]]
    overwritten: frozenset[str]

    def new(self, table: str) -> Table:
        return {key: row for key, row in self.changes.get(table, {}).items() if row is not None}

    def ids_removed(self, table: str) -> set[str]:
        removed_ids = {key for key, row in self.changes.get(table, {}).items() if row is None}
        if table in self.overwritten:
            removed_ids |= self.base[table].keys() - self.new(table).keys()
        return removed_ids & self.base[table].keys()

    def old(self, table: str) -> Table:
        touched = self.new(table).keys() | self.ids_removed(table)
        return {key: row for key, row in self.base[table].items() if key in touched}

    def rows_unchanged(self, table: str) -> Table:
        return {key: row for key, row in self.base[table].items() if key not in self.old(table)}

    def after(self, table: str) -> Table:
        return {**self.rows_unchanged(table), **self.new(table)}


def row_of(type_def: TypeDef, values: Mapping[str, Any]) -> Row:
    """Stored values by column id; properties that are not given are null, keys repeat the id."""
    row: Row = {"id": values["id"]}
    if type_def.kind == "edge":
        row |= {"src": values["src"], "dst": values["dst"]}
    for prop in type_def.properties:
        row[prop.id] = values["id"] if prop.id in type_def.key else values.get(prop.name)
    return row


@st.composite
def tables(draw: st.DrawFn, type_def: TypeDef, base: Table | None = None) -> Table:
    """Rows of a type; of a row that is in `base` sometimes only a property changes."""
    least, most = (2, 3) if base is None else (0, 2)
    ids = draw(st.lists(_IDS[type_def.kind], unique=True, min_size=least, max_size=most))
    rows_by_id = {key: row_of(type_def, draw(_row_values(type_def, key))) for key in ids}
    for key in rows_by_id.keys() & (base or {}).keys():
        if draw(st.booleans()):
            rows_by_id[key] |= {
                column: value for column, value in (base or {})[key].items() if column in ("src", "dst")
            }
    return rows_by_id


def _row_values(type_def: TypeDef, key: str) -> st.SearchStrategy[dict[str, Any]]:
    parts: dict[str, st.SearchStrategy[Any]] = {"id": st.just(key)}
    parts |= {prop.name: _VALUES[prop.name] for prop in type_def.properties if prop.id not in type_def.key}
    if type_def.kind == "edge":
        parts |= {"src": _IDS["node"], "dst": _IDS["node"]}
    return st.fixed_dictionaries(parts)


@st.composite
def changes(draw: st.DrawFn) -> GraphChange:
    base = repair_graph({type_def.id: draw(tables(type_def)) for type_def in CATALOG.types})
    touched: dict[str, dict[str, Row | None]] = {}
    for type_def in CATALOG.types:
        rows_by_id: dict[str, Row | None] = dict(draw(tables(type_def, base[type_def.id])))
        rows_by_id |= dict.fromkeys(draw(st.lists(_IDS[type_def.kind], max_size=1)))
        touched[type_def.id] = rows_by_id
    overwritten = draw(st.sets(st.sampled_from([type_def.id for type_def in CATALOG.types]), max_size=1))
    return GraphChange(base, touched, frozenset(overwritten))


def repair_graph(graph: Graph) -> Graph:
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
    for type_def in CATALOG.types:
        rows = graph[type_def.id]
        for columns in type_def.uniques:
            for _, *later_rows in _sharers(rows, columns):
                yield from ((type_def.id, later_row) for later_row in later_rows)
        if type_def.kind == "edge":
            assert type_def.source is not None
            assert type_def.target is not None
            for key, row in rows.items():
                if row["src"] not in graph[type_def.source] or row["dst"] not in graph[type_def.target]:
                    yield type_def.id, key
            for node in graph[type_def.source]:
                count = _degree(rows, node)
                if not type_def.cardinality.low <= count <= (type_def.cardinality.high or count):
                    yield type_def.source, node


def _sharers(rows: Table, columns: Sequence[str]) -> list[list[str]]:
    groups: dict[tuple[Any, ...], list[str]] = {}
    for key in sorted(rows):
        values = tuple(rows[key][column] for column in columns)
        if None not in values:
            groups.setdefault(values, []).append(key)
    return list(groups.values())


def _degree(edges: Table, node: str) -> int:
    return sum(row["src"] == node for row in edges.values())


def oracle(change: GraphChange, *, strict: bool = False) -> Violations:
    """What every rule must return, by looking at all rows of the graph before and after."""
    violations: Violations = set()
    for type_def in CATALOG.types:
        for columns in type_def.uniques:
            violations |= {("unique", type_def.name, *details) for details in _broken_unique(change, type_def, columns)}
        if strict:
            violations |= {
                ("key_exists", type_def.name, key) for key in change.new(type_def.id) if key in change.base[type_def.id]
            }
        if type_def.kind == "edge":
            violations |= {("endpoint", type_def.name, *broken_end) for broken_end in _broken_ends(change, type_def)}
            violations |= {("orphan_edge", type_def.name, *orphan) for orphan in _orphans(change, type_def)}
            violations |= {
                ("cardinality", type_def.name, *broken_count) for broken_count in _broken_counts(change, type_def)
            }
    return violations


def _broken_unique(change: GraphChange, type_def: TypeDef, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for sharers in _sharers(change.after(type_def.id), columns):
        new = [key for key in sharers if key in change.new(type_def.id)]
        for key in new[1:]:
            yield key, new[0]
        for key in sharers:
            if new and key not in new:
                yield new[0], key


def _broken_ends(change: GraphChange, type_def: TypeDef) -> Iterator[tuple[Any, ...]]:
    for word, column, node in (("from", "src", type_def.source), ("to", "dst", type_def.target)):
        assert node is not None
        for key, row in change.new(type_def.id).items():
            was = change.base[type_def.id].get(key, {}).get(column)
            if row[column] != was and row[column] not in change.after(node):
                yield key, row[column], word


def _orphans(change: GraphChange, type_def: TypeDef) -> Iterator[tuple[Any, ...]]:
    for word, column, node in (("from", "src", type_def.source), ("to", "dst", type_def.target)):
        assert node is not None
        for key, row in change.after(type_def.id).items():
            if row[column] in change.ids_removed(node):
                yield key, row[column], word


def _broken_counts(change: GraphChange, type_def: TypeDef) -> Iterator[tuple[Any, ...]]:
    assert type_def.source is not None
    for node in change.after(type_def.source):
        count = _degree(change.after(type_def.id), node)
        if (
            not type_def.cardinality.low
            <= count
            <= (count if type_def.cardinality.high is None else type_def.cardinality.high)
        ):
            yield node, count
