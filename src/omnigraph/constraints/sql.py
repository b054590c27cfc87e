"""Prints the relations of `relations.py`, and so the constraints of `compile.py`, as one SQL statement.

    constraints = compile_constraints(catalog, {"node.person-x1": ChangedImages(has_new=True)}, ordinal="_rowaddr")
    images_read_by(constraint.query for constraint in constraints)
                                                    # {("new", "node.person-x1"): ("id", "email_x2", "_rowaddr"), …}
    relation_sql(constraint.query, "spark")         # SELECT … over the views below; columns as `compile.py` lists them
    describe_violation(catalog, constraint, row)    # one result row (a mapping by column name) as a Violation
    input_rows_to_reject(constraint, catalog, "_rowaddr")        # {table: relation}: input rows to reject, by address
    input_rows_replaced_later("node.person-x1", "_rowaddr")      # merge: input rows that a later row of the id replaces

Every image is one view, by default `new_<table>`, `old_<table>`, `gone_<table>`, `kept_<table>`, `suspect_<table>`;
`name_of(kind, table)` gives other names. A view has at least the columns that `images_read_by` lists, under their
physical column ids. All names are quoted, so a table's identity is used as it is; a temporary view of Spark needs the
name in backticks. A statement mentions only images that `changed` announces, with one exception: the `new` rows of an
edge type that has neither new nor kept rows, an empty view.

For many rows the query of `screen_sql.py` first finds the few ids that can violate a constraint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from omnigraph.constraints import relations

Dialect = Literal["duckdb", "spark"]
NameOf = Callable[[relations.ImageKind, str], str]


def view_name(kind: relations.ImageKind, table: str) -> str:
    return f"{kind}_{table}"


def relation_sql(
    relation: relations.Relation, dialect: Dialect, name_of: NameOf = view_name, *, pretty: bool = False
) -> str:
    """Print the relation as a query with the columns of `columns_of` in that order; the rows have no order."""
    return _SqlWriter(name_of).statement(relation).sql(dialect=dialect, pretty=pretty)


@dataclass
class _SqlWriter:
    """Writes every operator as one common table expression, so that a shared input is written once."""

    name_of: NameOf
    _steps: dict[relations.Relation, exp.Query] = field(default_factory=dict)

    def statement(self, relation: relations.Relation) -> exp.Query:
        result = self._query(relation)
        for position, step in enumerate(self._steps.values()):
            result = result.with_(_step_name(position), as_=step, copy=False)
        return result

    def _query(self, relation: relations.Relation) -> exp.Query:
        match relation:
            case relations.ImageRows():
                return self._select(relation, [column(name) for name in relation.columns])
            case relations.ColumnProjection():
                return self._select(relation.input, [with_alias(column(of), name) for name, of in relation.names])
            case relations.WithConstant():
                tag = with_alias(exp.Literal.string(relation.text), relation.name)
                return self._select(relation.input, [*self._columns(relation.input), tag])
            case relations.UnionAll():
                parts = [self._select(part, self._columns(part)) for part in relation.inputs]
                return exp.union(*parts, distinct=False, copy=False)
            case relations.DistinctRows():
                return self._select(relation.input, self._columns(relation.input)).distinct(copy=False)
            case relations.GroupExtremes():
                return self._group_extremes(relation)
            case relations.GroupCount():
                return self._group_count(relation)
            case relations.EqualJoin() | relations.WithMatch() | relations.WithoutMatch():
                return self._join(relation)
            case relations.MatchCount():
                return self._match_count(relation)
            case relations.WithoutNulls() | relations.WhereUnequal() | relations.WhereOutside():
                query = self._select(relation.input, self._columns(relation.input))
                return query.where(_condition(relation), copy=False)

    def _select(self, relation: relations.Relation, columns: list[exp.Expr]) -> exp.Select:
        return exp.Select(expressions=columns).from_(self._source(relation), copy=False)

    def _source(self, relation: relations.Relation, alias: str | None = None) -> exp.Table:
        """The table of a FROM clause: the view of an image, or the common table expression of an operator."""
        if isinstance(relation, relations.ImageRows):
            table = exp.Table(this=identifier(self.name_of(relation.kind, relation.table)))
        else:
            if relation not in self._steps:
                # The inputs of the relation are added first: a common table expression sees only those before it.
                self._steps[relation] = self._query(relation)
            table = exp.Table(this=exp.to_identifier(_step_name(list(self._steps).index(relation))))
        if alias is not None:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
        return table

    def _columns(self, relation: relations.Relation, alias: str | None = None) -> list[exp.Expr]:
        return [column(name, alias) for name in relations.columns_of(relation)]

    def _group_extremes(self, relation: relations.GroupExtremes) -> exp.Select:
        keys: list[exp.Expr] = [column(name) for name in relation.by]
        ends = [
            with_alias(exp.Min(this=column(relation.of)), relation.least),
            with_alias(exp.Max(this=column(relation.of)), relation.greatest),
        ]
        return self._select(relation.input, [*keys, *ends]).group_by(*(key.copy() for key in keys), copy=False)

    def _join(self, relation: relations.EqualJoin | relations.WithMatch | relations.WithoutMatch) -> exp.Select:
        columns = self._columns(relation.left, "a")
        if isinstance(relation, relations.EqualJoin):
            added = relations.columns_of(relation)[len(columns) :]
            columns += [column(name, "b") for name in added]
        query = exp.Select(expressions=columns).from_(self._source(relation.left, "a"), copy=False)
        join = exp.Join(this=self._source(relation.right, "b"), on=_equal(relation.on))
        if not isinstance(relation, relations.EqualJoin):
            join.set("kind", "SEMI" if isinstance(relation, relations.WithMatch) else "ANTI")
        query.append("joins", join)
        return query

    def _group_count(self, relation: relations.GroupCount) -> exp.Select:
        keys: list[exp.Expr] = [column(name) for name in relation.by]
        number = with_alias(exp.Count(this=exp.Star()), relation.name)
        return self._select(relation.input, [*keys, number]).group_by(*(key.copy() for key in keys), copy=False)

    def _match_count(self, relation: relations.MatchCount) -> exp.Select:
        counts = self._group_count(
            relations.GroupCount(relation.right, tuple(right for _, right in relation.on), relation.name)
        )
        count = exp.Coalesce(this=column(relation.name, "b"), expressions=[exp.Literal.number(0)])
        columns = [*self._columns(relation.left, "a"), with_alias(count, relation.name)]
        query = exp.Select(expressions=columns).from_(self._source(relation.left, "a"), copy=False)
        query.append("joins", exp.Join(this=counts.subquery("b"), side="LEFT", on=_equal(relation.on)))
        return query


def _condition(relation: relations.WithoutNulls | relations.WhereUnequal | relations.WhereOutside) -> exp.Expr:
    match relation:
        case relations.WithoutNulls():
            return exp.and_(*(_not_null(column(name)) for name in relation.columns))
        case relations.WhereUnequal():
            return exp.NEQ(this=column(relation.left), expression=column(relation.right))
        case relations.WhereOutside():
            return outside(column(relation.column), relation.low, relation.high)


def outside(value: exp.Expr, low: int, high: int | None) -> exp.Expr:
    """The condition that a number of rows is below `low` or above `high`."""
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


def with_alias(value: exp.Expr, name: str) -> exp.Expr:
    if isinstance(value, exp.Column) and value.name == name:
        return value
    return exp.Alias(this=value, alias=identifier(name))


def _not_null(value: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=value, expression=exp.Null()))


def _equal(on: relations.EqualColumns) -> exp.Expr:
    return exp.and_(
        *(exp.EQ(this=column(left_column, "a"), expression=column(right, "b")) for left_column, right in on)
    )


def _step_name(position: int) -> str:
    return f"s{position}"
