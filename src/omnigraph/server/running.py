"""Blocking work in threads: how much at a time, for how long, and what becomes of it when the caller leaves.

A reading operation of a caller that left is cancelled. A write is never given up half-way: its thread runs to the
end, which is a commit or none, and the journal tells which.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from typing import Any, TypeVar

from starlette.requests import Request

from omnigraph.errors import OmnigraphError, Unavailable, Unknown
from omnigraph.query.limits import Cancellation
from omnigraph.server.logs import Journal
from omnigraph.server.metrics import Metrics
from omnigraph.server.problems import too_many_requests, too_many_writes
from omnigraph.server.settings import Limits

A = TypeVar("A")


class ClientLeft(Exception):
    """Nobody is there to be answered."""


class Workers:
    """The threads of a server and who uses them. All counting happens on the event loop."""

    def __init__(self, limits: Limits, metrics: Metrics, journal: Journal) -> None:
        self.limits = limits
        self._metrics = metrics
        self._journal = journal
        self._pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="omnigraph-http")
        self._in_flight = 0
        self._writes: Counter[str] = Counter()
        self._running: set[asyncio.Future[Any]] = set()

    async def read(self, request: Request, work: Callable[[Cancellation], A]) -> A:
        """`work` in a thread; cancelled when the caller leaves or the time is up."""
        cancellation = Cancellation()
        future = self._submit(request, lambda: work(cancellation), None)
        try:
            return await self._finished(request, future, self.limits.request_timeout_s)
        except TimeoutError:
            raise Unavailable(
                f"the request took longer than {self.limits.request_timeout_s:g} s",
                code="request_timeout",
                advice="Ask for less at once",
            ) from None
        finally:
            if not future.done():
                future.add_done_callback(lambda ended: self.tell_orphan(request, ended, "read"))
                cancellation.cancel()

    async def write(self, request: Request, actor: str | None, key: str | None, work: Callable[[], A]) -> A:
        """`work` in a thread, run to its end whatever happens to the caller."""
        future = self._submit(request, work, actor or "")
        try:
            return await self.outlived(request, future, self.limits.request_timeout_s)
        except TimeoutError:
            raise Unknown(
                f"the write took longer than {self.limits.request_timeout_s:g} s and goes on",
                advice="Repeat it with the same Idempotency-Key to learn how it ended",
                client_key=key,
            ) from None

    async def outlived(self, request: Request, future: asyncio.Future[A], timeout_s: float | None = None) -> A:
        """What a write gave; if the caller leaves first it goes on, and the journal tells how it ended."""
        try:
            return await self._finished(request, future, timeout_s)
        finally:
            if not future.done():
                future.add_done_callback(lambda ended: self.tell_orphan(request, ended))

    @asynccontextmanager
    async def admitted(self, actor: str | None = None) -> AsyncIterator[None]:
        """Hold a place in the queue for work that is not one call of a thread; a place of `actor`'s writes too."""
        self._admit(actor)
        try:
            yield
        finally:
            self._leave(actor)

    def start(self, work: Callable[[], A]) -> asyncio.Future[A]:
        """`work` in a thread, for callers that hold a place."""
        future: asyncio.Future[A] = asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, work)
        self._running.add(future)
        future.add_done_callback(self._ended)
        return future

    async def stop(self) -> None:
        """Wait until everything that was begun has ended: a write in flight ends in a known state."""
        if self._running:
            await asyncio.wait(self._running)
        self._pool.shutdown(wait=True)

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._running.discard(future)
        if not future.cancelled():
            future.exception()  # looked at: of a caller that left nobody else will

    def _submit(self, request: Request, work: Callable[[], A], actor: str | None) -> asyncio.Future[A]:
        self._admit(actor)
        try:
            future = self.start(work)
        except BaseException:
            self._leave(actor)
            raise
        # Counted until the thread is done, not until the caller has been answered.
        future.add_done_callback(lambda _: self._leave(actor))
        return future

    async def _finished(self, request: Request, future: asyncio.Future[A], timeout_s: float | None) -> A:
        gone = asyncio.ensure_future(_departure(request))
        try:
            both: set[asyncio.Future[Any]] = {future, gone}
            await asyncio.wait(both, timeout=timeout_s, return_when="FIRST_COMPLETED")
        finally:
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone
        if future.done():
            return future.result()
        if gone.done() and not gone.cancelled():
            raise ClientLeft
        raise TimeoutError

    def _admit(self, actor: str | None) -> None:
        if self._in_flight >= self.limits.requests_in_flight:
            self._metrics.refused.labels("overloaded").inc()
            raise too_many_requests(self.limits.requests_in_flight)
        if actor is not None and self._writes[actor] >= self.limits.writes_per_actor:
            self._metrics.refused.labels("too_many_writes").inc()
            raise too_many_writes(self.limits.writes_per_actor)
        self._in_flight += 1
        if actor is not None:
            self._writes[actor] += 1
        self._metrics.in_flight.set(self._in_flight)

    def _leave(self, actor: str | None) -> None:
        self._in_flight -= 1
        if actor is not None:
            self._writes[actor] -= 1
            if not self._writes[actor]:
                del self._writes[actor]
        self._metrics.in_flight.set(self._in_flight)

    def tell_orphan(self, request: Request, ended: asyncio.Future[Any], what: str = "write") -> None:
        """How something ended that nobody waited for."""
        error = None if ended.cancelled() else ended.exception()
        known = isinstance(error, OmnigraphError)
        self._journal.tell(
            f"{what} ended without its caller",
            logging.INFO if error is None or known else logging.ERROR,
            error,
            request_id=request.scope.get("omnigraph.request_id"),
            code=error.code if isinstance(error, OmnigraphError) else None,
            landed=error is None if what == "write" else None,
        )


async def _departure(request: Request) -> None:
    """Ends when the caller has left. The body has been read by now, so nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
