"""A moto S3 server that is safe to race against, run as a script in its own process.

    python -P moto_server.py [--eager-switching]

It binds a free loopback port, prints `{"port": N}` as its only line of output and serves until its standard input
ends, so that it never outlives the test session that holds the other end of the pipe.

Why not moto's own server: moto looks whether a key exists and then stores it, without a lock, so two conditional
PUTs can both win; and Werkzeug closes the connection after each answer. Here a request body is read to its end first
(a client killed in the middle of an upload leaves nothing behind, as on S3), then the request runs alone.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import ThreadedWSGIServer

if TYPE_CHECKING:
    Handler = Any
else:
    Handler = MotoRequestHandler

FORGET_PATH = "/__testbed/forget/"


class AtomicMoto:
    """The moto application, one request at a time: each is atomic, and a LIST never meets a changing dictionary."""

    def __init__(self) -> None:
        # Straight to S3: finding the service by host takes as long as the request itself.
        self._app = create_backend_app("s3")
        self._lock = threading.Lock()

    def answer(self, environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        """Status line, headers and body for a request whose body is already in memory."""
        head: list[tuple[str, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> None:
            head.append((status, headers))

        with self._lock:
            if environ["PATH_INFO"].startswith(FORGET_PATH):
                return _forget(environ["PATH_INFO"].removeprefix(FORGET_PATH))
            chunks = self._app(environ, start_response)
            try:
                body = b"".join(chunks)
            finally:
                close = getattr(chunks, "close", None)
                if close is not None:
                    close()
        status, headers = head[-1]
        return status, headers, body


def _forget(bucket: str) -> tuple[str, list[tuple[str, str]], bytes]:
    """Drop a bucket with all it holds, without a request per object."""
    s3_backends.bucket_accounts.pop(bucket, None)
    bucket_backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets.pop(bucket, None)
    for versions in bucket_backend.keys.values() if bucket_backend else ():
        for version in versions if isinstance(versions, list) else (versions,):
            version.dispose()
    return "204 No Content", [], b""


class KeepAliveHandler(Handler):  # type: ignore[misc]
    """Reads a request completely, answers it in one write and keeps the connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def run_wsgi(self) -> None:
        if self.headers.get("Expect", "").strip().lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.wfile.flush()
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        if len(body) < size or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            return
        environ = self.make_environ()
        environ["wsgi.input"] = io.BytesIO(body)
        try:
            answer = self.server.app.answer(environ)
        except Exception:  # noqa: BLE001 - a fault of moto's own is an answer too
            traceback.print_exc()
            answer = ("500 Internal Server Error", [], b"<Error><Code>InternalError</Code></Error>")
        self._write(*answer)

    def _write(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        code, _, reason = status.partition(" ")
        self.send_response(int(code), reason)
        for name, value in headers:
            if name.lower() not in ("content-length", "connection"):
                self.send_header(name, value)
        # The length that a HEAD declares is the object's, and only moto knows it.
        declared = next((value for name, value in headers if name.lower() == "content-length"), "0")
        if code not in ("204", "304"):
            self.send_header("Content-Length", declared if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Say nothing about requests that went well."""


def main(argv: list[str]) -> None:
    if "--eager-switching" in argv:
        # Threads take turns after every few instructions: a missing lock shows within a few rounds of a race.
        sys.setswitchinterval(1e-6)
    app: Any = AtomicMoto()  # not a WSGI application: the handler asks it for whole answers
    server = ThreadedWSGIServer("127.0.0.1", 0, app, handler=KeepAliveHandler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"port": server.port}), flush=True)
    while sys.stdin.buffer.read(4096):
        pass
    # Connections that clients keep open must not delay the end; nothing here needs saving.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
