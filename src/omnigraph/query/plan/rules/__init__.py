"""The rewrite rules, in order. Each is a pure function that keeps the meaning of the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from omnigraph.query.language import checked as c
from omnigraph.query.plan import nodes as n
from omnigraph.query.plan.expressions import computed, parts, references, variables
from omnigraph.query.plan.facts import Facts, shown_columns
from omnigraph.query.plan.rules.count_degrees import count_degrees
from omnigraph.query.plan.walk import all_nodes, conditions_of, values_of

Rule = Callable[[n.Plan, Facts], n.Plan]
Need = tuple[str, str]
"""A variable and one of its columns."""


def optimise(plan: n.Plan, facts: Facts) -> n.Plan:
    """The plan after all rules."""
    for rule in RULES:
        plan = rule(plan, facts)
    return plan


def _everywhere(plan: n.Plan, change: Callable[[n.Plan], n.Plan]) -> n.Plan:
    """`change` applied to every node, inputs first."""
    return change(n.with_children(plan, tuple(_everywhere(one, change) for one in n.children(plan))))


# ---- filters ---------------------------------------------------------------------------------------------------------


def push_filters(plan: n.Plan, _facts: Facts) -> n.Plan:
    """Every condition moves to the first place where its columns are known."""
    return _push(plan, ())


def _push(plan: n.Plan, where: tuple[n.Condition, ...]) -> n.Plan:
    match plan:
        case n.Scan() | n.Edges():
            own = tuple(one for one in where if variables(one) == {plan.var})
            return _filtered(replace(plan, where=(*plan.where, *own)) if own else plan, _without(where, own))
        case n.Filter():
            return _push(plan.input, (*where, *plan.where))
        case n.Join():
            return _push_into_join(plan, where)
        case n.LeftJoin() | n.AntiJoin():
            down = tuple(one for one in where if variables(one) <= _columned(plan.left))
            new = replace(plan, left=_push(plan.left, down), right=_push(plan.right, ()))
            return _filtered(new, _without(where, down))
    return _filtered(n.with_children(plan, tuple(_push(one, ()) for one in n.children(plan))), where)


def _push_into_join(plan: n.Join, where: tuple[n.Condition, ...]) -> n.Plan:
    inputs, rest = [], where
    for one in plan.inputs:
        known = _columned(one)
        down = tuple(condition for condition in rest if variables(condition) and variables(condition) <= known)
        rest = _without(rest, down)
        inputs.append(_push(one, down))
    return _filtered(n.Join(tuple(inputs)), rest)


def _without(where: tuple[n.Condition, ...], gone: tuple[n.Condition, ...]) -> tuple[n.Condition, ...]:
    return tuple(one for one in where if one not in gone)


def _filtered(plan: n.Plan, where: tuple[n.Condition, ...]) -> n.Plan:
    return n.Filter(plan, where) if where else plan


def _columned(plan: n.Plan) -> frozenset[str]:
    """The variables of which all columns can be had here, not only the key."""
    match plan:
        case n.Scan() | n.Edges():
            return frozenset({plan.var})
        case n.Pairs() | n.Reach() | n.Degrees():
            return frozenset()
        case n.AntiJoin():
            return _columned(plan.left)
        case n.Narrow():
            return _columned(plan.input) & frozenset(plan.variables)
    return frozenset(var for one in n.children(plan) for var in _columned(one))


# ---- columns ---------------------------------------------------------------------------------------------------------


def prune_columns(plan: n.Plan, facts: Facts) -> n.Plan:
    """Scans read what somebody looks at, and compute the searches that somebody asks for."""
    needs = frozenset(_needs(plan, facts))
    searches = tuple(dict.fromkeys(_searches(plan)))

    def prune(one: n.Plan) -> n.Plan:
        if not isinstance(one, (n.Scan, n.Edges)):
            return one
        own = facts.type(one.type.type_id)
        columns = tuple(column for column in shown_columns(own) if (one.var, column) in needs)
        asked = tuple(search for search in searches if search.prop.var == one.var)
        return replace(one, columns=columns, computed=asked)

    return _everywhere(plan, prune)


def _needs(plan: n.Plan, facts: Facts) -> Iterator[Need]:
    for condition in conditions_of(plan):
        if not isinstance(condition, c.TextFilter):
            for value in parts(condition):
                yield from ((ref.var, ref.column) for ref in references(value) if isinstance(ref, c.Prop))
    for value in values_of(plan):
        if isinstance(value, c.Entity):
            shown = shown_columns(facts.type(value.type.type_id))
            yield from ((value.var, column) for column in shown)
        elif not isinstance(value, (c.Bm25, c.Nearest, c.Rrf)):
            yield from ((ref.var, ref.column) for ref in references(value) if isinstance(ref, c.Prop))
    for one in n.children(plan):
        yield from _needs(one, facts)


def _searches(plan: n.Plan) -> Iterator[n.Computed]:
    yield from (one for one in conditions_of(plan) if isinstance(one, c.TextFilter))
    for value in values_of(plan):
        yield from computed(value)
    for one in n.children(plan):
        yield from _searches(one)


# ---- joins -----------------------------------------------------------------------------------------------------------


def drop_scans(plan: n.Plan, _facts: Facts) -> n.Plan:
    """A node of which only the identity is asked needs no scan where a hop tells it: edges never dangle."""

    def drop(one: n.Plan) -> n.Plan:
        if not isinstance(one, n.Join):
            return one
        inputs = list(one.inputs)
        for scan in [part for part in one.inputs if isinstance(part, n.Scan)]:
            place = next((at for at, part in enumerate(inputs) if _tells(part, scan.var)), None)
            if place is None or scan.where or scan.computed or not set(scan.columns) <= {"id"}:
                continue
            hop = inputs[place]
            assert isinstance(hop, (n.Pairs, n.Edges, n.Reach))
            if scan.columns:
                inputs[place] = replace(hop, ids=(*hop.ids, scan.var))
            inputs.remove(scan)
        return inputs[0] if len(inputs) == 1 else n.Join(tuple(inputs))

    return _everywhere(plan, drop)


def _tells(plan: n.Plan, var: str) -> bool:
    return isinstance(plan, (n.Pairs, n.Edges, n.Reach)) and var in (plan.left, plan.right)


def order_joins(plan: n.Plan, facts: Facts) -> n.Plan:
    """Smallest first, then always the connected input that adds the fewest rows."""

    def order(one: n.Plan) -> n.Plan:
        if not isinstance(one, n.Join) or len(one.inputs) < 2:
            return one
        rest = list(one.inputs)
        first = min(rest, key=lambda part: (_size(part, facts), rest.index(part)))
        done, known = [first], set(n.provides(first))
        rest.remove(first)
        while rest:
            best = min(rest, key=lambda part: (*_growth(part, known, facts), rest.index(part)))
            done.append(best)
            known |= set(n.provides(best))
            rest.remove(best)
        return n.Join(tuple(done))

    return _everywhere(plan, order)


def _size(plan: n.Plan, facts: Facts) -> float:
    if n.is_leaf(plan):
        return facts.estimate(plan)
    sizes = [_size(one, facts) for one in n.children(plan)]
    return max(sizes, default=1.0)


def _growth(plan: n.Plan, known: set[str], facts: Facts) -> tuple[bool, float]:
    """Whether it is unconnected, and by how much it multiplies the rows."""
    shared = known & set(n.provides(plan))
    if not shared:
        return True, _size(plan, facts)
    if isinstance(plan, (n.Pairs, n.Edges, n.Reach)):
        ends = shared & {plan.left, plan.right}
        factors = [facts.fan_out(plan, end) for end in sorted(ends)]
        return False, min(factors, default=1.0) if len(ends) < 2 else 0.0
    if isinstance(plan, n.Scan):
        return False, facts.estimate(plan) / max(1, facts.rows.get(plan.type.type_id, 0))
    if isinstance(plan, n.Degrees):
        return False, 0.9
    return False, 1.0


def relax_pairs(plan: n.Plan, _facts: Facts) -> n.Plan:
    """Where only the existence of rows counts, a pair may come more than once."""
    values = [value for node in all_nodes(plan) for value in values_of(node)]
    counting = [one for one in values if isinstance(one, c.Aggregate) and not _ignores_repeats(one)]

    def relax(one: n.Plan, loose: bool) -> n.Plan:
        if isinstance(one, n.Pairs):
            return replace(one, distinct=False) if loose else one
        if isinstance(one, n.AntiJoin):
            return n.with_children(one, (relax(one.left, loose), relax(one.right, True)))
        below = loose or isinstance(one, n.Narrow) or (isinstance(one, n.Aggregate) and not counting)
        return n.with_children(one, tuple(relax(part, below) for part in n.children(one)))

    return relax(plan, False)


def _ignores_repeats(value: c.Aggregate) -> bool:
    return value.distinct or value.function in ("min", "max")


# ---- the end ---------------------------------------------------------------------------------------------------------


def top_k(plan: n.Plan, _facts: Facts) -> n.Plan:
    """A limited order keeps only what it returns."""
    if isinstance(plan, n.Limit) and isinstance(plan.input, n.Sort) and plan.limit is not None:
        sort = plan.input
        return n.TopK(sort.input, sort.keys, sort.ties, plan.limit, plan.offset)
    return plan


RULES: tuple[Rule, ...] = (
    push_filters,
    prune_columns,
    drop_scans,
    relax_pairs,
    count_degrees,
    order_joins,
    top_k,
)
