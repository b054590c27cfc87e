"""A tiny S3 over loopback HTTP that answers as scripted: for what no well-behaved server can be made to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

STAMP = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_HTTP_DATE = "Fri, 02 Jan 2026 03:04:05 GMT"


@dataclass(frozen=True)
class CannedAnswer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False  # close the connection instead of answering


class S3Double:
    """Objects of one bucket. `script` may answer a request itself, before or after its effect."""

    def __init__(self) -> None:
        self.endpoint = ""
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.seen: list[tuple[str, str]] = []
        self.page_keys = 1000
        self.listing_order: Callable[[list[str]], list[str]] = sorted
        self.ignores_conditions = False
        self.before: Callable[[str, str], CannedAnswer | None] = lambda method, key: None
        self.after: Callable[[str, str], CannedAnswer | None] = lambda method, key: None

    @property
    def options(self) -> dict[str, str]:
        return {
            "aws_endpoint": self.endpoint,
            "aws_region": "us-east-1",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
        }

    def always(self, status: int, body: bytes = b"") -> None:
        self.before = lambda method, key: CannedAnswer(status, body)

    def count(self, method: str) -> int:
        return sum(1 for method_seen, _ in self.seen if method_seen == method)

    def answer(self, method: str, target: str, body: bytes, conditional: bool) -> CannedAnswer:
        parts = urlsplit(target)
        query = parse_qs(parts.query)
        key = unquote(parts.path).removeprefix("/bucket").removeprefix("/")
        kind = "LIST" if "list-type" in query else method
        with self._lock:
            self.seen.append((kind, key))
            return (
                self.before(kind, key)
                or self._effect(kind, key, query, body, conditional)
                or CannedAnswer(500, b"no such request")
            )

    def _effect(self, kind: str, key: str, query: dict[str, list[str]], body: bytes, conditional: bool) -> CannedAnswer:
        if kind == "LIST":
            list = self._list(query)
        elif kind == "PUT":
            list = self._put(key, body, conditional and not self.ignores_conditions)
        elif kind == "DELETE":
            self.objects.pop(key, None)
            list = CannedAnswer(204)
        elif key in self.objects:
            list = CannedAnswer(200, self.objects[key], {"Last-Modified": _HTTP_DATE, "ETag": '"1"'})
        else:
            list = CannedAnswer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        return self.after(kind, key) or list

    def _put(self, key: str, body: bytes, conditional: bool) -> CannedAnswer:
        if conditional and key in self.objects:
            return CannedAnswer(412)
        self.objects[key] = body
        return CannedAnswer(200, headers={"ETag": '"1"'})

    def _list(self, query: dict[str, list[str]]) -> CannedAnswer:
        prefix = query.get("prefix", [""])[0]
        keys = self.listing_order([key for key in self.objects if key.startswith(prefix)])
        start = int(query.get("continuation-token", ["0"])[0])
        page = keys[start : start + self.page_keys]
        more = start + self.page_keys < len(keys)
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{STAMP:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
            f'<ETag>"1"</ETag><Size>{len(self.objects[key])}</Size></Contents>'
            for key in page
        )
        token = f"<NextContinuationToken>{start + self.page_keys}</NextContinuationToken>" if more else ""
        text = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{contents}</ListBucketResult>"
        return CannedAnswer(200, text.encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # the default of 5 makes parallel connections wait for a retransmission

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that gave up waiting is what some tests are about."""


@contextmanager
def serving() -> Iterator[S3Double]:
    double = S3Double()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = double.answer(self.command, self.path, body, self.headers.get("If-None-Match") == "*")
            if answer.drop:
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = respond

        def log_message(self, format: str, *args: object) -> None:
            return

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    double.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield double
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
