"""The relational plan of a reading query: immutable nodes that hold no engine, no data and no user text.

Rows are assignments of variables. Every node *provides* variables: their keys, and of some of them further columns.
Joins are natural: two inputs meet on the variables that both provide, so that a plan has no join conditions to get
wrong. Expressions and predicates are those of the checked query; a variable's name is unique in the whole plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeGuard

from omnigraph.query.language import checked as c

#: The identity of an entity inside a plan. Engines may code it as they like; `id` is the user's.
KEY = "key"

Computed = c.TextFilter | c.Bm25 | c.Nearest
"""A value that no column holds: what a search says about a row."""

Condition = c.Predicate | c.TextFilter


@dataclass(frozen=True, slots=True)
class Scan:
    """The nodes of a type. `where` holds for every row; an engine may use any part of it to read less."""

    var: str
    type: c.EntityType
    columns: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    computed: tuple[Computed, ...] = ()


@dataclass(frozen=True, slots=True)
class Pairs:
    """Node pairs that an edge connects. With `distinct` each pair once, else once or more often.

    `ids` names the ends whose user-visible id is needed though no scan provides it.
    """

    left: str
    right: str
    edge: str
    direction: c.Direction
    distinct: bool = True
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Edges:
    """One row per stored edge, two where it can be read both ways between different nodes."""

    var: str
    type: c.EntityType
    left: str
    right: str
    direction: c.Direction
    columns: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    computed: tuple[Computed, ...] = ()
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reach:
    """Pairs at a shortest distance of `low` to `high`, breadth first; `high` None is up to the ceiling."""

    left: str
    right: str
    edge: str
    direction: c.Direction
    low: int
    high: int | None
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Degrees:
    """How many pairs of a hop each node at one end has; nodes without any are left out.

    Stands for `Pairs` whose other end nobody looks at. `weight` names the number for `Aggregate.weights`.
    """

    var: str
    edge: str
    direction: c.Direction
    end: Literal["left", "right"]
    weight: str
    ids: tuple[str, ...] = ()


Hop = Pairs | Edges | Reach
Leaf = Scan | Pairs | Edges | Reach | Degrees


@dataclass(frozen=True, slots=True)
class Join:
    """All combinations of rows that agree on shared variables, in this order."""

    inputs: tuple[Plan, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows for which every condition is true."""

    input: Plan
    where: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class LeftJoin:
    """Rows of `left`, each with its matches in `right`, or with nulls.

    Rows match if they agree on the variables of `on` and `where` holds. `null_safe`: a missing entity agrees with a
    missing one.
    """

    left: Plan
    right: Plan
    on: tuple[str, ...]
    where: tuple[Condition, ...] = ()
    null_safe: bool = False


@dataclass(frozen=True, slots=True)
class AntiJoin:
    """Rows of `left` that have no match in `right`, in the sense of `LeftJoin`."""

    left: Plan
    right: Plan
    on: tuple[str, ...]
    where: tuple[Condition, ...] = ()
    null_safe: bool = False


@dataclass(frozen=True, slots=True)
class Narrow:
    """Only these variables, each assignment once; what a block is joined with if it looks at outer columns."""

    input: Plan
    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fuse:
    """Adds the fused ranks, which depend on all rows."""

    input: Plan
    ranks: tuple[c.Rrf, ...]


@dataclass(frozen=True, slots=True)
class Project:
    """The result columns, one row per input row."""

    input: Plan
    columns: tuple[c.Column, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row per group; `keys` are the places of the grouping columns. No keys: one group, even without rows.

    Without aggregates among the columns this is `distinct`. An input row stands for as many rows as the product of its
    `weights` says.
    """

    input: Plan
    columns: tuple[c.Column, ...]
    keys: tuple[int, ...]
    weights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sort:
    """Nulls first ascending, last descending, but a missing rank is the worst; then `ties`, which make it total."""

    input: Plan
    keys: tuple[c.OrderBy, ...]
    ties: tuple[c.Expr, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """A window of the rows."""

    input: Plan
    limit: c.Const | c.Param | None
    offset: c.Const | c.Param | None


@dataclass(frozen=True, slots=True)
class TopK:
    """`Sort` and `Limit` in one."""

    input: Plan
    keys: tuple[c.OrderBy, ...]
    ties: tuple[c.Expr, ...]
    limit: c.Const | c.Param
    offset: c.Const | c.Param | None


Plan = (
    Scan
    | Pairs
    | Edges
    | Reach
    | Degrees
    | Join
    | Filter
    | LeftJoin
    | AntiJoin
    | Narrow
    | Fuse
    | Project
    | Aggregate
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
        case Join(inputs):
            return inputs
        case LeftJoin() | AntiJoin():
            return plan.left, plan.right
        case _:
            return (plan.input,)


def with_children(plan: Plan, new: tuple[Plan, ...]) -> Plan:
    """The same node over other inputs; the node itself if they are the same objects."""
    if all(one is two for one, two in zip(children(plan), new, strict=True)):
        return plan
    match plan:
        case Scan() | Pairs() | Edges() | Reach() | Degrees():
            return plan
        case Join():
            return Join(new)
        case LeftJoin() | AntiJoin():
            return replace(plan, left=new[0], right=new[1])
        case _:
            return replace(plan, input=new[0])


def leaves(plan: Plan) -> Iterator[Leaf]:
    """In the order of the plan; a leaf that stands in two places comes twice."""
    if is_leaf(plan):
        yield plan
    for one in children(plan):
        yield from leaves(one)


def provides(plan: Plan) -> tuple[str, ...]:
    """The variables whose keys the rows have."""
    match plan:
        case Scan() | Degrees():
            return (plan.var,)
        case Pairs() | Reach():
            return tuple(dict.fromkeys((plan.left, plan.right)))
        case Edges():
            return tuple(dict.fromkeys((plan.var, plan.left, plan.right)))
        case AntiJoin():
            return provides(plan.left)
        case Narrow():
            return plan.variables
    return tuple(dict.fromkeys(var for one in children(plan) for var in provides(one)))
