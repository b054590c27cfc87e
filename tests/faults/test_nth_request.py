"""The n-th request of every operation fails, in every way a store can fail, once and for good (S47, S65, H24, H25).

By default the printed seed picks places for each operation and kind of failure; `slow` strikes every place, n = 1, 2, …
until the operation has run without being struck.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.errors import Unknown
from tests.faults.atomicity import AtomicityCheck, attempt
from tests.faults.faulty_process import FaultyProcess
from tests.faults.operations import LARGER, OPERATIONS, FaultOperation
from tests.support.faulty_store import EFFECTS, Fault, FaultPlan

ALL = (*OPERATIONS, *LARGER)
_ANY_REQUEST = (Fault.FAIL_BEFORE, Fault.FORBID)
_EFFECTS_ONLY = (Fault.LOSE_ANSWER, Fault.EXISTS_WITHOUT_EFFECT, Fault.EXISTS_AFTER_EFFECT)
_FAULTS = (*_ANY_REQUEST, *_EFFECTS_ONLY)
_SAMPLES = 2
_PAIRS = 12


def _plans(fault: Fault, times: int | None) -> Callable[[int], FaultPlan]:
    kinds = None if fault in _ANY_REQUEST else EFFECTS
    return lambda n: FaultPlan.at(n, fault, kinds=kinds, times=times)


def _strike(
    atomicity: AtomicityCheck,
    operation: FaultOperation,
    uri: str,
    plan: FaultPlan,
    case: str,
    *,
    happened: bool = False,
) -> bool:
    """One attempt under a plan: whether the operation has happened, which must be as the caller was told.

    A single answer that is lost or says "exists" never leaves it unknown: looking, or sending it again, settles it.
    """
    process = FaultyProcess(uri, **operation.config)
    try:
        prepared = operation.prepare(process)
        process.arm(plan)
        answer = attempt(process, operation, prepared)
        process.disarm()
        case = f"{case}, {plan.hits[:3]}"
        settled = not isinstance(answer.error, Unknown) or len(plan.hits) != 1
        assert settled, f"{case}: one lost or odd answer ended as {answer.error!r}"
        return atomicity.check(operation, uri, answer, case, happened=happened)
    finally:
        process.close()


def _case(
    atomicity: AtomicityCheck,
    operation: FaultOperation,
    folder: Path,
    fault: Fault,
    n: int,
    times: int | None,
    *,
    thorough: bool = True,
) -> bool:
    """One place struck, judged and recovered from; whether there was such a place."""
    case = f"{operation}: {fault} at request {n}, {'for good' if times is None else 'once'}"
    uri = atomicity.start(operation, folder)
    plan = _plans(fault, times)(n)
    atomicity.finish(operation, uri, _strike(atomicity, operation, uri, plan, case), case, thorough=thorough)
    return bool(plan.hits)


@pytest.mark.parametrize("fault", _FAULTS)
@pytest.mark.parametrize("operation", ALL, ids=str)
def test_some_request_fails(
    operation: FaultOperation, fault: Fault, atomicity: AtomicityCheck, tmp_path: Path, sweep_seed: int
) -> None:
    """S42–S46, S47, S65, H24, H25"""
    chance = random.Random(f"{sweep_seed}/{operation}/{fault}")
    places = [(n, times) for times in (1, None) for n in range(1, atomicity.requests(operation, _plans(fault, 1)) + 1)]
    assert places or operation.name == "open", "it makes no request that could fail in this way"
    for number, (n, times) in enumerate(chance.sample(places, min(_SAMPLES, len(places)))):
        folder = tmp_path / str(number)
        assert _case(atomicity, operation, folder, fault, n, times, thorough=number == 0), "nothing was struck"


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, None], ids=["once", "for-good"])
@pytest.mark.parametrize("fault", _FAULTS)
@pytest.mark.parametrize("operation", ALL, ids=str)
def test_every_request_fails(
    operation: FaultOperation, fault: Fault, times: int | None, atomicity: AtomicityCheck, tmp_path: Path
) -> None:
    """S42–S46, S47, S65, H24, H25"""
    for n in itertools.count(1):
        thorough = n == 1 or operation not in LARGER
        if not _case(atomicity, operation, tmp_path / str(n), fault, n, times, thorough=thorough):
            break
    assert n > 1


def _fails_twice(atomicity: AtomicityCheck, operation: FaultOperation, folder: Path, chance: random.Random) -> None:
    """The attempt fails somewhere, and so does its repetition."""
    uri = atomicity.start(operation, folder)
    happened, case = False, str(operation)
    for _ in range(2):
        fault, times = chance.choice(_FAULTS), chance.choice((1, None))
        n = chance.randint(1, max(1, atomicity.requests(operation, _plans(fault, 1))))
        case += f", {fault} at request {n}"
        if happened and not operation.keyed:
            break
        again = _strike(atomicity, operation, uri, _plans(fault, times)(n), case, happened=happened)
        assert again or not happened, f"{case}: the second failure undid what the first had left"
        happened = again
    atomicity.finish(operation, uri, happened, case)


@pytest.mark.parametrize("operation", ALL, ids=str)
def test_the_repetition_fails_too(
    operation: FaultOperation, atomicity: AtomicityCheck, tmp_path: Path, sweep_seed: int
) -> None:
    """S55"""
    _fails_twice(atomicity, operation, tmp_path / "twice", random.Random(f"{sweep_seed}/twice/{operation}"))


@pytest.mark.slow
@pytest.mark.parametrize("operation", ALL, ids=str)
def test_the_repetition_fails_too_often(
    operation: FaultOperation, atomicity: AtomicityCheck, tmp_path: Path, sweep_seed: int
) -> None:
    """S55"""
    for number in range(_PAIRS):
        chance = random.Random(f"{sweep_seed}/twice/{operation}/{number}")
        _fails_twice(atomicity, operation, tmp_path / str(number), chance)
