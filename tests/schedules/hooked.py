"""A store whose requests run into something that the test wrote."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.storage.keys import KeyClass, classify
from omnigraph.storage.store import ObjectInfo, PutResult, Store
from tests.support.faulty_store import FaultPlan, FaultyStore

Put = Callable[[], PutResult]


class HookedStore(FaultyStore):
    """`on_put(number, key, data, put)` stands in for the n-th conditional PUT of a record, counted from 1."""

    def __init__(self, inner: Store, on_put: Callable[[int, str, bytes, Put], PutResult]) -> None:
        super().__init__(inner, FaultPlan.none())
        self._on_put = on_put
        self._puts = 0

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        if classify(key) is not KeyClass.RECORD:
            return self.inner.put_if_absent(key, data)
        self._puts += 1
        return self._on_put(self._puts, key, data, lambda: self.inner.put_if_absent(key, data))


class ShortSighted(FaultyStore):
    """Its listings lag: the newest `missing` records are not in them yet."""

    def __init__(self, inner: Store, missing: int) -> None:
        super().__init__(inner, FaultPlan.none())
        self._missing = missing

    def list(self, prefix: str, *, first_page: bool = False) -> list[ObjectInfo]:
        infos = self.inner.list(prefix, first_page=first_page)
        return infos[self._missing :] if classify(prefix) is KeyClass.RECORD else infos
