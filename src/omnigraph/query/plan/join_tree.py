"""Plans that are trees of hops between nodes, with conditions on single columns: they can be counted without joining.

Where every variable is met by exactly one way, the number of rows in which a node stands is the product, over its hops,
of what its neighbours contribute. A `JoinTree` says that a plan has this form; an engine may then answer it from
adjacencies and columns alone. What does not fit is None and stays with the statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omnigraph.query.language import checked as c
from omnigraph.query.plan import nodes as n
from omnigraph.query.plan.expressions import references
from omnigraph.schema.catalog import Catalog, PropType, Scalar
from omnigraph.schema.values import INTEGER_BOUNDS

_COMPARED = frozenset({"=", "!=", "<", "<=", ">", ">=", "in"})
_TEXT_TESTS = frozenset({"contains", "starts_with"})
#: Types whose values are told apart and ordered alike by every engine. Floats are not: NaN and -0.
_CODED = frozenset({Scalar.STRING, Scalar.BOOL, Scalar.DATE, Scalar.DATETIME, *INTEGER_BOUNDS})


@dataclass(frozen=True)
class Body:
    """Variables with their node types, conditions on them, and the hops that connect all of them without a circle.

    `without`: a node of that variable must have no row in that other tree.
    """

    types: Mapping[str, str]
    scans: tuple[n.Scan, ...]
    links: tuple[n.Pairs, ...]
    degrees: tuple[n.Degrees, ...]
    without: tuple[tuple[str, Body], ...] = ()


@dataclass(frozen=True)
class JoinTree:
    """The tree, and what is asked of its rows. `kept` are the variables of which more than the number is asked."""

    body: Body
    end: n.Aggregate
    keys: tuple[c.OrderBy, ...]
    ties: tuple[c.Expr, ...]
    limit: c.Const | c.Param | None
    offset: c.Const | c.Param | None
    kept: tuple[str, ...]


def join_tree(plan: n.Plan, catalog: Catalog) -> JoinTree | None:
    """The plan as a counted tree, or None."""
    keys: tuple[c.OrderBy, ...] = ()
    ties: tuple[c.Expr, ...] = ()
    limit = offset = None
    while isinstance(plan, (n.Limit, n.Sort, n.TopK)):
        if not isinstance(plan, n.Sort):
            limit, offset = plan.limit, plan.offset
        if not isinstance(plan, n.Limit):
            keys, ties = plan.keys, plan.ties
        plan = plan.input
    if not isinstance(plan, n.Aggregate):
        return None
    values = [*(one.value for one in plan.columns), *(one.value for one in keys), *ties]
    grouped = [plan.columns[place].value for place in plan.keys]
    if not all(_is_answered(one, grouped) for one in values):
        return None
    body = _body(plan.input, catalog)
    if body is None:
        return None
    kept = tuple(dict.fromkeys(ref.var for one in values if not _counts_rows(one) for ref in references(one)))
    return JoinTree(body, plan, keys, ties, limit, offset, kept)


def _counts_rows(value: c.Expr) -> bool:
    """A variable of a tree is never missing, so counting it counts rows."""
    return isinstance(value, c.Aggregate) and isinstance(value.argument, c.Entity) and not value.distinct


def _is_answered(value: c.Expr, grouped: list[c.Expr]) -> bool:
    match value:
        case c.Aggregate(function, c.Entity()):
            return function == "count"
        case c.Aggregate(function, c.Prop() as prop):
            return is_coded(prop.type) and (function not in ("sum", "avg") or prop.type.scalar in INTEGER_BOUNDS)
        case c.Prop():
            entities = {one.var for one in grouped if isinstance(one, c.Entity)}
            return is_coded(value.type) and (value in grouped or value.var in entities)
        case c.Entity():
            return value in grouped and value.type.kind == "node"
    return False


def is_coded(type_: PropType) -> bool:
    """Whether a column of this type is told by the rank of its values."""
    return type_.scalar in _CODED and not type_.is_list and type_.vector_size is None


# ---- the tree --------------------------------------------------------------------------------------------------------


def _body(plan: n.Plan, catalog: Catalog) -> Body | None:
    without: list[tuple[str, Body]] = []
    while isinstance(plan, n.AntiJoin):
        right = _body(plan.right, catalog)
        if right is None or plan.where or plan.null_safe or len(plan.on) != 1:
            return None
        without.append((plan.on[0], right))
        plan = plan.left
    leaves = plan.inputs if isinstance(plan, n.Join) else (plan,)
    scans = tuple(one for one in leaves if isinstance(one, n.Scan))
    links = tuple(one for one in leaves if isinstance(one, n.Pairs))
    degrees = tuple(one for one in leaves if isinstance(one, n.Degrees))
    if len(scans) + len(links) + len(degrees) != len(leaves) or not leaves:
        return None
    if any(one.computed or not all(_is_tested(part) for part in one.where) for one in scans):
        return None
    types = dict(_types(leaves, catalog))
    if not _is_tree(types, links) or not {var for var, _ in without} <= set(types):
        return None
    return Body(types, scans, links, degrees, tuple(without))


def _types(leaves: tuple[n.Plan, ...], catalog: Catalog) -> Iterator[tuple[str, str]]:
    for leaf in leaves:
        match leaf:
            case n.Scan():
                yield leaf.var, leaf.type.type_id
            case n.Pairs():
                ends = node_types(leaf, catalog)
                yield leaf.left, ends[0]
                yield leaf.right, ends[1]
            case n.Degrees():
                left, right = node_types(leaf, catalog)
                yield leaf.var, left if leaf.end == "left" else right


def node_types(hop: n.Pairs | n.Degrees, catalog: Catalog) -> tuple[str, str]:
    """The types at the left and the right end."""
    edge = catalog.by_id[hop.edge]
    source, target = edge.source or "", edge.target or ""
    return (target, source) if hop.direction == "backward" else (source, target)


def _is_tree(types: Mapping[str, str], links: tuple[n.Pairs, ...]) -> bool:
    """Connected and without a circle: one hop fewer than variables, and none between what is connected already."""
    if len(links) + 1 != len(types):
        return False
    group = {var: var for var in types}
    for link in links:
        left, right = group[link.left], group[link.right]
        if left == right:
            return False
        group = {var: right if one == left else one for var, one in group.items()}
    return True


def _is_tested(condition: n.Condition) -> bool:
    """Whether the condition can be decided per value of one column."""
    match condition:
        case c.NullTest(c.Prop() as prop, _):
            return is_coded(prop.type)
        case c.AnyOf(parts) | c.AllOf(parts):
            return all(_is_tested(one) for one in parts)
        case c.Compare(c.Prop() as prop, op, c.Const() | c.Param() | c.Now() | c.ListOf()):
            text = op in _TEXT_TESTS and prop.type.scalar is Scalar.STRING
            return is_coded(prop.type) and (op in _COMPARED or text)
        case c.Compare(c.Const() | c.Param() | c.Now(), op, c.Prop() as prop):
            return is_coded(prop.type) and op in _COMPARED and op != "in"
    return False
