"""Metering tells requests, classes, bytes and sequential depth."""

from __future__ import annotations

import contextvars
import threading
from datetime import UTC, datetime

import pytest

from omnigraph.errors import Unavailable
from omnigraph.storage.keys import KeyClass, classify
from omnigraph.storage.local import LocalStore
from omnigraph.storage.metering import MeteredStore, Request, RequestKind, longest_chain
from omnigraph.storage.store import ObjectMissing
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore


@pytest.fixture
def meter(local: LocalStore) -> MeteredStore:
    return MeteredStore(local)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("graph.json", KeyClass.GRAPH),
        ("schemas/ab.json", KeyClass.SCHEMA),
        ("__manifest/s/1.rec", KeyClass.RECORD),
        ("__manifest/s/", KeyClass.RECORD),
        ("__branches/main/00000000.json", KeyClass.REGISTRY),
        ("__recovery/01/0-open", KeyClass.INTENT),
        ("__archive/s/1", KeyClass.ARCHIVE),
        ("__tags/v1", KeyClass.TAG),
        ("__leases/x", KeyClass.LEASE),
        ("__trash/x.json", KeyClass.TRASH),
        ("tables/t-1/data/f.lance", KeyClass.TABLE),
        ("__locks/cleanup", KeyClass.OTHER),
        ("graph.json.bak", KeyClass.OTHER),
        ("", KeyClass.OTHER),
    ],
)
def test_every_part_of_the_layout_has_its_class(key: str, expected: KeyClass) -> None:
    assert classify(key) is expected


def test_requests_are_counted_by_kind_class_and_bytes(meter: MeteredStore) -> None:
    with meter.measure("all") as m:
        meter.put_if_absent("__manifest/s/1.rec", b"12345")
        meter.put_if_absent("__manifest/s/1.rec", b"12345")
        meter.put("schemas/x.json", b"123")
        meter.get("__manifest/s/1.rec")
        meter.head("schemas/x.json")
        meter.list("__manifest/s/")
        meter.delete("__trash/x.json")
    assert m.requests == 7
    assert m.by_kind == {"PUT": 3, "GET": 1, "HEAD": 1, "LIST": 1, "DELETE": 1}
    assert m.by_class == {"record": 4, "schema": 2, "trash": 1}
    assert m.by_kind_and_class[RequestKind.PUT, KeyClass.RECORD] == 2
    assert (m.sent_bytes, m.received_bytes) == (13, 5)
    assert [request.outcome for request in m.log][:3] == ["ok", "exists", "ok"]
    assert m.hops == 7
    assert "3 " not in m.describe().partition("(")[0]
    assert "2 PUT record" in m.describe()


def test_get_many_is_many_requests_and_one_hop(meter: MeteredStore) -> None:
    meter.put("a", b"12")
    with meter.measure() as m:
        meter.get_many(["a", "b", "c"])
        meter.get("a")
        meter.get_many([])
    assert (m.requests, m.hops) == (4, 2)
    assert [request.outcome for request in m.log] == ["ok", "object_missing", "object_missing", "ok"]


def test_failures_are_counted_with_their_code(local: LocalStore) -> None:
    meter = MeteredStore(FaultyStore(local, FaultPlan.at(1, Fault.FAIL_BEFORE)))
    with meter.measure() as m:
        with pytest.raises(Unavailable):
            meter.put_if_absent("a", b"x")
        with pytest.raises(ObjectMissing):
            meter.get("a")
    assert [request.outcome for request in m.log] == ["injected_fault", "object_missing"]


def test_only_the_open_window_counts(meter: MeteredStore) -> None:
    meter.put("a", b"")
    with meter.measure("outer") as outer:
        meter.get("a")
        with meter.measure("inner") as inner:
            meter.get("a")
    meter.get("a")
    assert (outer.requests, inner.requests) == (2, 1)


def test_a_window_sees_all_threads_unless_it_is_for_one_context(meter: MeteredStore) -> None:
    meter.put("a", b"")
    with meter.measure("all") as everything, meter.measure("mine", this_context_only=True) as context_window:
        meter.get("a")
        _in_thread(lambda: meter.get("a"))
        copied = contextvars.copy_context()
        _in_thread(lambda: copied.run(meter.get, "a"))
    meter.get("a")
    assert (everything.requests, context_window.requests) == (3, 2)


def test_a_context_window_belongs_to_its_own_meter(meter: MeteredStore, local: LocalStore) -> None:
    metered_store = MeteredStore(local)
    with meter.measure(this_context_only=True) as m:
        metered_store.put("a", b"")
    assert m.requests == 0


def test_requests_of_lance_are_added(meter: MeteredStore) -> None:
    with meter.measure("staged") as m:
        meter.put("a", b"")
        m.add_lance(2, 3, hops=3)
    assert (m.requests, m.hops) == (6, 4)
    assert "lance 2 reads 3 writes" in m.describe()


def test_many_threads_lose_no_count(meter: MeteredStore) -> None:
    meter.put("a", b"")
    with meter.measure() as m:
        threads = [threading.Thread(target=lambda: [meter.get("a") for _ in range(200)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert m.requests == 1600
    assert len({request.call for request in m.log}) == 1600


@pytest.mark.parametrize(
    ("spans", "hops"),
    [
        ([], 0),
        ([(0, 1)], 1),
        ([(0, 1), (1, 2), (2, 3)], 3),
        ([(0, 3), (0, 3), (0, 3)], 1),
        ([(0, 5), (1, 2), (2, 3), (3, 4)], 3),  # one long request beside a chain of three
        ([(0, 2), (1, 3), (2, 4), (3, 5)], 2),
        ([(3, 4), (0, 1), (1, 2)], 3),
        ([(0, 0), (0, 0)], 2),  # too short for the clock, and still one after the other
    ],
)
def test_hops_are_the_longest_chain_without_overlap(spans: list[tuple[float, float]], hops: int) -> None:
    log = [
        Request(call, RequestKind.GET, "a", 0, 0, started_s, ended_s, "ok")
        for call, (started_s, ended_s) in enumerate(spans)
    ]
    assert longest_chain(log) == hops


def test_hops_of_a_frozen_clock_still_count_get_many_once(local: LocalStore) -> None:
    class Frozen:
        def now(self) -> datetime:
            return datetime(2026, 1, 1, tzinfo=UTC)

        def monotonic(self) -> float:
            return 1.0

        def sleep(self, seconds: float) -> None:
            return

    meter = MeteredStore(local, Frozen())
    with meter.measure() as m:
        meter.get_many(["a", "b"])
        meter.get_many(["a", "b"])
    assert (m.requests, m.hops) == (4, 2)


def _in_thread(work: object) -> None:
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    thread.start()
    thread.join()
