"""One stream of records: names that count downwards, the newest one, and everything that must be loud."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.commit.next_record import next_record
from omnigraph.commit.publish_plan import PublishPlan
from omnigraph.errors import Corruption, NotFound, SnapshotExpired
from omnigraph.log.commit_record import Header, Stub
from omnigraph.log.stream import RecordStream, record_key, seq_of_key
from omnigraph.storage.local import LocalStore
from omnigraph.storage.metering import MeteredStore, RequestKind
from omnigraph.storage.store import ObjectInfo
from tests.log.records import NOON, STREAM, record


@pytest.fixture
def store(tmp_path: Path) -> MeteredStore:
    return MeteredStore(LocalStore(tmp_path / "graph", fsync=False))


def _chain(store: MeteredStore, length: int) -> list[Header]:
    """So many linked records, with the trails that the engine gives them."""
    commit_record = record(0, "init")
    headers = [commit_record.header]
    store.put(record_key(STREAM, 0), commit_record.as_bytes)
    for seq in range(1, length):
        commit_record = next_record(
            commit_record, [PublishPlan("mutate", f"op{seq}", commit_record)], f"rid{seq}", NOON
        )
        store.put(record_key(STREAM, seq), commit_record.as_bytes)
        headers.append(commit_record.header)
    return headers


@pytest.mark.parametrize("seq", [0, 1, 32, 10**16 - 1])
def test_names_count_downwards_and_back(seq: int) -> None:
    assert seq_of_key(record_key(STREAM, seq)) == seq
    if seq:
        assert record_key(STREAM, seq) < record_key(STREAM, seq - 1)


@pytest.mark.parametrize("name", ["x.rec", "1.rec", "9999999999999999", "9999999999999999.tmp", "-999999999999999.rec"])
def test_strangers_are_named(name: str) -> None:
    with pytest.raises(Corruption, match="does not belong"):
        seq_of_key(f"__manifest/{STREAM}/{name}")


def test_a_stream_that_was_never_born(store: MeteredStore) -> None:
    assert RecordStream(store, STREAM).newest() is None
    assert RecordStream(store, STREAM).get(0) is None
    with pytest.raises(NotFound):
        RecordStream(store, STREAM).record(0)


@pytest.mark.parametrize("length", [1, 2, 17, 40, 150])
def test_the_newest_by_one_listing(store: MeteredStore, length: int) -> None:
    _chain(store, length)
    with store.measure() as cost:
        newest = RecordStream(store, STREAM).newest()
    assert newest is not None
    assert newest.seq == length - 1
    assert cost.by_kind == {RequestKind.LIST: 1, RequestKind.GET: 2}
    assert cost.hops == 2


@pytest.mark.parametrize("behind", [0, 1, 15, 16, 17, 40])
def test_what_came_after(store: MeteredStore, behind: int) -> None:
    _chain(store, 60)
    records = RecordStream(store, STREAM)
    with store.measure() as cost:
        entries_after = records.after(59 - behind)
    assert [entry.seq for entry in entries_after] == list(range(60 - behind, 60))
    assert cost.hops <= 2 + behind // 16 + (behind > 0)
    if not behind:
        assert cost.by_kind == {RequestKind.GET: 1}


def test_reading_ahead_is_one_hop_and_can_be_limited(store: MeteredStore) -> None:
    _chain(store, 60)
    records = RecordStream(store, STREAM)
    with store.measure() as cost:
        assert [entry.seq for entry in records.read_ahead(10)] == list(range(10, 26))
    assert cost.hops == 1
    assert 20 <= len(records.after_many(10, limit=20)) < 49
    assert records.after_many(59) == []


def test_headers_cost_one_get_per_32_commits(store: MeteredStore) -> None:
    chain = _chain(store, 130)
    records = RecordStream(store, STREAM)
    head = records.newest()
    assert head is not None
    with store.measure() as cost:
        headers = list(records.headers(head))
    assert headers == chain[::-1]
    assert cost.by_kind[RequestKind.GET] <= 130 // 32 + 1
    assert list(records.headers(records.record(0))) == chain[:1]
    for seq in (31, 32, 33, 64):
        assert list(records.headers(records.record(seq))) == chain[: seq + 1][::-1]


def test_headers_go_on_over_stubs(store: MeteredStore) -> None:
    chain = _chain(store, 70)
    for seq in range(69):
        store.put(record_key(STREAM, seq), Stub(chain[seq]).encode())
    records = RecordStream(store, STREAM)
    assert list(records.headers(records.record(69))) == chain[::-1]


def test_a_stub_is_told_as_expired(store: MeteredStore) -> None:
    chain = _chain(store, 5)
    store.put(record_key(STREAM, 2), Stub(chain[2]).encode())
    records = RecordStream(store, STREAM)
    with pytest.raises(SnapshotExpired):
        records.record(2)
    assert isinstance(records.get(2), Stub)
    assert [entry.seq for entry in records.after(0)] == [1, 2, 3, 4]
    newest = records.newest()
    assert newest is not None
    assert newest.seq == 4


def test_a_newest_record_that_is_a_stub_is_corruption(store: MeteredStore) -> None:
    chain = _chain(store, 3)
    store.put(record_key(STREAM, 2), Stub(chain[2]).encode())
    with pytest.raises(Corruption, match="stub"):
        RecordStream(store, STREAM).newest()


@pytest.mark.parametrize("missing", [1, 3, 8])
def test_a_gap_is_corruption(store: MeteredStore, missing: int) -> None:
    """S53."""
    _chain(store, 10)
    store.delete(record_key(STREAM, missing))
    with pytest.raises(Corruption) as caught:
        RecordStream(store, STREAM).newest()
    assert caught.value.details.get("seq") == missing


def test_a_record_under_another_name_is_corruption(store: MeteredStore) -> None:
    _chain(store, 4)
    store.put(record_key(STREAM, 3), store.get(record_key(STREAM, 2)))
    records = RecordStream(store, STREAM)
    for attempt in (records.newest, lambda: records.get(3), lambda: records.after(1), lambda: records.record(3)):
        with pytest.raises(Corruption):
            attempt()


class _Listing(MeteredStore):
    """Changes what a listing says."""

    change: Callable[[list[ObjectInfo]], list[ObjectInfo]]

    def list(self, prefix: str, *, first_page: bool = False) -> list[ObjectInfo]:
        return self.change(super().list(prefix, first_page=first_page))


@pytest.mark.parametrize("hidden", [1, 5, 19, 20, 40])
def test_a_stale_listing_is_probed_upwards(store: MeteredStore, hidden: int) -> None:
    """S49."""
    _chain(store, 40)
    stale = _Listing(store.inner)
    stale.change = lambda infos: infos[hidden:]
    newest = RecordStream(stale, STREAM).newest()
    assert newest is not None
    assert newest.seq == 39


def test_an_unordered_listing_is_sorted(store: MeteredStore) -> None:
    _chain(store, 40)
    turned = _Listing(store.inner)
    turned.change = lambda infos: infos[::-1]
    newest = RecordStream(turned, STREAM, listed_in_order=False).newest()
    assert newest is not None
    assert newest.seq == 39


def test_a_listed_record_that_cannot_be_read_is_corruption(store: MeteredStore) -> None:
    _chain(store, 4)
    infos = store.list(f"__manifest/{STREAM}/")
    store.delete(record_key(STREAM, 3))
    ghost = _Listing(store.inner)
    ghost.change = lambda _: infos
    with pytest.raises(Corruption, match="listed"):
        RecordStream(ghost, STREAM).newest()
