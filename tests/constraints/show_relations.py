"""Relations as text for golden files: one operator per line, its inputs below it."""

from __future__ import annotations

from omnigraph.constraints.relations import (
    ColumnProjection,
    DistinctRows,
    EqualColumns,
    EqualJoin,
    GroupCount,
    GroupExtremes,
    ImageRows,
    MatchCount,
    Relation,
    UnionAll,
    WhereOutside,
    WhereUnequal,
    WithConstant,
    WithMatch,
    WithoutMatch,
    WithoutNulls,
    inputs_of,
)


def show_relation(relation: Relation) -> str:
    return "\n".join(_lines(relation, 0)) + "\n"


def _lines(relation: Relation, depth: int) -> list[str]:
    lines = ["  " * depth + _headline(relation)]
    for input_relation in inputs_of(relation):
        lines += _lines(input_relation, depth + 1)
    return lines


def _headline(relation: Relation) -> str:
    match relation:
        case ImageRows():
            return f"{relation.kind} {relation.table}: {', '.join(relation.columns)}"
        case ColumnProjection():
            return "pick " + ", ".join(name if name == of else f"{of} as {name}" for name, of in relation.names)
        case WithConstant():
            return f"tag {relation.name} = {relation.text!r}"
        case WithoutNulls():
            return f"not null {', '.join(relation.columns)}"
        case WhereUnequal():
            return f"where {relation.left} <> {relation.right}"
        case WhereOutside():
            return f"where {relation.column} not in {relation.low}..{'' if relation.high is None else relation.high}"
        case UnionAll():
            return "union"
        case DistinctRows():
            return "distinct"
        case GroupExtremes():
            ends = f"{relation.least} = least {relation.of}, {relation.greatest} = greatest {relation.of}"
            return f"group by {', '.join(relation.by)}: {ends}"
        case GroupCount():
            return f"group by {', '.join(relation.by)}: {relation.name} = number of rows"
        case MatchCount():
            return f"count {relation.name} of matches {_on(relation.on)}"
        case EqualJoin() | WithMatch() | WithoutMatch():
            word = {EqualJoin: "join", WithMatch: "semi join", WithoutMatch: "anti join"}[type(relation)]
            return f"{word} {_on(relation.on)}"


def _on(on: EqualColumns) -> str:
    return "on " + ", ".join(
        left_column if left_column == right else f"{left_column} = {right}" for left_column, right in on
    )
