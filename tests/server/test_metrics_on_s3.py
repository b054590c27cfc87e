"""What the metrics count is what goes over the wire, Lance's own requests included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

import omnigraph as og
from tests.server.bed import ADD, ALL, PEOPLE, QUICK, Door, Server, metric
from tests.support.proxy import Proxy
from tests.support.s3 import S3Place

pytestmark = pytest.mark.s3


@pytest.fixture
def on_s3(proxied_place: S3Place) -> Iterator[Door]:
    og.init(proxied_place.uri, PEOPLE, storage_options=proxied_place.storage_options, config=QUICK)
    options = [word for pair in proxied_place.storage_options.items() for word in ("--storage-option", "=".join(pair))]
    # Every change is staged: so Lance has much to do.
    server = Server(proxied_place.uri, *options, environment={"OMNIGRAPH_INLINE_SHARE": "0", "OMNIGRAPH_FOLD": "never"})
    name = proxied_place.uri.rpartition("/")[2] or "graph"
    door = Door(server.url, name, None, None, server)  # type: ignore[arg-type]
    door.name = door.call("GET", "/graphs").document["graphs"][0]["name"]
    yield door
    door.http.close()
    server.stop()


def _count_requests(door: Door) -> Counter[str]:
    text = door.call("GET", "/metrics").document.decode()
    methods = ("GET", "PUT", "LIST", "HEAD", "DELETE", "LANCE_READ", "LANCE_WRITE")
    return Counter({name: int(metric(text, "storage_ops_total", method=name)) for name in methods})


def test_the_metric_and_the_wire_agree(on_s3: Door, s3_proxy: Proxy) -> None:
    door = on_s3
    before = _count_requests(door)
    with s3_proxy.measure() as wire:
        for number in range(3):
            assert door.mutate(ADD, {"n": f"p{number}"}).status == 200
        assert len(door.query(ALL).document["rows"]) == 3
        assert door.post("branches", {"name": "x"}).status == 201
        assert door.get("commits").status == 200
        assert door.mutate(ADD, {"n": "p0", "a": 200}).status == 400
    spent = _count_requests(door) - before
    assert spent.total() == len(wire)
    assert spent["LANCE_WRITE"] > 0
    tables = [request for request in wire.requests if request.key_class.startswith("table")]
    assert spent["LANCE_READ"] + spent["LANCE_WRITE"] == len(tables)


def test_every_request_belongs_to_an_operation(on_s3: Door, s3_proxy: Proxy) -> None:
    door = on_s3
    door.mutate(ADD, {"n": "warm"})
    door.query(ALL)
    before = door.call("GET", "/metrics").document.decode()
    with s3_proxy.measure() as wire:
        door.mutate(ADD, {"n": "Ada"})
    after = door.call("GET", "/metrics").document.decode()
    spent = metric(after, "storage_ops_total", operation="mutate") - metric(
        before, "storage_ops_total", operation="mutate"
    )
    assert spent == len(wire)
    stages = metric(after, "storage_stages_sum", operation="mutate") - metric(
        before, "storage_stages_sum", operation="mutate"
    )
    assert 2 <= stages <= len(wire)


def test_a_write_whose_caller_left_ends_in_a_known_state(on_s3: Door, s3_proxy: Proxy) -> None:
    """It is never given up half-way: it lands, and the log says so."""
    door = on_s3
    door.mutate(ADD, {"n": "warm"})
    s3_proxy.latency_s = 0.5
    with pytest.raises(httpx.ReadTimeout):
        door.http.post(
            f"{door.url}/graphs/{door.name}/mutate",
            json={"source": ADD, "params": {"n": "Late"}},
            headers={"X-Request-Id": "left"},
            timeout=0.2,
        )
    s3_proxy.latency_s = 0.0
    assert door.server is not None
    for _ in range(3000):
        journal_lines = [line for line in door.server.log if line["event"] == "write ended without its caller"]
        if journal_lines:
            break
        door.call("GET", "/healthz")
    assert [(line["request_id"], line["landed"]) for line in journal_lines] == [("left", True)]
    assert "Late" in [row["name"] for row in door.query(ALL).document["rows"]]
