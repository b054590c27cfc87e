"""A checked query as text: identities, directions and types as resolved. Golden files hold these texts."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.query.language.checked import (
    CheckedDelete,
    CheckedInsert,
    CheckedMutation,
    CheckedQuery,
    CheckedRead,
    CheckedStatement,
    CheckedUpdate,
    Hop,
    Pattern,
)
from omnigraph.query.plan.show import show_expr, show_predicate


def show(query: CheckedQuery) -> str:
    """One line per fact, two spaces per level; the same query always gives the same text."""
    kind = "mutation" if query.is_mutation else "read"
    params = ", ".join(f"${param.name}: {param.type_text}" for param in query.params)
    lines = [f"{kind} {query.name}({params})"]
    for slot in query.slots:
        bound = "" if slot.at_least is None else f" at least {slot.at_least}"
        if slot.name != slot.param:
            lines.append(f"  slot {slot.name} = ${slot.param} as {slot.type}{bound}")
    lines.extend("  " + line for line in _body(query.body))
    lines.extend(f"  reads {type_id}: {', '.join(columns)}" for type_id, columns in query.reads.items())
    lines.extend(f"  writes {type_id}" for type_id in query.writes)
    return "\n".join(lines) + "\n"


def _body(body: CheckedRead | CheckedMutation) -> Iterator[str]:
    if isinstance(body, CheckedMutation):
        for statement in body.statements:
            yield from _statement(statement)
        return
    yield "match"
    yield from _indent(_pattern(body.pattern))
    yield "return distinct" if body.distinct else "return"
    for column in body.columns:
        yield f"  {column.name}: {column.type_text} = {show_expr(column.value)}"
    if body.grouping is not None:
        yield f"group by {', '.join(body.columns[position].name for position in body.grouping) or 'nothing'}"
    for key in body.order:
        column_note = "" if key.column is None else f" (column {body.columns[key.column].name})"
        yield f"order {show_expr(key.value)} {'desc' if key.descending else 'asc'}{column_note}"
    for word, value in (("limit", body.limit), ("offset", body.offset)):
        if value is not None:
            yield f"{word} {show_expr(value)}"


def _indent(lines: Iterator[str]) -> Iterator[str]:
    return ("  " + line for line in lines)


def _pattern(pattern: Pattern) -> Iterator[str]:
    for variable in pattern.variables:
        yield f"${variable.name}: {variable.type.type_id}{'?' if variable.optional else ''}"
    for hop in pattern.hops:
        yield _hop(hop)
    for predicate in pattern.filters:
        yield show_predicate(predicate)
    for text in pattern.texts:
        edits = "" if text.edits is None else f", {show_expr(text.edits)}"
        yield f"{text.function}({show_expr(text.prop)}, {show_expr(text.query)}{edits})"
    for word, blocks in (("optional", pattern.optionals), ("not", pattern.nots)):
        for block in blocks:
            yield word
            yield from _indent(_pattern(block))


def _hop(hop: Hop) -> str:
    name = hop.edge if hop.var is None else f"${hop.var}: {hop.edge}"
    bounds = "" if hop.is_plain else f" {{{hop.low},{'' if hop.high is None else hop.high}}}"
    before, after = {"forward": ("-", "->"), "backward": ("<-", "-"), "either": ("-", "-")}[hop.direction]
    return f"${hop.left} {before}[{name}{bounds}]{after} ${hop.right}"


def _statement(statement: CheckedStatement) -> Iterator[str]:
    match statement:
        case CheckedInsert():
            yield f"insert {statement.type.type_id}"
        case CheckedUpdate():
            yield f"update {statement.type.type_id} where {show_predicate(statement.where)}"
        case CheckedDelete():
            yield f"delete {statement.type.type_id} where {show_predicate(statement.where)}"
            return
    for assignment in statement.values:
        column = {"src": "from", "dst": "to"}.get(assignment.column, assignment.column)
        yield f"  {column}: {show_expr(assignment.value)}"
