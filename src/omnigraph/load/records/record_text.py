"""The text of a record as its reject shows it, and the column of a property in this text."""

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


class UnreadableCell:
    """Stands for a cell that Python cannot represent, such as a date after the year 9999."""

    def __init__(self, cell: pa.Scalar) -> None:
        self._kind = str(cell.type)

    def __str__(self) -> str:
        return f"<{self._kind} that is out of range>"


def format_row(table: pa.Table, position: int) -> str:
    """Formats a row of a typed file as JSON."""
    return json.dumps(to_python_rows(table.slice(position, 1))[0], ensure_ascii=False, default=_to_json_value)


def to_python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Converts rows of a typed file to Python values.

    Timestamps are cut to microseconds, the finest that Python has; the graph stores milliseconds.
    """
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            micros = pc.floor_temporal(table.column(index), unit="microsecond")
            table = table.set_column(index, field.name, micros.cast(pa.timestamp("us", field.type.tz)))
    try:
        return list(table.to_pylist())
    except (ValueError, OverflowError):
        names = table.column_names
        return [{name: _to_python_value(table.column(name)[row]) for name in names} for row in range(table.num_rows)]


def _to_python_value(cell: pa.Scalar) -> Any:
    try:
        return cell.as_py()
    except (ValueError, OverflowError):
        return UnreadableCell(cell)


def _to_json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return "base64:" + base64.b64encode(value).decode()
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)


def column_of_key(text: str, *path: str) -> int | None:
    """Returns the character, from 1, at which the key at `path` stands in a JSON object; None without such a key."""
    object_at = 0
    for depth, name in enumerate(path):
        key_and_value = _key_positions(text, object_at).get(name)
        if key_and_value is None:
            return None
        key_at, value_at = key_and_value
        if depth == len(path) - 1:
            return key_at + 1
        object_at = value_at
    return None


def _key_positions(text: str, at: int) -> dict[str, tuple[int, int]]:
    """Returns where each key of the object at `at` stands, and its value; empty if there is no object at `at`."""
    positions: dict[str, tuple[int, int]] = {}
    try:
        at = _skip(text, at)
        if text[at] != "{":
            return {}
        at = _skip(text, at + 1)
        while text[at] == '"':
            key_at = at
            name, at = scanstring(text, at + 1, True)
            at = _skip(text, _skip(text, at) + 1)
            positions.setdefault(name, (key_at, at))
            at = _skip(text, _DECODER.raw_decode(text, at)[1])
            if text[at] != ",":
                break
            at = _skip(text, at + 1)
    except (ValueError, IndexError):
        return positions
    return positions


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at
