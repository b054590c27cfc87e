"""Runs blocking work in threads: how much at a time, for how long, and what happens when the caller leaves.

A read whose caller left is cancelled. A write is never stopped half-way: its thread runs to the end, which is a commit
or none, and the journal says which.
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
from omnigraph.server.settings import ServerLimits

A = TypeVar("A")


class ClientLeft(Exception):
    """The caller closed the connection before the answer."""


class Workers:
    """The threads of a server, and the requests that use them. All counting happens on the event loop."""

    def __init__(self, limits: ServerLimits, metrics: Metrics, journal: Journal) -> None:
        self.limits = limits
        self._metrics = metrics
        self._journal = journal
        self._pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="omnigraph-http")
        self._in_flight = 0
        self._writes: Counter[str] = Counter()
        self._running: set[asyncio.Future[Any]] = set()

    async def read(self, request: Request, work: Callable[[Cancellation], A]) -> A:
        """Run `work` in a thread; cancelled when the caller leaves or the time is up."""
        cancellation = Cancellation()
        future = self._submit(request, lambda: work(cancellation), None)
        try:
            return await self._await_future(request, future, self.limits.request_timeout_s)
        except TimeoutError:
            raise Unavailable(
                f"the request took longer than {self.limits.request_timeout_s:g} s",
                code="request_timeout",
                advice="Ask for less at once",
            ) from None
        finally:
            if not future.done():
                future.add_done_callback(lambda ended: self.log_orphan(request, ended, "read"))
                cancellation.cancel()

    async def write(self, request: Request, actor: str | None, key: str | None, work: Callable[[], A]) -> A:
        """Run `work` in a thread to its end, also if the caller leaves."""
        future = self._submit(request, work, actor or "")
        try:
            return await self.await_write(request, future, self.limits.request_timeout_s)
        except TimeoutError:
            raise Unknown(
                f"the write took longer than {self.limits.request_timeout_s:g} s and goes on",
                advice="Repeat it with the same Idempotency-Key to learn how it ended",
                client_key=key,
            ) from None

    async def await_write(self, request: Request, future: asyncio.Future[A], timeout_s: float | None = None) -> A:
        """The result of a write. If the caller leaves first, the write goes on and the journal says how it ended."""
        try:
            return await self._await_future(request, future, timeout_s)
        finally:
            if not future.done():
                future.add_done_callback(lambda ended: self.log_orphan(request, ended))

    @asynccontextmanager
    async def hold_slot(self, actor: str | None = None) -> AsyncIterator[None]:
        """Count as one request in flight, and as a write of `actor` if given, for work that is several thread calls."""
        self._admit(actor)
        try:
            yield
        finally:
            self._leave(actor)

    def start(self, work: Callable[[], A]) -> asyncio.Future[A]:
        """Run `work` in a thread, for callers that hold a slot."""
        future: asyncio.Future[A] = asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, work)
        self._running.add(future)
        future.add_done_callback(self._forget)
        return future

    async def stop(self) -> None:
        """Wait until all running work has ended: a write in flight ends in a known state."""
        if self._running:
            await asyncio.wait(self._running)
        self._pool.shutdown(wait=True)

    def _forget(self, future: asyncio.Future[Any]) -> None:
        self._running.discard(future)
        if not future.cancelled():
            future.exception()  # marks the exception as retrieved, since nobody else does if the caller left

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

    async def _await_future(self, request: Request, future: asyncio.Future[A], timeout_s: float | None) -> A:
        departure = asyncio.ensure_future(_wait_for_disconnect(request))
        try:
            both: set[asyncio.Future[Any]] = {future, departure}
            await asyncio.wait(both, timeout=timeout_s, return_when="FIRST_COMPLETED")
        finally:
            departure.cancel()
            with suppress(asyncio.CancelledError):
                await departure
        if future.done():
            return future.result()
        if departure.done() and not departure.cancelled():
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

    def log_orphan(self, request: Request, future: asyncio.Future[Any], kind: str = "write") -> None:
        """Log how a read or write ended whose caller had left."""
        error = None if future.cancelled() else future.exception()
        is_refusal = isinstance(error, OmnigraphError)
        self._journal.write(
            f"{kind} ended without its caller",
            logging.INFO if error is None or is_refusal else logging.ERROR,
            error,
            request_id=request.scope.get("omnigraph.request_id"),
            code=error.code if isinstance(error, OmnigraphError) else None,
            landed=error is None if kind == "write" else None,
        )


async def _wait_for_disconnect(request: Request) -> None:
    """Return when the caller has left. The body has been read by now, so no other message can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
