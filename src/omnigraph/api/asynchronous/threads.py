"""Blocking calls on a bounded number of threads, awaited; and what a cancelled caller leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from threading import Lock
from typing import Any, Protocol, TypeVar

from omnigraph.errors import InvalidInput

A = TypeVar("A")

THREADS = 16


class Runner(Protocol):
    """Runs blocking work and is awaited for what it gives."""

    async def run(
        self,
        work: Callable[[], A],
        *,
        stop: Callable[[], None] | None = None,
        unheard: Callable[[A], None] | None = None,
    ) -> A: ...


class Threads:
    """The threads that all handles of one opened graph share. Bound to no event loop."""

    def __init__(self, count: int = THREADS) -> None:
        if count < 1:
            raise InvalidInput(f"{count} threads can do nothing", advice="Use threads=1 or more")
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="omnigraph-aio")
        self._lock = Lock()
        self._running: set[Future[Any]] = set()
        self._is_over = False

    async def run(
        self,
        work: Callable[[], A],
        *,
        stop: Callable[[], None] | None = None,
        unheard: Callable[[A], None] | None = None,
    ) -> A:
        """What `work` gives, from a thread. For a cancelled caller, work that has not begun never does.

        Work that has begun goes on to its end, since half a write must not exist: `stop` asks it to end early, and
        `unheard` gets what it made although nobody waits for it.
        """
        begun = self._submit(work)
        try:
            return await asyncio.wrap_future(begun)
        except asyncio.CancelledError:
            if stop is not None:
                stop()
            if unheard is not None:
                begun.add_done_callback(lambda ended: _hand_over(ended, unheard))
            raise

    @property
    def is_over(self) -> bool:
        return self._is_over

    async def settled(self) -> None:
        """Wait until everything that has begun has ended."""
        with self._lock:
            left = list(self._running)
        if left:
            await asyncio.get_running_loop().run_in_executor(None, wait, left)

    def forget(self) -> None:
        """Take no more work; what runs ends by itself."""
        self._is_over = True
        self._pool.shutdown(wait=False)

    def _submit(self, work: Callable[[], A]) -> Future[A]:
        if self._is_over:
            raise InvalidInput(
                "the graph was closed", code="closed_handle", advice="Use it inside `async with`, or open it again"
            )
        begun = self._pool.submit(copy_context().run, work)
        with self._lock:
            self._running.add(begun)
        begun.add_done_callback(self._ended)
        return begun

    def _ended(self, one: Future[A]) -> None:
        with self._lock:
            self._running.discard(one)


class Turns:
    """Calls on one object that is not for several threads at once: each waits for the one before.

    The one before may be of a caller that was cancelled and has gone on to clean up.
    """

    def __init__(self, threads: Runner) -> None:
        self._threads = threads
        self._turn = Lock()

    async def run(
        self,
        work: Callable[[], A],
        *,
        stop: Callable[[], None] | None = None,
        unheard: Callable[[A], None] | None = None,
    ) -> A:
        return await self._threads.run(lambda: self._alone(work), stop=stop, unheard=unheard)

    def _alone(self, work: Callable[[], A]) -> A:
        with self._turn:
            return work()


def _hand_over(ended: Future[A], unheard: Callable[[A], None]) -> None:
    if not ended.cancelled() and ended.exception() is None:
        unheard(ended.result())
