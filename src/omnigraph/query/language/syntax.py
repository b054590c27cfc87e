"""The syntax tree of a query as written: names are text, nothing is resolved, every node knows its place.

`$name` may be a variable or a parameter; the checker tells them apart. Words of functions are kept as written, so
that an unknown one is reported as such and not as a syntax error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as Lit

from omnigraph.schema.catalog import Annotation

CompareOp = Lit["=", "!=", "<", "<=", ">", ">=", "contains", "starts_with", "in"]
Sorted = Lit["asc", "desc"]
AggregateFn = Lit["count", "sum", "avg", "min", "max"]

AGGREGATES: tuple[AggregateFn, ...] = ("count", "sum", "avg", "min", "max")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of the source: offsets in characters, and the line and column (from 1) where it begins."""

    start: int
    end: int
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Name:
    """A name where it was written."""

    text: str
    span: Span


# ---- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal:
    """Text, a number, a truth value or null."""

    value: str | int | float | bool | None
    span: Span


@dataclass(frozen=True, slots=True)
class DateLiteral:
    """`date("…")` or `datetime("…")`; whether the text is a date is for the checker to say."""

    kind: Lit["date", "datetime"]
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """`[a, b]`."""

    items: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Now:
    """`now()`: one instant per request."""

    span: Span


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name`, a variable or a parameter; `name` is without the dollar."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class PropertyRef:
    """`$variable.property`."""

    variable: Name
    property: Name
    span: Span


@dataclass(frozen=True, slots=True)
class Alias:
    """A bare name: a result column, in `order`."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`count(distinct $x)` and its like, with exactly one argument."""

    function: AggregateFn
    argument: Expr
    distinct: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a call, named or by place."""

    value: Expr
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """Any other function: text search, rank, or one that does not exist."""

    function: Name
    arguments: tuple[Argument, ...]
    distinct: bool
    span: Span


Expr = Literal | DateLiteral | ListLiteral | Now | Variable | PropertyRef | Alias | Aggregate | Call


# ---- clauses of match ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pair:
    """`property: value`, inline in a binding or assigned by a mutation."""

    name: Name
    value: Expr


@dataclass(frozen=True, slots=True)
class Binding:
    """`$v: Type { p: v }`."""

    variable: Name
    type: Name
    inline: tuple[Pair, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Bounds:
    """`{low,high}`; no high is no bound."""

    low: int | float
    high: int | float | None
    span: Span


@dataclass(frozen=True, slots=True)
class Traversal:
    """`$left $e: edge{1,3} $right`; undirected is `<edge>`."""

    left: Name
    edge: Name
    right: Name
    variable: Name | None
    bounds: Bounds | None
    undirected: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Filter:
    """`left op right`."""

    left: Expr
    op: CompareOp
    right: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class NullTest:
    """`expr is null`, or `is not null` when negated."""

    operand: Expr
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class AnyOf:
    """`( filter or filter … )`."""

    parts: tuple[Filter | NullTest | AnyOf, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class TextCall:
    """A function used as a clause: `search`, `match_text`, `fuzzy`."""

    call: Call | Aggregate | DateLiteral | Now
    span: Span


@dataclass(frozen=True, slots=True)
class Not:
    """`not { … }`: no such rows."""

    clauses: tuple[Clause, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Optional:
    """`optional { … }`: such rows if there are any."""

    clauses: tuple[Clause, ...]
    span: Span


Predicate = Filter | NullTest | AnyOf
Clause = Binding | Traversal | Filter | NullTest | AnyOf | TextCall | Not | Optional


# ---- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Projection:
    """`distinct? expr (as alias)?`."""

    value: Expr
    alias: Name | None
    distinct: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Order:
    """`expr (asc | desc)?`; None where neither was written."""

    value: Expr
    direction: Sorted | None
    span: Span


@dataclass(frozen=True, slots=True)
class ReadBody:
    """`match … return … order … limit … offset …`."""

    clauses: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    order: tuple[Order, ...]
    limit: Literal | Variable | None
    offset: Literal | Variable | None
    span: Span


# ---- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnCompare:
    """`property op value` in a `where`."""

    name: Name
    op: CompareOp
    value: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class ColumnNull:
    """`property is null` in a `where`."""

    name: Name
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class And:
    """All parts hold; binds tighter than `or`."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part holds."""

    parts: tuple[Condition, ...]


Condition = ColumnCompare | ColumnNull | And | Or


@dataclass(frozen=True, slots=True)
class Insert:
    """`insert Type { … }`."""

    type: Name
    values: tuple[Pair, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Update:
    """`update Type set { … } where …`."""

    type: Name
    values: tuple[Pair, ...]
    where: Condition
    span: Span


@dataclass(frozen=True, slots=True)
class Delete:
    """`delete Type where …`."""

    type: Name
    where: Condition
    span: Span


Statement = Insert | Update | Delete


@dataclass(frozen=True, slots=True)
class MutationBody:
    """One or more statements: inserts and updates, or deletes, never both."""

    statements: tuple[Statement, ...]
    span: Span


# ---- the query -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Param:
    """`$name: Type?`. `size` is set for `Vector(size)`; `type` is the word as written."""

    name: Name
    type: Name
    is_list: bool
    size: int | float | None
    nullable: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a file. `source` and `file` are the whole text, for excerpts in diagnostics."""

    name: Name
    params: tuple[Param, ...]
    annotations: tuple[Annotation, ...]
    body: ReadBody | MutationBody
    span: Span
    source: str
    file: str

    @property
    def is_mutation(self) -> bool:
        return isinstance(self.body, MutationBody)
