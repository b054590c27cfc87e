"""S160: path tricks, oversized bodies, malformed text, deep nesting, packed bodies: a clear refusal, never a 5xx."""

from __future__ import annotations

import gzip
import json
import socket
from urllib.parse import urlsplit

import pytest

from tests.server.bed import ADD, ALL, Door, HttpAnswer

JSON = {"content-type": "application/json"}


def _send(door: Door, content: bytes, route: str = "query", **headers: str) -> HttpAnswer:
    return door.call("POST", f"/graphs/{door.name}/{route}", content=content, headers={**JSON, **headers})


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "..%2f..%2fetc", "%00", "a%2fb", "x" * 300, "%F0%9F%98%80", "%ff", "con\\aux"]
)
def test_names_of_graphs(door: Door, name: str) -> None:
    outcome = door.call("GET", f"/graphs/{name}/snapshot")
    assert outcome.status == 404
    assert "error" in outcome.document


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a//b", "", " ", "x\x00y", "x" * 300, "a\nb", "MAIN", "."])
def test_names_of_branches(door: Door, name: str) -> None:
    response = door.post("branches", {"name": name})
    assert response.status == 400, response
    assert door.get("branches").document == {"branches": ["main"]}
    assert door.query(branch=name or "?").status in (400, 404)


def test_a_body_that_says_it_is_too_large(door: Door) -> None:
    response = _send(door, b"{" + b" " * (9 << 20) + b"}")
    assert (response.status, response.code) == (413, "limit_exceeded")
    assert (response.document["limit"], response.document["bound"]) == ("request_body_bytes", 8 << 20)


def test_a_body_that_does_not_say_so(door: Door) -> None:
    """In chunks, without a length."""
    chunks = iter([b" " * (1 << 20)] * 9)
    outcome = door.call("POST", f"/graphs/{door.name}/query", content=chunks, headers=JSON)
    assert (outcome.status, outcome.code) == (413, "limit_exceeded")


def test_a_body_within_the_bound(door: Door) -> None:
    text = json.dumps({"source": ALL + " " * (7 << 20)}).encode()
    assert _send(door, text).status == 200


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"\xff\xfe\x00",
        b'{"source": "\xff"}',
        b'{"source": 5}',
        b'{"source": "x", "source": "y", "params": []}',
        b'{"source": "x", "params": {"a": 1e999}}',
        b'{"source": "query q() { match { $p: Person } return { $p } }", "params": {"\\ud800": "\\udfff"}}',
        b'{"source": "\\ud800"}',
        b'{"source": "x\\u0000y"}',
        b"[" * 100_000,
        b'{"source": "x", "params": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
        b'{"source": "x", "params": {"a": ' + b"9" * 5_000 + b"}}",
    ],
    ids=range(16),
)
def test_malformed_bodies(door: Door, content: bytes) -> None:
    for route in ("query", "mutate"):
        response = _send(door, content, route)
        assert response.status == 400, response.document
        assert {"error", "code"} <= response.document.keys()


@pytest.mark.parametrize("depth", [50, 500, 5_000])
def test_deep_nesting_in_a_query(door: Door, depth: int) -> None:
    text = "query q() { match { $p: Person where " + "(" * depth + "$p.age = 1" + ")" * depth + " } return { $p } }"
    assert door.query(text).status in (200, 400)
    negated = "query q() { match { $p: Person where " + "not " * depth + "$p.age = 1 } return { $p } }"
    assert door.query(negated).status in (200, 400)


def test_parameters_of_odd_types(door: Door) -> None:
    for value in ('{"a": {}}', "[[[]]]", '"\\ud800"', "1" * 400, "true", '{"$ne": 1}', '"base64:***"', "NaN"):
        body = f'{{"source": {json.dumps(ADD)}, "params": {{"n": "x", "a": {value}}}}}'
        assert _send(door, body.encode(), "mutate").status == 400, value
    assert door.names() == []


def test_packed_bodies_are_not_unpacked(door: Door) -> None:
    bomb = gzip.compress(b" " * (64 << 20))
    for route in ("query", "load"):
        response = _send(door, bomb, route, **{"content-encoding": "gzip"})
        assert (response.status, response.code) == (400, "content_encoding")


def test_text_in_results_cannot_break_out(door: Door) -> None:
    name = '</script>\u2028"\\\u0007'
    door.mutate(ADD, {"n": name})
    assert door.names() == [name]


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /graphs/x/query HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
        b"POST /graphs/x/query HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=range(5),
)
def test_what_is_no_http(door: Door, raw: bytes) -> None:
    address = urlsplit(door.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=20) as connection:
        connection.sendall(raw)
        connection.settimeout(20)
        answer = connection.recv(100)
    assert not answer.startswith(b"HTTP/1.1 5")
    assert door.call("GET", "/healthz").status == 200
