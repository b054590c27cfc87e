"""Explains syntax errors: what the parser found, what it expected, and what the user probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from omnigraph.query.language.syntax import SourceSpan

_WORDS = {
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "COLON": "`:`",
    "COMMA": "`,`",
    "DOT": "`.`",
    "DOTS": "`..`",
    "AT": "an annotation",
    "EQUAL": "`=`",
    "OPT": "`?`",
    "COMPARE": "a comparison",
    "UNDIRECTED": "`<edge>`",
    "VAR": "a `$name`",
    "NAME": "a name",
    "TYPE": "a type name",
    "NUMBER": "a number",
    "STRING": "a text",
    "$END": "the end",
}

#: Advice for constructs of other languages, by a pattern that matches the text at the error.
_HABITS: tuple[tuple[str, str], ...] = (
    (r"==", "Equality is written `=`"),
    (r"<>", "Inequality is written `!=`"),
    (r"&&|and\b", "Clauses of a match all hold; write each on its own, without `and`"),
    (r"\|\||or\b", "Write alternatives in parentheses: `($a.x = 1 or $a.y = 2)`"),
    (r"-+>|<-+|-\[|-+\(", "A hop is written `$a edge $b`, without arrows"),
    (r"--|#", "A comment begins with `//`"),
    (r"'", 'Text is written in double quotes: "text"'),
    (r'"(?!(\\.|[^"\\\r\n])*")', "The text has no closing quote on its line; write a line break as \\n"),
    (r"/\*", "The comment is never closed: add `*/`"),
    (r"by\b", "Write `order { … }`, without `by`"),
    (r"select\b", "A query reads `match { … } return { … }`"),
    (r"(skip)\b", "Write `offset n`"),
    (r"(like|matches)\b", "Use `contains`, `starts_with` or a text search function"),
    (r"(where)\b", "Filters stand inside `match { … }`; `where` belongs to update and delete"),
    (r"(group|having)\b", "Grouping is implied by the columns that are not aggregates"),
    (r"\*", "Count rows with `count($x)`; return an entity whole with `$x`"),
    (r";", "Clauses and statements need no separator"),
    (r"\$(?![A-Za-z_])", "A variable is `$` and a name: `$person`"),
)


@dataclass(frozen=True, slots=True)
class SyntaxFinding:
    """One syntax error with its position."""

    span: SourceSpan
    message: str
    advice: str | None


def explain(error: UnexpectedInput, source: str) -> SyntaxFinding:
    """The finding for an error of the parser."""
    if isinstance(error, UnexpectedCharacters):
        return _explain_character(error, source)
    assert isinstance(error, UnexpectedToken)
    accepted = sorted(error.accepts or error.expected)
    token = error.token
    if token.type == "$END":
        return _explain_end(accepted, source)
    start, end = token.start_pos or 0, token.end_pos or 0
    span = SourceSpan(start, end, token.line or 1, token.column or 1)
    return SyntaxFinding(
        span, f"expected {_list_choices(accepted)}, found {_quote(str(token))}", _advice(token, accepted, source)
    )


def _explain_character(error: UnexpectedCharacters, source: str) -> SyntaxFinding:
    at = cast(int, error.pos_in_stream)
    end = at + 1
    if source[at] == '"':
        end = source.find("\n", at) if "\n" in source[at:] else len(source)
    span = SourceSpan(at, end, error.line, error.column)
    accepted = sorted(error.allowed or ())
    message = f"expected {_list_choices(accepted)}, found {_quote(source[at:end])}"
    return SyntaxFinding(span, message, _habit(source, at) or _advice_for(accepted))


def _explain_end(accepted: list[str], source: str) -> SyntaxFinding:
    opened = find_unclosed(source)
    end = len(source.rstrip())
    span = span_between(source, max(0, end - 1), end)
    advice = None
    if opened is not None:
        start = span_between(source, opened, opened + 1)
        advice = f"The `{source[opened]}` of line {start.line}, column {start.column} is never closed"
    return SyntaxFinding(span, f"expected {_list_choices(accepted)}, found the end of the text", advice)


def span_between(source: str, start: int, end: int) -> SourceSpan:
    """The span between two offsets."""
    line = source.count("\n", 0, start) + 1
    return SourceSpan(start, end, line, start - (source.rfind("\n", 0, start) + 1) + 1)


def _advice(token: Token, accepted: list[str], source: str) -> str | None:
    text = str(token)
    at = token.start_pos or 0
    if token.type == "COMMA" and "RBRACE" in accepted:
        return "Clauses follow each other without a comma"
    if re.search(r"\breturn\s*\Z", source[:at]):
        return "The match is still open: close it with `}` before `return`"
    if text == "and" and "_OR" in accepted:
        return "Parentheses hold alternatives, joined by `or`; what must hold as well is a clause of its own"
    if text[:1].isupper() and "TYPE" not in accepted and "NAME" in accepted:
        return f"Names of queries, properties and aliases begin with a small letter: `{text[0].lower()}{text[1:]}`"
    if text[:1].islower() and "TYPE" in accepted and "NAME" not in accepted:
        return f"Type names begin with a capital letter: `{text[0].upper()}{text[1:]}`"
    if token.type == "VAR" and "NAME" in accepted and "VAR" not in accepted:
        dotted = re.compile(r"\$\w+\.(\w+)").match(source, token.start_pos or 0)
        return f"Write the property's name alone: `{dotted.group(1) if dotted else text[1:]}`"
    close = _near(text, accepted)
    if close is not None:
        return f"Did you mean `{close}`?"
    if text in {"=", ">"} and source[at - 1 : at] in {"=", "<"}:
        at -= 1  # the second half of an operator of other languages
    return _habit(source, at) or _advice_for(accepted)


def _advice_for(accepted: Iterable[str]) -> str | None:
    words = set(accepted)
    if words == {"LPAR"}:
        return "A query has parentheses, also without parameters: `query name() { … }`"
    if words == {"VAR", "RPAR"}:
        return "A parameter begins with `$`: `$name: String`"
    if words == {"RBRACE"}:
        return "The order is: match, return, order, limit, offset"
    if "COMPARE" in words and "VAR" not in words:
        return "A filter compares: `$a.x = 1`; a text search is a clause of its own"
    if words == {"_RETURN"}:
        return "A match is followed by `return { … }`"
    if words == {"_WHERE"}:
        return "Say which rows: `where id = $id`; `where id is not null` is all of them"
    if {"_MATCH", "_INSERT"} <= words:
        return "A query holds `match { … } return { … }`, or statements: insert, update, delete"
    return None


def _habit(source: str, at: int) -> str | None:
    return next((advice for pattern, advice in _HABITS if re.compile(pattern).match(source, at)), None)


def _near(text: str, accepted: Iterable[str]) -> str | None:
    keywords = [_keyword(terminal) for terminal in accepted if _is_keyword(terminal)]
    matches = difflib.get_close_matches(text, keywords, 1, 0.7)
    return matches[0] if matches and matches[0] != text else None


def _is_keyword(terminal: str) -> bool:
    return terminal not in _WORDS


def _keyword(terminal: str) -> str:
    return terminal.removeprefix("_").lower()


def _list_choices(accepted: Iterable[str]) -> str:
    """At most six choices, keywords first: a list of everything helps nobody."""
    words = sorted(accepted, key=lambda terminal: (not _is_keyword(terminal), terminal))
    choices = [f"`{_keyword(terminal)}`" if _is_keyword(terminal) else _WORDS[terminal] for terminal in words]
    if len(choices) > 6:
        choices = [*choices[:5], "something else"] if not _is_operand(words) else _operand_words(words)
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


def _is_operand(words: Iterable[str]) -> bool:
    return {"VAR", "STRING", "NUMBER", "NAME"} <= set(words)


def _operand_words(words: Iterable[str]) -> list[str]:
    """The choices where an expression can begin, which is one choice instead of eight terminals."""
    terminals = [
        terminal
        for terminal in words
        if terminal not in {"VAR", "STRING", "NUMBER", "NAME", "TRUE", "FALSE", "NULL", "LSQB"}
    ]
    choices = [f"`{_keyword(terminal)}`" if _is_keyword(terminal) else _WORDS[terminal] for terminal in terminals]
    return [
        "a clause" if "_OPTIONAL" in terminals else "a value",
        *(terminal for terminal in choices if terminal != "`(`"),
    ]


def _quote(text: str) -> str:
    line = text.split("\n", 1)[0]
    return f"`{line}`" if len(line) <= 40 else f"`{line[:39]}…`"


_SKIPPED = re.compile(r'"(?:\\.|[^"\\\r\n])*"|//[^\n]*|/\*(?:.|\n)*?\*/|[()\[\]{}]|query\b|[A-Za-z0-9_$]+')
_PAIRS = {")": "(", "]": "[", "}": "{"}


def find_unclosed(source: str) -> int | None:
    """The offset of the innermost bracket that is still open at the end."""
    stack: list[int] = []
    for token in _SKIPPED.finditer(source):
        char = token.group()
        if char in "([{":
            stack.append(token.start())
        elif char in _PAIRS and stack and source[stack[-1]] == _PAIRS[char]:
            stack.pop()
    return stack[-1] if stack else None


def find_too_deep(source: str, bound: int) -> int | None:
    """The offset of the first bracket that nests deeper than `bound`."""
    depth = 0
    for token in _SKIPPED.finditer(source):
        char = token.group()
        if char in "([{":
            depth += 1
            if depth > bound:
                return token.start()
        elif char in _PAIRS:
            depth = max(0, depth - 1)
    return None


def query_starts(source: str) -> list[int]:
    """Where queries seem to begin: `query` outside brackets, or at the start of a line.

    The second guess is for texts where a bracket is missing: it keeps one query's mistake from hiding the others.
    """
    starts, depth = [], 0
    for token in _SKIPPED.finditer(source):
        word = token.group()
        if word in "([{":
            depth += 1
        elif word in _PAIRS:
            depth = max(0, depth - 1)
        elif word == "query" and (depth == 0 or source[token.start() - 1 : token.start()] in {"", "\n"}):
            starts.append(token.start())
            depth = 0
    return starts
