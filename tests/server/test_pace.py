"""How slowly a body may come: only waiting counts, and only as long as there is something to wait for. S159"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from starlette.types import Message

from omnigraph.clock import SystemClock
from omnigraph.server.middleware import BodyPace, BodyRefused

WINDOW_S = 30.0


class Caller(SystemClock):
    """Sends pieces, each after some seconds; the clock goes by what it sends."""

    def __init__(self, *pieces: tuple[float, int, bool]) -> None:
        self._pieces: Iterator[tuple[float, int, bool]] = iter(pieces)
        self._now_s = 0.0

    def monotonic(self) -> float:
        return self._now_s

    async def receive(self) -> Message:
        after_s, size_bytes, more = next(self._pieces)
        self._now_s += after_s
        return {"type": "http.request", "body": b" " * size_bytes, "more_body": more}


def _count_received(caller: Caller, count: int, between_s: float = 0.0) -> int:
    """How many pieces came before the caller was refused; -1 if never."""

    async def story() -> int:
        pace = BodyPace(caller, caller.receive, WINDOW_S)
        for number in range(count):
            try:
                await pace.receive()
            except BodyRefused:
                return number
            caller._now_s += between_s
        return -1

    return asyncio.run(story())


@pytest.mark.parametrize(("after_s", "refused_after"), [(1.0, 30), (14.0, 3), (29.0, 2), (31.0, 1)])
def test_a_few_bytes_now_and_then(after_s: float, refused_after: int) -> None:
    assert _count_received(Caller(*[(after_s, 1, True)] * 40), 40) == refused_after


def test_enough_in_every_window() -> None:
    assert _count_received(Caller(*[(20.0, 20 << 10, True)] * 50), 50) == -1


def test_much_at_first_is_no_credit() -> None:
    assert _count_received(Caller((1.0, 100 << 20, True), *[(20.0, 1, True)] * 5), 6) == 3


def test_a_slow_server_is_not_the_callers_fault() -> None:
    assert _count_received(Caller(*[(1.0, 1, True)] * 20), 20, between_s=100.0) == -1


def test_the_departure_is_awaited_for_ever() -> None:
    assert _count_received(Caller((1.0, 1, False), (1000.0, 0, False), (1000.0, 0, False)), 3) == -1


def test_nothing_at_all() -> None:
    async def story() -> None:
        with pytest.raises(BodyRefused) as refused:
            await BodyPace(SystemClock(), asyncio.Event().wait, 0.01).receive()  # type: ignore[arg-type]
        assert (refused.value.status_code, refused.value.error.code) == (408, "slow_body")

    asyncio.run(story())


def test_who_waits_can_be_cancelled_at_any_moment() -> None:
    """Also in the very moment in which something comes: else the answer would wait for the caller's departure."""

    async def story() -> None:
        came = asyncio.Event()

        async def receive() -> Message:
            await came.wait()
            return {"type": "http.request", "body": b"", "more_body": True}

        async def departure() -> None:
            pace = BodyPace(SystemClock(), receive, WINDOW_S)
            while (await pace.receive())["type"] != "http.disconnect":
                came.clear()

        waiting = asyncio.create_task(departure())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        came.set()
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(20):
                await waiting

    asyncio.run(story())
