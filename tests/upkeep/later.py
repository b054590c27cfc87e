"""A clock that is ahead."""

from __future__ import annotations

from datetime import datetime, timedelta

from omnigraph.clock import Clock


class LaterClock:
    """Like another clock, so many days later."""

    def __init__(self, inner: Clock, days: float) -> None:
        self._inner = inner
        self._ahead = timedelta(days=days)

    def now(self) -> datetime:
        return self._inner.now() + self._ahead

    def monotonic(self) -> float:
        return self._inner.monotonic()

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)
