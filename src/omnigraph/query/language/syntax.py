"""The syntax tree of a query as written: names are text, nothing is resolved, every node has its span.

Every class of the tree is called `…Syntax`; the checked form of the same construct stands in `checked`.

`$name` may be a variable or a parameter; the checker tells them apart. Words of functions are kept as written, so
that an unknown one is reported as such and not as a syntax error.
"""

from __future__ import annotations

from typing import Literal

from omnigraph.immutable import Immutable
from omnigraph.query.language.statements import CompareOp
from omnigraph.schema.catalog import Annotation

Sorted = Literal["asc", "desc"]
AggregateFn = Literal["count", "sum", "avg", "min", "max"]

AGGREGATES: tuple[AggregateFn, ...] = ("count", "sum", "avg", "min", "max")


class SourceSpan(Immutable):
    """A piece of the source: offsets in characters, and the line and column (from 1) where it begins."""

    start: int
    end: int
    line: int
    column: int


class NameSyntax(Immutable):
    """A name where it was written."""

    text: str
    span: SourceSpan


# ---- expressions -----------------------------------------------------------------------------------------------------


class LiteralSyntax(Immutable):
    """Text, a number, a truth value or null."""

    value: str | int | float | bool | None
    span: SourceSpan


class DateLiteralSyntax(Immutable):
    """`date("…")` or `datetime("…")`; whether the text is a date is for the checker to say."""

    kind: Literal["date", "datetime"]
    text: str
    span: SourceSpan


class ListSyntax(Immutable):
    """`[a, b]`."""

    items: tuple[ExprSyntax, ...]
    span: SourceSpan


class NowSyntax(Immutable):
    """`now()`: one instant per request."""

    span: SourceSpan


class VariableSyntax(Immutable):
    """`$name`, a variable or a parameter; `name` is without the dollar."""

    name: str
    span: SourceSpan


class PropertySyntax(Immutable):
    """`$variable.property`."""

    variable: NameSyntax
    property: NameSyntax
    span: SourceSpan


class AliasSyntax(Immutable):
    """A bare name: a result column, in `order`."""

    name: str
    span: SourceSpan


class AggregateSyntax(Immutable):
    """`count(distinct $x)` and its like, with exactly one argument."""

    function: AggregateFn
    argument: ExprSyntax
    distinct: bool
    span: SourceSpan


class ArgumentSyntax(Immutable):
    """One argument of a call, named or by position."""

    value: ExprSyntax
    name: NameSyntax | None = None


class CallSyntax(Immutable):
    """A call that is no aggregate, no date literal and not `now()`.

    That is text search, rank, or a call with an unknown name or wrong arguments, which the check refuses.
    """

    function: NameSyntax
    arguments: tuple[ArgumentSyntax, ...]
    distinct: bool
    span: SourceSpan


#: Expressions that take their type from their position: literals and, if the variable is one, parameters.
UntypedSyntax = LiteralSyntax | DateLiteralSyntax | ListSyntax | VariableSyntax
ExprSyntax = UntypedSyntax | NowSyntax | PropertySyntax | AliasSyntax | AggregateSyntax | CallSyntax


# ---- clauses of match ------------------------------------------------------------------------------------------------


class PairSyntax(Immutable):
    """`property: value`, inline in a binding or assigned by a mutation."""

    name: NameSyntax
    value: ExprSyntax


class BindingSyntax(Immutable):
    """`$v: Type { p: v }`."""

    variable: NameSyntax
    type: NameSyntax
    inline: tuple[PairSyntax, ...]
    span: SourceSpan


class BoundsSyntax(Immutable):
    """`{low,high}`; no high is no bound."""

    low: int | float
    high: int | float | None
    span: SourceSpan


class TraversalSyntax(Immutable):
    """`$left $e: edge{1,3} $right`; undirected is `<edge>`."""

    left: NameSyntax
    edge: NameSyntax
    right: NameSyntax
    variable: NameSyntax | None
    bounds: BoundsSyntax | None
    undirected: bool
    span: SourceSpan


class FilterSyntax(Immutable):
    """`left op right`."""

    left: ExprSyntax
    op: CompareOp
    right: ExprSyntax
    span: SourceSpan


class NullTestSyntax(Immutable):
    """`expr is null`, or `is not null` when negated."""

    operand: ExprSyntax
    negated: bool
    span: SourceSpan


class AnyOfSyntax(Immutable):
    """`( filter or filter … )`."""

    parts: tuple[FilterSyntax | NullTestSyntax | AnyOfSyntax, ...]
    span: SourceSpan


class TextCallSyntax(Immutable):
    """A function used as a clause: `search`, `match_text`, `fuzzy`."""

    call: CallSyntax | AggregateSyntax | DateLiteralSyntax | NowSyntax
    span: SourceSpan


class NotSyntax(Immutable):
    """`not { … }`: no such rows."""

    clauses: tuple[ClauseSyntax, ...]
    span: SourceSpan


class OptionalSyntax(Immutable):
    """`optional { … }`: such rows if there are any."""

    clauses: tuple[ClauseSyntax, ...]
    span: SourceSpan


PredicateSyntax = FilterSyntax | NullTestSyntax | AnyOfSyntax
ClauseSyntax = BindingSyntax | TraversalSyntax | PredicateSyntax | TextCallSyntax | NotSyntax | OptionalSyntax


# ---- reading ---------------------------------------------------------------------------------------------------------


class ProjectionSyntax(Immutable):
    """`distinct? expr (as alias)?`."""

    value: ExprSyntax
    alias: NameSyntax | None
    distinct: bool
    span: SourceSpan


class OrderSyntax(Immutable):
    """`expr (asc | desc)?`; None where neither was written."""

    value: ExprSyntax
    direction: Sorted | None
    span: SourceSpan


class ReadSyntax(Immutable):
    """`match … return … order … limit … offset …`."""

    clauses: tuple[ClauseSyntax, ...]
    projections: tuple[ProjectionSyntax, ...]
    order: tuple[OrderSyntax, ...]
    limit: LiteralSyntax | VariableSyntax | None
    offset: LiteralSyntax | VariableSyntax | None
    span: SourceSpan


# ---- writing ---------------------------------------------------------------------------------------------------------


class ColumnCompareSyntax(Immutable):
    """`property op value` in a `where`."""

    name: NameSyntax
    op: CompareOp
    value: ExprSyntax
    span: SourceSpan


class ColumnNullSyntax(Immutable):
    """`property is null` in a `where`."""

    name: NameSyntax
    negated: bool
    span: SourceSpan


class AndSyntax(Immutable):
    """All parts hold; binds tighter than `or`."""

    parts: tuple[ConditionSyntax, ...]


class OrSyntax(Immutable):
    """At least one part holds."""

    parts: tuple[ConditionSyntax, ...]


ConditionSyntax = ColumnCompareSyntax | ColumnNullSyntax | AndSyntax | OrSyntax


class InsertSyntax(Immutable):
    """`insert Type { … }`."""

    type: NameSyntax
    values: tuple[PairSyntax, ...]
    span: SourceSpan


class UpdateSyntax(Immutable):
    """`update Type set { … } where …`."""

    type: NameSyntax
    values: tuple[PairSyntax, ...]
    where: ConditionSyntax
    span: SourceSpan


class DeleteSyntax(Immutable):
    """`delete Type where …`."""

    type: NameSyntax
    where: ConditionSyntax
    span: SourceSpan


StatementSyntax = InsertSyntax | UpdateSyntax | DeleteSyntax


class MutationSyntax(Immutable):
    """One or more statements: inserts and updates, or deletes, never both."""

    statements: tuple[StatementSyntax, ...]
    span: SourceSpan


# ---- the query -------------------------------------------------------------------------------------------------------


class ParamSyntax(Immutable):
    """`$name: Type?`. `size` is set for `Vector(size)`; `type` is the word as written."""

    name: NameSyntax
    type: NameSyntax
    is_list: bool
    size: int | float | None
    nullable: bool
    span: SourceSpan


class QuerySyntax(Immutable):
    """One query of a file. `source` and `file` are the whole text, for excerpts in diagnostics."""

    name: NameSyntax
    params: tuple[ParamSyntax, ...]
    annotations: tuple[Annotation, ...]
    body: ReadSyntax | MutationSyntax
    span: SourceSpan
    source: str
    file: str

    @property
    def is_mutation(self) -> bool:
        return isinstance(self.body, MutationSyntax)
