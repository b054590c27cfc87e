"""Drops the scan of a node if only its identity is used and a hop provides that: edges never dangle."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.nodes import Edges, NaturalJoin, Pairs, Plan, Reach, Scan
from omnigraph.query.plan.walk import transform_nodes


def drop_scans(plan: Plan, _facts: Facts) -> Plan:
    return transform_nodes(plan, _drop_from_join)


def _drop_from_join(plan: Plan) -> Plan:
    if not isinstance(plan, NaturalJoin):
        return plan
    inputs = list(plan.inputs)
    for scan in [child for child in plan.inputs if isinstance(child, Scan)]:
        if scan.where or scan.searches or not set(scan.columns) <= {"id"}:
            continue
        for position, hop in enumerate(inputs):
            if isinstance(hop, (Pairs, Edges, Reach)) and scan.var in (hop.left, hop.right):
                if scan.columns:
                    inputs[position] = replace(hop, ids=(*hop.ids, scan.var))
                inputs.remove(scan)
                break
    return inputs[0] if len(inputs) == 1 else NaturalJoin(tuple(inputs))
