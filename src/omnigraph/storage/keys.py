"""Storage keys: which are valid, and which part of the on-disk layout each belongs to.

It builds no keys: each room builds its own.
"""

from __future__ import annotations

import re
from enum import StrEnum

from omnigraph.errors import InvalidInput

TEMPORARY_PREFIX = ".tmp-"

_SEGMENT = r"(?!\.\.?(?:/|\Z))(?!\.tmp-)[^/\\\x00-\x1f\x7f]+"
_KEY = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_TEMPORARY = re.compile(rf"(?:{_SEGMENT}/)*{re.escape(TEMPORARY_PREFIX)}[^/\\\x00-\x1f\x7f]+")


class KeyClass(StrEnum):
    """The parts of the layout by which requests are counted."""

    RECORD = "record"
    REGISTRY = "registry"
    SCHEMA = "schema"
    GRAPH = "graph"
    INTENT = "intent"
    ARCHIVE = "archive"
    TAG = "tag"
    LEASE = "lease"
    TRASH = "trash"
    TABLE = "table"
    OTHER = "other"


_CLASS_BY_FOLDER = {
    "__manifest": KeyClass.RECORD,
    "__branches": KeyClass.REGISTRY,
    "schemas": KeyClass.SCHEMA,
    "graph.json": KeyClass.GRAPH,
    "__recovery": KeyClass.INTENT,
    "__archive": KeyClass.ARCHIVE,
    "__tags": KeyClass.TAG,
    "__leases": KeyClass.LEASE,
    "__trash": KeyClass.TRASH,
    "tables": KeyClass.TABLE,
}


def classify(key: str) -> KeyClass:
    """The class of a key or of a folder prefix."""
    return _CLASS_BY_FOLDER.get(key.partition("/")[0], KeyClass.OTHER)


def check_key(key: str) -> str:
    """Return `key`. Raises InvalidInput if some store could not hold exactly that name."""
    if _KEY.fullmatch(key) is None:
        raise InvalidInput(
            f"not a storage key: {key!r}",
            code="invalid_key",
            advice="Keys are relative, separated by '/', without empty, '.', '..' or '.tmp-*' parts",
        )
    return key


def is_temporary(key: str) -> bool:
    """Whether the key names a temporary file of a local put that is under way or was killed."""
    return _TEMPORARY.fullmatch(key) is not None


def check_prefix(prefix: str) -> str:
    """Return `prefix`. Raises InvalidInput if it does not name a folder ('' is the root)."""
    if prefix and (not prefix.endswith("/") or _KEY.fullmatch(prefix[:-1]) is None):
        raise InvalidInput(
            f"not a folder prefix: {prefix!r}", code="invalid_key", advice="A prefix is a key followed by '/'"
        )
    return prefix
