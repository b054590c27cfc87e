"""`omnigraph lint`: findings of a text, and for each correct query its parameters, columns, reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from omnigraph.query.language.check import check_into
from omnigraph.query.language.checked import (
    AllOf,
    AnyOf,
    CheckedCompare,
    CheckedQuery,
    CheckedRead,
    Entity,
    Pattern,
    Predicate,
    Prop,
)
from omnigraph.query.language.parse import add_finding, parse_into
from omnigraph.query.language.syntax import QuerySyntax
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.diagnostics import Diagnostic, Diagnostics, render


@dataclass(frozen=True, slots=True)
class QueryReport:
    """One query that checks. `reads` and `writes` use the names users see: `node:Person`, `name`."""

    name: str
    kind: Literal["read", "mutation"]
    params: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, str], ...]
    reads: tuple[tuple[str, tuple[str, ...]], ...]
    writes: tuple[str, ...]
    description: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "params": [{"name": name, "type": type_} for name, type_ in self.params],
            "columns": [{"name": name, "type": type_} for name, type_ in self.columns],
            "reads": {table: list(columns) for table, columns in self.reads},
            "writes": list(self.writes),
            "description": self.description,
        }


@dataclass(frozen=True, slots=True)
class LintReport:
    """Errors refuse a query, warnings do not."""

    file: str
    queries: tuple[QueryReport, ...]
    errors: tuple[Diagnostic, ...]
    warnings: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        return not self.errors

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "ok": self.ok,
            "queries": [item.to_json() for item in self.queries],
            "errors": [item.to_json() for item in self.errors],
            "warnings": [item.to_json() for item in self.warnings],
        }

    def render(self) -> str:
        """All findings for a person."""
        return "\n".join(render(diagnostic) for diagnostic in (*self.errors, *self.warnings))


def lint(source: str, catalog: Catalog, file: str = "<query>") -> LintReport:
    """Check all queries of the text. Findings are in the report; a wrong text never raises."""
    errors, warnings = Diagnostics(source, file), Diagnostics(source, file)
    reports = []
    for query in parse_into(source, file, errors):
        checked = check_into(query, catalog, errors)
        if checked is not None:
            _add_warnings(query, checked, warnings)
            reports.append(_report_query(query, checked, catalog))
    return LintReport(file, tuple(reports), tuple(errors), tuple(warnings))


def _report_query(query: QuerySyntax, checked: CheckedQuery, catalog: Catalog) -> QueryReport:
    types = catalog.by_id
    reads = (
        (types[type_id].table_key, tuple(types[type_id].column_name(column) for column in columns))
        for type_id, columns in checked.reads.items()
    )
    described = [item.args[0] for item in query.annotations if item.name == "description" and item.args]
    return QueryReport(
        checked.name,
        "mutation" if checked.is_mutation else "read",
        tuple((item.name, item.type_text) for item in checked.params),
        tuple((item.name, item.type_text) for item in checked.columns),
        tuple(sorted(reads)),
        tuple(sorted(types[type_id].table_key for type_id in checked.writes)),
        str(described[0]) if described else None,
    )


# ---- warnings --------------------------------------------------------------------------------------------------------


def _add_warnings(query: QuerySyntax, checked: CheckedQuery, warnings: Diagnostics) -> None:
    for param in query.params:
        if param.name.text in checked.unused_params:
            add_finding(warnings, "L1", param.span, f"the parameter `${param.name.text}` is not used", "Remove it")
    if isinstance(checked.body, CheckedRead):
        parts = _group_connected(checked.body.pattern)
        if len(parts) > 1:
            groups = " and ".join(", ".join(f"${name}" for name in sorted(part)) for part in parts)
            add_finding(
                warnings,
                "L2",
                query.name.span,
                f"{groups} are not connected: every row of one is paired with every row of the other",
                "Connect them by a hop or a comparison, or write two queries",
            )


def _group_connected(pattern: Pattern) -> list[set[str]]:
    """The variables that the match itself binds, in groups that hops and comparisons connect."""
    parts = [{variable.name} for variable in pattern.variables]
    for linked in _connections(pattern):
        touched = [part for part in parts if part & linked]
        if touched:
            parts = [part for part in parts if not part & linked] + [set().union(*touched)]
    return parts


def _connections(pattern: Pattern) -> Iterator[set[str]]:
    for hop in pattern.hops:
        yield {hop.left, hop.right} | ({hop.var} if hop.var else set())
    for predicate in pattern.filters:
        yield set(_variables(predicate))


def _variables(predicate: Predicate) -> Iterator[str]:
    match predicate:
        case AnyOf(parts) | AllOf(parts):
            for part in parts:
                yield from _variables(part)
        case CheckedCompare(lhs, _, rhs):
            yield from (side.var for side in (lhs, rhs) if isinstance(side, (Prop, Entity)))
