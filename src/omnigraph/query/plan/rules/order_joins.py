"""Orders the inputs of a join: the smallest first, then always the connected input that adds the fewest rows."""

from __future__ import annotations

from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.nodes import (
    Degrees,
    Edges,
    NaturalJoin,
    Pairs,
    Plan,
    Reach,
    Scan,
    children,
    is_leaf,
    provides,
)
from omnigraph.query.plan.walk import transform_nodes

#: Estimated growth by a `Degrees`, which drops nodes without edges and multiplies nothing.
_DEGREES_GROWTH = 0.9


def order_joins(plan: Plan, facts: Facts) -> Plan:
    def order(node: Plan) -> Plan:
        if not isinstance(node, NaturalJoin) or len(node.inputs) < 2:
            return node
        remaining = list(node.inputs)
        first = min(remaining, key=lambda child: (_size(child, facts), remaining.index(child)))
        ordered, provided = [first], set(provides(first))
        remaining.remove(first)
        while remaining:
            best = min(remaining, key=lambda child: (*_growth(child, provided, facts), remaining.index(child)))
            ordered.append(best)
            provided |= set(provides(best))
            remaining.remove(best)
        return NaturalJoin(tuple(ordered))

    return transform_nodes(plan, order)


def _size(plan: Plan, facts: Facts) -> float:
    if is_leaf(plan):
        return facts.estimate(plan)
    return max((_size(child, facts) for child in children(plan)), default=1.0)


def _growth(plan: Plan, provided: set[str], facts: Facts) -> tuple[bool, float]:
    """Returns whether `plan` shares no variable with the inputs before it, and how it is estimated to grow the result.

    The second value is the number of result rows after the join for each row before it.
    """
    shared = provided & set(provides(plan))
    if not shared:
        return True, _size(plan, facts)
    if isinstance(plan, (Pairs, Edges, Reach)):
        ends = shared & {plan.left, plan.right}
        factors = [facts.fan_out(plan, end) for end in sorted(ends)]
        return False, min(factors, default=1.0) if len(ends) < 2 else 0.0
    if isinstance(plan, Scan):
        return False, facts.estimate(plan) / max(1, facts.rows.get(plan.type.type_id, 0))
    return False, _DEGREES_GROWTH if isinstance(plan, Degrees) else 1.0
