"""Converts user values to stored values and back, by the type of a property.

`convert` takes JSON values, Python objects or numpy scalars and returns the Python value that the Arrow column holds;
it raises `ValueRefused` for a value that does not fit. `None` passes: whether a property may be null is a constraint on
the row (`row_constraints.py`), since an update names only some of the properties. `to_output` is the inverse: it
returns JSON values that `convert` reads as the same stored value, so that an export can be loaded again.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from array import array
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from omnigraph.errors import InvalidInput
from omnigraph.schema.catalog import Property, PropType, Scalar, TypeDef

INTEGER_BOUNDS: Mapping[Scalar, tuple[int, int]] = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}
FLOATS = frozenset({Scalar.F32, Scalar.F64})
NUMERIC = frozenset(INTEGER_BOUNDS) | FLOATS

BLOB_PREFIX = "base64:"
_SHOWN_CHARS = 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})\Z", re.ASCII)
_DATETIME = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})"
    r"(?:[Tt ](?P<hour>\d{2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?P<zone>[Zz]|[+-]\d{2}(?::?\d{2})?)?)?\Z",
    re.ASCII,
)


class ValueRefused(InvalidInput, code="OG-V-002"):
    """A value that does not fit its property. `reason` says why, without the property's name."""

    def __init__(self, prop: str, reason: str, *, code: str, advice: str | None = None, value: object = None) -> None:
        super().__init__(
            f"property '{prop}': {reason}",
            code=code,
            advice=advice,
            property=prop,
            reason=reason,
            value=quote_value(value),
        )
        self.property = prop
        self.reason = reason


class _Misfit(Exception):
    """Why a value does not fit; `convert` adds the property."""

    def __init__(self, code: str, reason: str, advice: str | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.advice = advice


def quote_value(value: object) -> str:
    """Format a value for a message: short, on one line, strings in quotes."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


def convert(prop: Property, value: Any) -> Any:
    """Convert a user's value to the stored form of the property; raises `ValueRefused`. `None` stays `None`."""
    if value is None:
        return None
    try:
        value = _plain(value)
        if prop.type.vector_size is not None:
            return _vector(prop.type.vector_size, value)
        if prop.type.is_list:
            return _list(prop.type, value)
        return _SCALARS[prop.type.scalar](prop.type, value)
    except _Misfit as misfit:
        raise ValueRefused(prop.name, misfit.reason, code=misfit.code, advice=misfit.advice, value=value) from None


def default_value(prop: Property) -> Any:
    """The stored form of the property's `@default`, or None without one."""
    for annotation in prop.annotations:
        if annotation.name == "default":
            default = annotation.args[0]
            return convert(prop, list(default) if isinstance(default, tuple) else default)
    return None


def canonical_text(prop: Property, value: Any) -> str:
    """The canonical text of a stored scalar: two values are equal exactly if their texts are. Used to derive ids."""
    kind = prop.type.scalar
    if kind is Scalar.BOOL:
        return "true" if value else "false"
    if kind in INTEGER_BOUNDS:
        return str(int(value))
    if kind in FLOATS:
        if not math.isfinite(value):
            raise ValueRefused(
                prop.name,
                f"{value} cannot be part of a key",
                code="OG-V-007",
                advice="Use a finite number",
                value=value,
            )
        return _float_text(value, single=kind is Scalar.F32)
    if kind is Scalar.DATE:
        return _date_text(value)
    if kind is Scalar.DATETIME:
        return _datetime_text(value)
    return str(value)


def derive_id(type_def: TypeDef, row: Mapping[str, Any]) -> str:
    """The id of a row of a keyed type; `row` holds stored values by property id."""
    assert type_def.key, f"{type_def.table_key} has no key"
    texts = []
    for column in type_def.key:
        prop = type_def.by_id[column]
        value = row.get(column)
        if value is None:
            raise ValueRefused(
                prop.name, f"is part of the key of {type_def.table_key} and must have a value", code="OG-V-001"
            )
        texts.append(canonical_text(prop, value))
    return texts[0] if len(texts) == 1 else json.dumps(texts, ensure_ascii=False, separators=(",", ":"))


def to_output(prop: Property, value: Any) -> Any:
    """A stored value as plain JSON: what results and exports show."""
    if value is None:
        return None
    if prop.type.vector_size is not None:
        return [float(item) for item in pa.array(value, pa.float32()).cast(pa.utf8()).to_pylist()]
    if prop.type.is_list:
        return [_output_scalar(prop.type.scalar, item) for item in value]
    return _output_scalar(prop.type.scalar, value)


def _output_scalar(kind: Scalar, value: Any) -> Any:
    if kind in FLOATS:
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return float(_shortest_single(value)) if kind is Scalar.F32 else value
    if kind is Scalar.DATE:
        return _date_text(value)
    if kind is Scalar.DATETIME:
        return _datetime_text(value)
    if kind is Scalar.BLOB:
        return BLOB_PREFIX + base64.b64encode(value).decode()
    return value


def _plain(value: Any) -> Any:
    """numpy scalars and arrays as Python values."""
    return value.tolist() if type(value).__module__ == "numpy" else value


# --- one function per scalar -------------------------------------------------------------------------------------


def _wrong(kind: object, value: object, advice: str | None = None) -> _Misfit:
    return _Misfit("OG-V-002", f"expected {kind}, got {_kind_of(value)} {quote_value(value)}", advice)


def _kind_of(value: object) -> str:
    names = {bool: "a Bool", int: "an integer", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def _text(kind: PropType, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong("enum text" if kind.enum_values else "String", value)
    if kind.enum_values:
        if value not in kind.enum_values:
            raise _Misfit("OG-V-005", f"{quote_value(value)} is not one of {', '.join(kind.enum_values)}")
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Misfit("OG-V-010", "the text holds half of a surrogate pair, which UTF-8 cannot store") from None
    return value


def _bool(_kind: PropType, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong("Bool", value, "Write true or false")
    return value


def _integer(kind: PropType, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(kind.scalar.value, value)
    low, high = INTEGER_BOUNDS[kind.scalar]
    if not low <= value <= high:
        raise _Misfit("OG-V-003", f"{quote_value(value)} does not fit {kind.scalar.value} ({low} to {high})")
    return value


def _float(kind: PropType, value: object) -> float:
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(kind.scalar.value, value)
    try:
        number = float(value)
        return number if kind.scalar is Scalar.F64 else round_to_f32(number)
    except OverflowError:
        raise _Misfit("OG-V-003", f"{quote_value(value)} is too large for {kind.scalar.value}") from None


def round_to_f32(number: float) -> float:
    """The nearest F32; OverflowError if a finite number has none."""
    single: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return single


def _date(_kind: PropType, value: object) -> date:
    if isinstance(value, datetime):
        raise _wrong("Date", value, "Give a date without a time of day")
    if isinstance(value, date):
        return value
    if isinstance(value, str):
        return _parse_date(value)
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return date.fromordinal(_EPOCH_DAY + value)
        except (ValueError, OverflowError):
            raise _Misfit("OG-V-004", f"{value} days since 1970-01-01 is outside the years 1 to 9999") from None
    raise _wrong("Date", value, "Write YYYY-MM-DD, or days since 1970-01-01")


def _parse_date(text: str) -> date:
    match = _DATE.match(text)
    try:
        if match:
            return date(*(int(part) for part in match.groups()))
    except ValueError as error:
        raise _Misfit("OG-V-004", f"{quote_value(text)} is not a date: {error}") from None
    raise _Misfit("OG-V-004", f"{quote_value(text)} is not a date", "Write YYYY-MM-DD, or days since 1970-01-01")


def _datetime(_kind: PropType, value: object) -> datetime:
    try:
        if isinstance(value, datetime):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return _to_millis(aware.astimezone(UTC))
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        if isinstance(value, int) and not isinstance(value, bool):
            return _EPOCH + timedelta(milliseconds=value)
    except OverflowError:
        raise _Misfit("OG-V-004", f"{quote_value(value)} is outside the years 1 to 9999") from None
    if isinstance(value, str):
        return _parse_datetime(value)
    raise _wrong("DateTime", value, "Write ISO-8601 text, or milliseconds since 1970-01-01T00:00:00Z")


def _parse_datetime(text: str) -> datetime:
    match = _DATETIME.match(text)
    if match is None:
        advice = "Write YYYY-MM-DDTHH:MM:SSZ, or milliseconds since 1970-01-01T00:00:00Z"
        raise _Misfit("OG-V-004", f"{quote_value(text)} is not a date and time", advice)
    part = match.groupdict()
    try:
        day = _parse_date(part["day"])
        micros = int((part["fraction"] or "0").ljust(6, "0")[:6])
        clock = (int(part["hour"] or 0), int(part["minute"] or 0), int(part["second"] or 0), micros)
        local = datetime(day.year, day.month, day.day, *clock, tzinfo=UTC)
        return _to_millis(local - _offset(part["zone"]))
    except (ValueError, OverflowError) as error:
        raise _Misfit("OG-V-004", f"{quote_value(text)} is not a date and time: {error}") from None


def _offset(zone: str | None) -> timedelta:
    """The offset from UTC; text without a zone is UTC, like all stored values."""
    if zone is None or zone in "Zz":
        return timedelta()
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError("the offset from UTC must be less than a day")
    size = timedelta(hours=hours, minutes=minutes)
    return -size if zone[0] == "-" else size


def _to_millis(moment: datetime) -> datetime:
    """Truncate to milliseconds; rounding could move a moment into the next second."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _blob(_kind: PropType, value: object) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str) and value.startswith(BLOB_PREFIX):
        try:
            return base64.b64decode(value[len(BLOB_PREFIX) :], validate=True)
        except (binascii.Error, ValueError):
            raise _Misfit("OG-V-009", "the text after 'base64:' is not base64") from None
    raise _wrong("Blob", value, "Write base64:… or give bytes")


def _list(kind: PropType, value: object) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(kind, value)
    scalar = _SCALARS[kind.scalar]
    items = []
    for at, item in enumerate(value):
        if item is None:
            raise _Misfit("OG-V-008", f"item {at} is null; a list holds no null items")
        try:
            items.append(scalar(kind, _plain(item)))
        except _Misfit as misfit:
            raise _Misfit(misfit.code, f"item {at}: {misfit.reason}", misfit.advice) from None
    return items


def _vector(size: int, value: object) -> list[float]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(f"Vector({size})", value)
    if len(value) != size:
        raise _Misfit("OG-V-006", f"expected {size} numbers, got {len(value)}")
    if not {int, float}.issuperset(map(type, value)):
        value = [_plain(item) for item in value]
        for at, item in enumerate(value):
            if isinstance(item, bool) or not isinstance(item, (int, float)):
                raise _Misfit("OG-V-002", f"item {at}: expected a number, got {_kind_of(item)} {quote_value(item)}")
    try:
        numbers = array("f", value).tolist()
    except OverflowError:
        numbers = [math.inf]
    if not all(map(math.isfinite, numbers)):
        raise _Misfit("OG-V-007", "every number of a vector must be finite and fit F32")
    return numbers


_SCALARS: Mapping[Scalar, Callable[[PropType, object], Any]] = {
    Scalar.STRING: _text,
    Scalar.BOOL: _bool,
    **dict.fromkeys(INTEGER_BOUNDS, _integer),
    **dict.fromkeys(FLOATS, _float),
    Scalar.DATE: _date,
    Scalar.DATETIME: _datetime,
    Scalar.BLOB: _blob,
}


# --- texts -------------------------------------------------------------------------------------------------------


def _date_text(value: date) -> str:
    return f"{value.year:04}-{value.month:02}-{value.day:02}"


def _datetime_text(value: datetime) -> str:
    """UTC; milliseconds only where there are any."""
    utc = value.astimezone(UTC)
    fraction = f".{utc.microsecond // 1000:03}" if utc.microsecond >= 1000 else ""
    return f"{_date_text(utc)}T{utc.hour:02}:{utc.minute:02}:{utc.second:02}{fraction}Z"


def _float_text(value: float, *, single: bool) -> str:
    if value == 0:
        return "0"  # also for -0, which equals it
    text = _shortest_single(value) if single else repr(float(value))
    return text.removesuffix(".0")


def _shortest_single(value: float) -> str:
    """The fewest digits that read back as the same F32, printed as Python prints a float."""
    for digits in range(1, 9):
        text = f"{value:.{digits}g}"
        try:
            if round_to_f32(float(text)) == value:
                return repr(float(text))
        except OverflowError:  # rounded up past the largest F32: more digits are needed
            continue
    return repr(float(f"{value:.9g}"))
