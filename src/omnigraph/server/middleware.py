"""The outermost layer: request ids, tokens before anything is read, bounded bodies, one log line per request.

A plain ASGI layer, because it must see `receive` itself: to bound the body, and to leave the wait for a caller's
departure to `Workers`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omnigraph.clock import Clock, IdSource
from omnigraph.errors import InvalidInput, OmnigraphError, Unauthenticated
from omnigraph.server.calls import Identity
from omnigraph.server.logs import Journal
from omnigraph.server.metrics import Metrics
from omnigraph.server.problems import body_too_large, error_response, http_status, internal_error, slow_body
from omnigraph.server.tokens import Tokens
from omnigraph.server.workers import ClientLeft

ID_HEADER = "X-Request-Id"
_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_OPEN_PATHS = ("/healthz", "/openapi.json", "/docs")
_QUIET_PATHS = ("/healthz", "/metrics")
#: What must come in every window: less than any honest connection sends, more than one that is only kept open.
_WINDOW_BYTES = 16 << 10
_STREAMED_PATH = re.compile(r"/graphs/[^/]+/load")


class BodyRefused(HTTPException):
    """Raised while a body is read, in a form that the web framework passes on."""

    def __init__(self, error: OmnigraphError) -> None:
        # The remaining body has no reader any more, so the connection cannot be used again.
        super().__init__(http_status(error), headers={"Connection": "close"})
        self.error = error


class BodyPace:
    """Refuses a body that comes too slowly: some of it, or its end, must come in every window of waiting."""

    def __init__(self, clock: Clock, receive: Receive, window_s: float) -> None:
        self._clock = clock
        self._receive = receive
        self._window_s = window_s
        self._remaining_s = window_s
        self._received_bytes = 0
        self._is_complete = False

    async def receive(self) -> Message:
        # After the body comes only the caller's departure, which may be awaited for as long as the work takes.
        if self._is_complete:
            return await self._receive()
        if self._remaining_s <= 0:
            raise BodyRefused(slow_body(self._window_s))
        # Only waiting counts: a server that is slow to take the next piece is not the caller's fault.
        started_s = self._clock.monotonic()
        try:
            # Not `wait_for`, which may lose the cancellation of a task that waits here for the caller's departure.
            async with asyncio.timeout(self._remaining_s):
                message = await self._receive()
        except TimeoutError:
            raise BodyRefused(slow_body(self._window_s)) from None
        self._remaining_s -= self._clock.monotonic() - started_s
        self._received_bytes += len(message.get("body", b""))
        if self._received_bytes >= _WINDOW_BYTES:
            self._received_bytes, self._remaining_s = 0, self._window_s
        self._is_complete = not message.get("more_body", False)
        return message


class RequestMiddleware:
    """Every request and every response passes through this layer."""

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
        sent_id = headers.get(ID_HEADER, "")
        request_id = sent_id if _ID.fullmatch(sent_id) else self._ids.ulid()
        scope["omnigraph.request_id"] = request_id
        answer = _ResponseSender(send, request_id)
        started_s = self._clock.monotonic()
        try:
            scope["omnigraph.identity"] = self._identify(scope["path"], headers)
            await self._app(scope, self._limit_body(scope, headers, receive), answer.send)
        except ClientLeft:
            scope["omnigraph.left"] = True
        except OmnigraphError as error:
            await self._refuse(error, scope, receive, answer)
        except Exception as error:  # noqa: BLE001 the outermost boundary: nothing may reach a caller as a bare stack
            self._journal.write("defect", logging.ERROR, error, request_id=request_id, path=scope["path"])
            await self._refuse(internal_error(), scope, receive, answer)
        finally:
            self._log_request(scope, answer, self._clock.monotonic() - started_s)

    def _identify(self, path: str, headers: Mapping[str, str]) -> Identity:
        """Who asks; raises `Unauthenticated` unless the path is open to everybody or the token is valid."""
        if path in _OPEN_PATHS or path.startswith("/docs/") or not self._tokens.are_needed:
            return Identity()
        kind, _, text = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not text.strip():
            raise Unauthenticated("this server needs a token", advice="Send `Authorization: Bearer …`")
        token = self._tokens.find(text.strip())
        if token is None:
            raise Unauthenticated("the token is not known here", code="bad_token", advice="Ask for a new one")
        if self._tokens.has_expired(token):
            raise Unauthenticated("the token has expired", code="token_expired", advice="Ask for a new one")
        return Identity(token.name, token.role)

    def _limit_body(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Receive:
        """A `receive` that refuses large and slow bodies. Bodies are never unpacked, so their size is their cost."""
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise InvalidInput(
                "compressed bodies are not accepted",
                code="content_encoding",
                advice="Send the body as it is, without Content-Encoding",
            )
        pace = BodyPace(self._clock, receive, self._body_timeout_s)
        if _STREAMED_PATH.fullmatch(scope["path"]):
            return pace.receive
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._body_bytes:
            raise body_too_large(self._body_bytes, int(length))
        received_bytes = 0

        async def receive_bounded() -> Message:
            nonlocal received_bytes
            message = await pace.receive()
            received_bytes += len(message.get("body", b""))
            if received_bytes > self._body_bytes:
                raise BodyRefused(body_too_large(self._body_bytes, received_bytes))
            return message

        return receive_bounded

    async def _refuse(self, error: OmnigraphError, scope: Scope, receive: Receive, answer: _ResponseSender) -> None:
        if not answer.status:
            await error_response(error)(scope, receive, answer.send)

    def _log_request(self, scope: Scope, answer: _ResponseSender, seconds: float) -> None:
        operation = scope.get("omnigraph.operation")
        self._metrics.requests.labels(operation or "other", str(answer.status or "left")).inc()
        is_quiet = scope["path"] in _QUIET_PATHS and answer.status == 200
        self._journal.write(
            "request",
            logging.DEBUG if is_quiet else logging.INFO,
            request_id=scope["omnigraph.request_id"],
            method=scope["method"],
            path=scope["path"],
            status=answer.status or None,
            ms=round(seconds * 1000, 2),
            actor=scope.get("omnigraph.identity", Identity()).actor,
            graph=scope.get("omnigraph.graph"),
            operation=operation,
            left=scope.get("omnigraph.left"),
            client=scope["client"][0] if scope.get("client") else None,
        )


class _ResponseSender:
    """Sends the response with the request's id, and remembers its status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._id = request_id
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)[ID_HEADER] = self._id
        await self._send(message)
