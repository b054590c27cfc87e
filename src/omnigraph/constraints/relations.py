"""A small relational algebra for the rules that need other rows: immutable values without engine, data or user text.

A change of a graph is seen through five *images* of every table:

    new      rows that the change writes, as they will be
    old      the same rows, and removed ones, as they were
    gone     the ids that the change removes
    kept     committed rows that the change does not touch
    suspect  ids that a screening query picked out; only there if the rules were asked for with `screened`

Relations are bags with named columns. Columns are physical column ids. No operator invents a value but `Tagged`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Image = Literal["new", "old", "gone", "kept", "suspect"]
On = tuple[tuple[str, str], ...]
"""Pairs of a left and a right column that must be equal."""


@dataclass(frozen=True, slots=True)
class Rows:
    """One image of one table, cut to these columns."""

    image: Image
    table: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pick:
    """Columns under new names: `(name, column of the input)`."""

    input: Relation
    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Tagged:
    """The input with one more column, which holds this text in every row."""

    input: Relation
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class NotNull:
    """Rows that have a value in all of these columns."""

    input: Relation
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Differ:
    """Rows whose two columns, neither of them null, are not equal."""

    input: Relation
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Outside:
    """Rows whose number is below `low` or above `high`; None is open."""

    input: Relation
    column: str
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of all inputs, which have the same columns in the same order."""

    inputs: tuple[Relation, ...]


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each row once."""

    input: Relation


@dataclass(frozen=True, slots=True)
class Span:
    """One row per group: the columns of `by`, then the least and the greatest `of` in it."""

    input: Relation
    by: tuple[str, ...]
    of: str
    least: str
    greatest: str


@dataclass(frozen=True, slots=True)
class Tally:
    """One row per group: the columns of `by`, then the number of its rows."""

    input: Relation
    by: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Join:
    """All pairs that agree: the columns of the left, then those of the right that are not compared."""

    left: Relation
    right: Relation
    on: On


@dataclass(frozen=True, slots=True)
class Semi:
    """Rows of the left with a match on the right."""

    left: Relation
    right: Relation
    on: On


@dataclass(frozen=True, slots=True)
class Anti:
    """Rows of the left without a match on the right."""

    left: Relation
    right: Relation
    on: On


@dataclass(frozen=True, slots=True)
class Counted:
    """Rows of the left with the number of their matches on the right, which may be zero."""

    left: Relation
    right: Relation
    on: On
    name: str


Relation = (
    Rows | Pick | Tagged | NotNull | Differ | Outside | Union | Distinct | Span | Tally | Join | Semi | Anti | Counted
)


def columns_of(relation: Relation) -> tuple[str, ...]:
    """The columns that a relation has, in order."""
    match relation:
        case Rows():
            return relation.columns
        case Pick():
            return tuple(name for name, _ in relation.names)
        case Tagged():
            return (*columns_of(relation.input), relation.name)
        case Union():
            return columns_of(relation.inputs[0])
        case Span():
            return (*relation.by, relation.least, relation.greatest)
        case Tally():
            return (*relation.by, relation.name)
        case Join():
            compared = {right for _, right in relation.on}
            added = (column for column in columns_of(relation.right) if column not in compared)
            return (*columns_of(relation.left), *added)
        case Semi() | Anti():
            return columns_of(relation.left)
        case Counted():
            return (*columns_of(relation.left), relation.name)
        case _:
            return columns_of(relation.input)


def inputs_of(relation: Relation) -> tuple[Relation, ...]:
    match relation:
        case Rows():
            return ()
        case Union():
            return relation.inputs
        case Join() | Semi() | Anti() | Counted():
            return relation.left, relation.right
        case _:
            return (relation.input,)


def show_relation(relation: Relation) -> str:
    """Plain text for people and golden files: one operator per line, inputs below it."""
    return "\n".join(_lines(relation, 0)) + "\n"


def _lines(relation: Relation, depth: int) -> list[str]:
    lines = ["  " * depth + _headline(relation)]
    for one in inputs_of(relation):
        lines += _lines(one, depth + 1)
    return lines


def _headline(relation: Relation) -> str:
    match relation:
        case Rows():
            return f"{relation.image} {relation.table}: {', '.join(relation.columns)}"
        case Pick():
            return "pick " + ", ".join(name if name == of else f"{of} as {name}" for name, of in relation.names)
        case Tagged():
            return f"tag {relation.name} = {relation.text!r}"
        case NotNull():
            return f"not null {', '.join(relation.columns)}"
        case Differ():
            return f"where {relation.left} <> {relation.right}"
        case Outside():
            return f"where {relation.column} not in {relation.low}..{'' if relation.high is None else relation.high}"
        case Union():
            return "union"
        case Distinct():
            return "distinct"
        case Span():
            ends = f"{relation.least} = least {relation.of}, {relation.greatest} = greatest {relation.of}"
            return f"group by {', '.join(relation.by)}: {ends}"
        case Tally():
            return f"group by {', '.join(relation.by)}: {relation.name} = number of rows"
        case Counted():
            return f"count {relation.name} of matches {_on(relation.on)}"
        case Join() | Semi() | Anti():
            word = {Join: "join", Semi: "semi join", Anti: "anti join"}[type(relation)]
            return f"{word} {_on(relation.on)}"


def _on(on: On) -> str:
    return "on " + ", ".join(left if left == right else f"{left} = {right}" for left, right in on)
