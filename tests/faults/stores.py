"""Stores with the faults of some real ones: changed listings, and writes that arrive late."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omnigraph.errors import Unavailable
from omnigraph.storage.store import ObjectInfo, PutResult, Store


class ChangedListingStore:
    """A store that changes its listings before it returns them."""

    def __init__(self, inner: Store, change: Callable[[list[ObjectInfo]], list[ObjectInfo]]) -> None:
        self.inner = inner
        self._change = change

    @property
    def root(self) -> str:
        return self.inner.root

    def get(self, key: str) -> bytes:
        return self.inner.get(key)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return self.inner.get_many(keys)

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        return self.inner.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        self.inner.put(key, data)

    def head(self, key: str) -> ObjectInfo:
        return self.inner.head(key)

    def list(self, prefix: str, *, first_page: bool = False) -> list[ObjectInfo]:
        return self._change(self.inner.list(prefix, first_page=first_page))

    def delete(self, key: str) -> None:
        self.inner.delete(key)


class LateArrivalStore(ChangedListingStore):
    """While `is_silent`, keeps commit records back and raises Unavailable; `store_pending` stores them later."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, lambda objects: objects)
        self.is_silent = False
        self.pending: dict[str, bytes] = {}

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        if self.is_silent and key.endswith(".rec"):
            assert self.pending.setdefault(key, data) == data, "other bytes were sent to a seq whose outcome is unknown"
            raise Unavailable(f"injected: {key} is on its way")
        return super().put_if_absent(key, data)

    def store_pending(self) -> list[PutResult]:
        return [self.inner.put_if_absent(key, data) for key, data in self.pending.items()]
