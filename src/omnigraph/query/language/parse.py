"""Text to syntax trees. All queries of a text are parsed even if some are wrong, so that all errors show at once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from omnigraph.errors import InvalidInput, ParseError
from omnigraph.query.language.codes import CODES
from omnigraph.query.language.syntax import DeleteSyntax, MutationSyntax, QuerySyntax, SourceSpan
from omnigraph.schema.diagnostics import Diagnostic, Diagnostics, render

if TYPE_CHECKING:
    from lark import Lark

#: Brackets inside brackets. Far more than anybody writes; keeps every later recursion small.
MAX_NESTING = 64
#: Texts kept parsed, so that a server does not parse the same request again and again.
_REMEMBERED_TEXTS = 256


def parse_queries(source: str, file: str = "<query>") -> list[QuerySyntax]:
    """Every query of the text, in order; an empty text has none.

    Raises `ParseError` with all findings (`Q000`, `Q001`, `D2`) in `details["diagnostics"]`.
    """
    return list(_parsed(source, file))


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
def _parsed(source: str, file: str) -> tuple[QuerySyntax, ...]:
    found = Diagnostics(source, file)
    queries = parse_into(source, file, found)
    if found:
        raise parse_error(found)
    return queries


def parse_into(source: str, file: str, found: Diagnostics) -> tuple[QuerySyntax, ...]:
    """The queries that could be read; everything wrong goes into `found`."""
    from omnigraph.query.language.syntax_errors import deepest, place, query_starts

    text = source.replace("\ufeff", " ", 1) if source.startswith("\ufeff") else source
    too_deep = deepest(text, MAX_NESTING)
    if too_deep is not None:
        span = place(text, too_deep, too_deep + 1)
        note(found, "Q000", span, f"brackets nest deeper than {MAX_NESTING}", "Write it flatter, or as several queries")
        return ()
    queries = _attempt(text, file, found, collect=False)
    if queries is None:
        queries = _one_by_one(text, file, found, query_starts(text))
    _check_names(queries, found)
    for query in queries:
        _check_d2(query, found)
    return queries


def note(found: Diagnostics, code: str, span: SourceSpan, message: str, advice: str | None = None) -> None:
    """Add a finding at a span; only its first line is marked."""
    assert code in CODES, code
    marked = found.source[span.start : span.end].split("\n", 1)[0].rstrip()
    found.add(code, message, span.line, span.column, width=max(1, len(marked)), advice=advice)


def parse_error(found: Diagnostics) -> ParseError:
    """The error that carries these findings."""
    code, text, details = summary(found)
    return ParseError(text, code=code, **details)


def summary(found: Iterable[Diagnostic]) -> tuple[str, str, dict[str, Any]]:
    """The code, the text for people and the details of the error that carries these findings."""
    all_ = list(found)
    first = all_[0]
    count = "one error" if len(all_) == 1 else f"{len(all_)} errors"
    details = {
        "file": first.file,
        "line": first.line,
        "column": first.column,
        "diagnostics": [one.to_json() for one in all_],
    }
    return first.code, f"the query text has {count}\n" + "\n".join(render(one) for one in all_), details


@cache
def parser() -> Lark:
    """The parser, built once; importing lark waits until a text is to be read."""
    from lark import Lark

    grammar = resources.files("omnigraph.query.language").joinpath("query.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", propagate_positions=True, maybe_placeholders=True)


def _attempt(text: str, file: str, found: Diagnostics, *, collect: bool) -> tuple[QuerySyntax, ...] | None:
    """Parse the whole text; on an error None, after noting it if `collect`."""
    from lark.exceptions import UnexpectedInput

    from omnigraph.query.language.build_tree import BadText, build_query
    from omnigraph.query.language.syntax_errors import explain

    try:
        parsed = parser().parse(text)
        return tuple(build_query(one, found.source, file) for one in parsed.children)  # type: ignore[arg-type]
    except UnexpectedInput as error:
        if collect:
            finding = explain(error, text)
            note(found, "Q000", finding.span, finding.message, finding.advice)
    except BadText as error:
        if collect:
            note(found, "Q000", error.span, error.message, error.advice)
    return None


def _one_by_one(text: str, file: str, found: Diagnostics, starts: list[int]) -> tuple[QuerySyntax, ...]:
    """Parse each query alone, in its place: everything before it is blanked, so that lines and columns stay."""
    queries: list[QuerySyntax] = []
    cuts = [0, *(one for one in starts if one > 0), len(text)]
    for start, end in pairwise(cuts):
        blanked = re.sub(r"[^\n]", " ", text[:start]) + text[start:end]
        queries.extend(_attempt(blanked, file, found, collect=True) or ())
    if not found:  # each part is right alone, the whole is not
        _attempt(text, file, found, collect=True)
    return tuple(queries)


def _check_names(queries: Iterable[QuerySyntax], found: Diagnostics) -> None:
    seen: dict[str, QuerySyntax] = {}
    for query in queries:
        name = query.name.text
        if name in seen:
            line = seen[name].name.span.line
            note(found, "Q001", query.name.span, f"query `{name}` exists already, in line {line}", "Rename one of them")
        seen.setdefault(name, query)


def _check_d2(query: QuerySyntax, found: Diagnostics) -> None:
    if not isinstance(query.body, MutationSyntax):
        return
    statements = query.body.statements
    deletes = [one for one in statements if isinstance(one, DeleteSyntax)]
    if deletes and len(deletes) < len(statements):
        odd = next(
            one for one in statements if isinstance(one, DeleteSyntax) != isinstance(statements[0], DeleteSyntax)
        )
        note(
            found,
            "D2",
            odd.span,
            f"query `{query.name.text}` mixes insert or update with delete",
            "Split it into two queries, or run both in one `g.transaction()`, which applies them in order",
        )
