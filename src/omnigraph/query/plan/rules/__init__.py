"""The rewrite rules, one per file, in the order in which they run. Each is a pure function that keeps the meaning.

Imported by `query.run.run_query`, which rewrites every plan before it prints the SQL.
"""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.nodes import Plan
from omnigraph.query.plan.rules.count_degrees import count_degrees
from omnigraph.query.plan.rules.drop_scans import drop_scans
from omnigraph.query.plan.rules.order_joins import order_joins
from omnigraph.query.plan.rules.prune_columns import prune_columns
from omnigraph.query.plan.rules.push_filters import push_filters
from omnigraph.query.plan.rules.relax_pairs import relax_pairs
from omnigraph.query.plan.rules.top_k import top_k

RewriteRule = Callable[[Plan, Facts], Plan]

RULES: tuple[RewriteRule, ...] = (
    push_filters,  # first: it expects the plan as `build_plan` makes it
    prune_columns,  # needs the final conditions of every scan, to know which columns and searches a scan must provide
    drop_scans,  # needs pruned columns: a scan goes if nothing but the id is left to read
    relax_pairs,  # decides which pairs may repeat, which `count_degrees` must know
    count_degrees,  # needs dropped scans and distinct pairs: it replaces pairs whose other end has no scan
    order_joins,  # needs the final leaves, whose sizes it compares
    top_k,  # last: the other rules do not handle `TopK` nodes
)


def rewrite_plan(plan: Plan, facts: Facts) -> Plan:
    """Returns the plan after all rewrite rules."""
    for rule in RULES:
        plan = rule(plan, facts)
    return plan
