"""Scenarios C: crash and fault windows. S42 to S60, but for the sweep over every request (S47)."""

from __future__ import annotations

import errno
import inspect
import itertools
import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.api import make_backend
from omnigraph.commit.birth import GraphExists, init_graph
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import Corruption, NotFound, OmnigraphError, Unavailable, Unknown, Unsupported
from omnigraph.log.commit_record import Stub
from omnigraph.log.stream import record_key
from omnigraph.schema.compile import compile_schema
from omnigraph.storage.keys import KeyClass
from omnigraph.storage.metering import MeteredStore, RequestKind
from omnigraph.storage.store import ObjectInfo, Store
from tests.scenarios import workers
from tests.scenarios.bed import (
    SCHEMA,
    WAIT_S,
    GraphLocation,
    ScenarioBed,
    ScenarioCrash,
    ScenarioProcess,
    company,
    knows,
    newest_key,
    outcomes,
    person,
    rows_of,
    set_age,
    without,
    works_at,
)
from tests.scenarios.conftest import s3_as_place
from tests.scenarios.stores import CrashingStore, ListingStore, RepeatingStore, UnconditionalStore
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore
from tests.support.pauses import ControlledPauses
from tests.support.processes import run_workers
from tests.support.proxy import Proxy
from tests.support.s3 import S3Place

RECORD_PUT: dict[str, Any] = {"kinds": [RequestKind.PUT], "key_classes": [KeyClass.RECORD]}
THREE_TABLES = (person("ada", 36), company("acme", 3), works_at("ada", "acme"))
BEFORE_RECORD = ("write.captured", "write.validated", "write.staged", "write.before-record")
CRASHES = list(itertools.product(BEFORE_RECORD, [*BEFORE_RECORD, "write.after-record"]))


def _sizes(bed: ScenarioBed) -> list[int]:
    graph = bed.process().graph
    return [len(rows_of(graph, type_name)) for type_name in ("Person", "Company", "WorksAt")]


def _records(bed: ScenarioBed) -> list[str]:
    return [key for key in bed.place.all_keys() if key.startswith("__manifest/")]


def _die(bed: ScenarioBed, window: str, client_key: str | None = None) -> None:
    """A real process that is killed at `window` of a staged write over three tables."""
    args = {
        "uri": bed.place.uri,
        "config": {"fold": "never", "inline_share": 0},
        "window": window,
        "client_key": client_key,
    }
    (result,) = run_workers(workers.write_then_die, 1, args, env=bed.place.env, check=False)
    assert result.exit_code == -9, result.output


def test_s42_a_crash_after_capture_leaves_nothing(local_bed: ScenarioBed) -> None:
    before = local_bed.place.all_keys()
    _die(local_bed, "write.captured")
    assert local_bed.place.all_keys() == before
    local_bed.process().apply(*THREE_TABLES)
    assert _sizes(local_bed) == [1, 1, 1]


@pytest.mark.parametrize("window", ["stage 1", "stage 3", "commit 1", "commit 2"], ids=lambda one: str(one))
def test_s43_s44_a_crash_while_staging_leaves_only_garbage(local_bed: ScenarioBed, window: str) -> None:
    """Data files of one or of all tables, detached commits of one or two of three: nobody names them."""
    records = _records(local_bed)
    _die(local_bed, window)
    assert _records(local_bed) == records
    assert any("/data/" in key for key in local_bed.place.all_keys()), "garbage is there"
    assert _sizes(local_bed) == [0, 0, 0]
    local_bed.process(staged=True).apply(*THREE_TABLES)
    assert _sizes(local_bed) == [1, 1, 1]
    local_bed.assert_sound()


@pytest.mark.parametrize("window", ["commit 3", "write.staged", "write.before-record"])
def test_s45_a_crash_after_all_detached_commits_leaves_only_garbage(bed: ScenarioBed, window: str) -> None:
    records = _records(bed)
    _die(bed, window, client_key="k")
    assert _records(bed) == records
    assert _sizes(bed) == [0, 0, 0]
    receipt = bed.process(staged=True).apply(*THREE_TABLES, client_key="k")
    assert not receipt.replayed
    assert _sizes(bed) == [1, 1, 1]
    bed.assert_sound()


def test_s46_a_crash_after_the_record_keeps_the_commit_and_the_key_tells(bed: ScenarioBed) -> None:
    _die(bed, "write.after-record", client_key="k")
    assert _sizes(bed) == [1, 1, 1]
    (record,) = bed.logical()
    again = bed.process(staged=True).apply(*THREE_TABLES, client_key="k")
    assert again.replayed
    assert again.commit_id == record.commit_id
    assert again.counts == {"inserted": 3, "updated": 0, "deleted": 0}
    assert len(bed.logical()) == 1
    bed.assert_sound()


@pytest.mark.parametrize("staged", [False, True], ids=["inline", "staged"])
def test_s46_a_lost_answer_past_the_deadline_is_unknown_and_the_key_tells(bed: ScenarioBed, staged: bool) -> None:
    """The store takes the record and is gone: the caller learns that nobody knows, and later which it was."""
    process = bed.process(staged=staged, fold="never", publish_deadline_s=0.3)
    process.apply(person("warm"))
    process.fail(
        FaultPlan.at(1, Fault.LOSE_ANSWER, **RECORD_PUT, times=None).also(
            FaultPlan.at(1, Fault.FAIL_BEFORE, kinds=[RequestKind.GET], times=None)
        )
    )
    with pytest.raises(Unknown) as caught:
        process.apply(person("a", 1), client_key="k")
    assert caught.value.details["client_key"] == "k"
    assert caught.value.details["op_id"]
    process.fail(FaultPlan.none())
    again = process.apply(person("a", 1), client_key="k")
    assert again.replayed
    assert again.commit_id == bed.logical()[-1].commit_id
    assert len(bed.logical()) == 2


def test_s46_an_unknown_write_that_never_arrived_is_repeated_by_its_key(local_bed: ScenarioBed) -> None:
    process = local_bed.process(fold="never", publish_deadline_s=0.3)
    process.fail(FaultPlan.at(1, Fault.FAIL_BEFORE, key_classes=[KeyClass.RECORD], times=None))
    with pytest.raises(Unknown):
        process.apply(person("a", 1), client_key="k")
    process.fail(FaultPlan.none())
    again = process.apply(person("a", 1), client_key="k")
    assert not again.replayed
    assert local_bed.ages() == {"a": 1}
    assert len(local_bed.logical()) == 1


@pytest.mark.s3
@pytest.mark.parametrize("key_class", ["table-data", "table-manifest"])
def test_s43_a_lost_answer_of_staging_is_overcome_or_typed(
    s3_proxy: Proxy, proxied_place: S3Place, key_class: str
) -> None:
    """Files that arrived without an answer are garbage at worst; the write lands or says that it did not."""
    bed = ScenarioBed(s3_as_place("moto", proxied_place), "never", key_class)
    process = bed.process(staged=True)
    process.apply(person("warm"))
    fault = s3_proxy.fail("drop_answer", method="PUT", key_class=key_class)
    try:
        process.apply(*THREE_TABLES)
    except OmnigraphError:
        process.apply(*THREE_TABLES)
    assert fault.hits == 1
    assert _sizes(bed) == [2, 1, 1]
    assert len(bed.logical()) == 2
    bed.assert_sound()
    bed.close()


@pytest.mark.parametrize("answer", [0, 1], ids=["first answer heard", "second answer heard"])
def test_s48_a_record_delivered_twice_is_one_commit(bed: ScenarioBed, answer: int) -> None:
    stores: list[RepeatingStore] = []

    def wrap(store: Store) -> Store:
        stores.append(RepeatingStore(store, answer))
        return stores[-1]

    first_process, second_process = bed.process(wrap=wrap, fold="never"), bed.process(fold="never")
    receipt = first_process.apply(person("a", 1))
    assert receipt.commit_id == bed.chain()[-1].commit_id
    second_process.apply(person("b", 2))
    first_process.apply(person("c", 3))
    for key, data in stores[0].delivered:
        bed.store().put_if_absent(key, data)
    assert len(bed.logical()) == 3
    assert bed.ages() == {"a": 1, "b": 2, "c": 3}


@pytest.mark.s3
def test_s48_a_record_that_arrives_late_lands_once(s3_proxy: Proxy, proxied_place: S3Place) -> None:
    """The client gives up on its PUT and sends it again; the first one arrives afterwards."""
    bed = ScenarioBed(s3_as_place("moto", proxied_place), "never", "late")
    process = bed.process()
    late = s3_proxy.fail("arrive_late", method="PUT", key_class="record")
    receipt = process.apply(person("a", 1))
    late.release()
    late.wait_done()
    assert receipt.commit_id == bed.chain()[-1].commit_id
    process.apply(person("b", 2))
    assert len(bed.logical()) == 2
    assert bed.ages() == {"a": 1, "b": 2}
    bed.close()


@pytest.mark.parametrize("hidden", [1, 3, 20, 1000])
def test_s49_a_stale_listing_does_not_hide_the_newest_commit(bed: ScenarioBed, hidden: int) -> None:
    process = bed.process(fold="never")
    for number in range(20):
        process.apply(person("a", number))
    stale = bed.process(wrap=lambda store: ListingStore(store, lambda infos: infos[hidden:]), fold="never")
    assert stale.graph.view().commit_id == process.head.commit_id
    assert {name: row["age"] for name, row in rows_of(stale.graph, "Person").items()} == {"a": 19}
    stale.apply(person("b"))
    assert len(bed.logical()) == 21


def _long_stream(bed: ScenarioBed, length: int, stubs: bool) -> str:
    """A stream of so many records, most of them made by hand; the id of the newest commit."""
    process = bed.process(fold="never")
    process.apply(person("a", 7))
    record, store = process.head, bed.store()
    seqs = range(record.seq + 1, length)
    previous = record
    entries: list[tuple[str, bytes]] = []
    for seq in seqs:
        header = replace(record.header, seq=seq, parents=(previous.ref,), gen=seq, rid=f"r{seq}")
        previous = replace(record, header=header, trail=(), content_seq=seq)
        last = seq == length - 1
        body = previous.as_bytes if last or not stubs else Stub(header).encode()
        entries.append((record_key(record.stream, seq), body))
    bed.spread(lambda entry: store.put(*entry), entries)
    return previous.commit_id


@pytest.mark.parametrize("stubs", [False, True], ids=["records", "stubs"])
def test_s50_a_listing_of_many_pages(bed: ScenarioBed, stubs: bool) -> None:
    newest = _long_stream(bed, bed.place.scale(250, 1010), stubs)
    assert bed.process().graph.view().commit_id == newest
    assert bed.ages() == {"a": 7}
    receipt = bed.process().apply(person("b"))
    assert receipt.commit_id is not None
    assert int(receipt.commit_id.rpartition(".")[2]) == int(newest.rpartition(".")[2]) + 1


def test_s50_temporary_files_and_any_order_are_no_matter(local_bed: ScenarioBed) -> None:
    process = local_bed.process(fold="never")
    for number in range(30):
        process.apply(person("a", number))
    folder = os.path.dirname(os.path.join(local_bed.place.uri, newest_key(process)))
    Path(folder, ".tmp-half-written").write_bytes(b"half a rec")
    shuffled = random.Random(5)

    def anyhow(infos: list[ObjectInfo]) -> list[ObjectInfo]:
        return shuffled.sample(infos, len(infos))

    unordered = local_bed.process(wrap=lambda store: ListingStore(store, anyhow), fold="never")
    assert unordered.graph.view().commit_id == process.head.commit_id


def test_s50_a_stranger_in_the_stream_is_refused_by_name(bed: ScenarioBed) -> None:
    process = bed.process(fold="never")
    process.apply(person("a"))
    stranger = newest_key(process).rsplit("/", 1)[0] + "/notes.txt"
    bed.store().put(stranger, b"hello")
    with pytest.raises(Corruption, match=r"notes\.txt") as caught:
        bed.process()
    assert caught.value.details["key"] == stranger


def _damage(bed: ScenarioBed, key: str, how: str) -> None:
    store = bed.store()
    data = store.get(key)
    damaged = {
        "flipped": data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
        "truncated": data[: len(data) // 2],
        "empty": b"",
        "replaced": b"something else entirely, and long enough to be a record",
        "other record": store.get(record_key(key.split("/")[1], 0)),
    }[how]
    store.put(key, damaged)


HOWS = pytest.mark.parametrize("how", ["flipped", "truncated", "empty", "replaced", "other record"])


@HOWS
def test_s51_a_damaged_newest_record_is_loud_for_all(bed: ScenarioBed, how: str) -> None:
    writer, stale, reader = bed.process(fold="never"), bed.process(fold="never"), bed.process(fold="never")
    first = writer.apply(person("a", 1))
    assert first.commit_id is not None
    stale.graph.refresh()
    reader.graph.refresh()
    writer.apply(person("b", 2))
    _damage(bed, newest_key(writer), how)
    before = bed.place.all_keys()
    for attempt in (
        bed.process,
        partial(bed.process, read_only=True),
        reader.graph.view,
        partial(stale.apply, person("c", 3)),
        partial(stale.apply, without("nobody")),
    ):
        with pytest.raises(Corruption) as caught:
            attempt()
        assert caught.value.advice
    assert bed.place.all_keys() == before, "nothing was written over it"
    assert rows_of(reader.graph.at(first.commit_id), "Person").keys() == {"a"}, "older commits stay readable"


@HOWS
def test_s52_a_damaged_record_in_between_is_never_skipped(bed: ScenarioBed, how: str) -> None:
    first_process, behind = bed.process(fold="never"), bed.process(fold="never")
    for number in range(4):
        first_process.apply(person(f"p{number}", number))
    damaged = newest_key(first_process)
    commit_id = first_process.head.commit_id
    for number in range(4, 8):
        first_process.apply(person(f"p{number}", number))
    _damage(bed, damaged, how)
    for attempt in (
        partial(first_process.graph.at, commit_id),
        behind.graph.view,
        partial(behind.apply, person("x")),
        partial(bed.process().graph.at, commit_id),
    ):
        with pytest.raises(Corruption):
            attempt()
    assert len(rows_of(bed.process().graph, "Person")) == 8, "the newest commit is complete without it"
    assert first_process.apply(person("more")).commit_id is not None


@pytest.mark.parametrize("missing", [1, 3, 5])
def test_s53_a_gap_in_the_sequence_is_corruption(bed: ScenarioBed, missing: int) -> None:
    """Not the end of the log: whoever opens says so, and nobody writes into the hole."""
    process = bed.process(fold="never")
    for number in range(6):
        process.apply(person(f"p{number}"))
    older = f"{process.head.stream}.{missing - 1}"
    bed.store().delete(record_key(process.head.stream, missing))
    before = bed.place.all_keys()
    for read_only in (False, True):
        with pytest.raises(Corruption) as caught:
            bed.process(read_only=read_only)
        assert caught.value.details["seq"] == missing
        assert caught.value.advice
    assert bed.place.all_keys() == before
    with pytest.raises(NotFound):
        process.graph.at(f"{process.head.stream}.{missing}")
    assert len(rows_of(process.graph.at(older), "Person")) == missing - 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    tool = shutil.which("mount")
    if os.geteuid() != 0 or tool is None:
        pytest.skip("only root may mount a small file system")
    outcome = subprocess.run(
        [tool, "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], capture_output=True, check=False
    )
    if outcome.returncode:
        pytest.skip(f"no small file system here: {outcome.stderr.decode().strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


@pytest.mark.parametrize("staged", [False, True], ids=["inline", "staged"])
def test_s54_a_full_disk_is_typed_and_harmless(small_disk: Path, fold: str, staged: bool) -> None:
    bed = ScenarioBed(GraphLocation("local", str(small_disk / "graph")), fold, "s54")
    process = bed.process(staged=staged)
    process.apply(person("a", 1))
    filler = small_disk / "filler"
    _fill(filler)
    with pytest.raises(Unavailable) as caught:
        process.apply(*[person(f"p{number}", number, city="x" * 50) for number in range(100)])
    assert caught.value.advice
    assert bed.ages() == {"a": 1}
    filler.unlink()
    process.apply(person("b", 2))
    assert bed.ages() == {"a": 1, "b": 2}
    bed.close()


def _crash(process: ScenarioProcess, window: str) -> None:
    process.crash_at(window, partial(process.apply, *THREE_TABLES, client_key="once"))


@pytest.mark.parametrize("windows", CRASHES, ids="+".join)
def test_s55_two_crashes_in_a_row_at_every_window(local_bed: ScenarioBed, windows: tuple[str, str]) -> None:
    """The client repeats with its key until it is answered: one commit, wherever the two crashes were."""
    for window in windows:
        _crash(local_bed.process(staged=True), window)
    landed = windows[1] == "write.after-record"
    assert _sizes(local_bed) == ([1, 1, 1] if landed else [0, 0, 0])
    receipt = local_bed.process(staged=True).apply(*THREE_TABLES, client_key="once")
    assert receipt.replayed == landed
    assert _sizes(local_bed) == [1, 1, 1]
    assert len(local_bed.logical()) == 1
    local_bed.assert_sound()


@pytest.mark.parametrize("window", ["fold.captured", "fold.staged", "fold.before-record", "fold.after-record"])
def test_s55_crashes_of_a_fold_change_no_answer(local_bed: ScenarioBed, window: str) -> None:
    second_process = local_bed.process(fold="never")
    second_process.apply(*THREE_TABLES)
    second_process.apply(set_age("ada", 37))
    before = [rows_of(second_process.graph, name) for name in ("Person", "Company", "WorksAt")]
    for _ in range(2):
        process = local_bed.process(fold="never")
        if process.head.overlay:
            process.crash_at(window, process.graph.fold)
    assert [rows_of(local_bed.process().graph, name) for name in ("Person", "Company", "WorksAt")] == before
    local_bed.process(fold="never").graph.fold()
    assert [rows_of(local_bed.process().graph, name) for name in ("Person", "Company", "WorksAt")] == before
    local_bed.assert_sound()


def _backend(store_place: GraphLocation, wrap: Any = None, **config: Any) -> Any:
    return make_backend(store_place.uri, store_place.options, omnigraph.Config(fsync=False, **config), wrap=wrap)


def _init(store_place: GraphLocation, wrap: Any = None, **config: Any) -> str:
    backend = _backend(store_place, wrap, **config)
    try:
        return init_graph(backend, compile_schema(SCHEMA, mint=lambda: backend.ids.token(8))).graph_id
    finally:
        backend.close()


def test_s56_init_races_have_one_winner(store_place: GraphLocation) -> None:
    with ThreadPoolExecutor(8) as pool:
        successes, failed = outcomes([pool.submit(_init, store_place) for _ in range(8)])
    (graph_id,) = successes
    assert all(isinstance(error, GraphExists) for error in failed), failed
    assert omnigraph.open(store_place.uri, storage_options=store_place.options).graph_id == graph_id


def _requests_of_init(store_place: GraphLocation) -> int:
    stores: list[CrashingStore] = []

    def wrap(store: Store) -> Store:
        stores.append(CrashingStore(store, 0, after=False))
        return stores[-1]

    _init(store_place, wrap)
    return stores[-1].puts


@pytest.mark.parametrize("after", [False, True], ids=["before the effect", "after the effect"])
def test_s56_a_crash_in_each_step_of_init_leaves_an_openable_or_an_empty_root(tmp_path: Path, after: bool) -> None:
    steps = _requests_of_init(GraphLocation("local", str(tmp_path / "count")))
    assert steps >= 3
    opened = 0
    for step in range(1, steps + 1):
        location = GraphLocation("local", str(tmp_path / f"g{step}"))
        with pytest.raises(ScenarioCrash):
            _init(location, partial(CrashingStore, n=step, after=after))
        try:
            graph = omnigraph.open(location.uri, config=omnigraph.Config(fsync=False))
            opened += 1
            with pytest.raises(GraphExists):
                _init(location)
        except NotFound:
            _init(location)
            graph = omnigraph.open(location.uri, config=omnigraph.Config(fsync=False))
        assert [info.kind for info in graph.commits()] == ["init"]
        graph.apply([person("a")])
        read = omnigraph.open(location.uri, read_only=True, config=omnigraph.Config(fsync=False))
        assert rows_of(read, "Person").keys() == {"a"}
    assert opened, "from the stamp on the graph is there"


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.EXISTS_AFTER_EFFECT, Fault.EXISTS_WITHOUT_EFFECT])
def test_s56_lost_answers_of_init(tmp_path: Path, fault: Fault) -> None:
    """Whichever PUT is concerned: the graph is there, or a typed error says to try again, and that works."""
    for step in range(1, 6):
        location = GraphLocation("local", str(tmp_path / f"g{step}"))
        plan = FaultPlan.at(step, fault, kinds=[RequestKind.PUT])
        try:
            _init(location, partial(FaultyStore, plan=plan))
        except Unavailable:
            _init(location)
        graph = omnigraph.open(location.uri, config=omnigraph.Config(fsync=False))
        assert [info.kind for info in graph.commits()] == ["init"]
        graph.apply([person("a")])


def test_s57_init_on_an_existing_graph_never_destroys_it(local_bed: ScenarioBed) -> None:
    local_bed.process().apply(*THREE_TABLES)
    before = {key: local_bed.store().get(key) for key in local_bed.place.all_keys()}
    for schema in (SCHEMA, "node Other { name: String @key }"):
        with pytest.raises(GraphExists) as caught:
            omnigraph.init(local_bed.place.uri, schema, config=omnigraph.Config(fsync=False))
        assert caught.value.code == "graph_exists"
        assert "Open it" in str(caught.value)
    after = {key: local_bed.store().get(key) for key in local_bed.place.all_keys()}
    assert after == before
    assert not {"force", "overwrite", "exist_ok"} & set(inspect.signature(omnigraph.init).parameters)


def test_s58_a_read_only_open_writes_nothing(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    process.apply(*THREE_TABLES)
    process.graph.branch.create("dev")
    before = {key: local_bed.store().get(key) for key in local_bed.place.all_keys()}
    reader = local_bed.process(read_only=True)
    reader.fail(FaultPlan.at(1, Fault.FORBID, kinds=[RequestKind.PUT, RequestKind.DELETE], times=None))
    assert len(rows_of(reader.graph, "Person")) == 1
    reader.graph.commits()
    reader.graph.snapshot()
    reader.graph.branch.list()
    assert len(rows_of(reader.graph.on_branch("dev"), "Person")) == 1
    for write in (
        partial(reader.apply, person("x")),
        reader.graph.fold,
        partial(reader.graph.branch.create, "new"),
        partial(reader.graph.branch.delete, "dev"),
        reader.graph.transaction,
        partial(reader.graph.schema.apply, SCHEMA),
        partial(reader.graph.mutate, 'query q() { insert Person { name: "x" } }'),
    ):
        with pytest.raises(Unsupported) as caught:
            write()
        assert caught.value.code == "read_only"
    assert not reader.faults.plan.hits
    assert {key: local_bed.store().get(key) for key in local_bed.place.all_keys()} == before


def test_s58_a_read_only_open_of_half_done_work_writes_nothing(tmp_path: Path) -> None:
    """A birth and a deletion that crashed are completed by writers only; a reader sees them as they will be."""
    location = GraphLocation("local", str(tmp_path / "graph"))
    steps = _requests_of_init(GraphLocation("local", str(tmp_path / "count")))
    with pytest.raises(ScenarioCrash):
        _init(location, partial(CrashingStore, n=steps, after=False))
    before = location.all_keys()
    reader = omnigraph.open(location.uri, read_only=True, config=omnigraph.Config(fsync=False))
    assert rows_of(reader, "Person") == {}
    assert location.all_keys() == before


def test_s59_a_store_without_conditional_put_is_refused_for_writing(local_bed: ScenarioBed) -> None:
    local_bed.process().apply(person("a"))
    before = {key: local_bed.store().get(key) for key in local_bed.place.all_keys()}
    with pytest.raises(Unsupported) as caught:
        local_bed.process(wrap=UnconditionalStore)
    assert caught.value.code == "no_conditional_put"
    assert "conditional" in str(caught.value)
    assert {key: local_bed.store().get(key) for key in local_bed.place.all_keys()} == before
    assert rows_of(local_bed.process(wrap=UnconditionalStore, read_only=True).graph, "Person").keys() == {"a"}


def test_s59_and_for_init(tmp_path: Path) -> None:
    location = GraphLocation("local", str(tmp_path / "graph"))
    with pytest.raises(Unsupported) as caught:
        _init(location, UnconditionalStore)
    assert caught.value.code == "no_conditional_put"
    with pytest.raises(NotFound):
        omnigraph.open(location.uri)


@pytest.mark.parametrize(
    ("version", "advice"), [(2, "Upgrade omnigraph"), (999, "Upgrade omnigraph"), (0, "Export it")]
)
@pytest.mark.parametrize("read_only", [False, True])
def test_s60_another_format_is_refused_with_no_side_effect(
    local_bed: ScenarioBed, version: int, advice: str, read_only: bool
) -> None:
    store = local_bed.store()
    stamp = json.loads(store.get("graph.json"))
    store.put("graph.json", json.dumps({**stamp, "internal_schema": version, "news": [1]}).encode())
    before = {key: store.get(key) for key in local_bed.place.all_keys()}
    meters: list[MeteredStore] = []

    def meter(inner: Store) -> Store:
        meters.append(MeteredStore(inner))
        return meters[-1]

    backend = _backend(local_bed.place, meter)
    with meters[-1].measure() as cost, pytest.raises(Unsupported) as caught:
        GraphRuntime.open(backend, read_only=read_only)
    backend.close()
    assert caught.value.code == "storage_format"
    assert advice in str(caught.value)
    assert str(version) in str(caught.value)
    assert [(request.kind, request.key) for request in cost.log] == [(RequestKind.GET, "graph.json")], (
        "only the stamp is read"
    )
    assert {key: store.get(key) for key in local_bed.place.all_keys()} == before


def test_s60_a_record_of_another_version_is_refused(local_bed: ScenarioBed, monkeypatch: pytest.MonkeyPatch) -> None:
    first_process, reader = local_bed.process(fold="never"), local_bed.process(fold="never")
    monkeypatch.setattr("omnigraph.log.commit_record.RECORD_VERSION", 2)
    first_process.apply(person("a"))
    monkeypatch.undo()
    with pytest.raises(Unsupported, match="Upgrade"):
        reader.graph.view()
    with pytest.raises(Unsupported, match="Upgrade"):
        reader.apply(person("b"))


def test_s42_to_s46_in_one_process_with_edges_and_folds(bed: ScenarioBed) -> None:
    """The same windows without a real death, on a graph with rows in tables and in the overlay."""
    process = bed.process()
    process.apply(person("a", 1), person("b", 2), knows("a", "b"))
    process.graph.fold()
    process.apply(person("c", 3), knows("c", "a"))
    for window in (*BEFORE_RECORD, "write.after-record"):
        victim = bed.process(staged=True)
        victim.crash_at(window, partial(victim.apply, without("a"), person(window)))
        landed = window == "write.after-record"
        assert ("a" in bed.ages()) != landed
        assert bed.edges() == (set() if landed else {("a", "b"), ("c", "a")})
    bed.assert_sound()


def test_s56_racing_inits_by_schedule(tmp_path: Path) -> None:
    """One stands right after its stamp; the other is refused, and a reader already sees the empty graph."""
    location = GraphLocation("local", str(tmp_path / "graph"))
    pauses = ControlledPauses(give_up_after_s=WAIT_S)
    backend = make_backend(location.uri, None, omnigraph.Config(fsync=False), pauses=pauses)

    def others() -> None:
        with pytest.raises(GraphExists):
            _init(location)
        omnigraph.open(location.uri, config=omnigraph.Config(fsync=False)).apply([person("early")])

    pauses.call_at("init.stamped", others)
    init_graph(backend, compile_schema(SCHEMA, mint=lambda: backend.ids.token(8)))
    backend.close()
    graph = omnigraph.open(location.uri, config=omnigraph.Config(fsync=False))
    assert rows_of(graph, "Person").keys() == {"early"}
