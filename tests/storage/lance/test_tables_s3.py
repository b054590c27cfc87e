"""Tables on an S3-protocol server: requests and hops, counted on the wire, and typed answers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from omnigraph.errors import Forbidden, Unavailable
from omnigraph.storage.lance import IndexSpec, PinnedTable, StagedTable, TableDelta, TableStore
from omnigraph.storage.store import ObjectMissing
from tests.storage.lance.table_cases import AGE, ID, NOTE, PERSON, ages, people, write
from tests.support.proxy import Proxy
from tests.support.proxy_faults import How
from tests.support.s3 import S3Place

pytestmark = pytest.mark.s3

TABLE = "person_ab12cd34-1"
BY_ID = IndexSpec("by_id", "id", "BTREE")


def _tables(s3_place: S3Place) -> TableStore:
    return TableStore(s3_place.uri, {**s3_place.storage_options, "client_max_retries": "0"})


def _fill_table(tables: TableStore, rows: int = 1000) -> PinnedTable:
    return write(tables, tables.birth(TABLE, "node"), people({f"n{number}": number for number in range(rows)}))


def test_birth_costs_four_requests(proxied_place: S3Place, s3_proxy: Proxy) -> None:
    tables = _tables(proxied_place)
    with s3_proxy.measure() as traffic:
        assert tables.birth(TABLE, "node").version == "1"
    assert (len(traffic), traffic.count("PUT")) == (4, 2), str(traffic)
    with s3_proxy.measure() as traffic:
        tables.birth(TABLE, "node")
    assert len(traffic) == 0, str(traffic)


def test_a_warm_staged_insert(proxied_place: S3Place, s3_proxy: Proxy) -> None:
    tables = _tables(proxied_place)
    base = _fill_table(tables)
    with s3_proxy.measure() as traffic:
        written_table = write(tables, base, people({"new": 1}), present_ids=())
    assert written_table.rows == 1001
    assert (traffic.count("PUT"), len(traffic), traffic.hops) == (3, 3, 3), str(traffic)


def test_a_warm_staged_insert_into_an_indexed_table(proxied_place: S3Place, s3_proxy: Proxy) -> None:
    tables = _tables(proxied_place)
    base = _fill_table(tables)
    base = tables.commit(base, tables.stage_index(base, [BY_ID]))
    for number in range(2):
        with s3_proxy.measure(latency_s=0.05) as traffic:
            base = write(tables, base, people({f"new{number}": 1}), present_ids=())
        assert traffic.count("PUT") == 3, str(traffic)
        assert traffic.count("LIST") == 0, str(traffic)
        assert len(traffic) <= 4, str(traffic)
        assert traffic.hops == 3, str(traffic)  # the list of indexes is read while the data file is written


def test_an_update_adds_its_reads_and_one_deletion_file(proxied_place: S3Place, s3_proxy: Proxy) -> None:
    tables = _tables(proxied_place)
    base = _fill_table(tables)
    base = tables.commit(base, tables.stage_index(base, [BY_ID]))
    assert base.find(["n1"]).num_rows == 1
    with s3_proxy.measure(latency_s=0.05) as traffic:
        written_table = write(tables, base, people({"n5": 0, "n6": 0}), present_ids=["n5", "n6"])
    assert written_table.rows == 1000
    assert traffic.count("PUT") == 4, str(traffic)
    assert traffic.count("LIST") == 0, str(traffic)
    assert traffic.hops <= 6, str(traffic)


def test_adding_a_column_costs_nothing_more(proxied_place: S3Place, s3_proxy: Proxy) -> None:
    tables = _tables(proxied_place)
    base = _fill_table(tables)
    with s3_proxy.measure() as traffic:
        written_table = write(tables, base, people({"new": 1}, pa.schema([ID, NOTE, AGE])), present_ids=())
    assert written_table.schema.names == ["id", AGE.name, NOTE.name]
    assert (traffic.count("PUT"), len(traffic)) == (3, 3), str(traffic)


def test_moving_to_another_base_writes_no_data(proxied_place: S3Place, s3_proxy: Proxy) -> None:
    tables = _tables(proxied_place)
    base = _fill_table(tables)
    staged = tables.stage(base, TableDelta(PERSON, people({"x": 1}), present_ids=()))
    moved = write(tables, base, people({"y": 1}), present_ids=())
    with s3_proxy.measure() as traffic:
        committed_table = tables.commit(moved, tables.restage(staged, moved, present_ids=()))
    assert committed_table.rows == 1002
    assert (traffic.count("PUT"), len(traffic)) == (2, 2), str(traffic)


def test_a_staged_change_moves_in_another_process(s3_place: S3Place) -> None:
    tables = _tables(s3_place)
    base = _fill_table(tables, 3)
    staged = tables.stage(base, TableDelta(PERSON, people({"n1": 7, "x": 1}), ["n2"])).to_json()
    moved = write(tables, base, people({"x": 5, "y": 5}))
    elsewhere = _tables(s3_place)
    pin = elsewhere.open(TABLE, moved.version)
    version = elsewhere.commit(pin, elsewhere.restage(StagedTable.from_json(staged), pin))
    assert ages(version) == {"n0": 0, "n1": 7, "x": 1, "y": 5}


def test_a_cold_open_and_the_first_row(proxied_place: S3Place, s3_proxy: Proxy) -> None:
    fill_table = _fill_table(_tables(proxied_place))
    fresh = _tables(proxied_place)
    with s3_proxy.measure() as traffic:
        pinned = fresh.open(TABLE, fill_table.version)
    assert len(traffic) <= 2, str(traffic)
    with s3_proxy.measure() as traffic:
        assert pinned.find(["n7"])[AGE.name].to_pylist() == [7]
    assert len(traffic) <= 5, str(traffic)
    assert traffic.count("LIST") == 0, str(traffic)


def test_counters_agree_with_the_wire(proxied_place: S3Place, s3_proxy: Proxy) -> None:
    tables = _tables(proxied_place)
    base = _fill_table(tables)
    before = tables.io_stats()
    with s3_proxy.measure() as traffic:
        base = write(tables, base, people({"n5": 0}))
        assert base.find(["n5"]).num_rows == 1
    spent = tables.io_stats() - before
    assert spent.read_iops + spent.write_iops == len(traffic)


def test_births_race(s3_place: S3Place) -> None:  # H14
    stores = [_tables(s3_place) for _ in range(8)]
    start = threading.Barrier(8)

    def be_born(store: TableStore) -> str:
        start.wait()
        return store.birth(TABLE, "node").version

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(be_born, stores)) == {"1"}
    manifests = [key for key in s3_place.list_keys() if key.endswith(".manifest")]
    assert len(manifests) == 1


def test_writers_fork_from_one_base(s3_place: S3Place) -> None:
    tables = _tables(s3_place)
    base = _fill_table(tables, 3)

    def fork(number: int) -> dict[str, int | None]:
        return ages(write(tables, base, people({"n1": number, f"x{number}": number})))

    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(fork, range(4)))
    assert versions == [{"n0": 0, "n1": number, "n2": 2, f"x{number}": number} for number in range(4)]


def test_missing_refused_and_silent_are_three_answers(proxied_place: S3Place, s3_proxy: Proxy) -> None:
    tables = _tables(proxied_place)
    fill_table = _fill_table(tables)
    with pytest.raises(ObjectMissing):
        tables.open(TABLE, str((1 << 63) + 1))
    s3_proxy.fail("403", times=None)
    with pytest.raises(Forbidden):
        _tables(proxied_place).open(TABLE, fill_table.version)
    s3_proxy.clear_faults()
    s3_proxy.fail("500", times=None)
    with pytest.raises(Unavailable):
        _tables(proxied_place).open(TABLE, fill_table.version)
    with pytest.raises(Unavailable):
        write(tables, fill_table, people({"new": 1}), present_ids=())
    s3_proxy.clear_faults()
    assert write(tables, fill_table, people({"new": 1}), present_ids=()).rows == 1001


@pytest.mark.parametrize("key_class", ["table-data", "table-txn", "table-manifest"])
@pytest.mark.parametrize("how", ["drop_answer", "503_after", "409", "412"])
def test_a_write_whose_answer_is_lost_is_right_or_unavailable(
    proxied_place: S3Place, s3_proxy: Proxy, how: How, key_class: str
) -> None:
    """Nobody names what such a write leaves behind, so trying again is always safe."""
    tables = TableStore(proxied_place.uri, proxied_place.storage_options)
    base = _fill_table(tables, 3)
    s3_proxy.fail(how, method="PUT", key_class=key_class)
    try:
        written_table = write(tables, base, people({"n1": 7, "new": 1}))
    except Unavailable:
        written_table = write(tables, base, people({"n1": 7, "new": 1}))
    assert ages(written_table) == {"n0": 0, "n1": 7, "n2": 2, "new": 1}
    assert ages(_tables(proxied_place).open(TABLE, written_table.version)) == ages(written_table)


@pytest.mark.parametrize("how", ["drop_answer", "503_after"])
def test_a_birth_whose_answer_is_lost_is_a_birth(proxied_place: S3Place, s3_proxy: Proxy, how: How) -> None:
    s3_proxy.fail(how, method="PUT", key_class="table-manifest")
    tables = TableStore(proxied_place.uri, proxied_place.storage_options)
    try:
        born = tables.birth(TABLE, "node")
    except Unavailable:
        born = tables.birth(TABLE, "node")
    assert (born.version, born.rows) == ("1", 0)
    assert len([key for key in proxied_place.list_keys() if key.endswith(".manifest")]) == 1
