"""Recognizes plans that are trees of hops between nodes, with conditions on single columns.

If exactly one path connects any two variables, the number of rows that contain a node is the product, over its hops, of
what its neighbours contribute. An engine can then count rows from adjacencies and columns alone, without joining. A
plan of any other form has no `JoinTree` and runs as SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omnigraph.query.language.checked import (
    AggregateCall,
    AllOf,
    AnyOf,
    CheckedCompare,
    CheckedNullTest,
    Const,
    Entity,
    Expr,
    ListOf,
    Now,
    OrderBy,
    Param,
    Prop,
)
from omnigraph.query.plan.expressions import references
from omnigraph.query.plan.nodes import (
    Aggregation,
    AntiJoin,
    Degrees,
    Limit,
    NaturalJoin,
    Pairs,
    Plan,
    PlanCondition,
    Scan,
    Sort,
    TopK,
)
from omnigraph.schema.catalog import Catalog, PropType, Scalar
from omnigraph.schema.values import INTEGER_BOUNDS

_RANK_OPERATORS = frozenset({"=", "!=", "<", "<=", ">", ">=", "in"})
_TEXT_TESTS = frozenset({"contains", "starts_with"})
#: Types whose values every engine distinguishes and orders alike. Floats are not among them, because of NaN and -0.
_RANKABLE_SCALARS = frozenset({Scalar.STRING, Scalar.BOOL, Scalar.DATE, Scalar.DATETIME, *INTEGER_BOUNDS})


@dataclass(frozen=True)
class TreeBody:
    """Variables with their node types, conditions on them, and the hops that connect them without a cycle.

    `excluded`: a node of that variable must have no row in that other tree.
    """

    types: Mapping[str, str]
    scans: tuple[Scan, ...]
    links: tuple[Pairs, ...]
    degrees: tuple[Degrees, ...]
    excluded: tuple[tuple[str, TreeBody], ...] = ()


@dataclass(frozen=True)
class JoinTree:
    """A tree, and the result computed from its rows. Of `output_variables` more than the number of rows is used."""

    body: TreeBody
    aggregation: Aggregation
    keys: tuple[OrderBy, ...]
    ties: tuple[Expr, ...]
    limit: Const | Param | None
    offset: Const | Param | None
    output_variables: tuple[str, ...]


def find_join_tree(plan: Plan, catalog: Catalog) -> JoinTree | None:
    """Returns the plan as a tree that can be counted, or None if it has another form."""
    keys: tuple[OrderBy, ...] = ()
    ties: tuple[Expr, ...] = ()
    limit = offset = None
    while isinstance(plan, (Limit, Sort, TopK)):
        if not isinstance(plan, Sort):
            limit, offset = plan.limit, plan.offset
        if not isinstance(plan, Limit):
            keys, ties = plan.keys, plan.ties
        plan = plan.input
    if not isinstance(plan, Aggregation):
        return None
    values = [*(column.value for column in plan.columns), *(key.value for key in keys), *ties]
    group_keys = [plan.columns[position].value for position in plan.keys]
    if not all(_is_countable(value, group_keys) for value in values):
        return None
    body = _find_body(plan.input, catalog)
    if body is None:
        return None
    references_used = [ref for value in values if not _counts_rows(value) for ref in references(value)]
    output_variables = tuple(dict.fromkeys(ref.var for ref in references_used))
    return JoinTree(body, plan, keys, ties, limit, offset, output_variables)


def _counts_rows(value: Expr) -> bool:
    """Whether the value is the number of rows: a row of a join tree binds every variable, so count($x) counts rows."""
    return isinstance(value, AggregateCall) and isinstance(value.argument, Entity) and not value.distinct


def _is_countable(value: Expr, group_keys: list[Expr]) -> bool:
    """Whether the value can be computed by counting over the join tree, without building its rows."""
    match value:
        case AggregateCall(function, Entity()):
            return function == "count"
        case AggregateCall(function, Prop() as prop):
            return is_rankable(prop.type) and (function not in ("sum", "avg") or prop.type.scalar in INTEGER_BOUNDS)
        case Prop():
            grouping_variables = {key.var for key in group_keys if isinstance(key, Entity)}
            return is_rankable(value.type) and (value in group_keys or value.var in grouping_variables)
        case Entity():
            return value in group_keys and value.type.kind == "node"
    return False


def is_rankable(type_: PropType) -> bool:
    """Whether the rank of a value can stand for the value in a column of this type."""
    return type_.scalar in _RANKABLE_SCALARS and not type_.is_list and type_.vector_size is None


# ---- the tree --------------------------------------------------------------------------------------------------------


def _find_body(plan: Plan, catalog: Catalog) -> TreeBody | None:
    excluded: list[tuple[str, TreeBody]] = []
    while isinstance(plan, AntiJoin):
        right = _find_body(plan.right, catalog)
        if right is None or plan.where or plan.null_safe or len(plan.on) != 1:
            return None
        excluded.append((plan.on[0], right))
        plan = plan.left
    leaves = plan.inputs if isinstance(plan, NaturalJoin) else (plan,)
    scans = tuple(leaf for leaf in leaves if isinstance(leaf, Scan))
    links = tuple(leaf for leaf in leaves if isinstance(leaf, Pairs))
    degrees = tuple(leaf for leaf in leaves if isinstance(leaf, Degrees))
    if len(scans) + len(links) + len(degrees) != len(leaves) or not leaves:
        return None
    if any(scan.searches or not all(_is_rank_condition(condition) for condition in scan.where) for scan in scans):
        return None
    types = dict(_variable_types(leaves, catalog))
    if not _is_tree(types, links) or not {var for var, _ in excluded} <= set(types):
        return None
    return TreeBody(types, scans, links, degrees, tuple(excluded))


def _variable_types(leaves: tuple[Plan, ...], catalog: Catalog) -> Iterator[tuple[str, str]]:
    for leaf in leaves:
        match leaf:
            case Scan():
                yield leaf.var, leaf.type.type_id
            case Pairs():
                left, right = _end_types(leaf, catalog)
                yield leaf.left, left
                yield leaf.right, right
            case Degrees():
                left, right = _end_types(leaf, catalog)
                yield leaf.var, left if leaf.end == "left" else right


def _end_types(hop: Pairs | Degrees, catalog: Catalog) -> tuple[str, str]:
    """Returns the node types at the left and the right end."""
    edge = catalog.by_id[hop.edge]
    source, target = edge.source or "", edge.target or ""
    return (target, source) if hop.direction == "backward" else (source, target)


def _is_tree(types: Mapping[str, str], links: tuple[Pairs, ...]) -> bool:
    """Whether the links connect all variables without a cycle: one link fewer than variables, each joins two groups."""
    if len(links) + 1 != len(types):
        return False
    group_of = {var: var for var in types}
    for link in links:
        left, right = group_of[link.left], group_of[link.right]
        if left == right:
            return False
        group_of = {var: right if group == left else group for var, group in group_of.items()}
    return True


def _is_rank_condition(condition: PlanCondition) -> bool:
    """Whether the condition can be decided for each rank of one column."""
    match condition:
        case CheckedNullTest(Prop() as prop, _):
            return is_rankable(prop.type)
        case AnyOf(parts) | AllOf(parts):
            return all(_is_rank_condition(part) for part in parts)
        case CheckedCompare(Prop() as prop, op, Const() | Param() | Now() | ListOf()):
            is_text_test = op in _TEXT_TESTS and prop.type.scalar is Scalar.STRING
            return is_rankable(prop.type) and (op in _RANK_OPERATORS or is_text_test)
        case CheckedCompare(Const() | Param() | Now(), op, Prop() as prop):
            return is_rankable(prop.type) and op in _RANK_OPERATORS and op != "in"
    return False
