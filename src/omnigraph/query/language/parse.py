"""Parses texts to syntax trees. All queries of a text are parsed even if some are wrong, to report all errors.

`CODES` is the table of all codes that findings of the parser, the checker, the binder and lint can have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.errors import InvalidInput, OmnigraphError, ParseError
from omnigraph.query.language.syntax import DeleteSyntax, MutationSyntax, QuerySyntax, SourceSpan
from omnigraph.schema.diagnostics import Diagnostic, Diagnostics, render

if TYPE_CHECKING:
    from lark import Lark

CODES: Mapping[str, str] = {
    # The text itself.
    "Q000": "the text is not in the language",
    "Q001": "two queries of one text have the same name",
    "D2": "one query mixes insert or update with delete",
    # Names.
    "T1": "there is no such node or edge type",
    "T2": "there is no such edge",
    "T3": "the type has no such property",
    "T4": "the variable is not bound here",
    "T5": "the variable is bound twice, or is named like a parameter",
    "T6": "two optional blocks bind the same variable, or one uses a variable of the other",
    # Values and operators.
    "T7": "the operator does not take operands of these types",
    "T8": "the value cannot become the type that is needed here",
    "T9": "the text is not a value of the enum",
    "T10": "a comparison with null never matches",
    "T11": "a Blob is never a query value",
    # Patterns.
    "T12": "the edge does not connect these two types",
    "T13": "the type of the variable cannot be told",
    "T14": "an edge between different types has no either direction",
    "T15": "the bounds of a hop are not 1 or more, low before high",
    "T16": "an edge between different types cannot be followed repeatedly",
    "T17": "an edge variable stands for one edge and cannot have bounds",
    "T18": "a not block uses no variable from outside",
    # Functions.
    "T19": "there is no such function",
    "T20": "the arguments of the function are wrong",
    "T21": "the function cannot be used in this place",
    "T22": "the aggregate does not take this argument",
    "T23": "distinct has no meaning here",
    "T24": "nearest needs a limit",
    "T25": "a rank is ordered best first",
    # Results.
    "T26": "two result columns have the same name",
    "T27": "the result column has no name",
    "T28": "there is no such result column",
    "T29": "the order is not decided by the grouped or distinct rows",
    "T30": "values of this type have no order",
    "T31": "limit and offset take a whole number, 0 or more",
    # Parameters.
    "T32": "two parameters have the same name",
    "T33": "a parameter cannot have this type",
    # Mutations.
    "T34": "the property is given twice",
    "T35": "an insert lacks a required property or a member of the key",
    "T36": "an insert of an edge lacks an end",
    "T37": "the property cannot be set",
    "T38": "null for a property that is required",
    "T39": "a mutation takes literals, parameters and now()",
    # Parameters of one call.
    "P1": "a required parameter is not given",
    "P2": "the query has no such parameter",
    "P3": "the value of a parameter does not fit its type or its use",
    # Warnings of lint; they refuse nothing.
    "L1": "the parameter is not used",
    "L2": "parts of the pattern are not connected: every row of one is paired with every row of the other",
}


E = TypeVar("E", bound=OmnigraphError)

#: How deep brackets may nest. Bounds every recursion over the tree; no real query comes near.
MAX_NESTING = 64
#: How many texts stay parsed, so that a server does not parse the same request again and again.
_REMEMBERED_TEXTS = 256


def parse_queries(source: str, file: str = "<query>") -> list[QuerySyntax]:
    """Every query of the text, in order; an empty text has none.

    Raises `ParseError` with all findings (`Q000`, `Q001`, `D2`) in `details["diagnostics"]`.
    """
    return list(_parse_cached(source, file))


def pick_query(source: str, name: str | None, file: str = "<query>") -> QuerySyntax:
    """The query called `name`, or the only query of the text if `name` is None.

    Raises `InvalidInput` (`which_query`) if the text holds no such query, or several and no name is given.
    """
    queries = parse_queries(source, file)
    names = ", ".join(query.name.text for query in queries) or "none"
    if name is None and len(queries) == 1:
        return queries[0]
    if name is None:
        raise InvalidInput(
            f"the text holds {len(queries)} queries", code="which_query", advice=f"Name one of them: {names}"
        )
    for query in queries:
        if query.name.text == name:
            return query
    raise InvalidInput(f"the text has no query `{name}`", code="which_query", advice=f"It has {names}")


@lru_cache(maxsize=_REMEMBERED_TEXTS)
def _parse_cached(source: str, file: str) -> tuple[QuerySyntax, ...]:
    diagnostics = Diagnostics(source, file)
    queries = parse_into(source, file, diagnostics)
    if diagnostics:
        raise error_with_findings(ParseError, diagnostics)
    return queries


def parse_into(source: str, file: str, diagnostics: Diagnostics) -> tuple[QuerySyntax, ...]:
    """The queries that can be parsed; every finding goes into `diagnostics`."""
    from omnigraph.query.language.syntax_errors import find_too_deep, query_starts, span_between

    text = source.replace("\ufeff", " ", 1) if source.startswith("\ufeff") else source
    too_deep = find_too_deep(text, MAX_NESTING)
    if too_deep is not None:
        span = span_between(text, too_deep, too_deep + 1)
        message = f"brackets nest deeper than {MAX_NESTING}"
        add_finding(diagnostics, "Q000", span, message, "Write it flatter, or as several queries")
        return ()
    queries = _try_parse(text, file, diagnostics, collect=False)
    if queries is None:
        queries = _parse_one_by_one(text, file, diagnostics, query_starts(text))
    _check_unique_names(queries, diagnostics)
    for query in queries:
        _check_not_mixed(query, diagnostics)
    return queries


def add_finding(diagnostics: Diagnostics, code: str, span: SourceSpan, message: str, advice: str | None = None) -> None:
    """Add a finding at a span; only its first line is marked."""
    assert code in CODES, code
    marked = diagnostics.source[span.start : span.end].split("\n", 1)[0].rstrip()
    diagnostics.add(code, message, span.line, span.column, width=max(1, len(marked)), advice=advice)


def error_with_findings(error: type[E], diagnostics: Iterable[Diagnostic]) -> E:
    """The error that carries these findings; the first decides its code."""
    all_diagnostics = list(diagnostics)
    first = all_diagnostics[0]
    count = "one error" if len(all_diagnostics) == 1 else f"{len(all_diagnostics)} errors"
    details: dict[str, Any] = {
        "file": first.file,
        "line": first.line,
        "column": first.column,
        "diagnostics": [diagnostic.to_json() for diagnostic in all_diagnostics],
    }
    text = "\n".join([f"the query text has {count}", *map(render, all_diagnostics)])
    return error(text, code=first.code, **details)


@cache
def parser() -> Lark:
    """The parser, built once; importing lark waits until a text is to be read."""
    from lark import Lark

    grammar = resources.files("omnigraph.query.language").joinpath("query.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", propagate_positions=True, maybe_placeholders=True)


def _try_parse(text: str, file: str, diagnostics: Diagnostics, *, collect: bool) -> tuple[QuerySyntax, ...] | None:
    """Parse the whole text. None if it has an error, which becomes a finding if `collect`."""
    from lark.exceptions import UnexpectedInput

    from omnigraph.query.language.build_tree import BadText, build_query
    from omnigraph.query.language.syntax_errors import explain

    try:
        parsed = parser().parse(text)
        return tuple(build_query(query_tree, diagnostics.source, file) for query_tree in parsed.children)  # type: ignore[arg-type]
    except UnexpectedInput as error:
        if collect:
            finding = explain(error, text)
            add_finding(diagnostics, "Q000", finding.span, finding.message, finding.advice)
    except BadText as error:
        if collect:
            add_finding(diagnostics, "Q000", error.span, error.message, error.advice)
    return None


def _parse_one_by_one(text: str, file: str, diagnostics: Diagnostics, starts: list[int]) -> tuple[QuerySyntax, ...]:
    """Parse each query alone, in its place: everything before it is blanked, so that lines and columns stay."""
    queries: list[QuerySyntax] = []
    cuts = [0, *(offset for offset in starts if offset > 0), len(text)]
    for start, end in pairwise(cuts):
        blanked = re.sub(r"[^\n]", " ", text[:start]) + text[start:end]
        queries.extend(_try_parse(blanked, file, diagnostics, collect=True) or ())
    if not diagnostics:  # each query is right alone, but the whole text is not
        _try_parse(text, file, diagnostics, collect=True)
    return tuple(queries)


def _check_unique_names(queries: Iterable[QuerySyntax], diagnostics: Diagnostics) -> None:
    first_by_name: dict[str, QuerySyntax] = {}
    for query in queries:
        name = query.name.text
        if name in first_by_name:
            line = first_by_name[name].name.span.line
            add_finding(
                diagnostics,
                "Q001",
                query.name.span,
                f"query `{name}` exists already, in line {line}",
                "Rename one of them",
            )
        first_by_name.setdefault(name, query)


def _check_not_mixed(query: QuerySyntax, diagnostics: Diagnostics) -> None:
    if not isinstance(query.body, MutationSyntax):
        return
    statements = query.body.statements
    deletes = [statement for statement in statements if isinstance(statement, DeleteSyntax)]
    if deletes and len(deletes) < len(statements):
        odd = next(
            statement
            for statement in statements
            if isinstance(statement, DeleteSyntax) != isinstance(statements[0], DeleteSyntax)
        )
        add_finding(
            diagnostics,
            "D2",
            odd.span,
            f"query `{query.name.text}` mixes insert or update with delete",
            "Split it into two queries, or run both in one `g.transaction()`, which applies them in order",
        )
