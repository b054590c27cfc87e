"""Formats a schema: every property and constraint on its own line, comments where they were.

Works on tokens, so the meaning cannot change: the same tokens come out in the same order. The syntax tree determines
line breaks; the source determines only whether a comment has its own line, and where single blank lines are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from omnigraph.schema.parse import LEXICAL, grammar, parse_schema, split_declarations
from omnigraph.schema.problems import Problems
from omnigraph.schema.syntax import Declaration

if TYPE_CHECKING:
    from lark import Lark

INDENT = "    "
_TIGHT_BEFORE = frozenset({"COLON", "COMMA", "RPAR", "RSQB", "CLOSE", "OPTIONAL", "LPAR", "EQUAL", "STAR"})
_TIGHT_AFTER = frozenset({"AT", "LPAR", "LSQB", "OPEN", "EQUAL", "DOTS"})
_COMMENT = "comment"


@dataclass(frozen=True, slots=True)
class _LayoutToken:
    """A token or a comment, and the white space before it in the source."""

    kind: str
    text: str
    start: int
    has_own_line: bool
    follows_blank_line: bool


def format_schema(source: str, *, file: str = "<schema>") -> str:
    """The schema in its standard layout; formatting it again changes nothing. `SchemaError` if it does not parse."""
    problems = Problems(source, file)
    tree = parse_schema(source, problems)
    problems.check()
    writer = _LayoutWriter(tree.declarations)
    for token in _read_tokens(source):
        writer.write(token)
    return writer.text()


def _read_tokens(source: str) -> list[_LayoutToken]:
    from lark import Token
    from lark.utils import TextSlice

    spans: list[tuple[int, int, str, str]] = []
    for part in split_declarations(source, Problems(source, "")):
        tree: Any = _token_parser().parse(TextSlice(source, part.start, part.end))
        tokens = tree.scan_values(lambda token: isinstance(token, Token))
        spans.extend((token.start_pos, token.end_pos, token.type, str(token)) for token in tokens)
    for match in LEXICAL.finditer(source):
        if match.lastgroup == "comment":
            text = match.group().replace("\r\n", "\n").rstrip()
            spans.append((match.start(), match.end(), _COMMENT, text))
    spans.sort()
    result = []
    before = 0
    for start, end, kind, text in spans:
        gap = source[before:start]
        result.append(_LayoutToken(kind, text, start, "\n" in gap or before == 0, gap.count("\n") > 1))
        before = end
    return result


@cache
def _token_parser() -> Lark:
    from lark import Lark

    return Lark(grammar(), parser="lalr", lexer="contextual", keep_all_tokens=True)


class _LayoutWriter:
    """Writes one token after the other."""

    def __init__(self, declarations: tuple[Declaration, ...]) -> None:
        self._items = {start for declaration in declarations for start in _item_starts(declaration)}
        self._lines: list[str] = []
        self._line = ""
        self._depth = 0
        self._previous: _LayoutToken | None = None
        self._in_item = False  # a token of the current declaration or item is written
        self._had_body = False  # the last declaration spans several lines

    def text(self) -> str:
        self._break()
        return "".join(f"{line}\n" for line in self._lines)

    def write(self, token: _LayoutToken) -> None:
        if token.kind == _COMMENT:
            self._comment(token)
        elif token.kind in ("_INTERFACE", "_NODE", "_EDGE"):
            self._open_declaration(token)
        elif token.kind == "RBRACE":
            self._close_body(token)
        elif self._depth and token.start in self._items:
            self._new_line(token, blank=token.follows_blank_line and not self._after_brace())
            self._in_item = True
        else:
            self._append(token)
        if token.kind == "LBRACE":
            self._depth, self._in_item = 1, False
        self._previous = token

    def _open_declaration(self, token: _LayoutToken) -> None:
        # A comment above a declaration belongs to it: the source decides whether a blank line separates them.
        above = self._previous is not None and self._previous.kind == _COMMENT and self._previous.has_own_line
        self._new_line(token, blank=token.follows_blank_line if above else token.follows_blank_line or self._had_body)
        self._in_item, self._had_body = True, False

    def _close_body(self, token: _LayoutToken) -> None:
        empty = self._after_brace()
        self._depth, self._in_item, self._had_body = 0, False, not empty
        if empty:
            self._line += token.text
        else:
            self._new_line(token, blank=False)

    def _comment(self, token: _LayoutToken) -> None:
        if token.has_own_line or self._previous is None:
            parted = token.follows_blank_line or (self._had_body and not self._depth and not self._follows_comment())
            self._new_line(token, blank=parted and not self._after_brace())
        else:
            self._line += ("  " if token.text.startswith("//") else " ") + token.text

    def _append(self, token: _LayoutToken) -> None:
        if self._previous is not None and self._previous.kind == _COMMENT and self._previous.text.startswith("//"):
            self._new_line(token, blank=False)
        else:
            self._line += self._space(token) + token.text

    def _space(self, token: _LayoutToken) -> str:
        previous = self._previous
        if previous is None or not self._line.strip() or previous.kind in _TIGHT_AFTER or token.kind in _TIGHT_BEFORE:
            return ""
        return "" if token.kind == "DOTS" and previous.kind == "NUMBER" else " "

    def _new_line(self, token: _LayoutToken, *, blank: bool) -> None:
        self._break()
        if blank and self._lines:
            self._lines.append("")
        starts_item = token.start in self._items or token.kind in ("_INTERFACE", "_NODE", "_EDGE", "RBRACE")
        continued = self._in_item and not starts_item and token.kind != _COMMENT
        self._line = INDENT * (self._depth + continued) + token.text

    def _break(self) -> None:
        if self._line.strip():
            self._lines.append(self._line.rstrip())
        self._line = ""

    def _after_brace(self) -> bool:
        return self._previous is not None and self._previous.kind == "LBRACE"

    def _follows_comment(self) -> bool:
        return self._previous is not None and self._previous.kind == _COMMENT and self._previous.has_own_line


def _item_starts(declaration: Declaration) -> list[int]:
    """Offsets of the properties and constraints of a body; a constraint on a property stays on the property's line."""
    constraints = [constraint.at.offset for constraint in declaration.constraints]
    constraints += [
        annotation.at.offset
        for prop in declaration.properties
        for annotation in prop.annotations
        if annotation.is_type_constraint
    ]
    return constraints + [prop.name.at.offset for prop in declaration.properties]
