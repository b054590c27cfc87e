"""The relational plan of a reading query: immutable nodes without engine, data or user text.

A row assigns entities to variables. Every node *provides* variables: the keys of their entities, and further columns of
some. Joins are natural: inputs are joined on the variables that both provide, so a plan needs no join conditions.
Expressions and predicates are those of the checked query; a variable's name is unique in the whole plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeGuard

from omnigraph.immutable import Immutable
from omnigraph.query.language.checked import (
    Bm25,
    Const,
    Direction,
    EntityType,
    Expr,
    Nearest,
    OrderBy,
    Param,
    Predicate,
    ReturnColumn,
    Rrf,
    TextFilter,
)

#: Column name of an entity's identity inside a plan. An engine chooses its coding; the column `id` is what users see.
KEY = "key"

Search = TextFilter | Bm25 | Nearest
"""A value that is computed by searching a column, not stored in one."""

PlanCondition = Predicate | TextFilter
"""What rows must satisfy; both kinds come from the checked query."""


class Scan(Immutable):
    """The nodes of one type that satisfy `where`. An engine may use any part of `where` to read fewer rows."""

    var: str
    type: EntityType
    columns: tuple[str, ...] = ()
    where: tuple[PlanCondition, ...] = ()
    searches: tuple[Search, ...] = ()


class Pairs(Immutable):
    """Node pairs that edges of one type connect: each pair once if `distinct`.

    Otherwise pairs are possibly repeated, and the reader must not count them.
    `ids` names the ends whose user-visible id is needed and that no scan provides.
    """

    left: str
    right: str
    edge: str
    direction: Direction
    distinct: bool = True
    ids: tuple[str, ...] = ()


class Edges(Immutable):
    """One row per stored edge; with direction `either` a second one that swaps the ends, except for a loop."""

    var: str
    type: EntityType
    left: str
    right: str
    direction: Direction
    columns: tuple[str, ...] = ()
    where: tuple[PlanCondition, ...] = ()
    searches: tuple[Search, ...] = ()
    ids: tuple[str, ...] = ()


class Reach(Immutable):
    """Pairs whose shortest distance is `low` to `high` hops; without `high` the query limit is the ceiling."""

    left: str
    right: str
    edge: str
    direction: Direction
    low: int
    high: int | None
    ids: tuple[str, ...] = ()


class Degrees(Immutable):
    """Number of pairs of each node at one end of a hop; nodes without pairs have no row.

    Replaces `Pairs` whose other end is only counted. `weight` is the name of the number in `Aggregation.weights`.
    """

    var: str
    edge: str
    direction: Direction
    end: Literal["left", "right"]
    weight: str
    ids: tuple[str, ...] = ()


HopLeaf = Pairs | Edges | Reach
Leaf = Scan | Pairs | Edges | Reach | Degrees


class NaturalJoin(Immutable):
    """All combinations of rows that agree on shared variables. Without inputs: one row without variables."""

    inputs: tuple[Plan, ...]


class Selection(Immutable):
    """Rows for which every condition is true."""

    input: Plan
    where: tuple[PlanCondition, ...]


class LeftJoin(Immutable):
    """Rows of `left`, each with its matches in `right`, or with nulls if it has none.

    Rows match if they agree on the variables of `on` and satisfy `where`. `null_safe`: two missing entities agree.
    """

    left: Plan
    right: Plan
    on: tuple[str, ...]
    where: tuple[PlanCondition, ...] = ()
    null_safe: bool = False


class AntiJoin(Immutable):
    """Rows of `left` that have no match in `right`, in the sense of `LeftJoin`."""

    left: Plan
    right: Plan
    on: tuple[str, ...]
    where: tuple[PlanCondition, ...] = ()
    null_safe: bool = False


class DistinctVariables(Immutable):
    """Only these variables, each assignment once: input of an optional or negated block that depends on outer rows.

    Such a block has only conditions on outer variables, or a block nested in it uses outer variables.
    """

    input: Plan
    variables: tuple[str, ...]


class RankFusion(Immutable):
    """Adds fused ranks, which depend on all rows of the input."""

    input: Plan
    ranks: tuple[Rrf, ...]


class Project(Immutable):
    """The result columns, one row per input row."""

    input: Plan
    columns: tuple[ReturnColumn, ...]


class Aggregation(Immutable):
    """One row per group; `keys` are the positions of the grouping columns. Without keys: one group, even without rows.

    Without aggregates among the columns this is `distinct`. An input row counts as often as the product of its
    `weights`.
    """

    input: Plan
    columns: tuple[ReturnColumn, ...]
    keys: tuple[int, ...]
    weights: tuple[str, ...] = ()


class Sort(Immutable):
    """Nulls are first ascending and last descending, but a missing rank is always last; `ties` make the order total."""

    input: Plan
    keys: tuple[OrderBy, ...]
    ties: tuple[Expr, ...]


class Limit(Immutable):
    """A window of the rows."""

    input: Plan
    limit: Const | Param | None
    offset: Const | Param | None


class TopK(Immutable):
    """`Sort` and `Limit` in one."""

    input: Plan
    keys: tuple[OrderBy, ...]
    ties: tuple[Expr, ...]
    limit: Const | Param
    offset: Const | Param | None


Plan = (
    Scan
    | Pairs
    | Edges
    | Reach
    | Degrees
    | NaturalJoin
    | Selection
    | LeftJoin
    | AntiJoin
    | DistinctVariables
    | RankFusion
    | Project
    | Aggregation
    | Sort
    | Limit
    | TopK
)


def is_leaf(plan: Plan) -> TypeGuard[Leaf]:
    return isinstance(plan, (Scan, Pairs, Edges, Reach, Degrees))


def children(plan: Plan) -> tuple[Plan, ...]:
    match plan:
        case Scan() | Pairs() | Edges() | Reach() | Degrees():
            return ()
        case NaturalJoin(inputs):
            return inputs
        case LeftJoin() | AntiJoin():
            return plan.left, plan.right
        case _:
            return (plan.input,)


def with_children(plan: Plan, new: tuple[Plan, ...]) -> Plan:
    """Returns the same node over new inputs, or the node itself if the inputs are the same objects."""
    if all(old_child is new_child for old_child, new_child in zip(children(plan), new, strict=True)):
        return plan
    match plan:
        case Scan() | Pairs() | Edges() | Reach() | Degrees():
            return plan
        case NaturalJoin():
            return NaturalJoin(new)
        case LeftJoin() | AntiJoin():
            return replace(plan, left=new[0], right=new[1])
        case _:
            return replace(plan, input=new[0])


def provides(plan: Plan) -> tuple[str, ...]:
    """Returns the variables whose keys the rows of `plan` have."""
    match plan:
        case Scan() | Degrees():
            return (plan.var,)
        case Pairs() | Reach():
            return tuple(dict.fromkeys((plan.left, plan.right)))
        case Edges():
            return tuple(dict.fromkeys((plan.var, plan.left, plan.right)))
        case AntiJoin():
            return provides(plan.left)
        case DistinctVariables():
            return plan.variables
    return tuple(dict.fromkeys(var for child in children(plan) for var in provides(child)))
