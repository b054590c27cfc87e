"""The seam against real S3-protocol servers: what it promises holds on the wire."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import lance
import pyarrow as pa
import pytest

from omnigraph.errors import Unavailable
from omnigraph.storage.address import open_store, parse_address
from omnigraph.storage.metering import MeteredStore
from omnigraph.storage.open_backend import probe_conditional_put, probe_missing_key
from omnigraph.storage.store import ObjectMissing, PutResult
from tests.support.proxy import Proxy
from tests.support.s3 import S3Place

pytestmark = pytest.mark.s3


def test_the_first_page_of_a_long_stream_is_one_request(
    s3_place: S3Place, s3_proxy: Proxy, proxied_place: S3Place
) -> None:
    direct = open_store(s3_place.uri, s3_place.storage_options)
    with ThreadPoolExecutor(8) as workers:
        list(workers.map(lambda n: direct.put(f"__manifest/s/{n:05d}.rec", b""), range(1050)))
    store = open_store(proxied_place.uri, proxied_place.storage_options)
    with s3_proxy.measure() as first:
        page = store.list("__manifest/s/", first_page=True)
    with s3_proxy.measure() as full_listing:
        everything = store.list("__manifest/s/")
    assert page[0].key == "__manifest/s/00000.rec"
    assert len(everything) == 1050
    assert first.counts == {("LIST", "record"): 1}
    assert full_listing.counts == {("LIST", "record"): 2}


def test_the_meter_counts_what_goes_over_the_wire(s3_proxy: Proxy, proxied_place: S3Place) -> None:
    meter = MeteredStore(open_store(proxied_place.uri, proxied_place.storage_options))
    meter.put("graph.json", b"{}")
    with s3_proxy.measure(latency_s=0.04) as traffic, meter.measure() as m:
        meter.put_if_absent("__manifest/s/1.rec", b"x")
        meter.put_if_absent("__manifest/s/1.rec", b"y")
        meter.get_many([f"__manifest/s/{n}.rec" for n in range(8)])
        meter.list("__branches/")
        meter.head("graph.json")
        meter.delete("__trash/x.json")
        with pytest.raises(ObjectMissing):
            meter.get("schemas/none.json")
    assert traffic.counts == {(kind.value, part.value): n for (kind, part), n in m.by_kind_and_class.items()}
    assert traffic.hops == m.hops == 7


def test_lance_finds_the_same_place(s3_place: S3Place) -> None:
    store = open_store(s3_place.uri + "/", s3_place.storage_options)
    address = parse_address(s3_place.uri + "/", s3_place.storage_options)
    lance.write_dataset(pa.table({"id": ["a"]}), f"{address.uri}/tables/t-1", storage_options=dict(address.options))
    assert {info.key.split("/")[2] for info in store.list("tables/t-1/")} >= {"data", "_versions"}


def test_the_environment_reaches_the_same_place(s3_place: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_place.env.items():
        monkeypatch.setenv(name, value)
    open_store(s3_place.uri).put("graph.json", b"{}")
    address = parse_address(s3_place.uri)
    lance.write_dataset(pa.table({"id": ["a"]}), f"{address.uri}/tables/t-1", storage_options=dict(address.options))
    assert "graph.json" in s3_place.list_keys()
    assert any(key.startswith("tables/t-1/data/") for key in s3_place.list_keys())


def test_a_race_for_a_key_has_one_winner(race_place: S3Place) -> None:
    # SeaweedFS may keep a contended PUT waiting past the time-out: no answer is allowed, a second winner is not.
    store = open_store(race_place.uri, race_place.storage_options)
    racers, rounds = 4, 4
    start = threading.Barrier(racers)

    def race(racer: int) -> list[PutResult | None]:
        return [put(number, str(racer).encode()) for number in range(rounds)]

    def put(number: int, name: bytes) -> PutResult | None:
        start.wait(60)
        try:
            return store.put_if_absent(f"__manifest/s/{number}.rec", name)
        except Unavailable:
            return None

    with ThreadPoolExecutor(racers) as workers:
        answers = list(workers.map(race, range(racers)))
    for number in range(rounds):
        holder = int(store.get(f"__manifest/s/{number}.rec"))
        losers = [racer_answers[number] for racer, racer_answers in enumerate(answers) if racer != holder]
        assert PutResult.CREATED not in losers


def test_a_real_server_passes_the_probes(race_place: S3Place) -> None:
    store = open_store(race_place.uri, race_place.storage_options)
    store.put_if_absent("graph.json", b"{}")
    probe_conditional_put(store, "graph.json", b"{}")
    probe_missing_key(store, "__manifest/never")
