"""Stores that answer as some real ones do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omnigraph.errors import Unavailable
from omnigraph.storage.store import ObjectInfo, PutResult, Store


class Listing:
    """A store whose listings are changed on their way."""

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


class Late(Listing):
    """While `silent`, records are taken and not stored: they arrive when the test says so."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, lambda listed: listed)
        self.silent = False
        self.taken: dict[str, bytes] = {}

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        if self.silent and key.endswith(".rec"):
            assert self.taken.setdefault(key, data) == data, "other bytes were sent to a seq whose outcome is unknown"
            raise Unavailable(f"injected: {key} is on its way")
        return super().put_if_absent(key, data)

    def arrive(self) -> list[PutResult]:
        return [self.inner.put_if_absent(key, data) for key, data in self.taken.items()]
