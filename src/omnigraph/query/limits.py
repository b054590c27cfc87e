"""Limits of one query: time, memory, hops; and how another thread cancels it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from omnigraph.clock import Clock
from omnigraph.errors import InvalidInput, OmnigraphError


class Cancellation:
    """Lets another thread stop a query: Python code ends at its next check, DuckDB is interrupted at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_requested = False
        self._interrupts: list[Callable[[], None]] = []

    @property
    def is_requested(self) -> bool:
        return self._is_requested

    def cancel(self) -> None:
        with self._lock:
            self._is_requested = True
            for interrupt in self._interrupts:
                interrupt()

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Calls `interrupt` on a request inside the block, never after it: another query may use the engine then."""
        with self._lock:
            self._interrupts.append(interrupt)
        try:
            yield
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Bounds of one query; exceeding one is an error with its name, the bound and the value."""

    memory_bytes: int = 1 << 30
    timeout_s: float = 60.0
    hop_ceiling: int = 16
    cancellation: Cancellation | None = field(default=None, compare=False, repr=False)


def limit_error(limit: str, bound: float, value: float | None, message: str, advice: str) -> OmnigraphError:
    return InvalidInput(message, code="limit_exceeded", advice=advice, limit=limit, bound=bound, value=value)


class Deadline:
    """The end of a query's time. Python code checks it between batches; a timer interrupts DuckDB."""

    def __init__(self, clock: Clock, timeout_s: float, cancellation: Cancellation | None = None) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._ends = clock.monotonic() + timeout_s
        self._cancellation = cancellation or Cancellation()

    @property
    def remaining_s(self) -> float:
        return self._ends - self._clock.monotonic()

    def cancel(self) -> None:
        """Stops the query from another thread, at its next check."""
        self._cancellation.cancel()

    def check(self) -> None:
        if self._cancellation.is_requested:
            raise InvalidInput("the query was cancelled", code="cancelled")
        if self.remaining_s <= 0:
            raise self.error()

    def error(self) -> OmnigraphError:
        return limit_error(
            "query_timeout_s",
            self._timeout_s,
            None,
            f"the query took longer than {self._timeout_s:g} s",
            "Narrow the query, or raise the limit",
        )

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Calls `interrupt` if the time ends or the query is cancelled inside the block."""
        self.check()
        # The timer's thread may outlive the block, even run while the interpreter exits. The list is emptied at the end
        # of the block, so that the thread keeps no engine alive.
        interrupts = [interrupt]
        timer = threading.Timer(self.remaining_s, lambda: [call() for call in interrupts])
        timer.daemon = True
        timer.start()
        try:
            with self._cancellation.interrupting(interrupt):
                self.check()
                yield
        finally:
            timer.cancel()
            interrupts.clear()


class Budget:
    """Counts the bytes that all steps of one query hold together."""

    def __init__(self, bound_bytes: int) -> None:
        self.bound_bytes = bound_bytes
        self._used = 0

    def take(self, size_bytes: int) -> None:
        self._used += size_bytes
        if self._used > self.bound_bytes:
            raise limit_error(
                "query_memory_bytes",
                self.bound_bytes,
                self._used,
                f"the query needs more than {self.bound_bytes} bytes of memory",
                "Narrow the query, or raise the limit",
            )

    @property
    def remaining_bytes(self) -> int:
        return max(0, self.bound_bytes - self._used)
