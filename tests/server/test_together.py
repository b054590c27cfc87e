"""Many clients at once: conflicts, preconditions, repetitions, limits, departures. S159."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.server.bed import ADD, AGE, Door, HttpAnswer, metric

Serving = Callable[..., Door]
CLIENTS = 12


def _at_once(calls: list[Callable[[], HttpAnswer]]) -> list[HttpAnswer]:
    ready = threading.Barrier(len(calls))

    def run(call: Callable[[], HttpAnswer]) -> HttpAnswer:
        ready.wait(30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_a_key_is_used_once_by_real_concurrent_clients(door: Door) -> None:
    add = "query add($n: String) { insert Doc { name: $n } }"
    at_once = _at_once([lambda: door.mutate(add, {"n": "once"}, Idempotency_Key="k1")] * CLIENTS)
    assert {answer.status for answer in at_once} == {200}
    assert len({answer.document["commit_id"] for answer in at_once}) == 1
    assert Counter(answer.document["replayed"] for answer in at_once) == {False: 1, True: CLIENTS - 1}
    assert [commit.kind for commit in door.open_embedded().commits() if commit.kind == "mutate"] == ["mutate"]


def test_only_one_of_many_keeps_its_precondition(door: Door) -> None:
    door.mutate(ADD, {"n": "Ada", "a": 0})
    base = door.get("snapshot")
    tag = base.headers["etag"]
    responses = _at_once(
        [lambda age=age: door.mutate(AGE, {"n": "Ada", "a": age}, If_Match=tag) for age in range(1, CLIENTS + 1)]  # type: ignore[misc]
    )
    assert Counter(answer.status for answer in responses) == {200: 1, 412: CLIENTS - 1}
    lost = next(answer for answer in responses if answer.status == 412)
    assert (lost.code, lost.document["expected"]) == ("precondition_failed", base.document["commit_id"])
    assert len(door.open_embedded().commits()) == 3


def test_header_and_body_must_agree(door: Door) -> None:
    receipt = door.mutate(ADD, {"n": "x"}, if_commit="a.1", If_Match='"b.2"')
    assert (receipt.status, receipt.code) == (400, "bad_request")


def test_a_conflict_names_the_table(door: Door) -> None:
    """Writers that asked to decide for themselves: 409 with `manifest_conflict`, and what landed is the sum."""
    door.mutate(ADD, {"n": "Ada", "a": 0})
    conflicts: list[dict[str, Any]] = []
    landed = 0
    for _ in range(20):
        at_once = _at_once([lambda: door.mutate(AGE, {"n": "Ada", "a": 1}, on_conflict="fail")] * CLIENTS)
        assert {answer.status for answer in at_once} <= {200, 409}
        landed += sum(answer.status == 200 for answer in at_once)
        conflicts += [answer.document for answer in at_once if answer.status == 409]
        if conflicts:
            break
    assert conflicts, "nobody met anybody"
    assert all(conflict["code"] == "conflict" for conflict in conflicts)
    tables = [conflict["manifest_conflict"] for conflict in conflicts if "manifest_conflict" in conflict]
    assert tables
    for answer in tables:
        assert answer["table_key"] == "node:Person"
        assert answer["expected"] < answer["actual"]
    members = [
        door.open_embedded().at(commit.commit_id).commit()["members"] for commit in door.open_embedded().commits(None)
    ]
    assert sum(len(member) for member in members[:-2]) == landed


def test_writers_that_do_not_meet_all_land(door: Door) -> None:
    at_once = _at_once([lambda n=n: door.mutate(ADD, {"n": f"p{n:02d}"}) for n in range(CLIENTS)])  # type: ignore[misc]
    assert {answer.status for answer in at_once} == {200}
    assert door.names() == [f"p{n:02d}" for n in range(CLIENTS)]


@contextmanager
def _upload(door: Door, first: bytes, route: str = "load") -> Iterator[socket.socket]:
    """A request whose body has begun and not ended."""
    address = urlsplit(door.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=60) as connection:
        head = f"POST /graphs/{door.name}/{route} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        connection.sendall(head.encode() + f"{len(first):x}\r\n".encode() + first + b"\r\n")
        yield connection


def _write_limits(tmp_path: Path, **limits: float) -> Path:
    location = tmp_path / "own"
    file = tmp_path / "server.json"
    file.write_text(json.dumps({"graphs": {"own": str(location)}, "limits": limits}))
    return file


def _eventually(check: Callable[[], bool]) -> None:
    """Ask a server until it says so; every question takes its time, so nothing is waited for blindly."""
    for _ in range(2000):
        if check():
            return
    raise AssertionError("it never came to that")


LINE = b'{"type": "Person", "data": {"name": "Late"}}\n'


def test_too_many_writes_of_one_actor(serving: Serving, tmp_path: Path) -> None:
    """S159."""
    door = serving("--config", _write_limits(tmp_path, writes_per_actor=2))
    with _upload(door, LINE), _upload(door, LINE):
        _eventually(lambda: door.mutate(ADD, {"n": "x"}).status == 429)
        refused = door.mutate(ADD, {"n": "x"})
        assert (refused.code, refused.headers["retry-after"]) == ("too_many_writes", "1")
        assert (refused.document["limit"], refused.document["bound"]) == ("writes_per_actor", 2)
        assert door.query().status == 200  # reading goes on
    _eventually(lambda: door.mutate(ADD, {"n": "y"}).status == 200)
    assert "Late" not in door.names()


def test_too_many_requests(serving: Serving, tmp_path: Path) -> None:
    """S159."""
    door = serving("--config", _write_limits(tmp_path, requests_in_flight=1))
    with _upload(door, LINE):
        _eventually(lambda: door.query().status == 503)
        refused = door.query()
        assert (refused.code, refused.headers["retry-after"]) == ("overloaded", "1")
        assert door.call("GET", "/healthz").status == 200
    _eventually(lambda: door.query().status == 200)


@pytest.mark.parametrize("route", ["load", "mutate"])
def test_a_client_that_trickles_its_body(serving: Serving, tmp_path: Path, route: str) -> None:
    """S159: it is refused after a while, whatever it goes on sending, and its place is free again."""
    door = serving("--config", _write_limits(tmp_path, body_timeout_s=1, requests_in_flight=1))
    with _upload(door, b"{", route) as connection:
        answer = _trickle(connection)
    assert answer.startswith(b"HTTP/1.1 408"), answer
    assert b'"code":"slow_body"' in answer
    assert b"connection: close" in answer.lower()
    assert door.mutate(ADD, {"n": "Ada"}).status == 200
    assert door.names() == ["Ada"]


def _trickle(connection: socket.socket) -> bytes:
    """A byte now and then, never an end; what is answered."""
    connection.settimeout(0.2)
    answer = b""
    for _ in range(300):
        try:
            received = connection.recv(65536)
        except TimeoutError:
            connection.sendall(b"1\r\n \r\n")
            continue
        except ConnectionError:
            return answer
        if not received:
            return answer
        answer += received
    raise AssertionError("it was never refused")


def test_a_client_that_leaves_in_the_middle_of_a_body(serving: Serving, tmp_path: Path) -> None:
    """S159: nothing is loaded, nothing stays behind."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    door = serving(TMPDIR=str(scratch))
    with _upload(door, LINE * 1000):
        _eventually(lambda: door.call("GET", "/healthz").status == 200 and any(scratch.iterdir()))
    _eventually(lambda: not any(scratch.iterdir()) and door.query().status == 200)
    assert door.names() == []
    text = door.call("GET", "/metrics").document.decode()
    assert metric(text, "http_requests_in_flight") == 0


SLOW = """query slow() {
    match { $a: Person  $b: Person  $c: Person  $a.name != $b.name  $b.name != $c.name  $a.name != $c.name }
    return { count($a) as n }
}"""


def test_a_client_that_leaves_a_query(serving: Serving) -> None:
    """S159: the query is cancelled, its thread is free again."""
    door = serving()
    assert door.mutate(ADD, {"a": 1}, batch=[{"n": f"p{n}"} for n in range(1500)]).status == 200
    body = {"source": SLOW}
    with pytest.raises(httpx.ReadTimeout):
        door.http.post(f"{door.url}/graphs/own/query", json=body, timeout=1.0)
    assert door.server is not None
    log = door.server.log
    _eventually(
        lambda: (
            door.call("GET", "/healthz").status == 200
            and any(line["event"] == "read ended without its caller" for line in log)
        )
    )
    ended = next(line for line in log if line["event"] == "read ended without its caller")
    assert ended["code"] == "cancelled"
    assert any(line.get("left") for line in log)
    _eventually(lambda: metric(door.call("GET", "/metrics").document.decode(), "http_requests_in_flight") == 0)


def test_a_stop_waits_for_what_has_begun(serving: Serving) -> None:
    door = serving()
    with _upload(door, LINE) as connection:
        _eventually(lambda: metric(door.call("GET", "/metrics").document.decode(), "http_requests_in_flight") == 1)
        assert door.server is not None
        door.server.ask_to_stop()
        connection.sendall(b"0\r\n\r\n")
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 200"), answer
    assert door.server.wait() == 0
    assert door.server.log[-1]["event"] == "stopped"
    assert door.open_embedded().table("Person").count() == 1
