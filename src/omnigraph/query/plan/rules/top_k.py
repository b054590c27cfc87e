"""Joins a sort and the limit above it into one node, so that an engine keeps only the rows that it returns."""

from __future__ import annotations

from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.nodes import Limit, Plan, Sort, TopK


def top_k(plan: Plan, _facts: Facts) -> Plan:
    if isinstance(plan, Limit) and isinstance(plan.input, Sort) and plan.limit is not None:
        sort = plan.input
        return TopK(sort.input, sort.keys, sort.ties, plan.limit, plan.offset)
    return plan
