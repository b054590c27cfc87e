"""The object-store seam: the few requests that everything but Lance's own I/O is made of.

Three typed answers besides success: the key is missing (`ObjectMissing`), the credentials are refused
(`Forbidden`), the store did not answer (`Unavailable`). A `put_if_absent` that raises `Unavailable` has an
unknown outcome; only the caller can find out, by reading the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from omnigraph.errors import NotFound


class ObjectMissing(NotFound):
    """No object has this key."""

    default_code = "object_missing"


NOT_DURABLE = "not_durable"
"""Code of an `Unavailable` put: the object has its name, and only another put can tell whether it will keep it."""


class PutResult(Enum):
    """What a conditional PUT answered. `EXISTS` is a reason to read the key, never proof of a lost race."""

    CREATED = "created"
    EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One listed object; `modified_at` is the store's clock, not ours."""

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
        """Objects in the order asked, None where missing; one sequential hop however many."""

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        """Create the object, durably, unless the key exists."""

    def put(self, key: str, data: bytes) -> None:
        """Create or replace, durably. Only for objects whose content any writer would write alike, and for stubs."""

    def head(self, key: str) -> ObjectInfo: ...

    def list(self, prefix: str, *, first_page: bool = False) -> list[ObjectInfo]:
        """Objects below `prefix` (a folder, ending in '/'), sorted by key.

        `first_page` asks for one request only: at least the first key in order, perhaps all of them.
        Temporary files of unfinished puts never appear.
        """

    def delete(self, key: str) -> None:
        """Remove the object; a missing key is success. Only cleanup calls this."""


def innermost(store: Store) -> Store:
    """The store below every wrapper."""
    while (inner := getattr(store, "inner", None)) is not None:
        store = inner
    return store
