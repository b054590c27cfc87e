"""Parses CSV by RFC 4180: commas, and double quotes that are doubled inside. An empty unquoted field is null."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n|\n|\r|\Z)')

Fields = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row. `fields` is None if the row is malformed, at character `column` of its first line."""

    line: int
    text: str
    fields: Fields | None
    column: int | None = None


def parse_csv_rows(text: str, first_line: int) -> Iterator[CsvRow]:
    """Yields the rows of a text of whole rows. Blank lines yield no row, but count as lines."""
    if '"' not in text and text.count("\r") == text.count("\r\n"):
        yield from _parse_unquoted_rows(text, first_line)
        return
    at, line = 0, first_line
    while at < len(text):
        start = at
        fields, at, bad_at = _parse_row(text, at)
        if bad_at is not None:
            end = text.find("\n", bad_at)
            at = len(text) if end < 0 else end + 1
            yield CsvRow(line, text[start:at].rstrip("\r\n"), None, bad_at - start + 1)
        elif fields != (None,):
            yield CsvRow(line, text[start:at].rstrip("\r\n"), fields)
        line += text.count("\n", start, at)


def _parse_unquoted_rows(text: str, first_line: int) -> Iterator[CsvRow]:
    """Parses a text without quotes, in which every comma and every line end separates."""
    for line, row in enumerate(text.split("\n"), first_line):
        bare = row.removesuffix("\r")
        if bare:
            yield CsvRow(line, bare, tuple([field or None for field in bare.split(",")]))


def _parse_row(text: str, at: int) -> tuple[Fields, int, int | None]:
    """Parses the row at offset `at`. Returns its fields, the offset of the next row, and that of an error or None."""
    fields: list[str | None] = []
    while True:
        match = _FIELD.match(text, at)
        if match is None:
            return (), at, at
        quoted, plain, end = match.groups()
        fields.append(quoted.replace('""', '"') if quoted is not None else plain or None)
        at = match.end()
        if end != ",":
            return tuple(fields), at, None


def find_last_row_end(data: bytes) -> int:
    """Returns the length of the whole rows at the start of `data`: up to the last newline outside quotes."""
    if b'"' not in data:
        return data.rfind(b"\n") + 1
    octets = np.frombuffer(data, np.uint8)
    newlines = np.flatnonzero(octets == 10)
    outside = newlines[mask_row_ends(octets, newlines)]
    return int(outside[-1]) + 1 if len(outside) else 0


def mask_row_ends(octets: np.ndarray, newlines: np.ndarray, quotes_before: int = 0) -> np.ndarray:
    """Returns which newlines end a row: those with an even number of quotes before them."""
    quotes = np.flatnonzero(octets == 34)
    even: np.ndarray = (np.searchsorted(quotes, newlines) + quotes_before) % 2 == 0
    return even
