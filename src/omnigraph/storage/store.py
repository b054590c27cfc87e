"""The object-store seam: the few requests through which all storage goes, except Lance's own I/O.

Requests fail with one of three typed errors: the key is missing (`ObjectMissing`), the credentials are refused
(`Forbidden`), the store does not answer (`Unavailable`). The outcome of a `put_if_absent` that raises `Unavailable` is
unknown; the caller finds it out by reading the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from omnigraph.errors import NotFound


class ObjectMissing(NotFound, code="object_missing"):
    """No object has this key."""


NOT_DURABLE = "not_durable"
"""Code of an `Unavailable` put: the object exists, but may not survive a power cut until another put succeeds."""


class PutResult(Enum):
    """Result of a conditional PUT. `EXISTS` is a reason to read the key, never proof of a lost race."""

    CREATED = "created"
    EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One listed object; `modified_at` is a time of the store's clock, not of this process."""

    key: str
    size_bytes: int
    modified_at: datetime


class Store(Protocol):
    """Keys are relative to `root`, separated by '/', and never begin with one."""

    @property
    def root(self) -> str:
        """The graph's address as the user would write it."""

    def get(self, key: str) -> bytes:
        """The whole object. Raises ObjectMissing, Forbidden, Unavailable."""

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The objects in the order of `keys`, None for a missing one; one sequential hop for all."""

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        """Create the object, durably, unless the key exists."""

    def put(self, key: str, data: bytes) -> None:
        """Create or replace the object, durably. Only for stubs and for content that every writer would write alike."""

    def head(self, key: str) -> ObjectInfo: ...

    def list(self, prefix: str, *, first_page: bool = False) -> list[ObjectInfo]:
        """Objects below `prefix` (a folder, ending in '/'), sorted by key.

        With `first_page` the store sends one request and returns at least the first key in order, perhaps all.
        Temporary files of unfinished puts never appear.
        """

    def delete(self, key: str) -> None:
        """Remove the object; a missing key is success. Only cleanup calls this."""


def innermost(store: Store) -> Store:
    """The store below every wrapper."""
    while (inner := getattr(store, "inner", None)) is not None:
        store = inner
    return store
