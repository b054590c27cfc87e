"""Cuts a text into terms, in the same way for text search and for the hash embedder."""

from __future__ import annotations

import re
import unicodedata

_TERM = re.compile(r"[^\W_]+")


def terms(text: str) -> list[str]:
    """Returns the terms of a text, in order."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return _TERM.findall(text.casefold())
