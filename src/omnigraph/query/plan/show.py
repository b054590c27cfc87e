"""Prints a plan as text: one line per node, two spaces per level. Equal plans have equal texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from omnigraph.query.language.checked import Const, Direction, Param, TextFilter
from omnigraph.query.language.show import show_expr, show_predicate
from omnigraph.query.plan.nodes import (
    Aggregation,
    AntiJoin,
    Condition,
    Degrees,
    DistinctVariables,
    Edges,
    HopLeaf,
    Leaf,
    LeftJoin,
    Limit,
    NaturalJoin,
    Pairs,
    Plan,
    Project,
    RankFusion,
    Reach,
    Scan,
    Selection,
    Sort,
    TopK,
    children,
    is_leaf,
)


def show_plan(plan: Plan, notes: Mapping[Leaf, str] | None = None) -> str:
    """Returns the text of the plan; `notes` are added to the lines of leaves, such as how their rows were read."""
    return "\n".join(_lines(plan, notes or {})) + "\n"


def _lines(plan: Plan, notes: Mapping[Leaf, str]) -> Iterator[str]:
    note = notes.get(plan) if is_leaf(plan) else None
    yield _line(plan) + (f"  [{note}]" if note else "")
    for child in children(plan):
        yield from ("  " + line for line in _lines(child, notes))


def _line(plan: Plan) -> str:
    match plan:
        case Scan():
            return f"Scan ${plan.var}: {plan.type.type_id}{_columns(plan)}"
        case Edges():
            return f"Edges {show_hop(plan)}{_columns(plan)}{_ids(plan)}"
        case Pairs():
            return f"Pairs {show_hop(plan)}{'' if plan.distinct else ' repeated'}{_ids(plan)}"
        case Reach():
            return f"Reach {show_hop(plan)}{_ids(plan)}"
        case Degrees():
            ends = (f"${plan.var}", "()") if plan.end == "left" else ("()", f"${plan.var}")
            return f"Degrees {plan.weight} of {_arrow(ends[0], plan.edge, plan.direction, ends[1])}{_ids(plan)}"
        case NaturalJoin():
            return "Join" if plan.inputs else "One row"
        case Selection():
            return f"Filter {_conditions(plan.where)}"
        case LeftJoin() | AntiJoin():
            return f"{'LeftJoin' if isinstance(plan, LeftJoin) else 'AntiJoin'}{_on(plan)}"
        case DistinctVariables():
            return f"Narrow {', '.join(f'${var}' for var in plan.variables)}"
        case RankFusion():
            return f"Fuse {', '.join(show_expr(rank) for rank in plan.ranks)}"
        case Project() | Aggregation():
            return f"{'Project' if isinstance(plan, Project) else 'Aggregate'} {_results(plan)}"
        case Sort():
            return f"Sort {_order(plan)}"
        case TopK():
            return f"TopK {_order(plan)}{_window(plan.limit, plan.offset)}"
        case Limit():
            return f"Limit{_window(plan.limit, plan.offset)}"


def show_hop(hop: HopLeaf) -> str:
    """Returns `$a -[edge]-> $b`, with the bounds of a repeated hop."""
    name = f"${hop.var}: {hop.type.type_id}" if isinstance(hop, Edges) else hop.edge
    if isinstance(hop, Reach):
        name += f" {{{hop.low},{'' if hop.high is None else hop.high}}}"
    return _arrow(f"${hop.left}", name, hop.direction, f"${hop.right}")


def _arrow(left: str, name: str, direction: Direction, right: str) -> str:
    before, after = {"forward": ("-", "->"), "backward": ("<-", "-"), "either": ("-", "-")}[direction]
    return f"{left} {before}[{name}]{after} {right}"


def _columns(plan: Scan | Edges) -> str:
    text = f" ({', '.join(plan.columns)})" if plan.columns else ""
    ranks = [show_expr(search) for search in plan.searches if not isinstance(search, TextFilter)]
    text += f" with {', '.join(ranks)}" if ranks else ""
    return text + (f" where {_conditions(plan.where)}" if plan.where else "")


def _ids(hop: HopLeaf | Degrees) -> str:
    return f" ids of {', '.join(f'${var}' for var in hop.ids)}" if hop.ids else ""


def _on(plan: LeftJoin | AntiJoin) -> str:
    text = f" on {', '.join(f'${var}' for var in plan.on)}" if plan.on else ""
    text += " or both missing" if plan.null_safe else ""
    return text + (f" where {_conditions(plan.where)}" if plan.where else "")


def _conditions(where: tuple[Condition, ...]) -> str:
    return " and ".join(show_condition(condition) for condition in where)


def show_condition(condition: Condition) -> str:
    if isinstance(condition, TextFilter):
        edits = "" if condition.edits is None else f", {show_expr(condition.edits)}"
        return f"{condition.function}({show_expr(condition.prop)}, {show_expr(condition.query)}{edits})"
    return show_predicate(condition)


def _results(plan: Project | Aggregation) -> str:
    text = ", ".join(f"{column.name} = {show_expr(column.value)}" for column in plan.columns)
    if isinstance(plan, Aggregation):
        keys = ", ".join(plan.columns[position].name for position in plan.keys)
        text += f" by {keys or 'nothing'}"
        text += f" times {', '.join(plan.weights)}" if plan.weights else ""
    return text


def _order(plan: Sort | TopK) -> str:
    keys = [f"{show_expr(key.value)} {'desc' if key.descending else 'asc'}" for key in plan.keys]
    return ", ".join([*keys, *(show_expr(tie) for tie in plan.ties)])


def _window(limit: Const | Param | None, offset: Const | Param | None) -> str:
    text = f" limit {show_expr(limit)}" if limit is not None else ""
    return text + (f" offset {show_expr(offset)}" if offset is not None else "")
