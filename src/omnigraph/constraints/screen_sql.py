"""One aggregation that says which ids can be part of a violation at all: one shuffle instead of one per rule.

All keys of a change (ids of nodes, ends of edges) are brought together, and each id is looked at once. What the query
returns is a superset, as a rule of thumb an empty one: if it returns nothing, no rule of the codes endpoint,
cardinality and duplicate_key (of nodes) is broken. Else its ids, by table, are the images `suspect`, and
`rules_of(…, screened=True)` returns exactly what `rules_of(…)` returns, over far fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from omnigraph.constraints import relations as r
from omnigraph.constraints.compile import Images
from omnigraph.constraints.sql import Dialect, NameOf, column, identifier, named, outside, view_name
from omnigraph.schema.catalog import Catalog, TypeDef

_UNTOUCHED = Images()

#: Roles that a key can play at every type of node; sources of counted edges have roles of their own.
_NEW, _KEPT, _END, _FIRST_OWN_ROLE = range(4)


@dataclass(frozen=True)
class Screen:
    """The query returns (`place`, `id`): an id of the type of node `tables[place]` that may break a rule, once.

    `images` are the views that it reads, each with one column.
    """

    tables: tuple[str, ...]
    images: tuple[r.Rows, ...]
    query: exp.Select

    def sql(self, dialect: Dialect, *, pretty: bool = False) -> str:
        return self.query.sql(dialect=dialect, pretty=pretty)


def screen(
    catalog: Catalog, changed: Mapping[str, Images], *, duplicates: bool, name_of: NameOf = view_name
) -> Screen | None:
    """None if the change cannot break such a rule. `duplicates`: the input may hold the id of a node twice."""
    made = _Screen(catalog, changed, duplicates)
    for node in catalog.types:
        if node.kind == "node":
            made.add(node)
    if not made.suspicions:
        return None
    parts = [_keys(place, rows, role, name_of) for place, rows, role in made.keys]
    union = exp.union(*parts, distinct=False, copy=False) if len(parts) > 1 else parts[0]
    keys: list[exp.Expr] = [column("place"), column("id")]
    query = exp.Select(expressions=keys).from_(union.subquery("keys"), copy=False)
    query = query.group_by(*(one.copy() for one in keys), copy=False).having(exp.or_(*made.suspicions), copy=False)
    return Screen(tuple(made.tables), tuple(rows for _, rows, _ in made.keys), query)


@dataclass
class _Screen:
    """What is gathered: keys with the role they play, and for each type of node the conditions of suspicion."""

    catalog: Catalog
    changed: Mapping[str, Images]
    duplicates: bool
    tables: list[str] = field(default_factory=list)
    keys: list[tuple[int, r.Rows, int]] = field(default_factory=list)
    suspicions: list[exp.Expr] = field(default_factory=list)
    _place: int = 0
    _roles: int = 0

    def add(self, node: TypeDef) -> None:
        self._place, self._roles = len(self.tables), _FIRST_OWN_ROLE
        first_key = len(self.keys)
        conditions: list[exp.Expr] = []
        new = self._key("new", node.id, "id", _NEW)
        if self.duplicates and new is not None:
            conditions.append(exp.GT(this=new.copy(), expression=exp.Literal.number(1)))
        ends: dict[exp.Expr, None] = {}
        for edge in self.catalog.edges_at(node.id):
            if edge.source == node.id:
                gained = self._key("new", edge.id, "src", None if edge.cardinality.binds else _END)
                conditions += self._counted(edge, gained, new)
                ends.update({gained: None} if gained is not None else {})
            if edge.target == node.id:
                reached = self._key("new", edge.id, "dst", _END)
                ends.update({reached: None} if reached is not None else {})
        if ends:
            alive = [one for one in (new, self._key("kept", node.id, "id", _KEPT)) if one is not None]
            conditions.append(exp.and_(_any_of(ends), *(_compared(exp.EQ, one) for one in alive)))
        if not conditions:
            del self.keys[first_key:]
            return
        here = exp.EQ(this=column("place"), expression=exp.Literal.number(self._place))
        self.suspicions.append(exp.and_(here, exp.or_(*conditions)))
        self.tables.append(node.id)

    def _counted(self, edge: TypeDef, gained: exp.Expr | None, fresh: exp.Expr | None) -> list[exp.Expr]:
        """Sources whose number of edges can change, and would be wrong."""
        limits = edge.cardinality
        if not limits.binds:
            return []
        touched = [gained]
        if limits.low > 0:
            touched += [fresh, self._key("old", edge.id, "src")]
        some = [one for one in touched if one is not None]
        if not some:
            return []
        number = _sum([gained, self._key("kept", edge.id, "src")])
        return [exp.and_(_any_of(some), outside(number, limits.low, limits.high))]

    def _key(self, image: r.Image, table: str, name: str, role: int | None = None) -> exp.Expr | None:
        """How often an id plays this role, by default one of its own; None if it never does."""
        images = self.changed.get(table, _UNTOUCHED)
        if not {"new": images.new, "old": images.old, "kept": images.kept}[image]:
            return None
        if role is None:
            role = self._roles
            self._roles += 1
        self.keys.append((self._place, r.Rows(image, table, (name,)), role))
        return exp.CountIf(this=exp.EQ(this=column("role"), expression=exp.Literal.number(role)))


def _keys(place: int, rows: r.Rows, role: int, name_of: NameOf) -> exp.Select:
    columns = [
        named(exp.Literal.number(place), "place"),
        named(column(rows.columns[0]), "id"),
        named(exp.Literal.number(role), "role"),
    ]
    return exp.Select(expressions=columns).from_(
        exp.Table(this=identifier(name_of(rows.image, rows.table))), copy=False
    )


def _sum(parts: list[exp.Expr | None]) -> exp.Expr:
    there = [one.copy() for one in parts if one is not None]
    total = there[0] if there else exp.Literal.number(0)
    for one in there[1:]:
        total = exp.Add(this=total, expression=one)
    return total


def _any_of(numbers: Iterable[exp.Expr]) -> exp.Expr:
    return exp.or_(*(_compared(exp.GT, one) for one in numbers))


def _compared(how: type[exp.Binary], number: exp.Expr) -> exp.Expr:
    return how(this=number.copy(), expression=exp.Literal.number(0))
