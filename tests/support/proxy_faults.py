"""Faults that the proxy inflicts: which request, in what way, and how a test waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Literal

from tests.support.traffic import Target

How = Literal[
    "403", "404", "409", "412", "429", "500", "503", "drop_request", "drop_answer", "503_after", "hold", "arrive_late"
]


class ServerFault:
    """A planned fault. Counts the requests that match and strikes from the `nth` on, `times` times."""

    def __init__(
        self,
        how: How,
        nth: int,
        times: int | None,
        matches: Callable[[Target], bool],
        on_hit: Callable[[], None] | None = None,
    ) -> None:
        self.how = how
        self.hits = 0
        self._nth = nth
        self._times = times
        self._matches = matches
        self._on_hit = on_hit
        self._match_count = 0
        self._hit = threading.Event()
        self._done = threading.Event()
        self._released = threading.Event()

    def wait_hit(self, timeout_s: float = 30.0) -> None:
        """Return once a request was struck (for `hold`: is being held)."""
        if not self._hit.wait(timeout_s):
            raise TimeoutError(f"no request met the fault {self.how!r} within {timeout_s} s")

    def release(self) -> None:
        """Let held requests go on (`hold`), or arrive at the server (`arrive_late`)."""
        self._released.set()

    def wait_done(self, timeout_s: float = 30.0) -> None:
        """Return once the first struck request is over; for `arrive_late`, once the server has answered it."""
        if not self._done.wait(timeout_s):
            raise TimeoutError(f"the request struck by {self.how!r} is not over within {timeout_s} s")

    def strikes(self, target: Target) -> bool:
        """Count the request if it matches; whether this is one to strike."""
        if not self._matches(target):
            return False
        self._match_count += 1
        if self._match_count < self._nth or (self._times is not None and self._match_count >= self._nth + self._times):
            return False
        self.hits += 1
        return True

    def mark_hit(self) -> None:
        if self._on_hit is not None:
            self._on_hit()
        self._hit.set()

    def mark_done(self) -> None:
        self._done.set()

    async def wait_released(self) -> None:
        # A thread per held request: rare, and the releasing test needs no event loop.
        await asyncio.to_thread(self._released.wait)
