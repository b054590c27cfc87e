"""Requests to a server, and the errors that a broken connection becomes."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from omnigraph.api.remote.errors import CLASS_HEADER, decode_error
from omnigraph.errors import InvalidInput, OmnigraphError, Unavailable, Unknown

_TIMEOUT = httpx.Timeout(150.0, connect=10.0)
_NO_TIMEOUT = httpx.Timeout(None, connect=10.0)
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30.0)

Query = Mapping[str, Any]


class Transport:
    """One server, one token. May be used from several threads."""

    def __init__(self, base: str, token: str | None, ca: str | os.PathLike[str] | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.base = base.rstrip("/")
        # No settings from the environment: a proxy meant for the internet must not see the token.
        self._http = httpx.Client(
            base_url=self.base,
            headers=headers,
            timeout=_TIMEOUT,
            limits=_LIMITS,
            trust_env=False,
            verify=_tls_verification(ca),
        )

    def get(self, path: str, query: Query | None = None, headers: Mapping[str, str] | None = None) -> httpx.Response:
        with _translate_read_errors(self.base):
            response = self._http.get(path, params=_without_none(query), headers=headers)
        return _raise_for_status(response)

    def post_read(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> httpx.Response:
        """A POST that changes nothing."""
        with _translate_read_errors(self.base):
            response = self._http.post(path, json=_without_none(body), headers=headers)
        return _raise_for_status(response)

    def write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Query | None = None,
        client_key: str | None = None,
    ) -> httpx.Response:
        """A request that changes something. If the connection breaks, the outcome is unknown."""
        headers = {"Idempotency-Key": client_key} if client_key is not None else {}
        content = None if body is None else _without_none(body)
        with _translate_write_errors(self.base, client_key):
            response = self._http.request(method, path, json=content, params=_without_none(query), headers=headers)
        return _raise_for_status(response)

    def upload(
        self,
        path: str,
        content: Iterable[bytes],
        query: Query,
        client_key: str | None,
        progress: Callable[[dict[str, Any]], None] | None,
    ) -> dict[str, Any]:
        """Send a streamed body. The server answers a stream of events, of which the last is the result or the error."""
        headers = {"Accept": "text/event-stream", "Content-Type": "application/x-ndjson"}
        if client_key is not None:
            headers["Idempotency-Key"] = client_key
        call = {"params": _without_none(query), "content": content, "headers": headers, "timeout": _NO_TIMEOUT}
        with _translate_write_errors(self.base, client_key), self._http.stream("POST", path, **call) as response:  # type: ignore[arg-type]
            if response.status_code >= 400:
                response.read()
                _raise_for_status(response)
            for name, document in _read_events(response.iter_lines()):
                if name == "progress" and progress is not None:
                    progress(document)
                elif name == "result":
                    return document
                elif name == "error":
                    raise decode_error(int(document.get("status", 500)), document.get("class"), document)
        raise _outcome_unknown(self.base, client_key)

    @contextmanager
    def download(self, path: str, query: Query) -> Iterator[tuple[Mapping[str, str], Iterator[bytes]]]:
        """A streamed answer: its headers, and its body chunk by chunk."""
        with (
            _translate_read_errors(self.base),
            self._http.stream("GET", path, params=_without_none(query), timeout=_NO_TIMEOUT) as response,
        ):
            if response.status_code >= 400:
                response.read()
                _raise_for_status(response)
            yield response.headers, response.iter_bytes()

    def close(self) -> None:
        self._http.close()


def _tls_verification(ca: str | os.PathLike[str] | None) -> ssl.SSLContext | bool:
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=os.fspath(ca))
    except OSError as error:
        raise InvalidInput(
            f"the authorities in {os.fspath(ca)} cannot be read: {error}", code="bad_tls", advice="Give a PEM file"
        ) from error


def _without_none(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """The values that are set: a server has its own default for the others."""
    return {name: value for name, value in (values or {}).items() if value is not None}


def _raise_for_status(response: httpx.Response) -> httpx.Response:
    if response.status_code < 400:
        return response
    try:
        document: Any = json.loads(response.content)
    except ValueError:
        document = None
    raise decode_error(response.status_code, response.headers.get(CLASS_HEADER), document)


def _read_events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


@contextmanager
def _translate_read_errors(base: str) -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        raise _server_unreachable(base, error) from error
    except (httpx.InvalidURL, UnicodeError) as error:
        raise _server_unreachable(base, error) from error


@contextmanager
def _translate_write_errors(base: str, client_key: str | None) -> Iterator[None]:
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol) as error:
        raise _server_unreachable(base, error) from error
    except httpx.TransportError as error:
        raise _outcome_unknown(base, client_key) from error


def _server_unreachable(base: str, error: Exception) -> Unavailable:
    return Unavailable(
        f"the server at {base} did not answer: {error or type(error).__name__}",
        code="server_unreachable",
        advice="Look whether it runs, then try again",
    )


def _outcome_unknown(base: str, client_key: str | None) -> OmnigraphError:
    return Unknown(
        f"the connection to {base} broke before the answer came",
        advice="Repeat the write with the same client key to learn how it ended",
        client_key=client_key,
    )
