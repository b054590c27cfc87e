"""How a text is cut into words: one definition for text search and for the hash embedder."""

from __future__ import annotations

import re
import unicodedata

_TERM = re.compile(r"[^\W_]+")


def terms(text: str) -> list[str]:
    """The terms of a text, in order."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return _TERM.findall(text.casefold())
