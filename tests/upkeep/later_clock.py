"""A clock that is some days ahead."""

from __future__ import annotations

from datetime import datetime, timedelta

from omnigraph.clock import Clock


class LaterClock:
    """Shows the time of another clock plus some days."""

    def __init__(self, inner: Clock, days: float) -> None:
        self._inner = inner
        self._ahead = timedelta(days=days)

    def now(self) -> datetime:
        return self._inner.now() + self._ahead

    def monotonic(self) -> float:
        return self._inner.monotonic()

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)
