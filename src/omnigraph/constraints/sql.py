"""Relations of `relations.py`, and so the rules of `constraints.py`, as one SQL statement for DuckDB or Spark.

    rules = rules_of(catalog, {"node.person-x1": Images(new=True)}, ordinal="_rowaddr")
    images_needed(rule.query for rule in rules)      # {("new", "node.person-x1"): ("id", "email_x2", "_rowaddr"), …}
    relation_sql(rule.query, "spark")                # SELECT … over the views below; columns as `constraints.py` says
    violation_of(catalog, rule, row)                 # one result row (a mapping by column name) as a Violation
    accused(rule, catalog, "_rowaddr")               # {table: relation}: which input rows to reject, by address
    superseded("node.person-x1", "_rowaddr")         # merge: input rows that a later one of the same id replaces

Every image is one view, by default `new_<table>`, `old_<table>`, `gone_<table>`, `kept_<table>`, `suspect_<table>`;
`name_of(image, table)` gives other names. A view has at least the columns that `images_needed` lists, under their
physical column ids. All names are quoted, so that a table's identity needs no change; a temporary view of Spark with
such a name is made with the name in backticks. An image that `changed` does not announce is never mentioned, with one
exception: the `new` rows of an edge type that has neither new nor kept rows, an empty view.

For many rows `screen_sql.py` finds in one aggregation the few ids that are worth a rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from omnigraph.constraints import relations as r

Dialect = Literal["duckdb", "spark"]
NameOf = Callable[[r.Image, str], str]


def view_name(image: r.Image, table: str) -> str:
    return f"{image}_{table}"


def relation_sql(relation: r.Relation, dialect: Dialect, name_of: NameOf = view_name, *, pretty: bool = False) -> str:
    """The relation as a query, its columns in the order of `columns_of`; rows in no order."""
    return _Writer(name_of).statement(relation).sql(dialect=dialect, pretty=pretty)


@dataclass
class _Writer:
    """Every operator is one common table expression, so that what two operators share is written once."""

    name_of: NameOf
    _steps: dict[r.Relation, exp.Query] = field(default_factory=dict)

    def statement(self, relation: r.Relation) -> exp.Query:
        result = self._query(relation)
        for place, step in enumerate(self._steps.values()):
            result = result.with_(_step_name(place), as_=step, copy=False)
        return result

    def _query(self, relation: r.Relation) -> exp.Query:
        match relation:
            case r.Rows():
                return self._select(relation, [column(one) for one in relation.columns])
            case r.Pick():
                return self._select(relation.input, [named(column(of), name) for name, of in relation.names])
            case r.Tagged():
                tag = named(exp.Literal.string(relation.text), relation.name)
                return self._select(relation.input, [*self._columns(relation.input), tag])
            case r.Union():
                parts = [self._select(one, self._columns(one)) for one in relation.inputs]
                return exp.union(*parts, distinct=False, copy=False)
            case r.Distinct():
                return self._select(relation.input, self._columns(relation.input)).distinct(copy=False)
            case r.Span():
                return self._span(relation)
            case r.Tally():
                return self._tally(relation)
            case r.Join() | r.Semi() | r.Anti():
                return self._join(relation)
            case r.Counted():
                return self._counted(relation)
            case r.NotNull() | r.Differ() | r.Outside():
                query = self._select(relation.input, self._columns(relation.input))
                return query.where(_condition(relation), copy=False)

    def _select(self, relation: r.Relation, columns: list[exp.Expr]) -> exp.Select:
        return exp.Select(expressions=columns).from_(self._source(relation), copy=False)

    def _source(self, relation: r.Relation, alias: str | None = None) -> exp.Table:
        """What stands in FROM: the view of an image, or the step that an operator is."""
        if isinstance(relation, r.Rows):
            table = exp.Table(this=identifier(self.name_of(relation.image, relation.table)))
        else:
            if relation not in self._steps:
                # Its own steps come first: a common table expression sees only those before it.
                self._steps[relation] = self._query(relation)
            table = exp.Table(this=exp.to_identifier(_step_name(list(self._steps).index(relation))))
        if alias is not None:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
        return table

    def _columns(self, relation: r.Relation, alias: str | None = None) -> list[exp.Expr]:
        return [column(one, alias) for one in r.columns_of(relation)]

    def _span(self, relation: r.Span) -> exp.Select:
        keys: list[exp.Expr] = [column(one) for one in relation.by]
        ends = [
            named(exp.Min(this=column(relation.of)), relation.least),
            named(exp.Max(this=column(relation.of)), relation.greatest),
        ]
        return self._select(relation.input, [*keys, *ends]).group_by(*(one.copy() for one in keys), copy=False)

    def _join(self, relation: r.Join | r.Semi | r.Anti) -> exp.Select:
        columns = self._columns(relation.left, "a")
        if isinstance(relation, r.Join):
            added = r.columns_of(relation)[len(columns) :]
            columns += [column(one, "b") for one in added]
        query = exp.Select(expressions=columns).from_(self._source(relation.left, "a"), copy=False)
        join = exp.Join(this=self._source(relation.right, "b"), on=_equal(relation.on))
        if not isinstance(relation, r.Join):
            join.set("kind", "SEMI" if isinstance(relation, r.Semi) else "ANTI")
        query.append("joins", join)
        return query

    def _tally(self, relation: r.Tally) -> exp.Select:
        keys: list[exp.Expr] = [column(one) for one in relation.by]
        number = named(exp.Count(this=exp.Star()), relation.name)
        return self._select(relation.input, [*keys, number]).group_by(*(one.copy() for one in keys), copy=False)

    def _counted(self, relation: r.Counted) -> exp.Select:
        counts = self._tally(r.Tally(relation.right, tuple(right for _, right in relation.on), relation.name))
        found = exp.Coalesce(this=column(relation.name, "b"), expressions=[exp.Literal.number(0)])
        columns = [*self._columns(relation.left, "a"), named(found, relation.name)]
        query = exp.Select(expressions=columns).from_(self._source(relation.left, "a"), copy=False)
        query.append("joins", exp.Join(this=counts.subquery("b"), side="LEFT", on=_equal(relation.on)))
        return query


def _condition(relation: r.NotNull | r.Differ | r.Outside) -> exp.Expr:
    match relation:
        case r.NotNull():
            return exp.and_(*(_not_null(column(one)) for one in relation.columns))
        case r.Differ():
            return exp.NEQ(this=column(relation.left), expression=column(relation.right))
        case r.Outside():
            return outside(column(relation.column), relation.low, relation.high)


def outside(value: exp.Expr, low: int, high: int | None) -> exp.Expr:
    """A number of rows that is too low or too high; zero is never too low for the bound zero."""
    parts: list[exp.Expr] = []
    if low > 0:
        parts.append(exp.LT(this=value.copy(), expression=exp.Literal.number(low)))
    if high is not None:
        parts.append(exp.GT(this=value.copy(), expression=exp.Literal.number(high)))
    return exp.or_(*parts) if parts else exp.false()


def column(name: str, table: str | None = None) -> exp.Column:
    return exp.column(identifier(name), table)


def identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def named(value: exp.Expr, name: str) -> exp.Expr:
    if isinstance(value, exp.Column) and value.name == name:
        return value
    return exp.Alias(this=value, alias=identifier(name))


def _not_null(value: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=value, expression=exp.Null()))


def _equal(on: r.On) -> exp.Expr:
    return exp.and_(*(exp.EQ(this=column(left, "a"), expression=column(right, "b")) for left, right in on))


def _step_name(place: int) -> str:
    return f"s{place}"
