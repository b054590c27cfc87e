"""Load and export over HTTP: any size, bounded memory, progress as it happens."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.server.bed import ADD, AGE, Door

NDJSON = {"content-type": "application/x-ndjson"}


def _lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def _person(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **more}}


def _load(door: Door, content: Any, headers: dict[str, str] | None = None, **query: Any) -> Any:
    return door.call(
        "POST", f"/graphs/{door.name}/load", content=content, params=query, headers={**NDJSON, **(headers or {})}
    )


def test_one_document_when_all_is_done(door: Door) -> None:
    load = _load(door, _lines(_person("Ada", age=36), _person("Bo")), message="both")
    assert load.status == 200
    assert load.document["counts"]["node:Person"] == {"inserted": 2, "updated": 0, "deleted": 0}
    assert (load.document["branch"], load.document["rejects_path"]) == ("main", None)
    info = door.open_embedded().commits(1)[0]
    assert (info.kind, info.message, info.commit_id) == ("load", "both", load.document["commit_id"])


def test_modes_keys_and_preconditions(door: Door) -> None:
    first = _load(door, _lines(_person("Ada", age=1)), {"Idempotency-Key": "k"}, mode="append").document
    again = _load(door, _lines(_person("Ada", age=1)), {"Idempotency-Key": "k"}, mode="append").document
    assert (again["commit_id"], again["replayed"]) == (first["commit_id"], True)
    assert _load(door, _lines(_person("Ada")), mode="append").status in (400, 409)
    assert _load(door, _lines(_person("Ada", age=2)), mode="merge").status == 200
    assert door.query().document["rows"] == [{"name": "Ada", "age": 2}]
    stale = _load(door, _lines(_person("Cy")), {"If-Match": f'"{first["commit_id"]}"'})
    assert (stale.status, stale.code) == (412, "precondition_failed")
    assert _load(door, b"", mode="sideways").status == 400
    assert door.names() == ["Ada"]


def test_rejects_name_the_line_and_no_file_of_the_server(door: Door) -> None:
    body = _lines(_person("Ada"), _person("Old", age=200)) + b"{nonsense\n"
    load = _load(door, body)
    assert (load.status, load.code) == (400, "load_rejected")
    assert [(reject["line"], reject["file"]) for reject in load.document["rejects"]] == [
        (2, "body.jsonl"),
        (3, "body.jsonl"),
    ]
    assert "/" not in json.dumps(load.document).replace("://", "")
    assert door.names() == []
    skipped = _load(door, body, on_error="skip").document
    assert (skipped["rejects"], skipped["counts"]["node:Person"]["inserted"]) == (2, 1)
    assert door.names() == ["Ada"]


def _events(lines: Iterator[str]) -> list[tuple[str, Any]]:
    events, name = [], ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            events.append((name, json.loads(value)))
    return events


@pytest.mark.parametrize("good", [True, False])
def test_progress_as_events(door: Door, good: bool) -> None:
    body = _lines(*(_person(f"p{n}", age=1 if good else 500) for n in range(300)))
    headers = {**NDJSON, "accept": "text/event-stream"}
    with httpx.stream("POST", f"{door.url}/graphs/{door.name}/load", content=body, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = _events(answer.iter_lines())
    kinds = [name for name, _ in events]
    assert events[0] == ("progress", {"name": "received", "size_bytes": len(body)})
    assert set(kinds[:-1]) == {"progress"}
    last, document = events[-1]
    if good:
        assert (last, document["counts"]["node:Person"]["inserted"]) == ("result", 300)
    else:
        assert (last, document["status"], document["code"]) == ("error", 400, "load_rejected")
        assert document["reject_count"] == 300


def test_a_body_beyond_the_limit_of_others(door: Door) -> None:
    """9 MiB in pieces, without a length."""
    content = base64.b64encode(b"x" * (1 << 20)).decode()
    pieces = (_lines({"type": "Doc", "data": {"name": f"d{n}", "content": f"base64:{content}"}}) for n in range(7))
    load = _load(door, pieces, engine="local")
    assert load.status == 200, load.document
    assert load.document["counts"]["node:Doc"]["inserted"] == 7
    assert door.open_embedded().blob("Doc", "d6", "content") == b"x" * (1 << 20)


@pytest.mark.slow
def test_a_body_that_spark_loads(door: Door) -> None:
    """Past 1 MiB: the steps are told while it goes on."""
    body = _lines(*(_person(f"p{n:06d}", age=n % 100) for n in range(30_000)))
    headers = {**NDJSON, "accept": "text/event-stream"}
    url = f"{door.url}/graphs/{door.name}/load"
    with httpx.stream("POST", url, content=body, headers=headers, timeout=280) as answer:
        events = _events(answer.iter_lines())
    assert events[-1][0] == "result", events[-1]
    assert (events[-1][1]["engine"], events[-1][1]["counts"]["node:Person"]["inserted"]) == ("spark", 30_000)
    assert len(events) > 3


def test_export_and_load_again(door: Door, graph_path: Path) -> None:
    batch = [{"n": f"p{n:03d}", "a": n % 100} for n in range(500)]
    door.mutate(ADD, batch=batch)
    with httpx.stream("GET", f"{door.url}/graphs/{door.name}/export") as answer:
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        tag = answer.headers["etag"]
        body = answer.read()
    assert tag == f'"{door.get("snapshot").document["commit_id"]}"'
    assert len(body.splitlines()) == 500
    before = door.query().document["rows"]
    door.mutate(AGE, {"n": "p000", "a": 77})
    assert _load(door, body, mode="overwrite").status == 200
    assert door.query().document["rows"] == before


def test_export_refuses_before_it_begins(door: Door) -> None:
    assert door.get("export", type="City").status == 404
    assert door.get("export", branch="nothing").status == 404
    assert door.get("export", at="yesterday").status == 400
    empty = door.get("export")
    assert (empty.status, empty.document) == (200, b"")


def test_readers_of_an_export_that_leave_free_their_places(serving: Callable[..., Door]) -> None:
    """At any moment: before the answer, in its middle, at its end."""
    door = serving()
    door.mutate(ADD, batch=[{"n": f"p{n}"} for n in range(2000)])
    address = urlsplit(door.url)
    for size in (0, 1, 200, 5_000):
        with socket.create_connection((address.hostname or "", address.port or 0), timeout=60) as connection:
            connection.sendall(b"GET /graphs/own/export HTTP/1.1\r\nhost: x\r\n\r\n")
            if size:
                assert connection.recv(size)
    for _ in range(2000):
        text = door.call("GET", "/metrics").document.decode()
        if "http_requests_in_flight 0.0" in text and 'storage_stages_count{operation="export"} 4.0' in text:
            break
    assert "http_requests_in_flight 0.0" in text
    assert 'storage_stages_count{operation="export"} 4.0' in text
    assert door.server is not None
    assert door.server.noise == []
