"""Stores that misbehave in ways of their own: each passes everything on but for one thing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omnigraph.storage.store import ObjectInfo, PutResult, Store
from tests.scenarios.bed import ScenarioCrash


class PassOn:
    """Every request goes to the store below."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

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
        return self.inner.list(prefix, first_page=first_page)

    def delete(self, key: str) -> None:
        self.inner.delete(key)


class CrashingStore(PassOn):
    """The process dies at its n-th PUT, before or after the effect; with 0 it lives and `puts` counts."""

    def __init__(self, inner: Store, n: int, *, after: bool) -> None:
        super().__init__(inner)
        self._n = n
        self._after = after
        self.puts = 0

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        self.puts += 1
        if self.puts == self._n and not self._after:
            raise ScenarioCrash(key)
        result = self.inner.put_if_absent(key, data)
        if self.puts == self._n:
            raise ScenarioCrash(key)
        return result


class RepeatingStore(PassOn):
    """Delivers every conditional PUT twice, as a network may; `answer` says which of the two answers is heard."""

    def __init__(self, inner: Store, answer: int) -> None:
        super().__init__(inner)
        self._answer = answer
        self.delivered: list[tuple[str, bytes]] = []

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        self.delivered.append((key, data))
        return [self.inner.put_if_absent(key, data), self.inner.put_if_absent(key, data)][self._answer]


class ListingStore(PassOn):
    """Answers listings of records through `change`: stale, unordered, or with strangers in them."""

    def __init__(self, inner: Store, change: Callable[[list[ObjectInfo]], list[ObjectInfo]]) -> None:
        super().__init__(inner)
        self._change = change

    def list(self, prefix: str, *, first_page: bool = False) -> list[ObjectInfo]:
        infos = self.inner.list(prefix, first_page=first_page)
        return self._change(infos) if prefix.startswith("__manifest/") else infos


class UnconditionalStore(PassOn):
    """A store that ignores the condition of a PUT."""

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        self.inner.put(key, data)
        return PutResult.CREATED
