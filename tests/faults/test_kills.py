"""SIGKILL at every effect and at every named point of every operation; the next process needs no repair (S42–S46, S65).

A child costs a second, so the default run kills at places that the printed seed picks; `slow` kills at all of them.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.faults.atomicity import DIED, AtomicityCheck, FaultAnswer
from tests.faults.operations import LARGER, OPERATIONS, FaultOperation
from tests.faults.workers import run_until_killed
from tests.support.faulty_store import EFFECTS, Fault, FaultPlan
from tests.support.processes import Workers

ALL = (*OPERATIONS, *LARGER)
_KILLS = (Fault.KILL_BEFORE, Fault.KILL_AFTER)
_SAMPLES = 8
_AT_ONCE = 4

Place = tuple[FaultOperation, dict[str, Any]]


def _kill_at_effects(atomicity: AtomicityCheck, operation: FaultOperation) -> list[Place]:
    count = atomicity.requests(operation, lambda n: FaultPlan.at(n, Fault.FAIL_BEFORE, kinds=EFFECTS, times=None))
    return [(operation, {"fault": fault.value, "n": n}) for fault in _KILLS for n in range(1, count + 1)]


def _kill_at_points(operation: FaultOperation) -> list[Place]:
    return [(operation, {"point": point}) for point in operation.points]


def _kill_all(atomicity: AtomicityCheck, places: Sequence[Place], folder: Path) -> None:
    """Children of a few at a time: each must die where it was told to, and its graph must be whole."""
    for start in range(0, len(places), _AT_ONCE):
        batch = places[start : start + _AT_ONCE]
        uris = [atomicity.start(operation, folder / str(start + number)) for number, (operation, _) in enumerate(batch)]
        args = [
            {"uri": uri, "operation": operation.name, **how} for uri, (operation, how) in zip(uris, batch, strict=True)
        ]
        with Workers(run_until_killed, len(batch), args_of=args) as workers:
            workers.start()
            results = workers.wait(check=False)
        for result, uri, (operation, how) in zip(results, uris, batch, strict=True):
            case = f"{operation} killed at {how}"
            assert result.exit_code == -signal.SIGKILL, f"{case}: it lived on, {result.value} {result.error}"
            atomicity.finish(operation, uri, atomicity.check(operation, uri, DIED, case), case)


def test_killed_at_some_place(atomicity: AtomicityCheck, tmp_path: Path, sweep_seed: int) -> None:
    """S42–S46, S65"""
    chance = random.Random(f"{sweep_seed}/kills")
    at_effects = [kill_at_effect for operation in ALL for kill_at_effect in _kill_at_effects(atomicity, operation)]
    at_points = [kill_at_point for operation in ALL for kill_at_point in _kill_at_points(operation)]
    _kill_all(
        atomicity, [*chance.sample(at_effects, _SAMPLES // 2), *chance.sample(at_points, _SAMPLES // 2)], tmp_path
    )


@pytest.mark.slow
@pytest.mark.parametrize("operation", ALL, ids=str)
def test_killed_at_every_place(operation: FaultOperation, atomicity: AtomicityCheck, tmp_path: Path) -> None:
    """S42–S46, S65"""
    _kill_all(atomicity, [*_kill_at_effects(atomicity, operation), *_kill_at_points(operation)], tmp_path)


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.keyed], ids=str)
def test_killed_between_record_and_answer(operation: FaultOperation, atomicity: AtomicityCheck, tmp_path: Path) -> None:
    """The commit is there, nobody was told, and the client key says so. S46"""
    uri = atomicity.start(operation, tmp_path / "graph")
    args = {"uri": uri, "operation": operation.name, "fault": Fault.KILL_AFTER.value}
    with Workers(run_until_killed, 1, args) as workers:
        workers.start()
        assert workers.wait(check=False)[0].exit_code == -signal.SIGKILL
    assert atomicity.check(operation, uri, FaultAnswer(), "killed after the record"), (
        "the record is what makes it happen"
    )
    atomicity.finish(operation, uri, True, "killed after the record")
