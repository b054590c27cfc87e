"""The rules that need other rows, compiled once: each is a relational query that returns the violating rows.

`rules_of(catalog, changed)` looks only at what a change can break. It relies on the committed rows holding all rules:
a row that keeps its unique tuple, or an edge that keeps its ends, is not looked up again. Both planes evaluate the same
queries: in-process by probing indexes (`constraints/evaluate.py`), in bulk as SQL (`constraint_sql.py`).

What a query returns, by the code of its rule:

    unique         id, the columns of the rule, other   `other` is another row that has the same tuple
    endpoint       id, end, word                        an edge whose end (`word` says which: from, to) is not there
    orphan_edge    id, end, word                        an edge that is left without its removed end
    cardinality    id, count                            a source, and how many edges it would have
    key_exists     id                                   a row of the input whose id is committed already
    duplicate_key  id, at, other                        a row of the input (`at`: its ordinal) after the first of its id
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from omnigraph.constraints.relations import (
    Anti,
    Counted,
    Differ,
    Distinct,
    Image,
    Join,
    NotNull,
    Outside,
    Pick,
    Relation,
    Rows,
    Semi,
    Span,
    Tagged,
    Tally,
    Union,
    columns_of,
    inputs_of,
)
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.schema.row_constraints import Violation
from omnigraph.schema.values import to_output

RuleCode = Literal["unique", "endpoint", "orphan_edge", "cardinality", "key_exists", "duplicate_key"]

_ENDS = (("from", "src"), ("to", "dst"))


@dataclass(frozen=True, slots=True)
class Images:
    """Which images of a table may hold rows.

    `gone` only matters where edges are not removed along with a node. Rules without `old` find the same and look at
    more rows, except that sources which lose an edge are then unknown: it may be left out unless a type of edge has
    a lower bound on its number.
    """

    new: bool = False
    old: bool = False
    gone: bool = False
    kept: bool = True


_UNTOUCHED = Images()


@dataclass(frozen=True, slots=True)
class Rule:
    """`query` returns what breaks the rule. `type_id` is the table that the violations are about."""

    code: RuleCode
    type_id: str
    query: Relation
    columns: tuple[str, ...] = ()  # unique: the tuple
    node_id: str | None = None  # endpoint, orphan_edge, cardinality: the nodes at the end concerned


def rules_of(
    catalog: Catalog,
    changed: Mapping[str, Images],
    *,
    strict: bool = False,
    ordinal: str | None = None,
    screened: bool = False,
) -> tuple[Rule, ...]:
    """The rules that a change with these images can break; tables that are not named are untouched.

    `strict`: an id that is committed already may not come again. `ordinal`: the column of `new` that tells rows of the
    same id apart and orders them, where the input may hold an id twice. `screened`: endpoint, cardinality and duplicate
    keys look only at ids of the images `suspect`.
    """
    made = _Compiler(catalog, changed, screened)
    rules: list[Rule] = []
    for table, images in changed.items():
        one = catalog.by_id[table]
        if images.new:
            rules += made.uniques(one)
            rules += made.keys(one, strict, ordinal)
        if one.kind == "node" and images.gone:
            rules += made.orphans(one)
        if one.kind == "edge" and images.new:
            rules += made.endpoints(one)
    for edge in catalog.types:
        if edge.kind == "edge" and edge.cardinality.binds:
            rules += made.cardinality(edge)
    return tuple(rules)


@dataclass(frozen=True, slots=True)
class _Compiler:
    catalog: Catalog
    changed: Mapping[str, Images]
    screened: bool

    def rows(self, image: Image, table: str, *columns: str) -> Relation | None:
        """None stands for a relation that is known to be empty."""
        images = self.changed.get(table, _UNTOUCHED)
        there = {"new": images.new, "old": images.old, "gone": images.gone, "kept": images.kept}[image]
        return Rows(image, table, columns) if there else None

    def after(self, table: str, *columns: str) -> Relation | None:
        """The table as it would be."""
        return _union(self.rows("new", table, *columns), self.rows("kept", table, *columns))

    def uniques(self, one: TypeDef) -> Iterator[Rule]:
        for columns in one.uniques:
            given = self.rows("new", one.id, "id", *columns)
            assert given is not None
            tuples = tuple((column, column) for column in columns)
            mine = NotNull(given, columns)
            groups = Span(mine, columns, "id", "other", "last")
            shared = Pick(Differ(groups, "other", "last"), (*tuples, ("other", "other")))
            rivals: Relation = Differ(Join(mine, shared, tuples), "id", "other")
            firsts = _anti(
                Pick(groups, (("id", "other"), *tuples)),
                self.rows("old", one.id, "id", *columns),
                (("id", "id"), *tuples),
            )
            kept = self.rows("kept", one.id, "id", *columns)
            taken = Join(firsts, Pick(kept, (("other", "id"), *tuples)), tuples) if kept else None
            yield Rule("unique", one.id, _union(rivals, taken) or rivals, columns=columns)

    def keys(self, one: TypeDef, strict: bool, ordinal: str | None) -> Iterator[Rule]:
        ids = Rows("new", one.id, ("id",))
        committed = _union(self.rows("old", one.id, "id"), self.rows("kept", one.id, "id"))
        if strict and committed is not None:
            yield Rule("key_exists", one.id, Semi(ids, committed, (("id", "id"),)))
        if ordinal is not None:
            rows = self._suspect(Rows("new", one.id, ("id", ordinal)), one, "id") if one.kind == "node" else None
            yield Rule("duplicate_key", one.id, _repeated(one.id, ordinal, "first", rows))

    def endpoints(self, one: TypeDef) -> Iterator[Rule]:
        """One rule for each type of node at an end: an edge between nodes of one type asks for both at once."""
        for node in self._end_types(one):
            parts = []
            for word, column in _ends_at(one, node):
                given = Rows("new", one.id, ("id", column))
                moved = _anti(given, self.rows("old", one.id, "id", column), (("id", "id"), (column, column)))
                parts.append(Tagged(Pick(moved, (("id", "id"), ("end", column))), "word", word))
            ends = self._suspect(_union(*parts) or parts[0], node, "end")
            missing = _anti(ends, self.after(node.id, "id"), (("end", "id"),))
            yield Rule("endpoint", one.id, missing, node_id=node.id)

    def orphans(self, node: TypeDef) -> Iterator[Rule]:
        for edge in self.catalog.edges_at(node.id):
            parts: list[Relation] = []
            for word, column in _ends_at(edge, node):
                left = self.after(edge.id, "id", column)
                if left is not None:
                    gone = Pick(Rows("gone", node.id, ("id",)), (("end", "id"),))
                    needed = Join(gone, left, (("end", column),))
                    parts.append(Tagged(Pick(needed, (("id", "id"), ("end", "end"))), "word", word))
            query = _union(*parts)
            if query is not None:
                yield Rule("orphan_edge", edge.id, query, node_id=node.id)

    def cardinality(self, edge: TypeDef) -> Iterator[Rule]:
        """Only a source that gains an edge can have too many; any node that is touched can have too few."""
        assert edge.source is not None
        node, limits = self.catalog.by_id[edge.source], edge.cardinality
        alive = self.after(node.id, "id")
        counts = self._counts_of_touched(edge, node) if limits.low > 0 else self._counts_of_gaining(edge, node)
        if alive is None or counts is None:
            return
        broken: Relation = Outside(counts, "count", limits.low, limits.high)
        if limits.low == 0 and self.rows("kept", edge.id):
            broken = Semi(broken, Rows("new", edge.id, ("src",)), (("id", "src"),))
        yield Rule("cardinality", edge.id, Semi(broken, alive, (("id", "id"),)), node_id=node.id)

    def _counts_of_gaining(self, edge: TypeDef, node: TypeDef) -> Relation | None:
        """Of all sources; those that gain nothing are left out once few are left."""
        edges = self.after(edge.id, "src")
        if edges is None or self.rows("new", edge.id) is None:
            return None
        return Tally(Pick(self._suspect(edges, node, "src"), (("id", "src"),)), ("id",), "count")

    def _counts_of_touched(self, edge: TypeDef, node: TypeDef) -> Relation | None:
        """Of sources that gain or lose an edge, and of nodes that are new."""
        gaining, losing = self.rows("new", edge.id, "src"), self.rows("old", edge.id, "src")
        fresh = self.rows("new", node.id, "id")
        if self.rows("kept", node.id):
            fresh = _anti(fresh, self.rows("old", node.id, "id"), (("id", "id"),)) if fresh else None
            ends = (Pick(one, (("id", "src"),)) for one in (gaining, losing) if one is not None)
            touched = _union(*ends, fresh)
        else:
            touched = fresh  # no other source can be there
        if touched is None:
            return None
        edges = self._suspect(self.after(edge.id, "src") or Rows("new", edge.id, ("src",)), node, "src")
        return Counted(self._suspect(Distinct(touched), node, "id"), edges, (("id", "src"),), "count")

    def _suspect(self, relation: Relation, node: TypeDef, column: str) -> Relation:
        return Semi(relation, Rows("suspect", node.id, ("id",)), ((column, "id"),)) if self.screened else relation

    def _end_types(self, edge: TypeDef) -> Iterator[TypeDef]:
        ends = dict.fromkeys(end for end in (edge.source, edge.target) if end is not None)
        return (self.catalog.by_id[end] for end in ends)


def superseded(table: str, ordinal: str) -> Relation:
    """Rows of the input that a later row of the same id replaces: `id`, `at` their ordinal, `other` the last one's."""
    return _repeated(table, ordinal, "last", None)


def accused(rule: Rule, catalog: Catalog, address: str) -> Mapping[str, Relation]:
    """The rows of the input that a violation names: by table, what the rule returns and the `address` of a row.

    Without these rows the violation is gone or becomes another one. A violation that no row of the input is to blame
    for (an edge of the graph whose node is removed, a node of the graph that loses an edge) has no row here.
    """
    if rule.code == "duplicate_key":
        return {rule.type_id: Pick(rule.query, (("id", "id"), (address, "at"), ("other", "other")))}
    if rule.code != "cardinality":
        return {rule.type_id: Join(rule.query, Rows("new", rule.type_id, ("id", address)), (("id", "id"),))}
    assert rule.node_id is not None
    limits = catalog.by_id[rule.type_id].cardinality
    found: dict[str, Relation] = {}
    if limits.high is not None:
        over = Outside(rule.query, "count", 0, limits.high)
        found[rule.type_id] = Join(over, Rows("new", rule.type_id, ("src", address)), (("id", "src"),))
    if limits.low > 0:
        under = Outside(rule.query, "count", limits.low, None)
        found[rule.node_id] = Join(under, Rows("new", rule.node_id, ("id", address)), (("id", "id"),))
    return found


def images_needed(relations: Iterable[Relation]) -> Mapping[tuple[Image, str], tuple[str, ...]]:
    """The images that these relations read, each with the columns that it must have."""
    found: dict[tuple[Image, str], dict[str, None]] = {}
    for relation in relations:
        if isinstance(relation, Rows):
            found.setdefault((relation.image, relation.table), {}).update(dict.fromkeys(relation.columns))
            continue
        for image, columns in images_needed(inputs_of(relation)).items():
            found.setdefault(image, {}).update(dict.fromkeys(columns))
    return {image: tuple(columns) for image, columns in found.items()}


def violation_of(catalog: Catalog, rule: Rule, row: Mapping[str, Any]) -> Violation:
    """What one row of the rule's query says to people. `row` holds stored values by the names of its columns."""
    one = catalog.by_id[rule.type_id]
    match rule.code:
        case "unique":
            return _unique_violation(one, rule.columns, row)
        case "endpoint" | "orphan_edge":
            assert rule.node_id is not None
            return _end_violation(one, catalog.by_id[rule.node_id], rule.code, row)
        case "cardinality":
            assert rule.node_id is not None
            return _cardinality_violation(one, catalog.by_id[rule.node_id], row["id"], row["count"])
        case "key_exists":
            text = f"{one.table_key} already has a row with id {row['id']!r}"
            return Violation("key_conflict", one.table_key, row["id"], None, row["id"], text)
        case "duplicate_key":
            text = f"{one.table_key}: the input has more than one row with id {row['id']!r}"
            return Violation("key_conflict", one.table_key, row["id"], None, row["id"], text)


def _unique_violation(one: TypeDef, columns: tuple[str, ...], row: Mapping[str, Any]) -> Violation:
    shown = {one.column_name(column): _shown(one, column, row[column]) for column in columns}
    names = ", ".join(shown)
    value = next(iter(shown.values())) if len(shown) == 1 else shown
    text = f"{one.table_key} {row['id']!r}: {names} is not unique, {row['other']!r} has it too"
    return Violation("unique", one.table_key, row["id"], names, value, text)


def _end_violation(edge: TypeDef, node: TypeDef, code: str, row: Mapping[str, Any]) -> Violation:
    row_id, end, word = row["id"], row["end"], row["word"]
    if code == "endpoint":
        text = f"{edge.table_key} {row_id!r}: there is no {node.table_key} {end!r} to go {word}"
    else:
        text = f"{edge.table_key} {row_id!r} needs {node.table_key} {end!r}, which is removed"
    return Violation(code, edge.table_key, row_id, word, end, text)


def _cardinality_violation(edge: TypeDef, node: TypeDef, source: str, count: int) -> Violation:
    limits = edge.cardinality
    allowed = f"{limits.low}..{'' if limits.high is None else limits.high}"
    text = f"{node.table_key} {source!r} would have {count} {edge.name} edges, allowed are {allowed}"
    return Violation("cardinality", edge.table_key, source, None, count, text)


def _shown(one: TypeDef, column: str, value: Any) -> Any:
    prop = one.by_id.get(column)
    return to_output(prop, value) if prop is not None else value


def _repeated(table: str, ordinal: str, stays: Literal["first", "last"], rows: Relation | None) -> Relation:
    """Rows of an id that comes more than once, but for the one that stays."""
    mine = Pick(rows or Rows("new", table, ("id", ordinal)), (("id", "id"), ("at", ordinal)))
    groups = Differ(Span(mine, ("id",), "at", "first", "last"), "first", "last")
    others = Pick(groups, (("id", "id"), ("other", stays)))
    return Differ(Join(mine, others, (("id", "id"),)), "at", "other")


def _ends_at(edge: TypeDef, node: TypeDef) -> Iterator[tuple[str, str]]:
    """The ends of an edge type that are nodes of this type: the user's word and the column."""
    for (word, column), end in zip(_ENDS, (edge.source, edge.target), strict=True):
        if end == node.id:
            yield word, column


def _union(*parts: Relation | None) -> Relation | None:
    there = tuple(part for part in parts if part is not None)
    assert len({columns_of(part) for part in there}) <= 1, there
    return Union(there) if len(there) > 1 else there[0] if there else None


def _anti(left: Relation, right: Relation | None, on: tuple[tuple[str, str], ...]) -> Relation:
    return Anti(left, right, on) if right is not None else left
