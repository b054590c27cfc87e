"""Idempotency keys of several callers in one graph: one caller's key never answers another's request."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from omnigraph.errors import OmnigraphError

_LONGEST = 255


def kept_key(actor: str | None, key: str) -> str:
    """The key as the graph keeps it. Without tokens nobody can be told from anybody, and it stays as it is."""
    if actor is None:
        return key
    # No colon is left in the actor's part, so that no two pairs of actor and key have the same form.
    whole = f"{quote(actor, safe='')}:{key}"
    return whole if len(whole) <= _LONGEST else hashlib.sha256(whole.encode()).hexdigest()


@contextmanager
def told_as_given(key: str | None) -> Iterator[None]:
    """Errors name the key as the caller knows it."""
    try:
        yield
    except OmnigraphError as error:
        if key is not None and "client_key" in error.details:
            error.details = {**error.details, "client_key": key}
        raise
