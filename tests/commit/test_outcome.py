"""Storing a record: landed, refused or unknown, for every way a store may answer. H24, H25."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from omnigraph.commit.put_record import RecordLanded, RecordRefused, put_record
from omnigraph.errors import Corruption, Forbidden, InvalidInput, Unavailable, Unknown
from omnigraph.log.commit_record import Member, Stub
from omnigraph.log.stream import RecordStream, record_key
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import TableStore
from omnigraph.storage.local import LocalStore
from omnigraph.storage.metering import MeteredStore, RequestKind
from omnigraph.storage.store import PutResult
from tests.log.records import STREAM, header, record
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore

OURS = record(6, rid="ours", members=(Member("op-1", "ada", "key-1", {}),))
KEY = record_key(STREAM, 6)
PUT, GET = [RequestKind.PUT], [RequestKind.GET]


class TestClock:
    """Time that passes only by waiting."""

    __test__ = False

    def __init__(self) -> None:
        self.time_s = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds


class Bench:
    """A store with faults, a clock, and one try to put `OURS`."""

    def __init__(self, path: Path) -> None:
        self.plain = LocalStore(path / "graph", fsync=False)
        self.faulty = FaultyStore(self.plain, FaultPlan.none())
        self.meter = MeteredStore(self.faulty)
        self.clock = TestClock()
        self.backend = Backend(store=self.meter, tables=TableStore(str(path)), clock=self.clock)
        self.records = RecordStream(self.meter, STREAM)

    def put(self, deadline_s: float = 30.0) -> RecordLanded | RecordRefused:
        return put_record(self.backend, self.records, OURS, deadline_s)

    def read_object(self) -> str | None:
        response = RecordStream(self.plain, STREAM).get(6)
        return response.rid if response else None


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_landed_in_one_request(bench: Bench) -> None:
    with bench.meter.measure() as cost:
        assert bench.put() == RecordLanded()
    assert cost.by_kind == {RequestKind.PUT: 1}
    assert bench.read_object() == "ours"


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize(
    "fault", [Fault.LOSE_ANSWER, Fault.EXISTS_AFTER_EFFECT, Fault.EXISTS_WITHOUT_EFFECT, Fault.FAIL_BEFORE]
)
def test_every_unclear_answer_ends_landed(bench: Bench, fault: Fault, times: int) -> None:
    bench.faulty.plan = FaultPlan.at(1, fault, kinds=PUT, times=times)
    assert bench.put() == RecordLanded()
    assert bench.read_object() == "ours"


def test_another_record_refuses(bench: Bench) -> None:
    bench.plain.put(KEY, record(6, rid="theirs").as_bytes)
    bench.plain.put(record_key(STREAM, 7), record(7, rid="later").as_bytes)
    with bench.meter.measure() as cost:
        outcome = bench.put()
    assert isinstance(outcome, RecordRefused)
    assert [entry.rid for entry in outcome.entries] == ["theirs", "later"]
    assert cost.hops == 2, "what refused and what followed come in one hop"


def test_a_stub_of_another_refuses_and_our_own_stub_is_ours(bench: Bench) -> None:
    """H23: a name that was collected still says whose it was."""
    bench.plain.put(KEY, Stub(header(6, rid="theirs")).encode())
    assert isinstance(bench.put(), RecordRefused)
    bench.plain.put(KEY, Stub(header(6, rid="ours")).encode())
    assert bench.put() == RecordLanded()


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.EXISTS_WITHOUT_EFFECT])
def test_a_competitor_that_comes_in_meanwhile_refuses(bench: Bench, fault: Fault) -> None:
    """Ours had no effect, theirs has: only another rid proves that ours did not land."""
    bench.faulty.plan = FaultPlan.at(1, fault, kinds=PUT)
    bench.plain.put_if_absent(KEY, record(6, rid="theirs").as_bytes)
    assert isinstance(bench.put(), RecordRefused)


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.EXISTS_WITHOUT_EFFECT])
def test_absence_is_no_proof_so_it_tries_until_the_deadline_and_is_unknown(bench: Bench, fault: Fault) -> None:
    """H24."""
    bench.faulty.plan = FaultPlan.at(1, fault, kinds=PUT, times=None)
    with pytest.raises(Unknown) as caught:
        bench.put(deadline_s=5.0)
    assert caught.value.details == {"op_id": "op-1", "client_key": "key-1"}
    assert 5.0 <= bench.clock.time_s < 6.0
    assert len(bench.faulty.plan.hits) > 5, "the same bytes were sent again and again"


def test_a_lost_answer_with_a_blind_reader_is_unknown(bench: Bench) -> None:
    bench.faulty.plan = FaultPlan.at(1, Fault.LOSE_ANSWER, kinds=PUT, times=None).also(
        FaultPlan.at(1, Fault.FAIL_BEFORE, kinds=GET, times=None)
    )
    with pytest.raises(Unknown):
        bench.put(deadline_s=2.0)
    assert bench.read_object() == "ours", "it did land; nobody could know"


def test_a_read_that_fails_once_is_tried_again(bench: Bench) -> None:
    bench.faulty.plan = FaultPlan.at(1, Fault.LOSE_ANSWER, kinds=PUT).also(
        FaultPlan.at(1, Fault.FAIL_BEFORE, kinds=GET, times=16)
    )
    assert bench.put() == RecordLanded()


def test_forbidden_from_the_start_did_not_land(bench: Bench) -> None:
    bench.faulty.plan = FaultPlan.at(1, Fault.FORBID, kinds=PUT, times=None)
    with pytest.raises(Forbidden):
        bench.put()
    assert bench.read_object() is None


def test_forbidden_after_an_unclear_try_is_unknown(bench: Bench) -> None:
    """The first PUT may still arrive."""
    bench.faulty.plan = FaultPlan.at(1, Fault.FAIL_BEFORE, kinds=PUT).also(
        FaultPlan.at(2, Fault.FORBID, kinds=PUT, times=None)
    )
    with pytest.raises(Unknown):
        bench.put()


@pytest.mark.parametrize("unclear", [True, False])
def test_a_request_that_is_not_accepted_after_an_unclear_one_is_unknown(bench: Bench, unclear: bool) -> None:
    """A proxy in between answers 400 to the second try: that says nothing about the first. H24"""
    original = bench.faulty.put_if_absent
    answers = iter([original] if unclear else [])

    def refusing(key: str, data: bytes) -> PutResult:
        put = next(answers, None)
        if put is None:
            raise InvalidInput("the store does not accept the request", code="store_configuration")
        return put(key, data)

    bench.faulty.put_if_absent = refusing  # type: ignore[method-assign]
    bench.faulty.plan = FaultPlan.at(1, Fault.LOSE_ANSWER, kinds=PUT).also(
        FaultPlan.at(1, Fault.FAIL_BEFORE, kinds=GET, times=16)
    )
    with pytest.raises(Unknown if unclear else InvalidInput):
        bench.put()
    assert bench.read_object() == ("ours" if unclear else None)


class _Failing(LocalStore):
    """A directory whose PUTs fail for good."""

    code = "disk_full"

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        raise Unavailable("no space", code=self.code, advice="Free some space")


@pytest.mark.parametrize("code", ["disk_full", "read_only_file_system", "too_many_open_files"])
def test_a_directory_that_says_no_is_believed_at_once(tmp_path: Path, code: str) -> None:
    """S54: nothing is on its way, so the caller hears why and need not wait."""
    bench = Bench(tmp_path)
    failing = _Failing(tmp_path / "graph", fsync=False)
    failing.code = code
    backend = Backend(store=failing, tables=bench.backend.tables, clock=bench.clock)
    with pytest.raises(Unavailable) as caught:
        put_record(backend, RecordStream(failing, STREAM), OURS, 30.0)
    assert caught.value.code == code
    assert bench.clock.time_s == 0.0


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: b"", lambda data: record(5).as_bytes],
    ids=["cut", "empty", "other seq"],
)
def test_a_damaged_record_in_the_way_is_loud(bench: Bench, damage: Callable[[bytes], bytes]) -> None:
    bench.plain.put(KEY, damage(record(6, rid="theirs").as_bytes))
    with pytest.raises(Corruption):
        bench.put()


def test_the_same_bytes_every_time(bench: Bench) -> None:
    """A retry may not differ in anything: whichever arrives is the one that was acknowledged."""
    sent: list[bytes] = []
    original = bench.faulty.put_if_absent

    def record_put(key: str, data: bytes) -> PutResult:
        sent.append(data)
        return original(key, data)

    bench.faulty.put_if_absent = record_put  # type: ignore[method-assign]
    bench.faulty.plan = FaultPlan.at(1, Fault.FAIL_BEFORE, kinds=PUT, times=4)
    assert bench.put() == RecordLanded()
    assert len(sent) == 5
    assert set(sent) == {OURS.as_bytes}
