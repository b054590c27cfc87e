"""The throttle adds latency per request and caps how many run together."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from omnigraph.storage.local import LocalStore
from tests.support.throttled_store import ThrottledStore


class CountingClock:
    """Does not wait; remembers that it should have. With a gate, each sleeper waits for the others to arrive."""

    def __init__(self, gate: threading.Barrier | None = None) -> None:
        self.slept: list[float] = []
        self._gate = gate

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self._gate:
            self._gate.wait()


def test_every_request_costs_one_latency(local: LocalStore) -> None:
    clock = CountingClock()
    store = ThrottledStore(local, 0.04, clock=clock)
    store.put_if_absent("a", b"1")
    store.put("a", b"2")
    store.get("a")
    store.head("a")
    store.list("", first_page=True)
    store.delete("a")
    assert clock.slept == [0.04] * 6


@pytest.mark.parametrize(("n", "cap", "latencies"), [(16, None, 1), (16, 8, 2), (17, 8, 3), (1, 8, 1), (0, 8, 0)])
def test_get_many_costs_a_latency_per_round(local: LocalStore, n: int, cap: int | None, latencies: int) -> None:
    clock = CountingClock()
    store = ThrottledStore(local, 0.04, cap, clock)
    many = store.get_many([f"k{key}" for key in range(n)])
    assert clock.slept == [0.04] * latencies
    assert store.most_running == min(n, cap or n)
    assert many == [None] * n


def test_latency_can_be_switched_on_later(local: LocalStore) -> None:
    clock = CountingClock()
    store = ThrottledStore(local, 0.0, clock=clock)
    store.put("a", b"")
    store.latency_s = 0.15
    store.get("a")
    assert clock.slept == [0.15]


@pytest.mark.parametrize(("cap", "most"), [(2, 2), (None, 8)])
def test_no_more_run_together_than_allowed(local: LocalStore, cap: int | None, most: int) -> None:
    # Every sleeper waits until `most` of them sleep: with one more or one fewer allowed, this would hang or differ.
    store = ThrottledStore(local, 0.01, cap, CountingClock(threading.Barrier(most, timeout=20)))
    threads = [threading.Thread(target=store.put, args=(f"k{n}", b"")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.most_running == most
    assert len(local.list("")) == 8


def test_batches_that_compete_do_not_deadlock(local: LocalStore) -> None:
    store = ThrottledStore(local, 0.0, 3)
    threads = [threading.Thread(target=store.get_many, args=([f"k{n}" for n in range(10)],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert not any(thread.is_alive() for thread in threads)
    assert store.most_running <= 3


def test_a_failed_request_gives_its_place_back(local: LocalStore) -> None:
    store = ThrottledStore(local, 0.0, 1)
    for _ in range(3):
        assert store.get_many(["missing"]) == [None]
        with pytest.raises(Exception, match="no object"):
            store.get("missing")


def test_a_store_that_allows_no_request_is_refused(local: LocalStore) -> None:
    with pytest.raises(ValueError, match="at least one"):
        ThrottledStore(local, 0.0, 0)
