"""What a cancelled caller leaves behind, step by step."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from omnigraph.api.asynchronous.graph import Opening
from omnigraph.api.asynchronous.threads import CallQueue, Threads
from omnigraph.api.asynchronous.twins import ClosableTwin, IteratedVerb, Twin

_PATIENCE_S = 30


async def _wait_until_set(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, _PATIENCE_S)


async def _cancel_and_wait(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Step:
    """Work that says when it begins and ends when it is told to."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self._ended = False

    def has_ended(self) -> bool:
        return self._ended

    def __call__(self) -> Step:
        self.begun.set()
        assert self.go_on.wait(_PATIENCE_S)
        self._ended = True
        return self


def test_work_that_has_begun_goes_on_and_is_waited_for() -> None:
    async def story() -> None:
        threads, step = Threads(2), Step()
        task = asyncio.create_task(threads.run(step))
        await _wait_until_set(step.begun)
        await _cancel_and_wait(task)
        assert not step.has_ended()
        waiting = asyncio.create_task(threads.wait_until_idle())
        await asyncio.sleep(0)
        assert not waiting.done()
        step.go_on.set()
        await waiting
        assert step.has_ended()
        threads.shut_down()

    asyncio.run(story())


def test_work_that_has_not_begun_never_does() -> None:
    async def story() -> None:
        threads, first, second = Threads(1), Step(), Step()
        running = asyncio.create_task(threads.run(first))
        await _wait_until_set(first.begun)
        queued = asyncio.create_task(threads.run(second))
        await asyncio.sleep(0)
        await _cancel_and_wait(queued)
        first.go_on.set()
        await running
        await threads.wait_until_idle()
        assert not second.begun.is_set()
        threads.shut_down()

    asyncio.run(story())


def test_what_nobody_waits_for_any_more_is_closed() -> None:
    """An exclusive claim would otherwise outlive the task that wanted it."""

    class Claim:
        closed = threading.Event()

        def close(self) -> None:
            self.closed.set()

    async def story() -> None:
        step = Step()

        def work() -> Claim:
            step()
            return Claim()

        opening = asyncio.ensure_future(Opening(ClosableTwin, 1, work))
        await _wait_until_set(step.begun)
        await _cancel_and_wait(opening)
        step.go_on.set()
        await _wait_until_set(Claim.closed)

    asyncio.run(story())


def test_turns_wait_for_the_step_of_a_cancelled_caller() -> None:
    async def story() -> None:
        threads = Threads(4)
        turns, step = CallQueue(threads), Step()
        task = asyncio.create_task(turns.run(step))
        await _wait_until_set(step.begun)
        await _cancel_and_wait(task)
        after = asyncio.create_task(turns.run(step.has_ended))
        await asyncio.sleep(0)
        step.go_on.set()
        assert await after
        threads.shut_down()

    asyncio.run(story())


def test_a_reader_that_stops_half_way_closes_what_it_read() -> None:
    closed = threading.Event()

    class Source:
        def numbers(self, count: int) -> Iterator[int]:
            try:
                yield from range(count)
            finally:
                closed.set()

    class Reader(Twin):
        numbers = IteratedVerb(Source.numbers)

    async def story() -> None:
        threads = Threads(2)
        reader = Reader(Source, threads)
        assert [number async for number in reader.numbers(1000)] == list(range(1000))
        closed.clear()
        numbers = reader.numbers(1000)
        assert await anext(numbers) == 0
        await numbers.aclose()
        assert closed.is_set()
        threads.shut_down()

    asyncio.run(story())


def test_the_context_of_the_caller_is_seen_in_the_thread() -> None:
    """Tracers keep the current span there."""
    span: ContextVar[str] = ContextVar("span")

    async def story() -> None:
        threads = Threads(1)
        span.set("mine")
        assert await threads.run(span.get) == "mine"
        threads.shut_down()

    asyncio.run(story())
