"""Turns the answer of a server that refused a request into the error that the engine raised there."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from omnigraph.errors import (
    Conflict,
    Corruption,
    Forbidden,
    InvalidInput,
    NotFound,
    OmnigraphError,
    PreconditionFailed,
    Unauthenticated,
    Unavailable,
)

CLASS_HEADER = "Omnigraph-Error"
#: Modules whose errors a server may answer with, beyond `omnigraph.errors`.
_ERROR_MODULES = (
    "omnigraph.history.feed",
    "omnigraph.log.branches",
    "omnigraph.schema.change_steps",
    "omnigraph.upkeep.tags",
)
_BY_STATUS: dict[int, type[OmnigraphError]] = {
    400: InvalidInput,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: NotFound,
    412: PreconditionFailed,
    413: InvalidInput,
    429: Unavailable,
    500: Corruption,
    503: Unavailable,
}


def decode_error(status: int, class_name: str | None, document: Any) -> OmnigraphError:
    """The error with the class, code, text and details that the server answered.

    A class that this version does not know becomes the class of the HTTP status.
    """
    answer = document if isinstance(document, dict) else {}
    details = {name: value for name, value in answer.items() if name not in ("error", "code", "status", "class")}
    error_class = _classes_by_name().get(class_name or "") or _BY_STATUS.get(status, OmnigraphError)
    text = str(answer.get("error", f"the server answered {status}"))
    error: OmnigraphError = error_class.__new__(error_class)
    # The constructor of a subclass may build the text from other arguments; here the text is known.
    OmnigraphError.__init__(error, text, code=str(answer.get("code", error_class.default_code)), **details)
    return error


def _classes_by_name() -> dict[str, type[OmnigraphError]]:
    for module in _ERROR_MODULES:
        importlib.import_module(module)
    return {error_class.__name__: error_class for error_class in _subclasses(OmnigraphError)}


def _subclasses(error_class: type[OmnigraphError]) -> Iterator[type[OmnigraphError]]:
    yield error_class
    for subclass in error_class.__subclasses__():
        yield from _subclasses(subclass)
