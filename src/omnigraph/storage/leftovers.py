"""What a killed process leaves of a put that had no name yet: in a directory only, other stores have no such thing."""

from __future__ import annotations

from omnigraph.storage.local import LocalStore
from omnigraph.storage.probe import innermost
from omnigraph.storage.store import ObjectInfo, Store


def leftovers(store: Store) -> list[ObjectInfo]:
    """Temporary files below the root, sorted by key; some may belong to puts that are under way.

    No listing shows them, and every other request refuses their keys.
    """
    local = innermost(store)
    return local.leftovers() if isinstance(local, LocalStore) else []


def drop_leftover(store: Store, key: str) -> None:
    """Remove one of them; only cleanup calls this."""
    local = innermost(store)
    if isinstance(local, LocalStore):
        local.drop_leftover(key)
