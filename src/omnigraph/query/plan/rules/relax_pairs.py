"""Allows repeated pairs where only the existence of rows matters, so that an engine need not deduplicate them."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.query.language.checked import AggregateCall
from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.nodes import Aggregation, AntiJoin, DistinctVariables, Pairs, Plan, children, with_children
from omnigraph.query.plan.walk import all_nodes, result_values


def relax_pairs(plan: Plan, _facts: Facts) -> Plan:
    values = [value for node in all_nodes(plan) for value in result_values(node)]
    counts_rows = any(isinstance(value, AggregateCall) and not _ignores_repeats(value) for value in values)

    def relax(node: Plan, may_repeat: bool) -> Plan:
        if isinstance(node, Pairs):
            return replace(node, distinct=False) if may_repeat else node
        if isinstance(node, AntiJoin):
            return with_children(node, (relax(node.left, may_repeat), relax(node.right, True)))
        removes_repeats = isinstance(node, DistinctVariables) or (isinstance(node, Aggregation) and not counts_rows)
        return with_children(node, tuple(relax(child, may_repeat or removes_repeats) for child in children(node)))

    return relax(plan, False)


def _ignores_repeats(call: AggregateCall) -> bool:
    return call.distinct or call.function in ("min", "max")
