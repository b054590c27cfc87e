"""An HTTP proxy in front of an S3 server: counts, delays, caps, fails and holds the requests of any client.

Lance and Spark do their own I/O, past every wrapper in our code; this is where tests meet it. The proxy runs in a
thread of the test process and is steered by plain attributes and calls. Requests are forwarded byte for byte with the
client's own Host header, so that a signature made for the proxy's address stays valid.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import get_args
from urllib.parse import urlsplit

from tests.support.http1 import CHUNK_BYTES, Connection, Message, body_of
from tests.support.proxy_faults import How, ServerFault
from tests.support.traffic import Request, Slope, Target, Traffic, check_names, fit, parse_target, wall_s

_ERROR_CODES = {
    "403": "AccessDenied",
    "404": "NoSuchKey",
    "409": "ConditionalRequestConflict",
    "412": "PreconditionFailed",
    "429": "TooManyRequests",
    "500": "InternalError",
    "503": "SlowDown",
}
_WHOLE_BODY_BYTES = 1 << 20


class _Exchange:
    """One request on its way through: what is known of it so far."""

    def __init__(self, head: Message, body: bytes | None, target: Target) -> None:
        self.head = head
        self.body = body
        self.target = target
        self.fault: ServerFault | None = None
        self.arrived_s = self.started_s = time.monotonic()
        self.answered_bytes = 0
        self.logged = False


class Proxy:
    """Use as a context manager. Clients talk to `endpoint`; `latency_s` and `max_concurrent` may be set any time.

    Latency is added once per request, before it is forwarded; a cap lets that many requests through at a time and
    queues the rest in order of arrival.
    """

    def __init__(self, upstream: str) -> None:
        address = urlsplit(upstream)
        assert address.hostname is not None
        assert address.port is not None
        self._host, self._port = address.hostname, address.port
        self.latency_s = 0.0
        self.endpoint = ""
        self.errors: list[Exception] = []
        self._max_concurrent: int | None = None
        self._admitted = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._lock = threading.Lock()
        self._faults: list[ServerFault] = []
        self._log: list[Request] = []
        self._late: set[asyncio.Task[None]] = set()

    # Control, from the test's thread

    def __enter__(self) -> Proxy:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(started)), name="s3-proxy")
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self.clear_faults()
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    @property
    def log(self) -> tuple[Request, ...]:
        """All requests since the last reset, in the order in which they ended."""
        with self._lock:
            return tuple(self._log)

    @property
    def max_concurrent(self) -> int | None:
        return self._max_concurrent

    @max_concurrent.setter
    def max_concurrent(self, value: int | None) -> None:
        self._max_concurrent = value
        self._loop.call_soon_threadsafe(self._admit_queued)

    def reset(self) -> None:
        """Forget the log and all faults; no latency, no cap."""
        self.clear_faults()
        self.latency_s, self.max_concurrent = 0.0, None
        with self._lock:
            self._log.clear()

    def clear_faults(self) -> None:
        """Plan nothing more; whatever is held goes on."""
        with self._lock:
            faults, self._faults = self._faults, []
        for fault in faults:
            fault.release()

    def fail(
        self,
        how: How,
        *,
        nth: int = 1,
        times: int | None = 1,
        method: str | None = None,
        key_class: str | None = None,
        key: str | None = None,
        on_hit: Callable[[], None] | None = None,
    ) -> ServerFault:
        """Strike the `nth` request from now on that matches `method`, `key_class` and contains `key`.

        - `"403"`, `"404"`, `"409"`, `"412"`, `"500"`, `"503"`: that answer; the server never hears of the request.
        - `"drop_request"`: the connection is cut; the server never hears of it.
        - `"drop_answer"`, `"503_after"`: the server does it; the client's connection is cut, or it is told 503.
        - `"hold"`: nothing is forwarded until `release()`, then all goes on as usual.
        - `"arrive_late"`: the connection is cut at once, and the request reaches the server at `release()`.

        `times` in a row (None: always). `on_hit` runs in the proxy's thread at the moment of the strike, which for
        the two `answer` kinds is after the server's effect: the place to kill the process that sent the request.
        """
        if how not in get_args(How):
            raise ValueError(f"unknown fault {how!r}")
        check_names(method, key_class)

        def matches(target: Target) -> bool:
            return (
                method in (None, target.method)
                and key_class in (None, target.key_class)
                and (key is None or key in target.key)
            )

        fault = ServerFault(how, nth, times, matches, on_hit)
        with self._lock:
            self._faults.append(fault)
        return fault

    @contextmanager
    def measure(self, latency_s: float | None = None) -> Iterator[Traffic]:
        """Collect the requests that arrive and end inside the block; with `latency_s`, at that latency (exact hops)."""
        traffic, before_s, begun_s = Traffic(), self.latency_s, time.monotonic()
        if latency_s is not None:
            self.latency_s = latency_s
        try:
            yield traffic
        finally:
            self.latency_s = before_s
            traffic.requests.extend(request for request in self.log if request.arrived_s >= begun_s)

    def slope(
        self, op: Callable[[], object], latencies_s: Sequence[float] = (0.0, 0.05, 0.15), *, repeat: int = 1
    ) -> Slope:
        """Run `op` at each latency and fit `wall = compute + hops × latency`. Warm `op` up first if that matters."""
        before_s, walls_s = self.latency_s, {}
        try:
            for latency_s in latencies_s:
                self.latency_s = latency_s
                walls_s[latency_s] = wall_s(op, repeat)
        finally:
            self.latency_s = before_s
        return fit(walls_s)

    # Service, in the proxy's thread

    async def _run(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        self.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await self._stopped.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        try:
            while await self._serve_one(connection):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The client or the server went away, or the proxy is closing. Swallowing the cancellation is safe since
            # the task ends here.
            pass
        except Exception as error:  # noqa: BLE001 - shown by the fixture at the end of the test
            self.errors.append(error)
        finally:
            connection.close_abruptly()
            connection.close_upstream_abruptly()

    async def _serve_one(self, connection: Connection) -> bool:
        """Serve the connection's next request; whether there may be another."""
        head = Message.parse(await connection.reader.readuntil(b"\r\n\r\n"))
        if "expect" in head.headers:
            connection.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            head.raw = b"\r\n".join(line for line in head.raw.split(b"\r\n") if not line.lower().startswith(b"expect:"))
        length = head.length or 0
        body = await connection.reader.readexactly(length) if length <= _WHOLE_BODY_BYTES else None
        method, target, _ = head.start.split(" ")
        exchange = _Exchange(head, body, parse_target(method, target, head.headers, body or b""))
        exchange.fault = self._struck(exchange.target)
        await self._admit()
        exchange.started_s = time.monotonic()
        try:
            if self.latency_s:
                await asyncio.sleep(self.latency_s)
            keep = await self._pass_on(connection, exchange)
        finally:
            self._record(exchange, 0)
            self._leave()
            if exchange.fault is not None and exchange.fault.how != "arrive_late":
                exchange.fault.mark_done()
        await connection.writer.drain()
        return keep

    def _struck(self, target: Target) -> ServerFault | None:
        """The first planned fault that strikes; all that match count the request."""
        with self._lock:
            struck = [fault for fault in self._faults if fault.strikes(target)]
        return struck[0] if struck else None

    async def _pass_on(self, connection: Connection, exchange: _Exchange) -> bool:
        fault = exchange.fault
        how = fault.how if fault else None
        if fault is not None and how not in ("drop_answer", "503_after"):
            fault.mark_hit()
        if fault is None or how == "hold":
            if fault is not None:
                await fault.wait_released()
            answer = await self._forward(connection, exchange)
            return await self._give_back(connection, exchange, answer)
        if exchange.body is None:
            exchange.body = await connection.reader.readexactly(exchange.head.length or 0)
        if how in _ERROR_CODES:
            return self._tell(connection, exchange, how)
        if how == "arrive_late":
            task = asyncio.create_task(self._arrive_late(exchange, fault))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        elif how != "drop_request":
            answer = await self._forward(connection, exchange)
            async for _ in self._answer_body(connection, exchange, answer):
                pass
            fault.mark_hit()
            if how == "503_after":
                return self._tell(connection, exchange, "503")
        self._record(exchange, 0)
        return False

    async def _arrive_late(self, exchange: _Exchange, fault: ServerFault) -> None:
        await fault.wait_released()
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            connection = Connection(reader, writer)
            connection.upstream = (reader, writer)
            answer = await self._forward(connection, exchange)
            async for _ in self._answer_body(connection, exchange, answer):
                pass
        finally:
            writer.transport.abort()
            fault.mark_done()

    async def _forward(self, connection: Connection, exchange: _Exchange) -> Message:
        """Send the request upstream and read the head of the answer. Never repeated: it may have had its effect."""
        reader, writer = await connection.reach(self._host, self._port)
        writer.write(exchange.head.raw)
        if exchange.body is not None:
            writer.write(exchange.body)
        else:
            async for piece in body_of(exchange.head, connection.reader):
                writer.write(piece)
                await writer.drain()
        return Message.parse(await reader.readuntil(b"\r\n\r\n"))

    async def _answer_body(self, connection: Connection, exchange: _Exchange, answer: Message) -> AsyncIterator[bytes]:
        assert connection.upstream is not None
        status = answer.start.split(" ")[1]
        if exchange.head.start.startswith("HEAD ") or status in ("204", "304"):
            return
        async for piece in body_of(answer, connection.upstream[0]):
            exchange.answered_bytes += len(piece)
            yield piece

    async def _give_back(self, connection: Connection, exchange: _Exchange, answer: Message) -> bool:
        """Stream the answer to the client.

        The request is logged before its last bytes leave: whatever the client does next comes after, in the log too.
        """
        pending = answer.raw
        async for piece in self._answer_body(connection, exchange, answer):
            if len(pending) > CHUNK_BYTES:
                connection.writer.write(pending)
                await connection.writer.drain()
                pending = b""
            pending += piece
        self._record(exchange, int(answer.start.split(" ")[1]))
        connection.writer.write(pending)
        if answer.closes:
            connection.writer.close()
            await connection.writer.wait_closed()
        return not answer.closes

    def _tell(self, connection: Connection, exchange: _Exchange, status: str) -> bool:
        """Answer in the server's place, as S3 words its errors."""
        code = _ERROR_CODES[status]
        text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{code}</Message></Error>'
        head = f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {len(text)}\r\n\r\n"
        has_body = not exchange.head.start.startswith("HEAD ")
        self._record(exchange, int(status))
        connection.writer.write((head + text if has_body else head).encode())
        return True

    def _record(self, exchange: _Exchange, status: int) -> None:
        if exchange.logged:
            return
        exchange.logged = True
        target = exchange.target
        request = Request(
            method=target.method,
            bucket=target.bucket,
            key=target.key,
            key_class=target.key_class,
            conditional="if-none-match" in exchange.head.headers or "if-match" in exchange.head.headers,
            status=status,
            fault=exchange.fault.how if exchange.fault else None,
            sent_bytes=exchange.head.length or 0,
            answered_bytes=exchange.answered_bytes,
            arrived_s=exchange.arrived_s,
            started_s=exchange.started_s,
            ended_s=time.monotonic(),
        )
        with self._lock:
            self._log.append(request)

    async def _admit(self) -> None:
        if self._max_concurrent is None or (self._admitted < self._max_concurrent and not self._queue):
            self._admitted += 1
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._queue.append(turn)
        await turn

    def _leave(self) -> None:
        self._admitted -= 1
        self._admit_queued()

    def _admit_queued(self) -> None:
        while self._queue and (self._max_concurrent is None or self._admitted < self._max_concurrent):
            turn = self._queue.popleft()
            if not turn.cancelled():
                self._admitted += 1
                turn.set_result(None)
