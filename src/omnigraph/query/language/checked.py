"""A query after checking: every name is resolved to an identity, every expression has a type.

The planner and the executor of mutations need nothing else. Classes that a statement from Python or a syntax tree
also has are called `Checked…`. Columns are property ids, or `id`, `src`, `dst`; types are type
ids; the direction of every hop is decided; parameters are *slots* (see `Param`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from omnigraph.immutable import Immutable
from omnigraph.query.language.statements import CompareOp
from omnigraph.query.language.syntax import AggregateFn
from omnigraph.schema.catalog import EntityKind, PropType, Scalar

Direction = Literal["forward", "backward", "either"]
TextFn = Literal["search", "match_text", "fuzzy"]

STRING = PropType(Scalar.STRING)
BOOL = PropType(Scalar.BOOL)
I64 = PropType(Scalar.I64)
U64 = PropType(Scalar.U64)
F32 = PropType(Scalar.F32)
F64 = PropType(Scalar.F64)
DATE = PropType(Scalar.DATE)
DATETIME = PropType(Scalar.DATETIME)


class EntityType(Immutable):
    """The type of a whole entity: an object of its id and all properties that are not blobs."""

    type_id: str
    name: str
    kind: EntityKind

    def __str__(self) -> str:
        return self.name


ValueType = PropType | EntityType


# ---- expressions -----------------------------------------------------------------------------------------------------


class Prop(Immutable):
    """A column of a bound variable; in the condition of a mutation `var` is empty."""

    var: str
    type_id: str
    column: str
    name: str
    type: PropType
    nullable: bool


class Entity(Immutable):
    """A bound variable as a whole; its identity is its `id`."""

    var: str
    type: EntityType
    nullable: bool


class Const(Immutable):
    """A value in its stored form (`schema.values.convert`); lists are tuples. None only in an assignment."""

    value: Any
    type: PropType
    nullable: bool = False


class Param(Immutable):
    """A parameter's value converted for this use; `bind_params` gives the value of every slot.

    One parameter may have several slots: `$d: String` is text where a String is needed and a date where a Date is.
    """

    slot: str
    type: PropType
    nullable: bool


class Now(Immutable):
    """The instant of the request."""

    type: PropType = DATETIME
    nullable: bool = False


class ListOf(Immutable):
    """A list that holds parameters or `now()`; a list of constants is one `Const`."""

    items: tuple[Const | Param | Now, ...]
    type: PropType
    nullable: bool = False


Value = Const | Param | Now | ListOf


class AggregateCall(Immutable):
    """`function(distinct? argument)`; nulls are skipped, as are rows where an optional entity is missing."""

    function: AggregateFn
    argument: Prop | Entity
    distinct: bool
    type: PropType
    nullable: bool


class Bm25(Immutable):
    """Relevance of a text; higher is better."""

    prop: Prop
    query: Const | Param
    type: PropType = F64
    nullable: bool = True


class Nearest(Immutable):
    """Distance of a vector; lower is better. A query of type String is to be embedded first, by `model` if given."""

    prop: Prop
    query: Const | Param
    metric: str
    model: str | None
    type: PropType = F64
    nullable: bool = True

    @property
    def embeds(self) -> bool:
        return self.query.type == STRING


class Rrf(Immutable):
    """Reciprocal rank fusion of two ranks with constant `k`; higher is better."""

    first: Bm25 | Nearest
    second: Bm25 | Nearest
    k: Const | Param
    type: PropType = F64
    nullable: bool = True


Rank = Bm25 | Nearest | Rrf
Expr = Prop | Entity | Const | Param | Now | ListOf | AggregateCall | Bm25 | Nearest | Rrf


# ---- patterns --------------------------------------------------------------------------------------------------------


class BoundVariable(Immutable):
    """A variable and the type of what it stands for. `optional`: an enclosing optional block may leave it empty."""

    name: str
    type: EntityType
    optional: bool


class Hop(Immutable):
    """Edges between two node variables. `forward`: `left` is the source of the edge.

    Without `var` a set of pairs; with it one row per stored edge. `low` and `high` are 1 for a plain hop; no `high` is
    unbounded up to the configured ceiling.
    """

    left: str
    right: str
    edge: str
    direction: Direction
    var: str | None
    low: int
    high: int | None

    @property
    def is_plain(self) -> bool:
        return self.low == 1 and self.high == 1


class CheckedCompare(Immutable):
    """`left op right`; a null operand never matches. Entities are compared by id."""

    left: Expr
    op: CompareOp
    right: Expr


class CheckedNullTest(Immutable):
    """True or false for every operand, never unknown."""

    operand: Expr
    negated: bool


class AllOf(Immutable):
    """All parts hold; only in the conditions of mutations."""

    parts: tuple[Predicate, ...]


class AnyOf(Immutable):
    """At least one part holds."""

    parts: tuple[Predicate, ...]


Predicate = CheckedCompare | CheckedNullTest | AllOf | AnyOf


class TextFilter(Immutable):
    """`search` any term, `match_text` the phrase, `fuzzy` any term within `edits` edits."""

    function: TextFn
    prop: Prop
    query: Const | Param
    edits: Const | Param | None = None


class Pattern(Immutable):
    """One scope. `variables` are those it introduces; it may use those of the scopes around it.

    Rows: the hops and nodes joined, then each optional block joined on the left, then filters, texts and `nots`.
    """

    variables: tuple[BoundVariable, ...]
    hops: tuple[Hop, ...] = ()
    filters: tuple[Predicate, ...] = ()
    texts: tuple[TextFilter, ...] = ()
    optionals: tuple[Pattern, ...] = ()
    nots: tuple[Pattern, ...] = ()


# ---- results ---------------------------------------------------------------------------------------------------------


class ReturnColumn(Immutable):
    """One column of the result."""

    name: str
    value: Expr

    @property
    def type(self) -> ValueType:
        return self.value.type

    @property
    def nullable(self) -> bool:
        return self.value.nullable

    @property
    def type_text(self) -> str:
        return f"{self.type}?" if self.nullable else str(self.type)


class OrderBy(Immutable):
    """One key of the order; `column` is its position in the result if it is returned."""

    value: Expr
    descending: bool
    column: int | None


class CheckedRead(Immutable):
    """`grouping` are the positions of the columns that form the groups; None if there is no aggregate.

    An empty grouping is one group, which exists even without rows.
    """

    pattern: Pattern
    columns: tuple[ReturnColumn, ...]
    distinct: bool
    grouping: tuple[int, ...] | None
    order: tuple[OrderBy, ...]
    limit: Const | Param | None
    offset: Const | Param | None


# ---- writing ---------------------------------------------------------------------------------------------------------


class Assignment(Immutable):
    """A value for a column; `column` is a property id, or in an insert also `id`, `src` and `dst`."""

    column: str
    value: Value


class CheckedInsert(Immutable):
    """A node, or an edge whose `values` hold both ends (node ids)."""

    type: EntityType
    values: tuple[Assignment, ...]


class CheckedUpdate(Immutable):
    """Set `values` in every row where the condition holds."""

    type: EntityType
    values: tuple[Assignment, ...]
    where: Predicate


class CheckedDelete(Immutable):
    """Remove every row where the condition holds."""

    type: EntityType
    where: Predicate


class CheckedOverwrite(Immutable):
    """Replace all rows of a type. Only Python callers can overwrite.

    Rows are checked while they are read, after the old rows: an overwrite that is too large says so first.
    """

    type: EntityType
    rows: Iterable[CheckedInsert]


CheckedStatement = CheckedInsert | CheckedUpdate | CheckedDelete


class CheckedMutation(Immutable):
    """Statements in order; each sees what the earlier ones did."""

    statements: tuple[CheckedStatement, ...]


# ---- the query -------------------------------------------------------------------------------------------------------


class Parameter(Immutable):
    """A parameter as declared."""

    name: str
    type: PropType
    nullable: bool

    @property
    def type_text(self) -> str:
        return f"{self.type}?" if self.nullable else str(self.type)


class Slot(Immutable):
    """One converted form of a parameter. `at_least` bounds numbers that count: limits, edits, the k of rrf."""

    name: str
    param: str
    type: PropType
    at_least: int | None = None


class CheckedQuery(Immutable):
    """A query that fits the schema it was checked against.

    `reads` holds the columns read per type id, `writes` the type ids written, cascades of deletes included.
    """

    name: str
    params: tuple[Parameter, ...]
    slots: tuple[Slot, ...]
    body: CheckedRead | CheckedMutation
    reads: Mapping[str, tuple[str, ...]]
    writes: tuple[str, ...]
    unused_params: tuple[str, ...] = ()

    @property
    def is_mutation(self) -> bool:
        return isinstance(self.body, CheckedMutation)

    @property
    def columns(self) -> tuple[ReturnColumn, ...]:
        return self.body.columns if isinstance(self.body, CheckedRead) else ()
