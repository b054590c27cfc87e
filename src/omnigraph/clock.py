"""Time, randomness and identifiers, injected so that tests control them.

No other module may ask the operating system for the time or for random numbers.
"""

from __future__ import annotations

import os
import random
import time
from datetime import UTC, datetime
from typing import Protocol

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"


class Clock(Protocol):
    """Wall time for timestamps, monotonic time for budgets, and waiting."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class IdSource(Protocol):
    """Mints identifiers and random numbers."""

    def ulid(self) -> str:
        """26 characters, sortable by time for people; the code never relies on that order."""

    def token(self, length: int) -> str:
        """`length` random characters of 5 bits each, lower case, safe in file names and SQL identifiers."""

    def uniform(self, low: float, high: float) -> float: ...


class SystemIds:
    """Identifiers from the operating system's randomness; safe across fork()."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._random = random.SystemRandom()

    def ulid(self) -> str:
        millis = int(self._clock.now().timestamp() * 1000)
        return _base32((millis << 80) | int.from_bytes(os.urandom(10), "big"), 26).upper()

    def token(self, length: int) -> str:
        return _base32(self._random.getrandbits(5 * length), length)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


def _base32(value: int, length: int) -> str:
    return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(5 * (length - 1), -1, -5))
