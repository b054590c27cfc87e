"""Parameters of a call as JSON, in the forms that the language reads back."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import date
from typing import Any

from omnigraph.errors import InvalidInput
from omnigraph.schema.values import BLOB_PREFIX


def encode_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Every value as JSON; a value that no parameter can have is refused here, by name."""
    return {str(name): _encode_value(str(name), value) for name, value in params.items()}


def _encode_value(name: str, value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return BLOB_PREFIX + base64.b64encode(value).decode()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return [_encode_value(name, item) for item in value]
    if hasattr(value, "tolist"):  # arrays and scalars of numpy
        return _encode_value(name, value.tolist())
    raise InvalidInput(
        f"parameter `{name}` is a {type(value).__name__}, which no parameter can be",
        code="P3",
        advice="Use text, numbers, bytes, dates, or lists of them",
        parameter=name,
    )
