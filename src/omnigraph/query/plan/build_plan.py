"""A checked query becomes a plan, step by step as its meaning is told: nothing here tries to be fast.

A block (`optional`, `not`) is planned on its own and joined on the variables it shares, if its nested blocks look at
nothing but those; conditions on outer columns become conditions of the join. Otherwise it is planned on top of the
outer rows, narrowed to what it uses, and joined back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from omnigraph.query.language import checked as c
from omnigraph.query.plan import nodes as n
from omnigraph.query.plan.expressions import conjuncts, parts, references, rename, rename_condition

Env = dict[str, str]
"""The name of a variable in the query → its name in the plan."""


def build(read: c.CheckedRead) -> n.Plan:
    """The plan as the query says it."""
    builder = _Builder()
    body, env = builder.pattern(read.pattern, None, {})
    columns = tuple(c.Column(one.name, rename(one.value, env)) for one in read.columns)
    order = tuple(c.OrderBy(rename(one.value, env), one.descending, one.column) for one in read.order)
    values = [*(one.value for one in columns), *(one.value for one in order)]
    fused = tuple(dict.fromkeys(one for one in values if isinstance(one, c.Rrf)))
    if fused:
        body = n.Fuse(body, fused)
    plan: n.Plan
    if read.grouping is not None or read.distinct:
        keys = read.grouping if read.grouping is not None else tuple(range(len(columns)))
        plan = n.Aggregate(body, columns, keys)
        ties = _group_ties([columns[place].value for place in keys])
    else:
        plan = n.Project(body, columns)
        ties = tuple(_id_of(builder.types[var], var) for var in env.values())
    if order:
        plan = n.Sort(plan, order, ties)
    if read.limit is not None or read.offset is not None:
        plan = n.Limit(plan, read.limit, read.offset)
    return plan


def _id_of(type_: c.EntityType, var: str) -> c.Prop:
    return c.Prop(var, type_.type_id, "id", "id", c.STRING, False)


def _group_ties(keys: list[c.Expr]) -> tuple[c.Expr, ...]:
    """Groups differ in their keys: ids of whole entities first, then the other values."""
    ids = [_id_of(one.type, one.var) for one in keys if isinstance(one, c.Entity)]
    constants = (c.Entity, c.Const, c.Param, c.Now, c.ListOf)
    return (*ids, *(one for one in keys if not isinstance(one, constants)))


@dataclass
class _Builder:
    """Hands out plan names; a `not` block may bind a name that a sibling binds too."""

    types: dict[str, c.EntityType] = field(default_factory=dict)

    def fresh(self, bound: c.Bound) -> str:
        name, number = bound.name, 2
        while name in self.types:
            name, number = f"{bound.name}#{number}", number + 1
        self.types[name] = bound.type
        return name

    def pattern(self, pattern: c.Pattern, base: n.Plan | None, outer: Env) -> tuple[n.Plan, Env]:
        """The rows of one scope on top of `base`, and the names seen in it, those lent by optional blocks included."""
        own = {**outer, **{one.name: self.fresh(one) for one in pattern.variables}}
        plan = self._joined(pattern, base, own)
        seen = dict(own)
        for block in pattern.optionals:
            plan, lent = self._attach(plan, block, own, n.LeftJoin)
            seen.update(lent)
        where = tuple(rename_condition(one, seen) for one in (*pattern.filters, *pattern.texts))
        if where:
            plan = n.Filter(plan, tuple(conjuncts(where)))
        for block in pattern.nots:
            plan, _ = self._attach(plan, block, seen, n.AntiJoin)
        return plan, seen

    def _joined(self, pattern: c.Pattern, base: n.Plan | None, env: Env) -> n.Plan:
        inputs: list[n.Plan] = [] if base is None else [base]
        inputs += [n.Scan(env[one.name], one.type) for one in pattern.variables if one.type.kind == "node"]
        inputs += [self._hop(hop, env) for hop in pattern.hops]
        return inputs[0] if len(inputs) == 1 else n.Join(tuple(inputs))

    def _hop(self, hop: c.Hop, env: Env) -> n.Hop:
        left, right = env[hop.left], env[hop.right]
        if hop.var is not None:
            var = env[hop.var]
            return n.Edges(var, self.types[var], left, right, hop.direction)
        if hop.is_plain:
            return n.Pairs(left, right, hop.edge, hop.direction)
        return n.Reach(left, right, hop.edge, hop.direction, hop.low, hop.high)

    def _attach(
        self, plan: n.Plan, block: c.Pattern, env: Env, kind: type[n.LeftJoin] | type[n.AntiJoin]
    ) -> tuple[n.Plan, Env]:
        if _stands_alone(block, env):
            filters = tuple(one for one in block.filters if not _looks_out(one, env))
            texts = tuple(one for one in block.texts if one.prop.var not in env)
            inner = c.Pattern(block.variables, block.hops, filters, texts, block.optionals, block.nots)
            right, names = self.pattern(inner, None, env)
            left_over = (
                *(one for one in block.filters if one not in filters),
                *(one for one in block.texts if one not in texts),
            )
            where = tuple(conjuncts(tuple(rename_condition(one, names) for one in left_over)))
            on = tuple(var for var in n.provides(right) if var in n.provides(plan))
            return kind(plan, right, on, where), _lent(names, env)
        used = tuple(dict.fromkeys(env[name] for name in _used(block) if name in env))
        right, names = self.pattern(block, n.Narrow(plan, used), env)
        return kind(plan, right, used, (), null_safe=True), _lent(names, env)


def _lent(names: Env, outer: Mapping[str, str]) -> Env:
    return {name: var for name, var in names.items() if name not in outer}


# ---- what a block looks at -------------------------------------------------------------------------------------------


def _stands_alone(block: c.Pattern, outer: Mapping[str, str]) -> bool:
    """Whether the block's rows can be told without the outer rows: only keys of its own hops tie it to them."""
    if not block.variables and not block.hops:
        return False
    met = {end for hop in block.hops for end in (hop.left, hop.right)}
    for inner in (*block.optionals, *block.nots):
        for name, column in _uses(inner):
            if name in outer and (column or name not in met):
                return False
    return True


def _looks_out(predicate: c.Predicate, outer: Mapping[str, str]) -> bool:
    return any(ref.var in outer for value in parts(predicate) for ref in references(value))


def _used(block: c.Pattern) -> Iterator[str]:
    return (name for name, _ in _uses(block))


def _uses(block: c.Pattern) -> Iterator[tuple[str, bool]]:
    """Every variable that the block or a block in it mentions, and whether it needs more than the key."""
    for hop in block.hops:
        yield hop.left, False
        yield hop.right, False
    for condition in (*block.filters, *block.texts):
        for value in parts(condition):
            for ref in references(value):
                yield ref.var, isinstance(ref, c.Prop)
    for inner in (*block.optionals, *block.nots):
        own = {one.name for one in inner.variables}
        yield from ((name, column) for name, column in _uses(inner) if name not in own)
