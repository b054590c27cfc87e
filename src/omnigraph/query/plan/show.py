"""A plan as text: one line per node, two spaces per level. The same plan always gives the same text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from omnigraph.query.language import checked as c
from omnigraph.query.language.show import show_expr, show_predicate
from omnigraph.query.plan import nodes as n


def show_plan(plan: n.Plan, notes: Mapping[n.Leaf, str] | None = None) -> str:
    """The plan; `notes` are added to the lines of leaves, such as the way they were read."""
    return "\n".join(_lines(plan, notes or {})) + "\n"


def _lines(plan: n.Plan, notes: Mapping[n.Leaf, str]) -> Iterator[str]:
    note = notes.get(plan) if n.is_leaf(plan) else None
    yield _line(plan) + (f"  [{note}]" if note else "")
    for one in n.children(plan):
        yield from ("  " + line for line in _lines(one, notes))


def _line(plan: n.Plan) -> str:
    match plan:
        case n.Scan():
            return f"Scan ${plan.var}: {plan.type.type_id}{_columns(plan)}"
        case n.Edges():
            return f"Edges {show_hop(plan)}{_columns(plan)}{_ids(plan)}"
        case n.Pairs():
            return f"Pairs {show_hop(plan)}{'' if plan.distinct else ' repeated'}{_ids(plan)}"
        case n.Reach():
            return f"Reach {show_hop(plan)}{_ids(plan)}"
        case n.Degrees():
            ends = (f"${plan.var}", "()") if plan.end == "left" else ("()", f"${plan.var}")
            return f"Degrees {plan.weight} of {_arrow(ends[0], plan.edge, plan.direction, ends[1])}{_ids(plan)}"
        case n.Join():
            return "Join" if plan.inputs else "One row"
        case n.Filter():
            return f"Filter {_conditions(plan.where)}"
        case n.LeftJoin() | n.AntiJoin():
            return f"{type(plan).__name__}{_on(plan)}"
        case n.Narrow():
            return f"Narrow {', '.join(f'${one}' for one in plan.variables)}"
        case n.Fuse():
            return f"Fuse {', '.join(show_expr(one) for one in plan.ranks)}"
        case n.Project() | n.Aggregate():
            return f"{type(plan).__name__} {_results(plan)}"
        case n.Sort():
            return f"Sort {_order(plan)}"
        case n.TopK():
            return f"TopK {_order(plan)}{_window(plan.limit, plan.offset)}"
        case n.Limit():
            return f"Limit{_window(plan.limit, plan.offset)}"


def show_hop(hop: n.Hop) -> str:
    """`$a -[edge]-> $b`, with the bounds of a repeated hop."""
    name = f"${hop.var}: {hop.type.type_id}" if isinstance(hop, n.Edges) else hop.edge
    if isinstance(hop, n.Reach):
        name += f" {{{hop.low},{'' if hop.high is None else hop.high}}}"
    return _arrow(f"${hop.left}", name, hop.direction, f"${hop.right}")


def _arrow(left: str, name: str, direction: c.Direction, right: str) -> str:
    before, after = {"forward": ("-", "->"), "backward": ("<-", "-"), "either": ("-", "-")}[direction]
    return f"{left} {before}[{name}]{after} {right}"


def _columns(plan: n.Scan | n.Edges) -> str:
    text = f" ({', '.join(plan.columns)})" if plan.columns else ""
    ranks = [show_expr(one) for one in plan.computed if not isinstance(one, c.TextFilter)]
    text += f" with {', '.join(ranks)}" if ranks else ""
    return text + (f" where {_conditions(plan.where)}" if plan.where else "")


def _ids(hop: n.Hop | n.Degrees) -> str:
    return f" ids of {', '.join(f'${one}' for one in hop.ids)}" if hop.ids else ""


def _on(plan: n.LeftJoin | n.AntiJoin) -> str:
    text = f" on {', '.join(f'${one}' for one in plan.on)}" if plan.on else ""
    text += " or both missing" if plan.null_safe else ""
    return text + (f" where {_conditions(plan.where)}" if plan.where else "")


def _conditions(where: tuple[n.Condition, ...]) -> str:
    return " and ".join(show_condition(one) for one in where)


def show_condition(one: n.Condition) -> str:
    if isinstance(one, c.TextFilter):
        edits = "" if one.edits is None else f", {show_expr(one.edits)}"
        return f"{one.function}({show_expr(one.prop)}, {show_expr(one.query)}{edits})"
    return show_predicate(one)


def _results(plan: n.Project | n.Aggregate) -> str:
    text = ", ".join(f"{one.name} = {show_expr(one.value)}" for one in plan.columns)
    if isinstance(plan, n.Aggregate):
        keys = ", ".join(plan.columns[place].name for place in plan.keys)
        text += f" by {keys or 'nothing'}"
        text += f" times {', '.join(plan.weights)}" if plan.weights else ""
    return text


def _order(plan: n.Sort | n.TopK) -> str:
    keys = [f"{show_expr(one.value)} {'desc' if one.descending else 'asc'}" for one in plan.keys]
    return ", ".join([*keys, *(show_expr(one) for one in plan.ties)])


def _window(limit: c.Const | c.Param | None, offset: c.Const | c.Param | None) -> str:
    text = f" limit {show_expr(limit)}" if limit is not None else ""
    return text + (f" offset {show_expr(offset)}" if offset is not None else "")
