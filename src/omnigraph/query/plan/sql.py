"""Prints a plan as one SQL statement over one table per leaf.

`leaf_columns` names the tables and columns. The statement repeats every condition, so that an engine may fill a table
with more rows than its leaf selects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from omnigraph.query.language.checked import (
    F64,
    I64,
    AggregateCall,
    Bm25,
    Const,
    Entity,
    Expr,
    ListOf,
    Nearest,
    Now,
    OrderBy,
    Param,
    Prop,
    Rrf,
    Value,
)
from omnigraph.query.plan import nodes
from omnigraph.query.plan.facts import entity_columns
from omnigraph.query.plan.leaf_columns import (
    DEGREE,
    ENTITY,
    LEFT_END,
    RIGHT_END,
    leaf_table,
    property_column,
    result_columns,
    search_column,
)
from omnigraph.query.plan.sql_values import Key, Parameters, Translator, cast, sql_type
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.values import FLOATS

Dialect = Literal["duckdb", "spark"]

#: Column name of a weight inside the writer; the weight's own name takes the place of the variable.
_WEIGHT = "weight"


@dataclass(frozen=True)
class Statement:
    """A query over the tables of `leaves`, in this order; `outputs` are the SQL columns of every result column."""

    query: exp.Select
    leaves: tuple[nodes.Leaf, ...]
    parameters: Mapping[str, Value]
    outputs: tuple[tuple[str, ...], ...]

    def text(self, dialect: Dialect = "duckdb", *, pretty: bool = False) -> str:
        return self.query.sql(dialect=dialect, pretty=pretty, identify=False)


def to_sql(plan: nodes.Plan, catalog: Catalog) -> Statement:
    writer = _StatementWriter(catalog)
    query, outputs = writer.result(plan)
    return Statement(query, tuple(writer.leaves), writer.parameters.values, outputs)


@dataclass
class _FromClause:
    """A FROM and WHERE under construction. Left and anti joins cannot be moved out of the clause that holds them."""

    tables: list[tuple[exp.Expr, str, list[exp.Expr]]]  # table, kind of join, conditions
    columns: dict[Key, exp.Expr]
    where: list[exp.Expr] = field(default_factory=list)
    has_outer_joins: bool = False

    def select(self, columns: list[exp.Expr]) -> exp.Select:
        query = exp.Select(expressions=columns)
        for position, (table, kind, on) in enumerate(self.tables):
            if position == 0:
                query = query.from_(table, copy=False)
                self.where = [*on, *self.where]
                continue
            condition = exp.and_(*on) if on else exp.true()
            join = exp.Join(this=table, on=condition)
            if kind == "LEFT":
                join.set("side", "LEFT")
            elif kind == "ANTI":
                join.set("kind", "ANTI")
            elif not on:
                join = exp.Join(this=table, kind="CROSS")
            query.append("joins", join)
        if self.where:
            query = query.where(*self.where, copy=False)
        return query


@dataclass
class _StatementWriter:
    """Translates one plan, bottom up; collects its leaves and parameters."""

    catalog: Catalog
    leaves: list[nodes.Leaf] = field(default_factory=list)
    parameters: Parameters = field(default_factory=Parameters)
    _aliases: int = 0

    def block(self, plan: nodes.Plan) -> _FromClause:
        match plan:
            case nodes.Scan() | nodes.Pairs() | nodes.Edges() | nodes.Reach() | nodes.Degrees():
                return self._leaf(plan)
            case nodes.NaturalJoin():
                return self._join(plan)
            case nodes.Selection():
                block = self.block(plan.input)
                translate = self._over(block.columns)
                block.where += [translate.condition(condition) for condition in plan.where]
                return block
            case nodes.LeftJoin() | nodes.AntiJoin():
                return self._block_join(plan)
            case nodes.DistinctVariables():
                return self._narrow(plan)
            case nodes.RankFusion():
                return self._fuse(plan)
        raise AssertionError(f"{type(plan).__name__} ends a plan")

    def _over(self, *columns: dict[Key, exp.Expr]) -> Translator:
        def find(key: Key) -> exp.Expr:
            return next(by_key[key] for by_key in columns if key in by_key).copy()

        return Translator(find, self.parameters)

    def _alias(self) -> str:
        self._aliases += 1
        return f"a{self._aliases - 1}"

    # ---- leaves ------------------------------------------------------------------------------------------------------

    def _leaf(self, leaf: nodes.Leaf) -> _FromClause:
        if leaf not in self.leaves:
            self.leaves.append(leaf)
        alias = self._alias()
        table = exp.alias_(exp.to_table(leaf_table(self.leaves.index(leaf))), alias, table=True)
        columns: dict[Key, exp.Expr] = {}
        where: list[exp.Expr] = []
        if isinstance(leaf, (nodes.Scan, nodes.Edges, nodes.Degrees)):
            columns[leaf.var, nodes.KEY] = exp.column(ENTITY.key, alias)
        if isinstance(leaf, (nodes.Scan, nodes.Edges)):
            for position, column in enumerate(leaf.columns):
                columns[leaf.var, column] = exp.column(property_column(position), alias)
            for position, search in enumerate(leaf.searches):
                columns[leaf.var, search] = exp.column(search_column(position), alias)
        if isinstance(leaf, nodes.Degrees):
            columns[leaf.weight, _WEIGHT] = exp.column(DEGREE, alias)
            if leaf.ids:
                columns[leaf.var, "id"] = exp.column(ENTITY.id, alias)
        if isinstance(leaf, (nodes.Pairs, nodes.Edges, nodes.Reach)):
            if leaf.left == leaf.right:
                where.append(exp.EQ(this=exp.column(LEFT_END.key, alias), expression=exp.column(RIGHT_END.key, alias)))
            for var, end in ((leaf.left, LEFT_END), (leaf.right, RIGHT_END)):
                columns[var, nodes.KEY] = exp.column(end.key, alias)
                if var in leaf.ids:
                    columns[var, "id"] = exp.column(end.id, alias)
        if isinstance(leaf, (nodes.Scan, nodes.Edges)):
            where += [self._over(columns).condition(condition) for condition in leaf.where]
        return _FromClause([(table, "", [])], columns, where)

    # ---- joins -------------------------------------------------------------------------------------------------------

    def _join(self, plan: nodes.NaturalJoin) -> _FromClause:
        if not plan.inputs:
            return _FromClause([], {})
        block = self.block(plan.inputs[0])
        for child in plan.inputs[1:]:
            right = self.block(child)
            if right.has_outer_joins:
                right = self._wrap(right)
            shared = [key for key in right.columns if key[1] == nodes.KEY and key in block.columns]
            on = [exp.EQ(this=block.columns[key].copy(), expression=right.columns[key].copy()) for key in shared]
            (table, _, table_conditions), *further_tables = right.tables
            block.tables += [(table, "", [*on, *table_conditions]), *further_tables]
            block.where += right.where
            block.columns = {**right.columns, **block.columns}
        return block

    def _block_join(self, plan: nodes.LeftJoin | nodes.AntiJoin) -> _FromClause:
        left, right = self.block(plan.left), self.block(plan.right)
        kind = "LEFT" if isinstance(plan, nodes.LeftJoin) else "ANTI"
        if len(right.tables) > 1 or right.has_outer_joins:
            right = self._wrap(right)
        equal: type[exp.Binary] = exp.NullSafeEQ if plan.null_safe else exp.EQ
        on: list[exp.Expr] = [
            equal(this=left.columns[var, nodes.KEY].copy(), expression=right.columns[var, nodes.KEY].copy())
            for var in plan.on
        ]
        translate = self._over(right.columns, left.columns)
        on += [translate.condition(condition) for condition in plan.where]
        if not left.tables:
            left.tables = [(self._one_row(), "", [])]
        (table, _, table_conditions), *_ = right.tables
        left.tables.append((table, kind, [*on, *table_conditions, *right.where]))
        if kind == "LEFT":
            left.columns = {**right.columns, **left.columns}
        left.has_outer_joins = True
        return left

    def _one_row(self) -> exp.Expr:
        return exp.Select(expressions=[exp.alias_(exp.true(), "one")]).subquery(self._alias())

    def _wrap(self, block: _FromClause) -> _FromClause:
        """Returns the same rows as one subquery."""
        alias = self._alias()
        names = {key: f"n{position}" for position, key in enumerate(block.columns)}
        query = block.select([exp.alias_(block.columns[key].copy(), name) for key, name in names.items()])
        return _FromClause(
            [(query.subquery(alias), "", [])], {key: exp.column(name, alias) for key, name in names.items()}
        )

    def _narrow(self, plan: nodes.DistinctVariables) -> _FromClause:
        block = self.block(plan.input)
        block.columns = {key: column for key, column in block.columns.items() if key[0] in plan.variables}
        wrapped = self._wrap(block)
        inner = wrapped.tables[0][0].this
        inner.set("distinct", exp.Distinct())
        return wrapped

    def _fuse(self, plan: nodes.RankFusion) -> _FromClause:
        block = self.block(plan.input)
        translate = self._over(block.columns)
        for rank in plan.ranks:
            first = self._rank_share(translate, rank.first, rank.k)
            block.columns["", rank] = exp.Add(this=first, expression=self._rank_share(translate, rank.second, rank.k))
        return self._wrap(block)

    def _rank_share(self, translate: Translator, rank: Bm25 | Nearest, k: Const | Param) -> exp.Expr:
        """Returns 1 / (k + position), where equal values share a position; 0 for a row without a rank."""
        value = translate.value(rank)
        order = exp.Ordered(this=value.copy(), desc=isinstance(rank, Bm25), nulls_first=False)
        position = exp.Window(this=exp.Anonymous(this="DENSE_RANK"), order=exp.Order(expressions=[order]))
        total = exp.Add(this=cast(translate.value(k), exp.DataType.Type.DOUBLE), expression=position)
        share = exp.Div(this=exp.Literal.number("1.0"), expression=exp.paren(total))
        has_rank: exp.Expr = exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))
        if isinstance(rank, Bm25):
            has_rank = exp.GT(this=value.copy(), expression=exp.Literal.number(0))
        return exp.Case(ifs=[exp.If(this=has_rank, true=share)], default=exp.Literal.number("0.0"))

    # ---- the result --------------------------------------------------------------------------------------------------

    def result(self, plan: nodes.Plan) -> tuple[exp.Select, tuple[tuple[str, ...], ...]]:
        limit: Const | Param | None = None
        offset: Const | Param | None = None
        keys: tuple[OrderBy, ...] = ()
        ties: tuple[Expr, ...] = ()
        if isinstance(plan, (nodes.Limit, nodes.TopK)):
            limit, offset = plan.limit, plan.offset
        if isinstance(plan, (nodes.Sort, nodes.TopK)):
            keys, ties = plan.keys, plan.ties
        if isinstance(plan, nodes.Limit) and isinstance(plan.input, nodes.Sort):
            keys, ties = plan.input.keys, plan.input.ties
            plan = plan.input
        end = plan if isinstance(plan, (nodes.Project, nodes.Aggregation)) else nodes.children(plan)[0]
        assert isinstance(end, (nodes.Project, nodes.Aggregation))
        query, outputs, translate = self._columns(end)
        order = [translate.order_key(key.value, key.descending) for key in keys]
        order += [translate.order_key(tie, False) for tie in ties]
        if order:
            query = query.order_by(*order, copy=False)
        if limit is not None:
            query = query.limit(translate.plain.value(limit), copy=False)
        if offset is not None:
            query = query.offset(translate.plain.value(offset), copy=False)
        return query, outputs

    def _columns(
        self, end: nodes.Project | nodes.Aggregation
    ) -> tuple[exp.Select, tuple[tuple[str, ...], ...], _ResultTranslator]:
        block = self.block(end.input)
        plain = self._over(block.columns)
        keys = () if isinstance(end, nodes.Project) else tuple(end.columns[position].value for position in end.keys)
        weights = end.weights if isinstance(end, nodes.Aggregation) else ()
        translate = _ResultTranslator(plain, isinstance(end, nodes.Aggregation), keys, weights)
        selected, outputs = [], []
        for position, column in enumerate(end.columns):
            parts = self._parts(column.value, translate)
            names = result_columns(position, len(parts))
            selected += [exp.alias_(part, name) for part, name in zip(parts, names, strict=True)]
            outputs.append(names)
        query = block.select(selected)
        groups = [plain.value(key) for key in keys]
        if isinstance(end, nodes.Aggregation) and groups:
            query = query.group_by(*groups, copy=False)
        return query, tuple(outputs), translate

    def _parts(self, value: Expr, translate: _ResultTranslator) -> list[exp.Expr]:
        if not isinstance(value, Entity):
            return [translate.value(value)]
        columns = entity_columns(self.catalog.by_id[value.type.type_id])
        return [translate.column((value.var, column)) for column in columns]


@dataclass(frozen=True)
class _ResultTranslator:
    """Translates the values of a result row, which stands for one row of the input or for a group."""

    plain: Translator
    is_grouped: bool
    keys: tuple[Expr, ...]
    weights: tuple[str, ...]

    def column(self, key: Key) -> exp.Expr:
        """Returns a column of an entity. All rows of a group have the same entity, so any of its values will do."""
        column = self.plain.columns(key)
        return exp.AnyValue(this=column) if self.is_grouped else column

    def value(self, value: Expr) -> exp.Expr:
        if isinstance(value, AggregateCall):
            return self._aggregate(value)
        constants = (Const, Param, Now, ListOf)
        if not self.is_grouped or value in self.keys or isinstance(value, constants):
            return self.plain.value(value)
        return exp.AnyValue(this=self.plain.value(value))

    def order_key(self, value: Expr, descending: bool) -> exp.Ordered:
        is_rank = isinstance(value, (Bm25, Nearest, Rrf))
        return exp.Ordered(this=self.value(value), desc=descending, nulls_first=not descending and not is_rank)

    def _aggregate(self, value: AggregateCall) -> exp.Expr:
        argument = self.plain.value(value.argument)
        match value.function:
            case "count" if value.distinct:
                return exp.Count(this=exp.Distinct(expressions=[argument]))
            case "min":
                return exp.Min(this=argument)
            case "max":
                return exp.Max(this=argument)
        if self.weights:
            return self._weight_aggregate(value, argument)
        match value.function:
            case "count":
                return exp.Count(this=argument)
            case "avg":
                return exp.Avg(this=argument)
        if value.type == F64:
            return exp.Sum(this=cast(argument, exp.DataType.Type.DOUBLE))
        return exp.Cast(this=exp.Sum(this=argument), to=sql_type(value.type))

    def _weight_aggregate(self, value: AggregateCall, argument: exp.Expr) -> exp.Expr:
        """Returns the aggregate of rows that each count as often as the product of their weights."""
        present = exp.Not(this=exp.Is(this=argument.copy(), expression=exp.Null()))
        times = exp.Sum(this=exp.Case(ifs=[exp.If(this=present, true=self._weight())]))
        if value.function == "count":
            return exp.Cast(this=exp.Coalesce(this=times, expressions=[exp.Literal.number(0)]), to=sql_type(I64))
        assert isinstance(value.argument, Prop)
        kind = exp.DataType.Type.DOUBLE if value.argument.type.scalar in FLOATS else exp.DataType.Type.INT128
        total = exp.Sum(this=exp.Mul(this=cast(argument, kind), expression=self._weight()))
        if value.function == "sum":
            return exp.Cast(this=total, to=sql_type(value.type))
        double = exp.DataType.Type.DOUBLE
        return exp.Div(this=cast(total, double), expression=cast(times, double))

    def _weight(self) -> exp.Expr:
        columns = [self.plain.columns((name, _WEIGHT)) for name in self.weights]
        # The product of two degrees fits into 64 bits, that of three may not.
        product = columns[0] if len(columns) < 3 else cast(columns[0], exp.DataType.Type.INT128)
        for column in columns[1:]:
            product = exp.Mul(this=product, expression=column)
        return product
