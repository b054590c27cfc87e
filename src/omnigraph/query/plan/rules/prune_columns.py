"""Reduces every scan to the columns that the plan uses, and adds the searches that the plan asks of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from omnigraph.query.language.checked import Bm25, Entity, Nearest, Prop, Rrf, TextFilter
from omnigraph.query.plan.expressions import operands, references, searches_in
from omnigraph.query.plan.facts import Facts, entity_columns
from omnigraph.query.plan.nodes import Edges, Plan, Scan, Search
from omnigraph.query.plan.walk import all_nodes, conditions_of, result_values, transform_nodes

ColumnUse = tuple[str, str]
"""A variable and one of its columns."""


def prune_columns(plan: Plan, facts: Facts) -> Plan:
    column_uses = frozenset(use for node in all_nodes(plan) for use in _column_uses(node, facts))
    searches = tuple(dict.fromkeys(search for node in all_nodes(plan) for search in _searches_of(node)))

    def prune(node: Plan) -> Plan:
        if not isinstance(node, (Scan, Edges)):
            return node
        type_def = facts.type_def(node.type.type_id)
        columns = tuple(column for column in entity_columns(type_def) if (node.var, column) in column_uses)
        node_searches = tuple(search for search in searches if search.prop.var == node.var)
        return replace(node, columns=columns, searches=node_searches)

    return transform_nodes(plan, prune)


def _column_uses(node: Plan, facts: Facts) -> Iterator[ColumnUse]:
    for condition in conditions_of(node):
        if not isinstance(condition, TextFilter):
            for value in operands(condition):
                yield from ((ref.var, ref.column) for ref in references(value) if isinstance(ref, Prop))
    for value in result_values(node):
        if isinstance(value, Entity):
            yield from ((value.var, column) for column in entity_columns(facts.type_def(value.type.type_id)))
        elif not isinstance(value, (Bm25, Nearest, Rrf)):
            yield from ((ref.var, ref.column) for ref in references(value) if isinstance(ref, Prop))


def _searches_of(node: Plan) -> Iterator[Search]:
    yield from (condition for condition in conditions_of(node) if isinstance(condition, TextFilter))
    for value in result_values(node):
        yield from searches_in(value)
