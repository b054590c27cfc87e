"""S155: the store fails at each request of a bulk operation and of its recovery, in every way, once and for good.

By default the printed seed picks places; `slow` strikes every one.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.errors import OmnigraphError, Unavailable, Unknown
from omnigraph.storage.keys import KeyClass
from omnigraph.storage.metering import RequestKind
from tests.intents.conftest import DeadAt
from tests.intents.intent_actor import ROWS, IntentActor, acting, age, audits, build, files, intents, names
from tests.support.faulty_store import EFFECTS, Fault, FaultPlan

_ANY_REQUEST = (Fault.FAIL_BEFORE, Fault.FORBID)
_EFFECTS_ONLY = (Fault.LOSE_ANSWER, Fault.EXISTS_WITHOUT_EFFECT, Fault.EXISTS_AFTER_EFFECT)
_FAULTS = (*_ANY_REQUEST, *_EFFECTS_ONLY)
_BEFORE, _AFTER = 2, 2 + ROWS
_SAMPLES = 3
#: Where the driver died → how many people there must be in the end.
_DEATHS = {"write.staged": _BEFORE, "intent.confirmed": _AFTER, "write.after-record": _AFTER}


def _plan(fault: Fault, n: int, times: int | None) -> FaultPlan:
    return FaultPlan.at(n, fault, kinds=None if fault in _ANY_REQUEST else EFFECTS, times=times)


def _places(chance: random.Random, highest: int) -> list[tuple[int, int | None]]:
    every = list(itertools.product(range(1, highest + 1), (1, None)))
    return chance.sample(every, min(_SAMPLES, len(every)))


def _recover_and_count(uri: str, situation: str) -> int:
    """How many people there are once everybody is back: whatever was left is ended, and told at most once."""
    age(uri)
    with acting(uri) as actor:
        actor.recover()
        assert actor.recover() == [], f"{situation}: something is still pending"
        assert all(intent.state in ("done", "abandoned") for intent in actor.graph.recover_list()), situation
        told_of = [audit["operation_id"] for audit in audits(actor.graph)]
        assert len(told_of) == len(set(told_of)), f"{situation}: audited twice"
        assert actor.graph.verify().ok, situation
        return len(names(actor.graph))


def _drive(uri: str, plan: FaultPlan) -> OmnigraphError | None:
    with acting(uri) as actor:
        actor.arm(plan)
        try:
            actor.bulk()
        except OmnigraphError as error:
            return error
    return None


def _strike_driver(template: Path, uri: str, fault: Fault, n: int, times: int | None) -> bool:
    """One bulk operation under a fault; whether there was such a request."""
    shutil.copytree(template, uri)
    plan = _plan(fault, n, times)
    error = _drive(uri, plan)
    situation = f"{fault} at request {n}, {'for good' if times is None else 'once'}: {plan.hits[:2]} told {error!r}"
    with acting(uri) as reader:
        at_once = len(names(reader.graph))
    in_the_end = _recover_and_count(uri, situation)
    assert {at_once, in_the_end} <= {_BEFORE, _AFTER}, situation
    if error is None:
        assert (at_once, in_the_end) == (_AFTER, _AFTER), f"{situation}: acknowledged and not there"
    elif not isinstance(error, Unknown):
        assert (at_once, in_the_end) == (_BEFORE, _BEFORE), f"{situation}: it appeared all the same"
    return bool(plan.hits)


def _requests_of_driver(template: Path, uri: str, fault: Fault) -> int:
    shutil.copytree(template, uri)
    watched = _plan(fault, 10**9, None)
    with acting(uri) as actor:
        actor.arm(watched)
        actor.bulk()
    return watched.request_count


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faults") / "template"
    build(str(path))
    return path


@pytest.mark.parametrize("fault", _FAULTS)
def test_s155_some_request_of_a_bulk_operation_fails(
    fault: Fault, template: Path, tmp_path: Path, sweep_seed: int
) -> None:
    """S155: intent write, confirm, record, end."""
    chance = random.Random(f"{sweep_seed}/driver/{fault}")
    highest = _requests_of_driver(template, str(tmp_path / "counted"), fault)
    for number, (n, times) in enumerate(_places(chance, highest)):
        _strike_driver(template, str(tmp_path / str(number)), fault, n, times)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, None], ids=["once", "for-good"])
@pytest.mark.parametrize("fault", _FAULTS)
def test_s155_every_request_of_a_bulk_operation_fails(
    fault: Fault, times: int | None, template: Path, tmp_path: Path
) -> None:
    """S155"""
    n = next(n for n in itertools.count(1) if not _strike_driver(template, str(tmp_path / str(n)), fault, n, times))
    assert n > 4, "0-open, 1, the record and 2 at least"


def _strike_recoverer(uri: str, point: str, fault: Fault, n: int, times: int | None) -> bool:
    """One recovery under a fault, then one without; whether there was such a request."""
    before = files(uri)
    plan = _plan(fault, n, times)
    with acting(uri) as actor:
        actor.arm(plan)
        error: OmnigraphError | None = None
        try:
            actor.recover()
        except OmnigraphError as raised:
            error = raised
        situation = f"{point}, {fault} at request {n}: {plan.hits[:2]} told {error!r}"
        if times is None and plan.hits and fault in _ANY_REQUEST:
            assert error is not None, f"{situation}: an outage went unnoticed"
    assert before <= files(uri), f"{situation}: something was deleted"
    assert _recover_and_count(uri, situation) == _DEATHS[point], situation
    with acting(uri) as actor:
        assert len(audits(actor.graph)) == 1, situation
    return bool(plan.hits)


def _copies(source: str, folder: Path) -> Iterator[str]:
    for number in itertools.count():
        uri = str(folder / f"copy{number}")
        shutil.copytree(source, uri)
        yield uri


def _requests_of_recoverer(uri: str, fault: Fault) -> int:
    watched = _plan(fault, 10**9, None)
    with acting(uri) as actor:
        actor.arm(watched)
        actor.recover()
    return watched.request_count


@pytest.mark.parametrize("point", _DEATHS)
@pytest.mark.parametrize("fault", _FAULTS)
def test_s155_some_request_of_recovery_fails(
    fault: Fault, point: str, dead_at: DeadAt, tmp_path: Path, sweep_seed: int
) -> None:
    """S155: list, read, take over, record, audit, end."""
    chance = random.Random(f"{sweep_seed}/recoverer/{fault}/{point}")
    copies = _copies(dead_at(point), tmp_path)
    for n, times in _places(chance, _requests_of_recoverer(next(copies), fault))[:2]:
        _strike_recoverer(next(copies), point, fault, n, times)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, None], ids=["once", "for-good"])
@pytest.mark.parametrize("point", _DEATHS)
@pytest.mark.parametrize("fault", _FAULTS)
def test_s155_every_request_of_recovery_fails(
    fault: Fault, point: str, times: int | None, dead_at: DeadAt, tmp_path: Path
) -> None:
    """S155"""
    copies = _copies(dead_at(point), tmp_path)
    n = next(n for n in itertools.count(1) if not _strike_recoverer(next(copies), point, fault, n, times))
    assert n > 2, "the audit and the end at least"


def test_s155_a_listing_that_fails_is_loud(dead_at: DeadAt) -> None:
    """S155: "no intents" and "I could not look" are not the same."""
    uri = dead_at("intent.confirmed")
    with acting(uri) as actor:
        listing = FaultPlan.at(
            1, Fault.FAIL_BEFORE, kinds={RequestKind.LIST}, key_classes={KeyClass.INTENT}, times=None
        )
        actor.arm(listing)
        with pytest.raises(Unavailable):
            actor.recover()
        actor.arm(FaultPlan.none())
        assert [recovered["verdict"] for recovered in actor.recover()] == ["rolled_forward"]


def test_a_heart_that_cannot_be_heard_goes_on(template: Path, tmp_path: Path) -> None:
    """A heartbeat that fails is made up for by the next; the operation itself does not notice."""
    uri = str(tmp_path / "graph")
    shutil.copytree(template, uri)
    actor = IntentActor(uri, recovery_grace=0.02)
    try:
        failing = FaultPlan(lambda kind, key, _: Fault.FAIL_BEFORE if key.endswith("/heartbeat") else None)

        def wait_for_beats() -> None:
            while len(failing.hits) < 3:
                actor.backend.clock.monotonic()

        actor.arm(failing)
        actor.pauses.call_at("write.staged", wait_for_beats)
        assert actor.bulk().commit_id is not None
        assert len(intents(uri)) == 1
    finally:
        actor.close()
