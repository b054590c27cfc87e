"""A server's refusal becomes the error that the engine raised over there."""

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
_HOMES = ("omnigraph.history.feed", "omnigraph.log.branches", "omnigraph.schema.change_steps", "omnigraph.upkeep.tags")
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


def error_of(status: int, class_name: str | None, document: Any) -> OmnigraphError:
    """The same class, code, text and details. A class that is not known here becomes the kind of its status."""
    found = document if isinstance(document, dict) else {}
    details = {name: value for name, value in found.items() if name not in ("error", "code", "status", "class")}
    kind = _classes().get(class_name or "") or _BY_STATUS.get(status, OmnigraphError)
    text = str(found.get("error", f"the server answered {status}"))
    made: OmnigraphError = kind.__new__(kind)
    # Classes of their own may build the text from other arguments; here the text is known.
    OmnigraphError.__init__(made, text, code=str(found.get("code", kind.default_code)), **details)
    return made


def _classes() -> dict[str, type[OmnigraphError]]:
    for home in _HOMES:
        importlib.import_module(home)
    return {one.__name__: one for one in _below(OmnigraphError)}


def _below(kind: type[OmnigraphError]) -> Iterator[type[OmnigraphError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _below(one)
