"""The proxy counts, delays, caps and fails exactly what it says, for obstore and for Lance's own I/O."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlsplit

import lance
import obstore
import pyarrow as pa
import pytest
from obstore.exceptions import AlreadyExistsError, PermissionDeniedError
from obstore.store import S3Store

from tests.support.proxy import Proxy
from tests.support.proxy_faults import How
from tests.support.s3 import S3Place

pytestmark = pytest.mark.s3

RECORD = "__manifest/main/0001.rec"


def _get(store: S3Store, key: str) -> bytes:
    return bytes(obstore.get(store, key).bytes())


def _in_parallel(count: int, store: S3Store) -> None:
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda number: obstore.put(store, f"k{number}", b""), range(count)))


def test_counts_by_method_and_key_class(s3_proxy: Proxy, proxied_place: S3Place) -> None:
    store = proxied_place.object_store()
    with s3_proxy.measure() as traffic:
        obstore.put(store, RECORD, b"one", mode="create")
        obstore.put(store, "graph.json", b"{}")
        obstore.head(store, RECORD)
        obstore.get(store, RECORD)
        obstore.list(store, "__manifest/main").collect()
        obstore.copy(store, RECORD, "__archive/main/0001")
        obstore.delete(store, ["schemas/a.json", "schemas/b.json"])
    obstore.get(store, RECORD)
    assert traffic.counts == {
        ("COPY", "archive"): 1,
        ("DELETE_MANY", "schema"): 1,
        ("GET", "record"): 1,
        ("HEAD", "record"): 1,
        ("LIST", "record"): 1,
        ("PUT", "graph"): 1,
        ("PUT", "record"): 1,
    }
    assert [request.conditional for request in traffic.select("PUT")] == [True, False]
    assert traffic.hops == len(traffic) == 7
    assert len(s3_proxy.log) == 8
    with pytest.raises(ValueError, match="unknown key class"):
        traffic.count(key_class="records")


def test_large_bodies_stream_both_ways_and_come_in_parts(s3_proxy: Proxy, proxied_place: S3Place) -> None:
    store = proxied_place.object_store()
    data = bytes(range(256)) * (24 << 10)
    with s3_proxy.measure() as traffic:
        obstore.put(store, "tables/t-1/data/a.lance", data, use_multipart=True, chunk_size=5 << 20)
        obstore.put(store, "tables/t-1/data/b.lance", data, use_multipart=False)
        read = _get(store, "tables/t-1/data/a.lance")
    assert read == data == _get(store, "tables/t-1/data/b.lance")
    assert traffic.counts == {
        ("GET", "table-data"): 1,
        ("PART", "table-data"): 2,
        ("PART_END", "table-data"): 1,
        ("PART_START", "table-data"): 1,
        ("PUT", "table-data"): 1,
    }
    assert sum(request.sent_bytes for request in traffic.select("PART")) == len(data)
    assert traffic.select("GET")[0].answered_bytes == len(data)


def test_requests_of_lance_go_through_the_proxy(s3_proxy: Proxy, proxied_place: S3Place) -> None:
    uri = f"{proxied_place.uri}/tables/t-1"
    with s3_proxy.measure() as traffic:
        lance.write_dataset(pa.table({"a": [1, 2, 3]}), uri, storage_options=proxied_place.storage_options)
    assert traffic.count("PUT", "table-data") == 1
    assert traffic.count("PUT", "table-txn") == 1
    assert [request.conditional for request in traffic.select("PUT", "table-manifest")] == [True]
    assert lance.dataset(uri, storage_options=proxied_place.storage_options).count_rows() == 3


def test_hops_and_slope_count_only_what_waits(s3_proxy: Proxy, proxied_place: S3Place) -> None:
    """Eight parallel requests are one hop, three in a row are three."""
    store = proxied_place.object_store()

    def three_then_eight() -> None:
        for number in range(3):
            obstore.put(store, f"a{number}", b"")
        _in_parallel(8, store)

    three_then_eight()
    with s3_proxy.measure(latency_s=0.15) as traffic:
        three_then_eight()
    assert len(traffic) == 11
    assert traffic.hops == 4
    assert traffic.peak_concurrent == 8
    assert s3_proxy.latency_s == 0.0
    slope = s3_proxy.slope(three_then_eight, (0.0, 0.1, 0.3))
    assert slope.hops == pytest.approx(4, abs=0.6)


def test_a_cap_makes_requests_wait_their_turn(s3_proxy: Proxy, proxied_place: S3Place) -> None:
    store = proxied_place.object_store()
    _in_parallel(16, store)
    s3_proxy.max_concurrent = 8
    with s3_proxy.measure(latency_s=0.15) as traffic:
        _in_parallel(16, store)
    assert traffic.peak_concurrent == 8
    assert traffic.hops == 2


def test_lifting_the_cap_admits_those_who_wait(s3_proxy: Proxy, proxied_place: S3Place) -> None:
    store = proxied_place.object_store()
    s3_proxy.max_concurrent = 1
    hold = s3_proxy.fail("hold", key="k0")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(obstore.put, store, "k0", b"")
        hold.wait_hit()
        second = pool.submit(obstore.put, store, "k1", b"")
        s3_proxy.max_concurrent = None
        second.result(30)
        assert not first.done()
        hold.release()
        first.result(30)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("403", PermissionDeniedError),
        ("404", FileNotFoundError),
        ("409", AlreadyExistsError),
        ("412", AlreadyExistsError),
        ("500", obstore.exceptions.GenericError),
        ("503", obstore.exceptions.GenericError),
        ("drop_request", obstore.exceptions.GenericError),
    ],
)
def test_faults_that_leave_no_effect(s3_proxy: Proxy, proxied_place: S3Place, how: How, error: type[Exception]) -> None:
    """H25: what the client is told, though nothing landed."""
    store = proxied_place.object_store()
    fault = s3_proxy.fail(how, nth=2, method="PUT", key_class="record")
    obstore.put(store, "graph.json", b"{}")
    obstore.put(store, "__manifest/main/0000.rec", b"zero", mode="create")
    with pytest.raises(error):
        obstore.put(store, RECORD, b"one", mode="create")
    assert fault.hits == 1
    assert proxied_place.list_keys() == ["__manifest/main/0000.rec", "graph.json"]
    obstore.put(store, RECORD, b"one", mode="create")
    assert [request.fault for request in s3_proxy.log if request.key.endswith(RECORD)] == [how, None]
    assert [request.status for request in s3_proxy.log if request.fault] == [int(how) if how.isdigit() else 0]


@pytest.mark.parametrize("how", ["drop_answer", "503_after"])
def test_a_lost_answer_after_the_effect(s3_proxy: Proxy, proxied_place: S3Place, how: How) -> None:
    """H25: own success, and a client that repeats the request itself is told that the key exists."""
    s3_proxy.fail(how, method="PUT", key_class="record")
    with pytest.raises(obstore.exceptions.GenericError):
        obstore.put(proxied_place.object_store(), RECORD, b"one", mode="create")
    assert _get(proxied_place.object_store(), RECORD) == b"one"

    s3_proxy.fail(how, method="PUT", key_class="record")
    repeating = proxied_place.object_store(max_retries=3)
    with pytest.raises(AlreadyExistsError):
        obstore.put(repeating, "__manifest/main/0002.rec", b"two", mode="create")
    assert _get(repeating, "__manifest/main/0002.rec") == b"two"


def test_a_request_that_arrives_after_the_client_gave_up(s3_proxy: Proxy, proxied_place: S3Place) -> None:
    """H24: absent when the client looks, there afterwards."""
    store = proxied_place.object_store()
    late = s3_proxy.fail("arrive_late", method="PUT", key_class="record")
    with pytest.raises(obstore.exceptions.GenericError):
        obstore.put(store, RECORD, b"one", mode="create")
    with pytest.raises(FileNotFoundError):
        obstore.head(store, RECORD)
    late.release()
    late.wait_done()
    assert _get(store, RECORD) == b"one"


def test_a_held_request_waits_while_others_pass(s3_proxy: Proxy, proxied_place: S3Place) -> None:
    store = proxied_place.object_store()
    hold = s3_proxy.fail("hold", method="PUT", key_class="record")
    with ThreadPoolExecutor(1) as pool:
        stalled = pool.submit(obstore.put, store, RECORD, b"stalled", mode="create")
        hold.wait_hit()
        obstore.put(store, RECORD, b"quick", mode="create")
        hold.release()
        with pytest.raises(AlreadyExistsError):
            stalled.result(30)
    assert _get(store, RECORD) == b"quick"


def test_faults_strike_lances_own_requests(s3_proxy: Proxy, proxied_place: S3Place) -> None:
    """A lost answer is found out by Lance itself, a refusal is an error; `on_hit` runs when the effect is there."""
    landed = threading.Event()
    s3_proxy.fail("drop_answer", method="PUT", key_class="table-manifest", on_hit=landed.set)
    uri, options = f"{proxied_place.uri}/tables/t-1", proxied_place.storage_options
    with s3_proxy.measure() as traffic:
        lance.write_dataset(pa.table({"a": [1]}), uri, storage_options=options)
    assert landed.is_set()
    assert [request.status for request in traffic.select("PUT", "table-manifest")] == [0, 412]
    assert lance.dataset(uri, storage_options=options).count_rows() == 1

    s3_proxy.fail("403", method="PUT", key_class="table-data")
    with pytest.raises(OSError, match="AccessDenied"):
        lance.write_dataset(pa.table({"a": [2]}), uri, mode="append", storage_options=options)


def test_reset_clears_everything(s3_proxy: Proxy, proxied_place: S3Place) -> None:
    store = proxied_place.object_store()
    s3_proxy.latency_s = 5.0
    s3_proxy.max_concurrent = 1
    s3_proxy.fail("503", times=None)
    s3_proxy.reset()
    with s3_proxy.measure() as traffic:
        obstore.put(store, "a", b"")
    assert [request.status for request in traffic.requests] == [200]
    assert traffic.requests == list(s3_proxy.log)


@pytest.mark.parametrize("size", [100, 4 << 20])
def test_a_client_that_vanishes_while_uploading_leaves_nothing(
    s3_place: S3Place, proxied_place: S3Place, size: int
) -> None:
    """Directly and through the proxy, for bodies that it takes whole and for those that it streams."""
    for place in (s3_place, proxied_place):
        address = urlsplit(place.endpoint)
        head = f"PUT /{place.bucket}/{place.prefix}/half HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
        with socket.create_connection((address.hostname, address.port), timeout=30) as client:
            client.sendall(head.encode() + b"half")
            client.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                assert client.recv(4096) == b""
    assert s3_place.list_keys() == []


def test_seaweed_behind_the_proxy(seaweed_proxy: Proxy, proxied_seaweed_place: S3Place) -> None:
    store = proxied_seaweed_place.object_store()
    seaweed_proxy.fail("drop_answer", method="PUT", key_class="record")
    with pytest.raises(obstore.exceptions.GenericError):
        obstore.put(store, RECORD, b"one", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, RECORD, b"two", mode="create")
    data = bytes(range(256)) * (24 << 10)
    obstore.put(store, "big", data)
    assert _get(store, "big") == data
    assert _get(store, RECORD) == b"one"
    assert [request.method for request in seaweed_proxy.log][:2] == ["PUT", "PUT"]
