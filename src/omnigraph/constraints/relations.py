"""A small relational algebra for constraints that need other rows: immutable values without engine, data or user text.

A constraint sees a change of a graph through five *images* of every table:

    new      rows that the change writes, as they will be
    old      the same rows, and removed ones, as they were
    gone     the ids that the change removes
    kept     committed rows that the change does not touch
    suspect  ids that a screening query selected; exists only for constraints compiled with `screened`

Relations are bags of rows with named columns. Columns are physical column ids. Only `WithConstant` adds a new value.
"""

from __future__ import annotations

from typing import Literal

from omnigraph.immutable import Immutable

ImageKind = Literal["new", "old", "gone", "kept", "suspect"]
EqualColumns = tuple[tuple[str, str], ...]
"""Pairs of a left and a right column that must be equal."""


class ImageRows(Immutable):
    """One image of one table, with these columns only."""

    kind: ImageKind
    table: str
    columns: tuple[str, ...]


class ColumnProjection(Immutable):
    """Some columns under new names: `(name, column of the input)`."""

    input: Relation
    names: tuple[tuple[str, str], ...]


class WithConstant(Immutable):
    """The input with one more column that holds this text in every row."""

    input: Relation
    name: str
    text: str


class WithoutNulls(Immutable):
    """Rows that have a value in all of these columns."""

    input: Relation
    columns: tuple[str, ...]


class WhereUnequal(Immutable):
    """Rows whose two columns, neither of them null, are not equal."""

    input: Relation
    left: str
    right: str


class WhereOutside(Immutable):
    """Rows whose number is below `low` or above `high`; None is open."""

    input: Relation
    column: str
    low: int
    high: int | None


class UnionAll(Immutable):
    """All rows of all inputs, which have the same columns in the same order."""

    inputs: tuple[Relation, ...]


class DistinctRows(Immutable):
    """Every different row once."""

    input: Relation


class GroupExtremes(Immutable):
    """One row per group: the columns of `by`, then the least and the greatest value of `of` in the group."""

    input: Relation
    by: tuple[str, ...]
    of: str
    least: str
    greatest: str


class GroupCount(Immutable):
    """One row per group: the columns of `by`, then the number of rows in the group."""

    input: Relation
    by: tuple[str, ...]
    name: str


class EqualJoin(Immutable):
    """All pairs with equal `on` columns: the columns of the left, then those of the right that are not compared."""

    left: Relation
    right: Relation
    on: EqualColumns


class WithMatch(Immutable):
    """Semi-join: rows of the left with a match on the right."""

    left: Relation
    right: Relation
    on: EqualColumns


class WithoutMatch(Immutable):
    """Anti-join: rows of the left without a match on the right."""

    left: Relation
    right: Relation
    on: EqualColumns


class MatchCount(Immutable):
    """Rows of the left with the number of their matches on the right, which may be zero."""

    left: Relation
    right: Relation
    on: EqualColumns
    name: str


Relation = (
    ImageRows
    | ColumnProjection
    | WithConstant
    | WithoutNulls
    | WhereUnequal
    | WhereOutside
    | UnionAll
    | DistinctRows
    | GroupExtremes
    | GroupCount
    | EqualJoin
    | WithMatch
    | WithoutMatch
    | MatchCount
)


def columns_of(relation: Relation) -> tuple[str, ...]:
    """The columns that a relation has, in order."""
    match relation:
        case ImageRows():
            return relation.columns
        case ColumnProjection():
            return tuple(name for name, _ in relation.names)
        case WithConstant():
            return (*columns_of(relation.input), relation.name)
        case UnionAll():
            return columns_of(relation.inputs[0])
        case GroupExtremes():
            return (*relation.by, relation.least, relation.greatest)
        case GroupCount():
            return (*relation.by, relation.name)
        case EqualJoin():
            compared = {right for _, right in relation.on}
            added = (column for column in columns_of(relation.right) if column not in compared)
            return (*columns_of(relation.left), *added)
        case WithMatch() | WithoutMatch():
            return columns_of(relation.left)
        case MatchCount():
            return (*columns_of(relation.left), relation.name)
        case _:
            return columns_of(relation.input)


def inputs_of(relation: Relation) -> tuple[Relation, ...]:
    match relation:
        case ImageRows():
            return ()
        case UnionAll():
            return relation.inputs
        case EqualJoin() | WithMatch() | WithoutMatch() | MatchCount():
            return relation.left, relation.right
        case _:
            return (relation.input,)
