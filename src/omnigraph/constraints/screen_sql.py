"""The screening query: one aggregation that finds the ids which can be part of a violation.

A bulk change pays one shuffle for the screening query instead of one per constraint. The query unites all keys of a
change (ids of nodes, ends of edges) and looks at each id once. It returns a superset of the violating ids, usually an
empty one: if it returns nothing, no endpoint, cardinality or duplicate_key (of nodes) constraint is violated. Else its
ids, by table, are the `suspect` images, and the constraints of `compile_constraints(…, screened=True)` return exactly
what those of `compile_constraints(…)` return, over far fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from omnigraph.constraints.compile import UNTOUCHED, ChangedImages
from omnigraph.constraints.relations import ImageKind, ImageRows
from omnigraph.constraints.sql import Dialect, NameOf, column, identifier, outside, view_name, with_alias
from omnigraph.schema.catalog import Catalog, TypeDef

#: Roles that a key can play at every node type; sources of edges with a bounded cardinality have further roles.
_NEW, _KEPT, _END, _FIRST_OWN_ROLE = range(4)


@dataclass(frozen=True)
class ScreeningQuery:
    """The query returns (`place`, `id`): each id of the node type `tables[place]` that may violate a constraint.

    `images` are the views that the query reads, each with one column.
    """

    tables: tuple[str, ...]
    images: tuple[ImageRows, ...]
    query: exp.Select

    def sql(self, dialect: Dialect, *, pretty: bool = False) -> str:
        return self.query.sql(dialect=dialect, pretty=pretty)


def compile_screen(
    catalog: Catalog, changed: Mapping[str, ChangedImages], *, duplicates: bool, name_of: NameOf = view_name
) -> ScreeningQuery | None:
    """Compile the screening query; None if the change cannot violate any constraint that it screens for.

    `duplicates`: the input may hold the id of a node twice.
    """
    builder = _ScreenBuilder(catalog, changed, duplicates)
    for node in catalog.types:
        if node.kind == "node":
            builder.add(node)
    if not builder.suspicions:
        return None
    parts = [_keys(position, rows, role, name_of) for position, rows, role in builder.keys]
    union = exp.union(*parts, distinct=False, copy=False) if len(parts) > 1 else parts[0]
    keys: list[exp.Expr] = [column("place"), column("id")]
    query = exp.Select(expressions=keys).from_(union.subquery("keys"), copy=False)
    query = query.group_by(*(key.copy() for key in keys), copy=False).having(exp.or_(*builder.suspicions), copy=False)
    return ScreeningQuery(tuple(builder.tables), tuple(rows for _, rows, _ in builder.keys), query)


@dataclass
class _ScreenBuilder:
    """Collects the keys with their roles, and per node type the conditions under which an id is suspect."""

    catalog: Catalog
    changed: Mapping[str, ChangedImages]
    duplicates: bool
    tables: list[str] = field(default_factory=list)
    keys: list[tuple[int, ImageRows, int]] = field(default_factory=list)
    suspicions: list[exp.Expr] = field(default_factory=list)
    _position: int = 0
    _next_role: int = 0

    def add(self, node: TypeDef) -> None:
        self._position, self._next_role = len(self.tables), _FIRST_OWN_ROLE
        first_key = len(self.keys)
        conditions: list[exp.Expr] = []
        new = self._key("new", node.id, "id", _NEW)
        if self.duplicates and new is not None:
            conditions.append(exp.GT(this=new.copy(), expression=exp.Literal.number(1)))
        ends: dict[exp.Expr, None] = {}
        for edge in self.catalog.edges_at(node.id):
            if edge.source == node.id:
                gained = self._key("new", edge.id, "src", None if edge.cardinality.is_bounded else _END)
                conditions += self._cardinality_conditions(edge, gained, new)
                ends.update({gained: None} if gained is not None else {})
            if edge.target == node.id:
                reached = self._key("new", edge.id, "dst", _END)
                ends.update({reached: None} if reached is not None else {})
        if ends:
            alive = [number for number in (new, self._key("kept", node.id, "id", _KEPT)) if number is not None]
            conditions.append(exp.and_(_any_of(ends), *(_compare_to_zero(exp.EQ, number) for number in alive)))
        if not conditions:
            del self.keys[first_key:]
            return
        is_this_type = exp.EQ(this=column("place"), expression=exp.Literal.number(self._position))
        self.suspicions.append(exp.and_(is_this_type, exp.or_(*conditions)))
        self.tables.append(node.id)

    def _cardinality_conditions(self, edge: TypeDef, gained: exp.Expr | None, fresh: exp.Expr | None) -> list[exp.Expr]:
        """Conditions for sources whose number of edges changes and leaves the bounds."""
        limits = edge.cardinality
        if not limits.is_bounded:
            return []
        touched = [gained]
        if limits.low > 0:
            touched += [fresh, self._key("old", edge.id, "src")]
        numbers = [count for count in touched if count is not None]
        if not numbers:
            return []
        number = _sum([gained, self._key("kept", edge.id, "src")])
        return [exp.and_(_any_of(numbers), outside(number, limits.low, limits.high))]

    def _key(self, kind: ImageKind, table: str, name: str, role: int | None = None) -> exp.Expr | None:
        """How often an id plays this role (default: the next free one); None if the image is empty."""
        if not self.changed.get(table, UNTOUCHED).has_rows(kind):
            return None
        if role is None:
            role = self._next_role
            self._next_role += 1
        self.keys.append((self._position, ImageRows(kind, table, (name,)), role))
        return exp.CountIf(this=exp.EQ(this=column("role"), expression=exp.Literal.number(role)))


def _keys(position: int, rows: ImageRows, role: int, name_of: NameOf) -> exp.Select:
    columns = [
        with_alias(exp.Literal.number(position), "place"),
        with_alias(column(rows.columns[0]), "id"),
        with_alias(exp.Literal.number(role), "role"),
    ]
    return exp.Select(expressions=columns).from_(exp.Table(this=identifier(name_of(rows.kind, rows.table))), copy=False)


def _sum(parts: list[exp.Expr | None]) -> exp.Expr:
    terms = [term.copy() for term in parts if term is not None]
    total = terms[0] if terms else exp.Literal.number(0)
    for term in terms[1:]:
        total = exp.Add(this=total, expression=term)
    return total


def _any_of(numbers: Iterable[exp.Expr]) -> exp.Expr:
    return exp.or_(*(_compare_to_zero(exp.GT, number) for number in numbers))


def _compare_to_zero(how: type[exp.Binary], number: exp.Expr) -> exp.Expr:
    return how(this=number.copy(), expression=exp.Literal.number(0))
