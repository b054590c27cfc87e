"""Faults hit exactly the request they are meant for, in exactly the way they are named."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from omnigraph.errors import Forbidden, OmnigraphError, Unavailable
from omnigraph.storage.keys import KeyClass
from omnigraph.storage.local import LocalStore
from omnigraph.storage.metering import RequestKind
from omnigraph.storage.store import PutResult, Store
from tests.support.faulty_store import EFFECTS, Fault, FaultPlan, FaultyStore


@pytest.mark.parametrize(
    ("fault", "answer", "landed"),
    [
        (Fault.FAIL_BEFORE, Unavailable, False),
        (Fault.LOSE_ANSWER, Unavailable, True),
        (Fault.FORBID, Forbidden, False),
        (Fault.EXISTS_WITHOUT_EFFECT, PutResult.EXISTS, False),
        (Fault.EXISTS_AFTER_EFFECT, PutResult.EXISTS, True),
    ],
)
def test_a_conditional_put_fails_as_planned(local: LocalStore, fault: Fault, answer: object, landed: bool) -> None:
    plan = FaultPlan.at(1, fault)
    store = FaultyStore(local, plan)
    if isinstance(answer, type) and issubclass(answer, OmnigraphError):
        with pytest.raises(answer):
            store.put_if_absent("a", b"x")
    else:
        assert store.put_if_absent("a", b"x") is answer
    assert local.get_many(["a"]) == [b"x" if landed else None]
    assert [(hit.number, hit.fault, hit.kind, hit.key) for hit in plan.hits] == [(1, fault, RequestKind.PUT, "a")]
    assert store.put_if_absent("a", b"x") is (PutResult.EXISTS if landed else PutResult.CREATED)


@pytest.mark.parametrize(
    ("fault", "after"),
    [(Fault.FAIL_BEFORE, {"kept": b"x"}), (Fault.LOSE_ANSWER, {"new": b"y"})],
)
def test_every_other_request_fails_before_or_after_its_effect(
    local: LocalStore, fault: Fault, after: dict[str, bytes]
) -> None:
    local.put("kept", b"x")
    store = FaultyStore(local, FaultPlan.at(1, fault, times=None))
    for ask in (
        lambda: store.delete("kept"),
        lambda: store.put("new", b"y"),
        lambda: store.get("new"),
        lambda: store.get_many(["new"]),
        lambda: store.head("kept"),
        lambda: store.list(""),
    ):
        with pytest.raises(OmnigraphError):
            ask()
    assert {info.key: local.get(info.key) for info in local.list("")} == after


def test_answers_are_corrupted_and_truncated(local: LocalStore) -> None:
    local.put("a", b"0123456789")
    plan = FaultPlan.at(1, Fault.CORRUPT).also(FaultPlan.at(2, Fault.TRUNCATE)).also(FaultPlan.at(4, Fault.CORRUPT))
    store = FaultyStore(local, plan)
    corrupted = store.get("a")
    assert len(corrupted) == 10
    assert sum(byte != original_byte for byte, original_byte in zip(corrupted, b"0123456789", strict=True)) == 1
    assert store.get("a") == b"01234"
    many = store.get_many(["a", "a", "missing"])
    assert many[0] == b"0123456789"
    assert many[1] == corrupted
    assert many[2] is None
    assert local.get("a") == b"0123456789"


def test_a_plan_counts_only_what_it_is_about(local: LocalStore) -> None:
    plan = FaultPlan.at(2, Fault.FAIL_BEFORE, kinds={RequestKind.PUT}, key_classes={KeyClass.RECORD})
    store = FaultyStore(local, plan)
    store.put_if_absent("__manifest/s/1", b"")
    store.put_if_absent("schemas/x", b"")
    store.get("__manifest/s/1")
    with pytest.raises(Unavailable):
        store.put_if_absent("__manifest/s/2", b"")
    store.put_if_absent("__manifest/s/2", b"")
    assert plan.request_count == 5
    assert [hit.number for hit in plan.hits] == [4]


def test_a_fault_waits_for_a_request_it_can_happen_to(local: LocalStore) -> None:
    plan = FaultPlan.at(1, Fault.EXISTS_WITHOUT_EFFECT)
    store = FaultyStore(local, plan)
    store.put("a", b"")
    store.get("a")
    assert plan.hits == []
    assert store.put_if_absent("b", b"") is PutResult.EXISTS
    assert plan.hits


def test_an_outage_lasts_as_long_as_planned(local: LocalStore) -> None:
    store = FaultyStore(local, FaultPlan.at(2, Fault.FAIL_BEFORE, times=2))
    outcomes = []
    for n in range(5):
        try:
            store.put(f"k{n}", b"")
            outcomes.append("ok")
        except Unavailable:
            outcomes.append("failed")
    assert outcomes == ["ok", "failed", "failed", "ok", "ok"]


def test_a_sweep_hits_every_request_once_and_ends(tmp_path: Path) -> None:
    def operation(store: Store) -> None:
        store.put("a", b"")
        store.get_many(["a", "b"])
        store.put_if_absent("c", b"")

    hits = []
    for n in range(1, 100):
        plan = FaultPlan.at(n, Fault.FAIL_BEFORE)
        try:
            operation(FaultyStore(LocalStore(tmp_path / str(n), fsync=False), plan))
        except Unavailable:
            hits.append(plan.hits[0].key)
            continue
        assert not plan.hits
        break
    assert hits == ["a", "a", "b", "c"]


def test_random_faults_follow_their_rates_and_their_seed(local: LocalStore) -> None:
    def run(seed: int) -> list[Fault]:
        rates = {Fault.FAIL_BEFORE: 0.1, Fault.LOSE_ANSWER: 0.2, Fault.CORRUPT: 0.5}
        plan = FaultPlan.rates(rates, random.Random(seed).random, kinds=EFFECTS)
        for n in range(2000):
            plan.decide(RequestKind.PUT if n % 2 else RequestKind.GET, "a")
        return [hit.fault for hit in plan.hits]

    counts = Counter(run(1))
    assert run(1) == run(1) != run(2)
    assert set(counts) == {Fault.FAIL_BEFORE, Fault.LOSE_ANSWER}  # a PUT has no answer to corrupt
    assert 60 < counts[Fault.FAIL_BEFORE] < 140
    assert 150 < counts[Fault.LOSE_ANSWER] < 250


@pytest.mark.parametrize(("fault", "landed"), [(Fault.KILL_BEFORE, False), (Fault.KILL_AFTER, True)])
def test_a_kill_is_sudden(tmp_path: Path, fault: Fault, landed: bool) -> None:
    code = f"""
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore
from omnigraph.storage.local import LocalStore
store = FaultyStore(LocalStore({str(tmp_path)!r}, fsync=False), FaultPlan.at(2, Fault({fault.value!r})))
try:
    store.put_if_absent("a", b"")
    store.put_if_absent("b", b"")
finally:
    store.put("cleaned-up", b"")
"""
    outcome = subprocess.run([sys.executable, "-c", code], check=False)
    assert outcome.returncode == -signal.SIGKILL
    assert [info.key for info in LocalStore(tmp_path).list("")] == (["a", "b"] if landed else ["a"])


def test_counting_from_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="from 1"):
        FaultPlan.at(0, Fault.FAIL_BEFORE)
