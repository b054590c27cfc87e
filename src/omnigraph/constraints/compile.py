"""Compiles the relational constraints of a schema: each becomes a query that returns the violating rows.

Relational constraints need other rows: uniqueness, endpoints, cardinality, ids. Constraints on the values of one row
are in `schema/row_constraints.py`.

`compile_constraints(catalog, changed)` compiles only the constraints that a change can violate. It relies on the
committed rows fulfilling all constraints: a row that keeps its unique tuple, or an edge that keeps its ends, is not
looked up again. Both engines evaluate the same queries: `evaluate.py` in-process by probing indexes, `sql.py` in bulk.

The columns that a query returns, by the code of its constraint:

    unique         id, the unique columns, other   `other` is another row that has the same tuple
    endpoint       id, end, word                   an edge whose end (`word` says which: from, to) does not exist
    orphan_edge    id, end, word                   an edge that remains without its removed end
    cardinality    id, count                       a source node, and how many edges it would have
    key_exists     id                              a row of the input whose id is committed already
    duplicate_key  id, at, other                   a row of the input (`at`: its ordinal) after the first of its id
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from omnigraph.constraints.relations import (
    ColumnProjection,
    DistinctRows,
    EqualColumns,
    EqualJoin,
    GroupCount,
    GroupExtremes,
    ImageKind,
    ImageRows,
    MatchCount,
    Relation,
    UnionAll,
    WhereOutside,
    WhereUnequal,
    WithConstant,
    WithMatch,
    WithoutMatch,
    WithoutNulls,
    columns_of,
    inputs_of,
)
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.schema.row_constraints import Violation
from omnigraph.schema.values import to_output

ConstraintCode = Literal["unique", "endpoint", "orphan_edge", "cardinality", "key_exists", "duplicate_key"]

_ENDS = (("from", "src"), ("to", "dst"))


@dataclass(frozen=True, slots=True)
class ChangedImages:
    """Which images of a table may hold rows; `relations.py` explains the images.

    `has_gone` matters only where the edges of a removed node are not removed along with it. Without `has_old` the
    constraints find the same violations over more rows, with one exception: the sources that lose an edge are then
    unknown, so `has_old` may be False only if no edge type has a lower bound on its cardinality.
    """

    has_new: bool = False
    has_old: bool = False
    has_gone: bool = False
    has_kept: bool = True

    def has_rows(self, kind: ImageKind) -> bool:
        return {"new": self.has_new, "old": self.has_old, "gone": self.has_gone, "kept": self.has_kept}[kind]


UNTOUCHED = ChangedImages()


@dataclass(frozen=True, slots=True)
class Constraint:
    """A compiled schema constraint: `query` returns the rows that violate it; `type_id` is their table."""

    code: ConstraintCode
    type_id: str
    query: Relation
    columns: tuple[str, ...] = ()  # unique: the columns of the tuple
    node_id: str | None = None  # endpoint, orphan_edge, cardinality: the node type at the end in question


def compile_constraints(
    catalog: Catalog,
    changed: Mapping[str, ChangedImages],
    *,
    strict: bool = False,
    ordinal: str | None = None,
    screened: bool = False,
) -> tuple[Constraint, ...]:
    """Compile the constraints that a change with these images can violate.

    Args:
        catalog: The schema that holds after the change.
        changed: The images that hold rows, by table; the change does not touch a table that is missing here.
        strict: The input may not hold an id that is committed already.
        ordinal: The column of `new` that orders input rows of the same id; None if the input holds every id once.
        screened: Endpoint, cardinality and duplicate_key look only at the ids of the `suspect` images.
    """
    compiler = _ConstraintCompiler(catalog, changed, screened)
    constraints: list[Constraint] = []
    for table, images in changed.items():
        type_def = catalog.by_id[table]
        if images.has_new:
            constraints += compiler.compile_uniques(type_def)
            constraints += compiler.compile_keys(type_def, strict, ordinal)
        if type_def.kind == "node" and images.has_gone:
            constraints += compiler.compile_orphans(type_def)
        if type_def.kind == "edge" and images.has_new:
            constraints += compiler.compile_endpoints(type_def)
    for edge in catalog.types:
        if edge.kind == "edge" and edge.cardinality.is_bounded:
            constraints += compiler.compile_cardinality(edge)
    return tuple(constraints)


@dataclass(frozen=True, slots=True)
class _ConstraintCompiler:
    catalog: Catalog
    changed: Mapping[str, ChangedImages]
    screened: bool

    def rows(self, kind: ImageKind, table: str, *columns: str) -> Relation | None:
        """One image of a table; None if the image is known to be empty."""
        return ImageRows(kind, table, columns) if self.changed.get(table, UNTOUCHED).has_rows(kind) else None

    def rows_after(self, table: str, *columns: str) -> Relation | None:
        """The table as it is after the change."""
        return _union(self.rows("new", table, *columns), self.rows("kept", table, *columns))

    def compile_uniques(self, type_def: TypeDef) -> Iterator[Constraint]:
        for columns in type_def.uniques:
            new_rows = self.rows("new", type_def.id, "id", *columns)
            assert new_rows is not None
            tuples = tuple((column, column) for column in columns)
            candidates = WithoutNulls(new_rows, columns)
            groups = GroupExtremes(candidates, columns, "id", "other", "last")
            shared = ColumnProjection(WhereUnequal(groups, "other", "last"), (*tuples, ("other", "other")))
            new_against_new: Relation = WhereUnequal(EqualJoin(candidates, shared, tuples), "id", "other")
            firsts = _anti(
                ColumnProjection(groups, (("id", "other"), *tuples)),
                self.rows("old", type_def.id, "id", *columns),
                (("id", "id"), *tuples),
            )
            kept_rows = self.rows("kept", type_def.id, "id", *columns)
            new_against_kept = (
                EqualJoin(firsts, ColumnProjection(kept_rows, (("other", "id"), *tuples)), tuples)
                if kept_rows
                else None
            )
            query = _union(new_against_new, new_against_kept) or new_against_new
            yield Constraint("unique", type_def.id, query, columns=columns)

    def compile_keys(self, type_def: TypeDef, strict: bool, ordinal: str | None) -> Iterator[Constraint]:
        ids = ImageRows("new", type_def.id, ("id",))
        committed = _union(self.rows("old", type_def.id, "id"), self.rows("kept", type_def.id, "id"))
        if strict and committed is not None:
            yield Constraint("key_exists", type_def.id, WithMatch(ids, committed, (("id", "id"),)))
        if ordinal is not None:
            rows: Relation = ImageRows("new", type_def.id, ("id", ordinal))
            if type_def.kind == "node":
                rows = self._only_suspects(rows, type_def, "id")
            yield Constraint("duplicate_key", type_def.id, _repetitions(rows, ordinal, "first"))

    def compile_endpoints(self, edge: TypeDef) -> Iterator[Constraint]:
        """Yield one constraint per node type at an end; if both ends have the same type, one query looks up both."""
        for node in self._end_types(edge):
            parts = []
            for word, column in _ends_at(edge, node):
                new_edges = ImageRows("new", edge.id, ("id", column))
                moved = _anti(new_edges, self.rows("old", edge.id, "id", column), (("id", "id"), (column, column)))
                parts.append(WithConstant(ColumnProjection(moved, (("id", "id"), ("end", column))), "word", word))
            ends = self._only_suspects(_union(*parts) or parts[0], node, "end")
            missing = _anti(ends, self.rows_after(node.id, "id"), (("end", "id"),))
            yield Constraint("endpoint", edge.id, missing, node_id=node.id)

    def compile_orphans(self, node: TypeDef) -> Iterator[Constraint]:
        for edge in self.catalog.edges_at(node.id):
            parts: list[Relation] = []
            for word, column in _ends_at(edge, node):
                edges = self.rows_after(edge.id, "id", column)
                if edges is not None:
                    removed = ColumnProjection(ImageRows("gone", node.id, ("id",)), (("end", "id"),))
                    orphans = EqualJoin(removed, edges, (("end", column),))
                    parts.append(WithConstant(ColumnProjection(orphans, (("id", "id"), ("end", "end"))), "word", word))
            query = _union(*parts)
            if query is not None:
                yield Constraint("orphan_edge", edge.id, query, node_id=node.id)

    def compile_cardinality(self, edge: TypeDef) -> Iterator[Constraint]:
        """Only a source that gains an edge can have too many; any node that the change touches can have too few."""
        assert edge.source is not None
        node, limits = self.catalog.by_id[edge.source], edge.cardinality
        nodes = self.rows_after(node.id, "id")
        counts = self._counts_of_touched(edge, node) if limits.low > 0 else self._counts_of_gaining(edge, node)
        if nodes is None or counts is None:
            return
        violating: Relation = WhereOutside(counts, "count", limits.low, limits.high)
        if limits.low == 0 and self.rows("kept", edge.id):
            violating = WithMatch(violating, ImageRows("new", edge.id, ("src",)), (("id", "src"),))
        yield Constraint("cardinality", edge.id, WithMatch(violating, nodes, (("id", "id"),)), node_id=node.id)

    def _counts_of_gaining(self, edge: TypeDef, node: TypeDef) -> Relation | None:
        """Edges per source, of all sources: those that gain no edge are dropped after the bound left few of them."""
        edges = self.rows_after(edge.id, "src")
        if edges is None or self.rows("new", edge.id) is None:
            return None
        sources = ColumnProjection(self._only_suspects(edges, node, "src"), (("id", "src"),))
        return GroupCount(sources, ("id",), "count")

    def _counts_of_touched(self, edge: TypeDef, node: TypeDef) -> Relation | None:
        """Edges per source, of the sources that gain or lose an edge and of the nodes that are new."""
        new_nodes = self.rows("new", node.id, "id")
        if self.rows("kept", node.id):
            new_nodes = _anti(new_nodes, self.rows("old", node.id, "id"), (("id", "id"),)) if new_nodes else None
            changed_edges = (self.rows("new", edge.id, "src"), self.rows("old", edge.id, "src"))
            sources = (ColumnProjection(edges, (("id", "src"),)) for edges in changed_edges if edges is not None)
            touched = _union(*sources, new_nodes)
        else:
            touched = new_nodes  # without kept nodes every source is a new node
        if touched is None:
            return None
        edges = self._only_suspects(self.rows_after(edge.id, "src") or ImageRows("new", edge.id, ("src",)), node, "src")
        nodes = self._only_suspects(DistinctRows(touched), node, "id")
        return MatchCount(nodes, edges, (("id", "src"),), "count")

    def _only_suspects(self, relation: Relation, node: TypeDef, column: str) -> Relation:
        if not self.screened:
            return relation
        return WithMatch(relation, ImageRows("suspect", node.id, ("id",)), ((column, "id"),))

    def _end_types(self, edge: TypeDef) -> Iterator[TypeDef]:
        ends = dict.fromkeys(end for end in (edge.source, edge.target) if end is not None)
        return (self.catalog.by_id[end] for end in ends)


def input_rows_replaced_later(table: str, ordinal: str) -> Relation:
    """Input rows that a later row of the same id replaces: `id`, their ordinal as `at`, the last ordinal as `other`."""
    return _repetitions(ImageRows("new", table, ("id", ordinal)), ordinal, "last")


def input_rows_to_reject(constraint: Constraint, catalog: Catalog, address: str) -> Mapping[str, Relation]:
    """The input rows that cause violations: per table, the columns of the constraint's query and a row's `address`.

    Without these rows the violation disappears or becomes another one. Some violations have no input row: an edge of
    the graph whose node is removed, a node of the graph that loses an edge.
    """
    table, query = constraint.type_id, constraint.query
    if constraint.code == "duplicate_key":
        return {table: ColumnProjection(query, (("id", "id"), (address, "at"), ("other", "other")))}
    if constraint.code != "cardinality":
        return {table: EqualJoin(query, ImageRows("new", table, ("id", address)), (("id", "id"),))}
    assert constraint.node_id is not None
    limits = catalog.by_id[table].cardinality
    rows_by_table: dict[str, Relation] = {}
    if limits.high is not None:
        over = WhereOutside(query, "count", 0, limits.high)
        rows_by_table[table] = EqualJoin(over, ImageRows("new", table, ("src", address)), (("id", "src"),))
    if limits.low > 0:
        under = WhereOutside(query, "count", limits.low, None)
        nodes = ImageRows("new", constraint.node_id, ("id", address))
        rows_by_table[constraint.node_id] = EqualJoin(under, nodes, (("id", "id"),))
    return rows_by_table


def images_read_by(relations: Iterable[Relation]) -> Mapping[tuple[ImageKind, str], tuple[str, ...]]:
    """The images that these relations read, each with the columns that it must have."""
    images: dict[tuple[ImageKind, str], dict[str, None]] = {}
    for relation in relations:
        if isinstance(relation, ImageRows):
            images.setdefault((relation.kind, relation.table), {}).update(dict.fromkeys(relation.columns))
            continue
        for image, columns in images_read_by(inputs_of(relation)).items():
            images.setdefault(image, {}).update(dict.fromkeys(columns))
    return {image: tuple(columns) for image, columns in images.items()}


def describe_violation(catalog: Catalog, constraint: Constraint, row: Mapping[str, Any]) -> Violation:
    """Describe one row of the constraint's query to users. `row` holds stored values by column name."""
    type_def = catalog.by_id[constraint.type_id]
    match constraint.code:
        case "unique":
            return _unique_violation(type_def, constraint.columns, row)
        case "endpoint" | "orphan_edge":
            assert constraint.node_id is not None
            return _end_violation(type_def, catalog.by_id[constraint.node_id], constraint.code, row)
        case "cardinality":
            assert constraint.node_id is not None
            return _cardinality_violation(type_def, catalog.by_id[constraint.node_id], row["id"], row["count"])
        case "key_exists":
            text = f"{type_def.table_key} already has a row with id {row['id']!r}"
            return Violation("key_conflict", type_def.table_key, row["id"], None, row["id"], text)
        case "duplicate_key":
            text = f"{type_def.table_key}: the input has more than one row with id {row['id']!r}"
            return Violation("key_conflict", type_def.table_key, row["id"], None, row["id"], text)


def _unique_violation(type_def: TypeDef, columns: tuple[str, ...], row: Mapping[str, Any]) -> Violation:
    values = {type_def.column_name(column): _to_output(type_def, column, row[column]) for column in columns}
    names = ", ".join(values)
    value = next(iter(values.values())) if len(values) == 1 else values
    text = f"{type_def.table_key} {row['id']!r}: {names} is not unique, {row['other']!r} has it too"
    return Violation("unique", type_def.table_key, row["id"], names, value, text)


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


def _to_output(type_def: TypeDef, column: str, value: Any) -> Any:
    prop = type_def.by_id.get(column)
    return to_output(prop, value) if prop is not None else value


def _repetitions(rows: Relation, ordinal: str, stays: Literal["first", "last"]) -> Relation:
    """Rows whose id occurs more than once, except the row that stays."""
    candidates = ColumnProjection(rows, (("id", "id"), ("at", ordinal)))
    groups = WhereUnequal(GroupExtremes(candidates, ("id",), "at", "first", "last"), "first", "last")
    staying = ColumnProjection(groups, (("id", "id"), ("other", stays)))
    return WhereUnequal(EqualJoin(candidates, staying, (("id", "id"),)), "at", "other")


def _ends_at(edge: TypeDef, node: TypeDef) -> Iterator[tuple[str, str]]:
    """The ends of an edge type that are nodes of this type: the user's word and the column."""
    for (word, column), end in zip(_ENDS, (edge.source, edge.target), strict=True):
        if end == node.id:
            yield word, column


def _union(*parts: Relation | None) -> Relation | None:
    relations = tuple(part for part in parts if part is not None)
    assert len({columns_of(relation) for relation in relations}) <= 1, relations
    return UnionAll(relations) if len(relations) > 1 else relations[0] if relations else None


def _anti(rows: Relation, excluded: Relation | None, on: EqualColumns) -> Relation:
    return WithoutMatch(rows, excluded, on) if excluded is not None else rows
