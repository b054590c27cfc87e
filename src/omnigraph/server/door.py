"""The outermost layer: request ids, tokens before anything is read, bounded bodies, one log line per request.

A plain ASGI layer: it must see `receive` itself, both to bound the body and to leave the wait for a caller's departure
to those who do the work.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omnigraph.clock import Clock, IdSource
from omnigraph.errors import InvalidInput, OmnigraphError, Unauthenticated
from omnigraph.server.calls import Identity
from omnigraph.server.logs import Journal
from omnigraph.server.metrics import Metrics
from omnigraph.server.problems import answer_of, body_too_large, defect, slow_body, status_of
from omnigraph.server.running import ClientLeft
from omnigraph.server.tokens import Tokens

ID_HEADER = "X-Request-Id"
_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_OPEN = ("/healthz", "/openapi.json", "/docs")
_QUIET = ("/healthz", "/metrics")
#: What must come in every window: far below any connection, and far above one that is kept open for its own sake.
_ENOUGH_BYTES = 16 << 10
_STREAMED = re.compile(r"/graphs/[^/]+/load")


class BodyRefused(HTTPException):
    """Raised while a body is read, in a form that the web framework passes on."""

    def __init__(self, error: OmnigraphError) -> None:
        # What is left of the body has no reader any more, so the connection cannot be used again.
        super().__init__(status_of(error), headers={"Connection": "close"})
        self.error = error


class _Pace:
    """How long a caller may take over a body: some of it must come in every window of waiting, or its end."""

    def __init__(self, clock: Clock, receive: Receive, window_s: float) -> None:
        self._clock = clock
        self._receive = receive
        self._window_s = window_s
        self._left_s = window_s
        self._came_bytes = 0
        self._is_whole = False

    async def receive(self) -> Message:
        # After the body comes only the caller's departure, which may be awaited for as long as the work takes.
        if self._is_whole:
            return await self._receive()
        if self._left_s <= 0:
            raise BodyRefused(slow_body(self._window_s))
        # Only waiting counts: a server that is slow to take the next piece is not the caller's fault.
        started_s = self._clock.monotonic()
        try:
            # Not `wait_for`, which may lose the cancellation of whoever waits here for the caller's departure.
            async with asyncio.timeout(self._left_s):
                message = await self._receive()
        except TimeoutError:
            raise BodyRefused(slow_body(self._window_s)) from None
        self._left_s -= self._clock.monotonic() - started_s
        self._came_bytes += len(message.get("body", b""))
        if self._came_bytes >= _ENOUGH_BYTES:
            self._came_bytes, self._left_s = 0, self._window_s
        self._is_whole = not message.get("more_body", False)
        return message


class Door:
    """Everything passes here, in and out."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: Tokens,
        metrics: Metrics,
        journal: Journal,
        clock: Clock,
        ids: IdSource,
        body_bytes: int,
        body_timeout_s: float,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._metrics = metrics
        self._journal = journal
        self._clock = clock
        self._ids = ids
        self._body_bytes = body_bytes
        self._body_timeout_s = body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get(ID_HEADER, "")
        request_id = given if _ID.fullmatch(given) else self._ids.ulid()
        scope["omnigraph.request_id"] = request_id
        answer = _Answer(send, request_id)
        started_s = self._clock.monotonic()
        try:
            scope["omnigraph.identity"] = self._identify(scope["path"], headers)
            await self._app(scope, self._bounded(scope, headers, receive), answer.send)
        except ClientLeft:
            scope["omnigraph.left"] = True
        except OmnigraphError as error:
            await self._refuse(error, scope, receive, answer)
        except Exception as error:  # noqa: BLE001 the outermost boundary: nothing may reach a caller as a bare stack
            self._journal.tell("defect", logging.ERROR, error, request_id=request_id, path=scope["path"])
            await self._refuse(defect(), scope, receive, answer)
        finally:
            self._tell(scope, answer, self._clock.monotonic() - started_s)

    def _identify(self, path: str, headers: Mapping[str, str]) -> Identity:
        """Who asks; raises unless the address is open to everybody or the token is good."""
        if path in _OPEN or path.startswith("/docs/") or not self._tokens.are_needed:
            return Identity()
        kind, _, text = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not text.strip():
            raise Unauthenticated("this server needs a token", advice="Send `Authorization: Bearer …`")
        found = self._tokens.find(text.strip())
        if found is None:
            raise Unauthenticated("the token is not known here", code="bad_token", advice="Ask for a new one")
        if self._tokens.has_expired(found):
            raise Unauthenticated("the token has expired", code="token_expired", advice="Ask for a new one")
        return Identity(found.name, found.role)

    def _bounded(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Receive:
        """`receive` that refuses more than the bound; bodies are never unpacked, so what is sent is what it costs."""
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise InvalidInput(
                "compressed bodies are not accepted",
                code="content_encoding",
                advice="Send the body as it is, without Content-Encoding",
            )
        pace = _Pace(self._clock, receive, self._body_timeout_s)
        if _STREAMED.fullmatch(scope["path"]):
            return pace.receive
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._body_bytes:
            raise body_too_large(self._body_bytes, int(length))
        seen = 0

        async def bounded() -> Message:
            nonlocal seen
            message = await pace.receive()
            seen += len(message.get("body", b""))
            if seen > self._body_bytes:
                raise BodyRefused(body_too_large(self._body_bytes, seen))
            return message

        return bounded

    async def _refuse(self, error: OmnigraphError, scope: Scope, receive: Receive, answer: _Answer) -> None:
        if not answer.status:
            await answer_of(error)(scope, receive, answer.send)

    def _tell(self, scope: Scope, answer: _Answer, seconds: float) -> None:
        operation = scope.get("omnigraph.operation")
        self._metrics.requests.labels(operation or "other", str(answer.status or "left")).inc()
        quiet = scope["path"] in _QUIET and answer.status == 200
        self._journal.tell(
            "request",
            logging.DEBUG if quiet else logging.INFO,
            request_id=scope["omnigraph.request_id"],
            method=scope["method"],
            path=scope["path"],
            status=answer.status or None,
            ms=round(seconds * 1000, 2),
            actor=scope.get("omnigraph.identity", Identity()).actor,
            graph=scope.get("omnigraph.api"),
            operation=operation,
            left=scope.get("omnigraph.left"),
            **_facts(scope),
        )


def _facts(scope: Scope) -> dict[str, Any]:
    client = scope.get("client")
    return {"client": client[0]} if client else {}


class _Answer:
    """The way out: stamps the request's id, remembers the status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._id = request_id
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)[ID_HEADER] = self._id
        await self._send(message)
