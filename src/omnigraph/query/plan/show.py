"""Prints a plan as text: one line per node, two spaces per level. Equal plans have equal texts.

`show_expr` and `show_predicate` print the checked expressions inside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from omnigraph.query.language.checked import (
    AggregateCall,
    AllOf,
    AnyOf,
    Bm25,
    CheckedCompare,
    CheckedNullTest,
    Const,
    Direction,
    Entity,
    Expr,
    ListOf,
    Nearest,
    Now,
    Param,
    Predicate,
    Prop,
    Rrf,
    TextFilter,
)
from omnigraph.query.plan import nodes
from omnigraph.schema.catalog import Property, PropType
from omnigraph.schema.values import to_output


def show_predicate(predicate: Predicate) -> str:
    match predicate:
        case CheckedCompare(lhs, op, rhs):
            return f"{show_expr(lhs)} {op} {show_expr(rhs)}"
        case CheckedNullTest(operand, negated):
            return f"{show_expr(operand)} is {'not ' if negated else ''}null"
        case AllOf(parts):
            return "(" + " and ".join(show_predicate(part) for part in parts) + ")"
        case AnyOf(parts):
            return "(" + " or ".join(show_predicate(part) for part in parts) + ")"


def show_expr(value: Expr) -> str:
    match value:
        case Prop():
            return f"${value.var}.{value.column}" if value.var else value.column
        case Entity():
            return f"${value.var}"
        case Const():
            return f"{_constant(value.value, value.type)}:{value.type}"
        case Param():
            return f"${value.slot}:{value.type}{'?' if value.nullable else ''}"
        case Now():
            return "now()"
        case ListOf():
            return f"[{', '.join(show_expr(item) for item in value.items)}]"
        case AggregateCall():
            return f"{value.function}({'distinct ' if value.distinct else ''}{show_expr(value.argument)})"
        case Bm25():
            return f"bm25({show_expr(value.prop)}, {show_expr(value.query)})"
        case Nearest():
            model = "" if value.model is None else f", model={json.dumps(value.model)}"
            embeds = ", embed" if value.embeds else ""
            return f"nearest({show_expr(value.prop)}, {show_expr(value.query)}, {value.metric}{embeds}{model})"
        case Rrf():
            return f"rrf({show_expr(value.first)}, {show_expr(value.second)}, {show_expr(value.k)})"


def _constant(value: Any, type_: PropType) -> str:
    if isinstance(value, date) or (isinstance(value, tuple) and any(isinstance(item, date) for item in value)):
        value = to_output(Property("", "", type_), list(value) if isinstance(value, tuple) else value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return json.dumps(value, ensure_ascii=False)


def show_plan(plan: nodes.Plan, notes: Mapping[nodes.Leaf, str] | None = None) -> str:
    """Returns the text of the plan; `notes` are added to the lines of leaves, such as how their rows were read."""
    return "\n".join(_lines(plan, notes or {})) + "\n"


def _lines(plan: nodes.Plan, notes: Mapping[nodes.Leaf, str]) -> Iterator[str]:
    note = notes.get(plan) if nodes.is_leaf(plan) else None
    yield _line(plan) + (f"  [{note}]" if note else "")
    for child in nodes.children(plan):
        yield from ("  " + line for line in _lines(child, notes))


def _line(plan: nodes.Plan) -> str:
    match plan:
        case nodes.Scan():
            return f"Scan ${plan.var}: {plan.type.type_id}{_columns(plan)}"
        case nodes.Edges():
            return f"Edges {show_hop(plan)}{_columns(plan)}{_ids(plan)}"
        case nodes.Pairs():
            return f"Pairs {show_hop(plan)}{'' if plan.distinct else ' repeated'}{_ids(plan)}"
        case nodes.Reach():
            return f"Reach {show_hop(plan)}{_ids(plan)}"
        case nodes.Degrees():
            ends = (f"${plan.var}", "()") if plan.end == "left" else ("()", f"${plan.var}")
            return f"Degrees {plan.weight} of {_arrow(ends[0], plan.edge, plan.direction, ends[1])}{_ids(plan)}"
        case nodes.NaturalJoin():
            return "Join" if plan.inputs else "One row"
        case nodes.Selection():
            return f"Filter {_conditions(plan.where)}"
        case nodes.LeftJoin() | nodes.AntiJoin():
            return f"{'LeftJoin' if isinstance(plan, nodes.LeftJoin) else 'AntiJoin'}{_on(plan)}"
        case nodes.DistinctVariables():
            return f"Narrow {', '.join(f'${var}' for var in plan.variables)}"
        case nodes.RankFusion():
            return f"Fuse {', '.join(show_expr(rank) for rank in plan.ranks)}"
        case nodes.Project() | nodes.Aggregation():
            return f"{'Project' if isinstance(plan, nodes.Project) else 'Aggregate'} {_results(plan)}"
        case nodes.Sort():
            return f"Sort {_order(plan)}"
        case nodes.TopK():
            return f"TopK {_order(plan)}{_window(plan.limit, plan.offset)}"
        case nodes.Limit():
            return f"Limit{_window(plan.limit, plan.offset)}"


def show_hop(hop: nodes.HopLeaf) -> str:
    """Returns `$a -[edge]-> $b`, with the bounds of a repeated hop."""
    name = f"${hop.var}: {hop.type.type_id}" if isinstance(hop, nodes.Edges) else hop.edge
    if isinstance(hop, nodes.Reach):
        name += f" {{{hop.low},{'' if hop.high is None else hop.high}}}"
    return _arrow(f"${hop.left}", name, hop.direction, f"${hop.right}")


def _arrow(left: str, name: str, direction: Direction, right: str) -> str:
    before, after = {"forward": ("-", "->"), "backward": ("<-", "-"), "either": ("-", "-")}[direction]
    return f"{left} {before}[{name}]{after} {right}"


def _columns(plan: nodes.Scan | nodes.Edges) -> str:
    text = f" ({', '.join(plan.columns)})" if plan.columns else ""
    ranks = [show_expr(search) for search in plan.searches if not isinstance(search, TextFilter)]
    text += f" with {', '.join(ranks)}" if ranks else ""
    return text + (f" where {_conditions(plan.where)}" if plan.where else "")


def _ids(hop: nodes.HopLeaf | nodes.Degrees) -> str:
    return f" ids of {', '.join(f'${var}' for var in hop.ids)}" if hop.ids else ""


def _on(plan: nodes.LeftJoin | nodes.AntiJoin) -> str:
    text = f" on {', '.join(f'${var}' for var in plan.on)}" if plan.on else ""
    text += " or both missing" if plan.null_safe else ""
    return text + (f" where {_conditions(plan.where)}" if plan.where else "")


def _conditions(where: tuple[nodes.PlanCondition, ...]) -> str:
    return " and ".join(show_condition(condition) for condition in where)


def show_condition(condition: nodes.PlanCondition) -> str:
    if isinstance(condition, TextFilter):
        edits = "" if condition.edits is None else f", {show_expr(condition.edits)}"
        return f"{condition.function}({show_expr(condition.prop)}, {show_expr(condition.query)}{edits})"
    return show_predicate(condition)


def _results(plan: nodes.Project | nodes.Aggregation) -> str:
    text = ", ".join(f"{column.name} = {show_expr(column.value)}" for column in plan.columns)
    if isinstance(plan, nodes.Aggregation):
        keys = ", ".join(plan.columns[position].name for position in plan.keys)
        text += f" by {keys or 'nothing'}"
        text += f" times {', '.join(plan.weights)}" if plan.weights else ""
    return text


def _order(plan: nodes.Sort | nodes.TopK) -> str:
    keys = [f"{show_expr(key.value)} {'desc' if key.descending else 'asc'}" for key in plan.keys]
    return ", ".join([*keys, *(show_expr(tie) for tie in plan.ties)])


def _window(limit: Const | Param | None, offset: Const | Param | None) -> str:
    text = f" limit {show_expr(limit)}" if limit is not None else ""
    return text + (f" offset {show_expr(offset)}" if offset is not None else "")
