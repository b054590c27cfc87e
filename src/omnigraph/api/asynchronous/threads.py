"""Runs blocking calls on a bounded number of threads, so that an event loop can await and cancel them."""

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


class ThreadRunner(Protocol):
    """Runs blocking work in threads; its result is awaited."""

    async def run(
        self,
        work: Callable[[], A],
        *,
        stop: Callable[[], None] | None = None,
        on_abandoned: Callable[[A], None] | None = None,
    ) -> A: ...


class Threads:
    """The threads that all handles of one opened graph share. They belong to no event loop."""

    def __init__(self, count: int = THREADS) -> None:
        if count < 1:
            raise InvalidInput(f"{count} threads can do nothing", advice="Use threads=1 or more")
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="omnigraph-aio")
        self._lock = Lock()
        self._running: set[Future[Any]] = set()
        self._is_shut_down = False

    async def run(
        self,
        work: Callable[[], A],
        *,
        stop: Callable[[], None] | None = None,
        on_abandoned: Callable[[A], None] | None = None,
    ) -> A:
        """Run `work` in a thread and return its result. If the caller is cancelled, work that has not begun never does.

        Work that has begun goes on to its end, since half a write must not exist: `stop` asks it to end early, and
        `on_abandoned` gets the result that nobody waits for.
        """
        future = self._submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if stop is not None:
                stop()
            if on_abandoned is not None:
                future.add_done_callback(lambda ended: _hand_over(ended, on_abandoned))
            raise

    @property
    def is_shut_down(self) -> bool:
        return self._is_shut_down

    async def wait_until_idle(self) -> None:
        """Wait until all running work has ended."""
        with self._lock:
            running = list(self._running)
        if running:
            await asyncio.get_running_loop().run_in_executor(None, wait, running)

    def shut_down(self) -> None:
        """Take no more work; running work goes on to its end."""
        self._is_shut_down = True
        self._pool.shutdown(wait=False)

    def _submit(self, work: Callable[[], A]) -> Future[A]:
        if self._is_shut_down:
            raise InvalidInput(
                "the graph was closed", code="closed_handle", advice="Use it inside `async with`, or open it again"
            )
        future = self._pool.submit(copy_context().run, work)
        with self._lock:
            self._running.add(future)
        future.add_done_callback(self._discard)
        return future

    def _discard(self, future: Future[A]) -> None:
        with self._lock:
            self._running.discard(future)


class CallQueue:
    """Runs calls on one object one after the other, for objects that several threads may not use at once.

    The call before may be one whose caller was cancelled.
    """

    def __init__(self, threads: ThreadRunner) -> None:
        self._threads = threads
        self._turn = Lock()

    async def run(
        self,
        work: Callable[[], A],
        *,
        stop: Callable[[], None] | None = None,
        on_abandoned: Callable[[A], None] | None = None,
    ) -> A:
        return await self._threads.run(lambda: self._run_alone(work), stop=stop, on_abandoned=on_abandoned)

    def _run_alone(self, work: Callable[[], A]) -> A:
        with self._turn:
            return work()


def _hand_over(ended: Future[A], on_abandoned: Callable[[A], None]) -> None:
    if not ended.cancelled() and ended.exception() is None:
        on_abandoned(ended.result())
