"""A slower store: adds latency to every request and lets only so many run at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from omnigraph.clock import Clock, SystemClock
from omnigraph.storage.store import ObjectInfo, PutResult, Store


class ThrottledStore:
    """Each request waits `latency_s` while it occupies one of `max_concurrent` slots (None: no limit).

    `latency_s` may be set at any time, so that a test builds its graph at full speed and measures slowly.
    """

    def __init__(
        self, inner: Store, latency_s: float, max_concurrent: int | None = None, clock: Clock | None = None
    ) -> None:
        if max_concurrent is not None and max_concurrent < 1:
            raise ValueError(f"at least one request must be able to run, not {max_concurrent}")
        self._inner = inner
        self.latency_s = latency_s
        self._max_concurrent = max_concurrent
        self._clock = clock or SystemClock()
        self._slot_freed = threading.Condition()
        self._running = 0
        self._most_running = 0

    @property
    def root(self) -> str:
        return self._inner.root

    @property
    def inner(self) -> Store:
        return self._inner

    @property
    def most_running(self) -> int:
        """The greatest number of requests that were in flight together."""
        return self._most_running

    def get(self, key: str) -> bytes:
        with self._delay():
            return self._inner.get(key)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        step = self._max_concurrent or max(1, len(keys))
        objects: list[bytes | None] = []
        for start in range(0, len(keys), step):
            batch = keys[start : start + step]
            with self._delay(len(batch)):
                objects += self._inner.get_many(batch)
        return objects

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        with self._delay():
            return self._inner.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        with self._delay():
            self._inner.put(key, data)

    def head(self, key: str) -> ObjectInfo:
        with self._delay():
            return self._inner.head(key)

    def list(self, prefix: str, *, first_page: bool = False) -> list[ObjectInfo]:
        with self._delay():
            return self._inner.list(prefix, first_page=first_page)

    def delete(self, key: str) -> None:
        with self._delay():
            self._inner.delete(key)

    def _has_room_for(self, slots: int) -> bool:
        return self._max_concurrent is None or self._running + slots <= self._max_concurrent

    @contextmanager
    def _delay(self, slots: int = 1) -> Iterator[None]:
        # A batch takes all its slots at once: two batches that each hold half would wait for ever.
        with self._slot_freed:
            self._slot_freed.wait_for(lambda: self._has_room_for(slots))
            self._running += slots
            self._most_running = max(self._most_running, self._running)
        try:
            if self.latency_s > 0:
                self._clock.sleep(self.latency_s)
            yield
        finally:
            with self._slot_freed:
                self._running -= slots
                self._slot_freed.notify_all()
