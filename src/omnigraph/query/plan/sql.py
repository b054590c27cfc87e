"""A plan as one SQL statement over one table per leaf.

Tables and columns have positional names, so that no name of a user ever stands in SQL. The table of a leaf holds

    Scan   k  c0 … (its columns)  x0 … (its searches)
    Edges  k  l  r  [li ri]  c0 …  x0 …
    Pairs, Reach  l  r  [li ri]
    Degrees  k  w  [ki]

where k, l and r are keys in any coding that one query uses throughout, and li, ri the user's ids of the ends. A table
may hold more rows than the leaf asks for: the statement repeats every condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from omnigraph.query.language import checked as c
from omnigraph.query.plan import nodes as n
from omnigraph.query.plan.facts import shown_columns
from omnigraph.query.plan.sql_values import Key, Parameters, Translator, cast, sql_type
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.values import FLOATS

Dialect = Literal["duckdb", "spark"]

#: The column of a weight, which belongs to no variable.
_WEIGHT = "weight"


@dataclass(frozen=True)
class Statement:
    """`leaves[i]` is read from table `t<i>`; `outputs` names the SQL columns of every result column."""

    query: exp.Select
    leaves: tuple[n.Leaf, ...]
    parameters: Mapping[str, c.Value]
    outputs: tuple[tuple[str, ...], ...]

    def text(self, dialect: Dialect = "duckdb", *, pretty: bool = False) -> str:
        return self.query.sql(dialect=dialect, pretty=pretty, identify=False)


def to_sql(plan: n.Plan, catalog: Catalog) -> Statement:
    writer = _Writer(catalog)
    query, outputs = writer.result(plan)
    return Statement(query, tuple(writer.leaves), writer.parameters.values, outputs)


@dataclass
class _Block:
    """A FROM and WHERE under construction. `outer`: it holds joins that cannot be re-associated."""

    tables: list[tuple[exp.Expr, str, list[exp.Expr]]]  # table, kind of join, conditions
    columns: dict[Key, exp.Expr]
    where: list[exp.Expr] = field(default_factory=list)
    outer: bool = False

    def select(self, columns: list[exp.Expr]) -> exp.Select:
        query = exp.Select(expressions=columns)
        for place, (table, kind, on) in enumerate(self.tables):
            if place == 0:
                query = query.from_(table, copy=False)
                self.where = [*on, *self.where]
                continue
            condition = exp.and_(*on) if on else exp.true()
            made = exp.Join(this=table, on=condition)
            if kind == "LEFT":
                made.set("side", "LEFT")
            elif kind == "ANTI":
                made.set("kind", "ANTI")
            elif not on:
                made = exp.Join(this=table, kind="CROSS")
            query.append("joins", made)
        if self.where:
            query = query.where(*self.where, copy=False)
        return query


@dataclass
class _Writer:
    catalog: Catalog
    leaves: list[n.Leaf] = field(default_factory=list)
    parameters: Parameters = field(default_factory=Parameters)
    _aliases: int = 0

    def block(self, plan: n.Plan) -> _Block:
        match plan:
            case n.Scan() | n.Pairs() | n.Edges() | n.Reach() | n.Degrees():
                return self._leaf(plan)
            case n.Join():
                return self._join(plan)
            case n.Filter():
                block = self.block(plan.input)
                translate = self._over(block.columns)
                block.where += [translate.condition(one) for one in plan.where]
                return block
            case n.LeftJoin() | n.AntiJoin():
                return self._block_join(plan)
            case n.Narrow():
                return self._narrow(plan)
            case n.Fuse():
                return self._fuse(plan)
        raise AssertionError(f"{type(plan).__name__} ends a plan")

    def _over(self, *columns: dict[Key, exp.Expr]) -> Translator:
        def find(key: Key) -> exp.Expr:
            return next(one[key] for one in columns if key in one).copy()

        return Translator(find, self.parameters)

    def _alias(self) -> str:
        self._aliases += 1
        return f"a{self._aliases - 1}"

    # ---- leaves ------------------------------------------------------------------------------------------------------

    def _leaf(self, leaf: n.Leaf) -> _Block:
        if leaf not in self.leaves:
            self.leaves.append(leaf)
        alias = self._alias()
        table = exp.alias_(exp.to_table(f"t{self.leaves.index(leaf)}"), alias, table=True)
        columns: dict[Key, exp.Expr] = {}
        where: list[exp.Expr] = []
        if isinstance(leaf, (n.Scan, n.Edges)):
            columns[leaf.var, n.KEY] = exp.column("k", alias)
            columns.update({(leaf.var, one): exp.column(f"c{at}", alias) for at, one in enumerate(leaf.columns)})
            columns.update({(leaf.var, one): exp.column(f"x{at}", alias) for at, one in enumerate(leaf.computed)})
        if isinstance(leaf, n.Degrees):
            columns[leaf.var, n.KEY] = exp.column("k", alias)
            columns[leaf.weight, _WEIGHT] = exp.column("w", alias)
            if leaf.ids:
                columns[leaf.var, "id"] = exp.column("ki", alias)
        if isinstance(leaf, (n.Pairs, n.Edges, n.Reach)):
            if leaf.left == leaf.right:
                where.append(exp.EQ(this=exp.column("l", alias), expression=exp.column("r", alias)))
            for end, name in ((leaf.left, "l"), (leaf.right, "r")):
                columns[end, n.KEY] = exp.column(name, alias)
                if end in leaf.ids:
                    columns[end, "id"] = exp.column(f"{name}i", alias)
        if isinstance(leaf, (n.Scan, n.Edges)):
            where += [self._over(columns).condition(one) for one in leaf.where]
        return _Block([(table, "", [])], columns, where)

    # ---- joins -------------------------------------------------------------------------------------------------------

    def _join(self, plan: n.Join) -> _Block:
        if not plan.inputs:
            return _Block([], {})
        block = self.block(plan.inputs[0])
        for one in plan.inputs[1:]:
            right = self.block(one)
            if right.outer:
                right = self._wrapped(right)
            shared = [key for key in right.columns if key[1] == n.KEY and key in block.columns]
            on = [exp.EQ(this=block.columns[key].copy(), expression=right.columns[key].copy()) for key in shared]
            (table, _, first), *rest = right.tables
            block.tables += [(table, "", [*on, *first]), *rest]
            block.where += right.where
            block.columns = {**right.columns, **block.columns}
        return block

    def _block_join(self, plan: n.LeftJoin | n.AntiJoin) -> _Block:
        left, right = self.block(plan.left), self.block(plan.right)
        kind = "LEFT" if isinstance(plan, n.LeftJoin) else "ANTI"
        if len(right.tables) > 1 or right.outer:
            right = self._wrapped(right)
        equal: type[exp.Binary] = exp.NullSafeEQ if plan.null_safe else exp.EQ
        on: list[exp.Expr] = [
            equal(this=left.columns[var, n.KEY].copy(), expression=right.columns[var, n.KEY].copy()) for var in plan.on
        ]
        translate = self._over(right.columns, left.columns)
        on += [translate.condition(one) for one in plan.where]
        if not left.tables:
            left.tables = [(self._one_row(), "", [])]
        (table, _, first), *_ = right.tables
        left.tables.append((table, kind, [*on, *first, *right.where]))
        if kind == "LEFT":
            left.columns = {**right.columns, **left.columns}
        left.outer = True
        return left

    def _one_row(self) -> exp.Expr:
        return exp.Select(expressions=[exp.alias_(exp.true(), "one")]).subquery(self._alias())

    def _wrapped(self, block: _Block) -> _Block:
        """The same rows as one table."""
        alias = self._alias()
        names = {key: f"n{at}" for at, key in enumerate(block.columns)}
        query = block.select([exp.alias_(block.columns[key].copy(), name) for key, name in names.items()])
        return _Block([(query.subquery(alias), "", [])], {key: exp.column(name, alias) for key, name in names.items()})

    def _narrow(self, plan: n.Narrow) -> _Block:
        block = self.block(plan.input)
        block.columns = {key: one for key, one in block.columns.items() if key[0] in plan.variables}
        wrapped = self._wrapped(block)
        inner = wrapped.tables[0][0].this
        inner.set("distinct", exp.Distinct())
        return wrapped

    def _fuse(self, plan: n.Fuse) -> _Block:
        block = self.block(plan.input)
        translate = self._over(block.columns)
        for one in plan.ranks:
            block.columns["", one] = exp.Add(
                this=self._share(translate, one.first, one.k), expression=self._share(translate, one.second, one.k)
            )
        return self._wrapped(block)

    def _share(self, translate: Translator, rank: c.Bm25 | c.Nearest, k: c.Const | c.Param) -> exp.Expr:
        """1 / (k + place), where equal values share a place; nothing for a row that the rank says nothing about."""
        value = translate.value(rank)
        order = exp.Ordered(this=value.copy(), desc=isinstance(rank, c.Bm25), nulls_first=False)
        place = exp.Window(this=exp.Anonymous(this="DENSE_RANK"), order=exp.Order(expressions=[order]))
        total = exp.Add(this=cast(translate.value(k), exp.DataType.Type.DOUBLE), expression=place)
        share = exp.Div(this=exp.Literal.number("1.0"), expression=exp.paren(total))
        says: exp.Expr = exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))
        if isinstance(rank, c.Bm25):
            says = exp.GT(this=value.copy(), expression=exp.Literal.number(0))
        return exp.Case(ifs=[exp.If(this=says, true=share)], default=exp.Literal.number("0.0"))

    # ---- the result --------------------------------------------------------------------------------------------------

    def result(self, plan: n.Plan) -> tuple[exp.Select, tuple[tuple[str, ...], ...]]:
        limit: c.Const | c.Param | None = None
        offset: c.Const | c.Param | None = None
        keys: tuple[c.OrderBy, ...] = ()
        ties: tuple[c.Expr, ...] = ()
        if isinstance(plan, (n.Limit, n.TopK)):
            limit, offset = plan.limit, plan.offset
        if isinstance(plan, (n.Sort, n.TopK)):
            keys, ties = plan.keys, plan.ties
        if isinstance(plan, n.Limit) and isinstance(plan.input, n.Sort):
            keys, ties = plan.input.keys, plan.input.ties
            plan = plan.input
        end = plan if isinstance(plan, (n.Project, n.Aggregate)) else n.children(plan)[0]
        assert isinstance(end, (n.Project, n.Aggregate))
        query, outputs, translate = self._columns(end)
        order = [translate.ordered(one.value, one.descending) for one in keys]
        order += [translate.ordered(one, False) for one in ties]
        if order:
            query = query.order_by(*order, copy=False)
        if limit is not None:
            query = query.limit(translate.plain.value(limit), copy=False)
        if offset is not None:
            query = query.offset(translate.plain.value(offset), copy=False)
        return query, outputs

    def _columns(self, end: n.Project | n.Aggregate) -> tuple[exp.Select, tuple[tuple[str, ...], ...], _Grouped]:
        block = self.block(end.input)
        plain = self._over(block.columns)
        keys = () if isinstance(end, n.Project) else tuple(end.columns[place].value for place in end.keys)
        weights = end.weights if isinstance(end, n.Aggregate) else ()
        translate = _Grouped(plain, isinstance(end, n.Aggregate), keys, weights)
        selected, outputs = [], []
        for place, column in enumerate(end.columns):
            parts = self._parts(column.value, translate)
            names = (f"r{place}",) if len(parts) == 1 else tuple(f"r{place}_{at}" for at in range(len(parts)))
            selected += [exp.alias_(one, name) for one, name in zip(parts, names, strict=True)]
            outputs.append(names)
        query = block.select(selected)
        groups = [plain.value(one) for one in keys]
        if isinstance(end, n.Aggregate) and groups:
            query = query.group_by(*groups, copy=False)
        return query, tuple(outputs), translate

    def _parts(self, value: c.Expr, translate: _Grouped) -> list[exp.Expr]:
        if not isinstance(value, c.Entity):
            return [translate.value(value)]
        columns = shown_columns(self.catalog.by_id[value.type.type_id])
        return [translate.column((value.var, column)) for column in columns]


@dataclass(frozen=True)
class _Grouped:
    """Values of a result row: of a single row, or of a group."""

    plain: Translator
    grouped: bool
    keys: tuple[c.Expr, ...]
    weights: tuple[str, ...]

    def column(self, key: Key) -> exp.Expr:
        """A column of an entity; in a group that holds only one such entity, that one's."""
        found = self.plain.columns(key)
        return exp.AnyValue(this=found) if self.grouped else found

    def value(self, value: c.Expr) -> exp.Expr:
        if isinstance(value, c.Aggregate):
            return self._aggregate(value)
        constants = (c.Const, c.Param, c.Now, c.ListOf)
        if not self.grouped or value in self.keys or isinstance(value, constants):
            return self.plain.value(value)
        return exp.AnyValue(this=self.plain.value(value))

    def ordered(self, value: c.Expr, descending: bool) -> exp.Ordered:
        rank = isinstance(value, (c.Bm25, c.Nearest, c.Rrf))
        return exp.Ordered(this=self.value(value), desc=descending, nulls_first=not descending and not rank)

    def _aggregate(self, value: c.Aggregate) -> exp.Expr:
        argument = self.plain.value(value.argument)
        match value.function:
            case "count" if value.distinct:
                return exp.Count(this=exp.Distinct(expressions=[argument]))
            case "min":
                return exp.Min(this=argument)
            case "max":
                return exp.Max(this=argument)
        if self.weights:
            return self._weighted(value, argument)
        match value.function:
            case "count":
                return exp.Count(this=argument)
            case "avg":
                return exp.Avg(this=argument)
        if value.type == c.F64:
            return exp.Sum(this=cast(argument, exp.DataType.Type.DOUBLE))
        return exp.Cast(this=exp.Sum(this=argument), to=sql_type(value.type))

    def _weighted(self, value: c.Aggregate, argument: exp.Expr) -> exp.Expr:
        """The aggregate of rows of which each stands for as many as its weights say."""
        present = exp.Not(this=exp.Is(this=argument.copy(), expression=exp.Null()))
        times = exp.Sum(this=exp.Case(ifs=[exp.If(this=present, true=self._weight())]))
        if value.function == "count":
            return exp.Cast(this=exp.Coalesce(this=times, expressions=[exp.Literal.number(0)]), to=sql_type(c.I64))
        assert isinstance(value.argument, c.Prop)
        kind = exp.DataType.Type.DOUBLE if value.argument.type.scalar in FLOATS else exp.DataType.Type.INT128
        total = exp.Sum(this=exp.Mul(this=cast(argument, kind), expression=self._weight()))
        if value.function == "sum":
            return exp.Cast(this=total, to=sql_type(value.type))
        double = exp.DataType.Type.DOUBLE
        return exp.Div(this=cast(total, double), expression=cast(times, double))

    def _weight(self) -> exp.Expr:
        columns = [self.plain.columns((name, _WEIGHT)) for name in self.weights]
        # Two numbers of edges fit 64 bits when multiplied, three may not.
        product = columns[0] if len(columns) < 3 else cast(columns[0], exp.DataType.Type.INT128)
        for one in columns[1:]:
            product = exp.Mul(this=product, expression=one)
        return product
