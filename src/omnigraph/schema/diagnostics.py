"""Diagnostics: what is wrong in a text, where, and what to do. Shared by the schema and the query language.

Lines and columns count from 1, in characters. A `Diagnostics` collects every finding of one text, so that a user
sees all of them in one go.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: A longer line is shortened around the finding, so that a diagnostic stays readable on a terminal.
EXCERPT_WIDTH = 110
_MARGIN = 20


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `end_column` is the column after the last marked character."""

    code: str
    message: str
    file: str
    line: int
    column: int
    end_column: int
    advice: str | None = None
    excerpt: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": self.message,
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "end_column": self.end_column,
            "advice": self.advice,
        }


def render(diag: Diagnostic) -> str:
    """The finding for a person: place, code and message, the line with a caret, and the advice."""
    parts = [f"{diag.place}: {diag.code}: {diag.message}"]
    if diag.excerpt:
        parts.append(diag.excerpt)
    if diag.advice:
        parts.append(f"  help: {diag.advice}")
    return "\n".join(parts)


def excerpt(source: str, line: int, column: int, width: int = 1) -> str:
    """The line of `source` with carets under `width` characters from `column`; empty if there is no such line."""
    lines = source.split("\n")
    if not 1 <= line <= len(lines):
        return ""
    return _excerpt_of(lines[line - 1], line, column, width)


def _excerpt_of(raw: str, line: int, column: int, width: int) -> str:
    # One printed character per character of the source: a tab or a control character would move the caret.
    text = "".join(char if char.isprintable() else " " for char in raw.rstrip("\r"))
    start = max(0, column - 1)
    carets = max(1, min(width, len(text) - start))
    first = 0
    if len(text) > EXCERPT_WIDTH:
        first = max(0, min(start - _MARGIN, len(text) - EXCERPT_WIDTH))
        text = text[first : first + EXCERPT_WIDTH]
        carets = max(1, min(carets, EXCERPT_WIDTH - (start - first)))
    gutter = str(line)
    before = text[: start - first]
    marks = "".join(map(_blank, before)) + " " * (start - first - len(before)) + "^" * carets
    return f"  {gutter} | {text}".rstrip() + f"\n  {' ' * len(gutter)} | {marks}"


def _blank(char: str) -> str:
    """Spaces as wide as the character is on a terminal."""
    if unicodedata.combining(char):
        return ""
    return "  " if unicodedata.east_asian_width(char) in "WF" else " "


class Diagnostics:
    """Collects the findings in one text; iterates in the order of the text, without repetitions."""

    def __init__(self, source: str, file: str) -> None:
        self.source = source
        self.file = file
        self._lines = source.split("\n")
        self._found: dict[Diagnostic, None] = {}

    def add(
        self, code: str, message: str, line: int, column: int, *, width: int = 1, advice: str | None = None
    ) -> Diagnostic:
        """Add a finding at a position in the text; `width` is the number of characters to mark."""
        marked = _excerpt_of(self._lines[line - 1], line, column, width) if 1 <= line <= len(self._lines) else ""
        diag = Diagnostic(code, message, self.file, line, column, column + max(1, width), advice, marked)
        self._found[diag] = None
        return diag

    def append(self, diag: Diagnostic) -> None:
        self._found[diag] = None

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(sorted(self._found, key=lambda diag: (diag.file, diag.line, diag.column, diag.code, diag.message)))

    def __len__(self) -> int:
        return len(self._found)

    def __bool__(self) -> bool:
        return bool(self._found)

    def render(self) -> str:
        return "\n".join(render(diag) for diag in self)

    def to_json(self) -> list[dict[str, Any]]:
        return [diag.to_json() for diag in self]
