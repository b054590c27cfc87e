"""Pauses that a test steers: hold one actor at a named point of the engine while another runs.

The engine calls `pauses.reach("write.staged")` and goes on; these classes decide what happens at that point. Nothing
sleeps or polls: a held thread waits on an event.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable


class Hold:
    """One point at which one thread stops until it is released."""

    def __init__(self, name: str, nth: int) -> None:
        self.name = name
        self.nth = nth
        self._reached = threading.Event()
        self._released = threading.Event()

    def wait_reached(self, timeout_s: float = 30.0) -> None:
        """Block until a thread stands at the point; TimeoutError if the schedule never forms."""
        if not self._reached.wait(timeout_s):
            raise TimeoutError(f"nobody reached {self.name!r} (visit {self.nth}) within {timeout_s} s")

    @property
    def is_reached(self) -> bool:
        return self._reached.is_set()

    def release(self) -> None:
        """Let the thread go on; releasing before anybody arrived means that nobody will stop."""
        self._released.set()

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _stop_here(self, give_up_after_s: float) -> None:
        self._reached.set()
        if not self._released.wait(give_up_after_s):
            raise TimeoutError(f"held at {self.name!r} for {give_up_after_s} s and never released")


class ControlledPauses:
    """Pauses steered by a test. Visits of a name are counted from 1, over all threads, for the life of the object."""

    def __init__(self, *, give_up_after_s: float = 60.0) -> None:
        self._give_up_after_s = give_up_after_s
        self._arrived = threading.Condition()
        self._seen: list[str] = []
        self._visits: dict[str, int] = {}
        self._actions: dict[tuple[str, int], list[Callable[[], object]]] = {}
        self._holds: list[Hold] = []

    def reach(self, name: str) -> None:
        with self._arrived:
            visit = self._visits.get(name, 0) + 1
            self._visits[name] = visit
            self._seen.append(name)
            actions = self._actions.pop((name, visit), [])
            self._arrived.notify_all()
        for act in actions:
            act()

    def hold(self, name: str, nth: int = 1) -> Hold:
        """Stop the `nth` visit, counted from now, of `name` until the returned handle is released."""
        hold = Hold(name, nth)
        with self._arrived:
            self._holds.append(hold)
        self._at(name, nth, lambda: hold._stop_here(self._give_up_after_s))
        return hold

    def crash_at(self, name: str, nth: int = 1) -> None:
        """Kill this process, without any clean-up, at the `nth` visit from now."""
        self._at(name, nth, lambda: os.kill(os.getpid(), signal.SIGKILL))

    def fail_at(self, name: str, error: Exception, nth: int = 1) -> None:
        """Raise `error` at the `nth` visit from now."""

        def fail() -> None:
            raise error

        self._at(name, nth, fail)

    def call_at(self, name: str, act: Callable[[], object], nth: int = 1) -> None:
        """Run `act` in the visiting thread at the `nth` visit from now: a whole schedule on one thread."""
        self._at(name, nth, act)

    def wait_seen(self, name: str, nth: int = 1, timeout_s: float = 30.0) -> None:
        """Block until `name` was reached `nth` times in all."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._visits.get(name, 0) >= nth, timeout_s):
                raise TimeoutError(f"{name!r} was reached {self._visits.get(name, 0)} times, not {nth}")

    def release_all(self) -> None:
        """Let every held and every future holder go: for the end of a test."""
        with self._arrived:
            holds = list(self._holds)
        for hold in holds:
            hold.release()

    @property
    def points_reached(self) -> list[str]:
        """Every point reached so far, in order."""
        with self._arrived:
            return list(self._seen)

    def _at(self, name: str, nth: int, act: Callable[[], object]) -> None:
        if nth < 1:
            raise ValueError(f"visits are counted from 1, not {nth}")
        with self._arrived:
            self._actions.setdefault((name, self._visits.get(name, 0) + nth), []).append(act)
