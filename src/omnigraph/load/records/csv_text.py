"""CSV as RFC 4180 has it: comma, double quotes, doubled inside. An empty field without quotes is null."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n|\n|\r|\Z)')

Fields = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row; `fields` None if it cannot be told apart into fields, at character `column` of its first line."""

    line: int
    text: str
    fields: Fields | None
    column: int | None = None


def csv_rows(text: str, first_line: int) -> Iterator[CsvRow]:
    """The rows of a text that holds whole rows; blank lines are skipped and counted."""
    if '"' not in text and text.count("\r") == text.count("\r\n"):
        yield from _plain_rows(text, first_line)
        return
    at, line = 0, first_line
    while at < len(text):
        start = at
        fields, at, bad_at = _row(text, at)
        if bad_at is not None:
            end = text.find("\n", bad_at)
            at = len(text) if end < 0 else end + 1
            yield CsvRow(line, text[start:at].rstrip("\r\n"), None, bad_at - start + 1)
        elif fields != (None,):
            yield CsvRow(line, text[start:at].rstrip("\r\n"), fields)
        line += text.count("\n", start, at)


def _plain_rows(text: str, first_line: int) -> Iterator[CsvRow]:
    """The same without quotes: every comma and every line end counts."""
    for line, row in enumerate(text.split("\n"), first_line):
        bare = row.removesuffix("\r")
        if bare:
            yield CsvRow(line, bare, tuple([field or None for field in bare.split(",")]))


def _row(text: str, at: int) -> tuple[Fields, int, int | None]:
    """Fields of the row at `at`, where the next row begins, and where it goes wrong, if it does."""
    fields: list[str | None] = []
    while True:
        found = _FIELD.match(text, at)
        if found is None:
            return (), at, at
        quoted, plain, end = found.groups()
        fields.append(quoted.replace('""', '"') if quoted is not None else plain or None)
        at = found.end()
        if end != ",":
            return tuple(fields), at, None


def last_row_end(data: bytes) -> int:
    """The length of the whole rows at the beginning of `data`: up to the last newline that is not within quotes."""
    if b'"' not in data:
        return data.rfind(b"\n") + 1
    octets = np.frombuffer(data, np.uint8)
    newlines = np.flatnonzero(octets == 10)
    outside = newlines[row_ends(octets, newlines)]
    return int(outside[-1]) + 1 if len(outside) else 0


def row_ends(octets: np.ndarray, newlines: np.ndarray, quotes_before: int = 0) -> np.ndarray:
    """Which of the newlines end a row: those with an even number of quotes before them."""
    quotes = np.flatnonzero(octets == 34)
    even: np.ndarray = (np.searchsorted(quotes, newlines) + quotes_before) % 2 == 0
    return even
