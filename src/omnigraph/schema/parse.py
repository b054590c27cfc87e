"""Parses text into a syntax tree, one declaration at a time, so that an error in one does not hide the others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from omnigraph.schema.problems import Problems
from omnigraph.schema.syntax import Declaration, DeclarationKind, SchemaSpan, SchemaTree

if TYPE_CHECKING:
    from lark import Lark
    from lark.exceptions import UnexpectedToken

#: Comments and texts come first, so that nothing inside them matches; an unclosed one runs to the end of line or file.
LEXICAL = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<text>"(?:\\[^\r\n]|[^"\\\r\n])*")|(?P<open_comment>/\*.*)"""
    r"""|(?P<open_text>"[^\r\n]*)|(?P<word>@?[A-Za-z_][A-Za-z0-9_]*)|(?P<brace>[{}])|(?P<other>[^\s\ufeff])""",
    re.DOTALL,
)
_DECLARATIONS = ("interface", "node", "edge")
#: Atomic, since a sequence of comments could otherwise be matched in exponentially many ways.
_GAP = r"(?>\s|//[^\n]*\n|/\*.*?\*/)"
_NAME_FOLLOWS = re.compile(rf"{_GAP}++[A-Za-z_]|{_GAP}*+(?:\{{|\Z)", re.DOTALL)
_TYPE_FOLLOWS = re.compile(rf"{_GAP}++[A-Z]", re.DOTALL)
_HEADER = re.compile(rf"(interface|node|edge){_GAP}++([A-Za-z_][A-Za-z0-9_]*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DeclarationText:
    """The part of the text that holds one declaration; `is_intact` if its comments and string literals are closed."""

    start: int
    end: int
    is_intact: bool


def parse_schema(source: str, problems: Problems) -> SchemaTree:
    """Return the tree of all declarations that parse; the others are reported to `problems`."""
    declarations: list[Declaration] = []
    broken: dict[DeclarationKind, set[str]] = {"interface": set(), "node": set(), "edge": set()}
    if _is_utf8(source, problems):
        for part in split_declarations(source, problems):
            parsed = _parse_declaration(source, part, problems) if part.is_intact else None
            if parsed is not None:
                declarations.append(parsed)
            elif header := _HEADER.match(source, part.start, part.end):
                broken[header.group(1)].add(header.group(2))  # type: ignore[index]
    return SchemaTree(tuple(declarations), {kind: frozenset(names) for kind, names in broken.items()})


def split_declarations(source: str, problems: Problems) -> Iterator[DeclarationText]:
    """Split a text where a keyword opens the next declaration.

    Inside braces a keyword followed by a type name also opens a declaration: nothing else looks like that, and a
    missing brace then spoils one declaration instead of all that follow.
    """
    start: int | None = None
    depth, intact, has_reported_stray = 0, True, False
    for match in LEXICAL.finditer(source):
        kind, text = match.lastgroup, match.group()
        if kind == "word" and text in _DECLARATIONS and _opens_declaration(source, match.end(), depth):
            if start is not None:
                yield DeclarationText(start, match.start(), intact)
            start, depth, intact = match.start(), 0, True
        elif kind == "brace":
            depth = max(0, depth + (1 if text == "{" else -1))
        elif kind in ("open_text", "open_comment"):
            _report_unclosed(source, match, problems)
            intact = False
        if start is None and kind != "comment" and not has_reported_stray:
            has_reported_stray = True
            advice = "A schema is a list of 'interface', 'node' and 'edge' declarations"
            subject = text if kind in ("word", "brace", "other") else "this text"
            problems.add(
                "OG-S-007", span_at(source, match.start(), len(text)), f"{subject} is outside a declaration", advice
            )
    if start is not None:
        yield DeclarationText(start, len(source), intact)


def span_at(source: str, offset: int, width: int = 1) -> SchemaSpan:
    line_start = source.rfind("\n", 0, offset) + 1
    return SchemaSpan(source.count("\n", 0, offset) + 1, offset - line_start + 1, max(1, width), offset)


def _opens_declaration(source: str, end: int, depth: int) -> bool:
    return (_TYPE_FOLLOWS if depth else _NAME_FOLLOWS).match(source, end) is not None


def _report_unclosed(source: str, match: re.Match[str], problems: Problems) -> None:
    if match.lastgroup == "open_comment":
        problems.add("OG-S-004", span_at(source, match.start(), 2), "this comment has no end", "Close it with */")
    else:
        at = span_at(source, match.start(), len(match.group()))
        problems.add("OG-S-003", at, "this text has no closing quote", 'Close it with "; a line break is written \\n')


def _is_utf8(source: str, problems: Problems) -> bool:
    try:
        source.encode()
    except UnicodeEncodeError as error:
        problems.add("OG-S-002", span_at(source, error.start), "half of a surrogate pair, which UTF-8 cannot store")
        return False
    return True


def _parse_declaration(source: str, part: DeclarationText, problems: Problems) -> Declaration | None:
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken
    from lark.utils import TextSlice

    from omnigraph.schema.build_tree import UnreadableLiteral

    try:
        parsed: Any = parser().parse(TextSlice(source, part.start, part.end))
    except UnexpectedCharacters as error:
        at = SchemaSpan(error.line, error.column, 1, error.pos_in_stream or 0)
        problems.add("OG-S-002", at, f"unexpected character {source[at.offset]!r}", _expectation(error.allowed or ()))
        return None
    except UnexpectedToken as error:
        _report_token(source, part, error, problems)
        return None
    except UnreadableLiteral as error:
        problems.add("OG-S-006", error.at, str(error), error.advice)
        return None
    assert isinstance(parsed, Declaration)
    return parsed


def _report_token(source: str, part: DeclarationText, error: UnexpectedToken, problems: Problems) -> None:
    expected = _expectation(error.accepts or error.expected)
    if error.token.type == "$END":
        end = part.start + len(_without_comments(source[part.start : part.end]).rstrip())
        problems.add("OG-S-005", span_at(source, end - 1), "the declaration ends too early", expected)
        return
    text = str(error.token)
    at = SchemaSpan(error.line, error.column, len(text), error.pos_in_stream or 0)
    if text == "," and "RBRACE" in error.expected:
        expected = "Write no comma between properties; each begins with its name"
    problems.add("OG-S-001", at, f"unexpected {text!r}", expected)


def _without_comments(text: str) -> str:
    """The text with comments replaced by spaces, so that offsets stay valid."""
    return LEXICAL.sub(lambda match: " " * len(match.group()) if match.lastgroup == "comment" else match.group(), text)


_TERMINAL_NAMES = {
    "$END": "the next declaration",
    "_IMPLEMENTS": "'implements'",
    "ENUM": "a type",
    "VECTOR": "a type",
    "WORD": "a name",
    "VALUE": "an enum value",
    "NUMBER": "a number",
    "STRING": 'a "text"',
    "TRUE": "a value",
    "FALSE": "a value",
    "NULL": "a value",
    "AT": "'@'",
    "OPTIONAL": "'?'",
    "DOTS": "'..'",
    "STAR": "'*'",
    "OPEN": "'['",
    "CLOSE": "']'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "COLON": "':'",
    "COMMA": "','",
    "EQUAL": "'='",
    "__ANON_0": "'->'",
}


def _expectation(terminals: Any) -> str:
    words = sorted({_TERMINAL_NAMES.get(name, name) for name in terminals})
    return "Expected " + (words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}")


def grammar() -> str:
    return resources.files("omnigraph.schema").joinpath("schema.lark").read_text("utf-8")


@cache
def parser() -> Lark:
    """The parser that builds declarations; created once per process, when the first schema is parsed."""
    from lark import Lark

    from omnigraph.schema.build_tree import SchemaTreeBuilder

    return Lark(grammar(), parser="lalr", lexer="contextual", transformer=SchemaTreeBuilder())
