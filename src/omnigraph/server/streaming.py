"""Bodies of any size with bounded memory: into a file, out of a file, and progress as it happens."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, suppress
from contextvars import copy_context
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from omnigraph.progress import Standing
from omnigraph.server.running import ClientLeft, Workers

A = TypeVar("A")

EVENTS_TYPE = "text/event-stream"
NDJSON_TYPE = "application/x-ndjson"
_CHUNK_BYTES = 1 << 20
_PING_S = 15.0


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory of this request alone, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-http-") as folder:
        yield Path(folder)


async def spooled(request: Request, path: Path, workers: Workers) -> int:
    """Write the request's body to a file, a chunk at a time; its size. A body that breaks off is nobody's load."""
    size = 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        pending = bytearray()
        async for chunk in request.stream():
            pending += chunk
            size += len(chunk)
            if len(pending) >= _CHUNK_BYTES:
                block, pending = bytes(pending), bytearray()
                await workers.start(lambda block=block: _write(descriptor, block))  # type: ignore[misc]
        _write(descriptor, bytes(pending))
    except ClientDisconnect:
        raise ClientLeft from None
    finally:
        os.close(descriptor)
    return size


def _write(descriptor: int, block: bytes) -> None:
    while block:
        block = block[os.write(descriptor, block) :]


class Steps:
    """One operation in many calls of threads, as a caller takes what it makes: all in one context.

    A thread is held only while there is something to do, not while a slow caller reads.
    """

    def __init__(self, workers: Workers, operation: Callable[[], AbstractContextManager[None]]) -> None:
        self._workers = workers
        self._context = copy_context()
        self._operation = operation()
        self._turn = Lock()
        self._begun = False

    async def run(self, work: Callable[[], A]) -> A:
        return await asyncio.shield(self._workers.start(lambda: self._in_turn(lambda: self._step(work))))

    async def close(self) -> None:
        """After the step that may still run: its caller has left, but one context cannot be in two threads."""
        await asyncio.shield(self._workers.start(lambda: self._in_turn(self._end)))

    def _in_turn(self, work: Callable[[], A]) -> A:
        with self._turn:
            return self._context.run(work)

    def _end(self) -> None:
        if self._begun:
            self._begun = False
            self._operation.__exit__(None, None, None)

    def _step(self, work: Callable[[], A]) -> A:
        if not self._begun:
            self._operation.__enter__()
            self._begun = True
        return work()


class Streamed(StreamingResponse):
    """A streamed answer that lets go of what it holds when it ends, however that is: also if nobody reads it."""

    def __init__(self, body: AsyncIterator[bytes], held: AsyncExitStack, **options: Any) -> None:
        super().__init__(body, **options)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await super().__call__(scope, receive, send)


def event(name: str, document: Any) -> bytes:
    """One server-sent event."""
    return f"event: {name}\ndata: {json.dumps(document, ensure_ascii=False, default=str)}\n\n".encode()


class Progress:
    """What a thread tells while it works, as events on the loop. A `Display` for long operations."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def tell(self, step: Any) -> None:
        """Called by the thread that works."""
        with suppress(RuntimeError):  # the loop is gone: the server stops
            self._loop.call_soon_threadsafe(self._queue.put_nowait, step)

    def show(self, standing: Standing) -> None:
        self.tell(asdict(standing))

    def finish(self, standing: Standing) -> None:
        self.tell({**asdict(standing), "finished": True})

    def close(self) -> None:
        """Nothing to let go of: the last event is the operation's own answer."""

    async def events(self, done: asyncio.Future[Any], ended: Callable[[], bytes]) -> AsyncIterator[bytes]:
        """Events until `done`, then the last one. A comment now and then keeps idle connections open."""
        while not done.done() or not self._queue.empty():
            step = asyncio.ensure_future(self._queue.get())
            both: set[asyncio.Future[Any]] = {step, done}
            await asyncio.wait(both, timeout=_PING_S, return_when="FIRST_COMPLETED")
            if step.done():
                yield event("progress", step.result())
            else:
                step.cancel()
                if not done.done():
                    yield b": still at work\n\n"
        yield ended()
