"""Text of a record for its reject, and where in it a property stands."""

from __future__ import annotations

import base64
import json
import re
from datetime import date, datetime
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class Unreadable:
    """A cell that Python has no value for, such as a date after the year 9999."""

    def __init__(self, cell: pa.Scalar) -> None:
        self._kind = str(cell.type)

    def __str__(self) -> str:
        return f"<{self._kind} that is out of range>"


def row_text(table: pa.Table, at: int) -> str:
    """A row of a typed file as JSON."""
    return json.dumps(plain_rows(table.slice(at, 1))[0], ensure_ascii=False, default=_plain)


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of a typed file as Python values; moments to the microsecond, which is finer than what is stored."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            cut = pc.floor_temporal(table.column(at), unit="microsecond").cast(pa.timestamp("us", field.type.tz))
            table = table.set_column(at, field.name, cut)
    try:
        return list(table.to_pylist())
    except (ValueError, OverflowError):
        names = table.column_names
        return [{name: _cell(table.column(name)[at]) for name in names} for at in range(table.num_rows)]


def _cell(cell: pa.Scalar) -> Any:
    try:
        return cell.as_py()
    except (ValueError, OverflowError):
        return Unreadable(cell)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return "base64:" + base64.b64encode(value).decode()
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)


def column_of_key(text: str, *path: str) -> int | None:
    """The character, from 1, at which the key named by `path` stands in a JSON object; None if it is not there."""
    at = 0
    for place, name in enumerate(path):
        found = _members(text, at).get(name)
        if found is None:
            return None
        key_at, value_at = found
        if place == len(path) - 1:
            return key_at + 1
        at = value_at
    return None


def _members(text: str, at: int) -> dict[str, tuple[int, int]]:
    """Where the keys of the object at `at` stand, and where their values; nothing if there is no object."""
    found: dict[str, tuple[int, int]] = {}
    try:
        at = _skip(text, at)
        if text[at] != "{":
            return {}
        at = _skip(text, at + 1)
        while text[at] == '"':
            key_at = at
            name, at = scanstring(text, at + 1, True)
            at = _skip(text, _skip(text, at) + 1)
            found.setdefault(name, (key_at, at))
            at = _skip(text, _DECODER.raw_decode(text, at)[1])
            if text[at] != ",":
                break
            at = _skip(text, at + 1)
    except (ValueError, IndexError):
        return found
    return found


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at
