"""The one layout of a schema: every property and rule on its own line, comments kept where they stand.

Works on the tokens, so the meaning cannot change: the same tokens come out in the same order. Line breaks follow from
the syntax tree; the source only decides whether a comment has a line to itself, and about single blank lines.
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
    """A token or a comment, with what the source said about the space before it."""

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
    for piece in _tokens(source):
        writer.write(piece)
    return writer.text()


def _tokens(source: str) -> list[_LayoutToken]:
    from lark import Token
    from lark.utils import TextSlice

    spans: list[tuple[int, int, str, str]] = []
    for piece in split_declarations(source, Problems(source, "")):
        tree: Any = _token_parser().parse(TextSlice(source, piece.start, piece.end))
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
    """Places one piece after the other."""

    def __init__(self, declarations: tuple[Declaration, ...]) -> None:
        self._items = {start for declaration in declarations for start in _item_starts(declaration)}
        self._lines: list[str] = []
        self._line = ""
        self._depth = 0
        self._last: _LayoutToken | None = None
        self._in_item = False  # something of the present declaration or item is written already
        self._had_body = False  # the last declaration spans several lines

    def text(self) -> str:
        self._break()
        return "".join(f"{line}\n" for line in self._lines)

    def write(self, piece: _LayoutToken) -> None:
        if piece.kind == _COMMENT:
            self._comment(piece)
        elif piece.kind in ("_INTERFACE", "_NODE", "_EDGE"):
            self._open_declaration(piece)
        elif piece.kind == "RBRACE":
            self._close_body(piece)
        elif self._depth and piece.start in self._items:
            self._new_line(piece, blank=piece.follows_blank_line and not self._after_brace())
            self._in_item = True
        else:
            self._append(piece)
        if piece.kind == "LBRACE":
            self._depth, self._in_item = 1, False
        self._last = piece

    def _open_declaration(self, piece: _LayoutToken) -> None:
        # A comment above a declaration belongs to it: only the source says whether a blank line parts them.
        above = self._last is not None and self._last.kind == _COMMENT and self._last.has_own_line
        self._new_line(piece, blank=piece.follows_blank_line if above else piece.follows_blank_line or self._had_body)
        self._in_item, self._had_body = True, False

    def _close_body(self, piece: _LayoutToken) -> None:
        empty = self._after_brace()
        self._depth, self._in_item, self._had_body = 0, False, not empty
        if empty:
            self._line += piece.text
        else:
            self._new_line(piece, blank=False)

    def _comment(self, piece: _LayoutToken) -> None:
        if piece.has_own_line or self._last is None:
            parted = piece.follows_blank_line or (self._had_body and not self._depth and not self._follows_comment())
            self._new_line(piece, blank=parted and not self._after_brace())
        else:
            self._line += ("  " if piece.text.startswith("//") else " ") + piece.text

    def _append(self, piece: _LayoutToken) -> None:
        if self._last is not None and self._last.kind == _COMMENT and self._last.text.startswith("//"):
            self._new_line(piece, blank=False)
        else:
            self._line += self._space(piece) + piece.text

    def _space(self, piece: _LayoutToken) -> str:
        last = self._last
        if last is None or not self._line.strip() or last.kind in _TIGHT_AFTER or piece.kind in _TIGHT_BEFORE:
            return ""
        return "" if piece.kind == "DOTS" and last.kind == "NUMBER" else " "

    def _new_line(self, piece: _LayoutToken, *, blank: bool) -> None:
        self._break()
        if blank and self._lines:
            self._lines.append("")
        starts_item = piece.start in self._items or piece.kind in ("_INTERFACE", "_NODE", "_EDGE", "RBRACE")
        continued = self._in_item and not starts_item and piece.kind != _COMMENT
        self._line = INDENT * (self._depth + continued) + piece.text

    def _break(self) -> None:
        if self._line.strip():
            self._lines.append(self._line.rstrip())
        self._line = ""

    def _after_brace(self) -> bool:
        return self._last is not None and self._last.kind == "LBRACE"

    def _follows_comment(self) -> bool:
        return self._last is not None and self._last.kind == _COMMENT and self._last.has_own_line


def _item_starts(declaration: Declaration) -> list[int]:
    """Where the properties and rules of a body begin; a mark on a property stays on the line of the property."""
    rules = [rule.at.offset for rule in declaration.constraints]
    lifted = [note.at.offset for prop in declaration.properties for note in prop.annotations if note.is_type_constraint]
    return rules + lifted + [prop.name.at.offset for prop in declaration.properties]
