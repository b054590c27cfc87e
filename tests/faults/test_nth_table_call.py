"""The n-th call into the tables fails, before or after it did its work: only garbage is left (S43, S44, S45, S54)."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from tests.faults.atomicity import AtomicityCheck, attempt
from tests.faults.faulty_process import FaultyProcess
from tests.faults.operations import OPERATIONS, FaultOperation

_WITH_TABLE_WORK = [one for one in OPERATIONS if "staged" in " ".join(one.points)]


def _case(
    atomicity: AtomicityCheck, operation: FaultOperation, folder: Path, n: int, *, after: bool, times: int | None
) -> bool:
    """One call struck; whether there was such a call."""
    case = f"{operation}: call {n} into the tables failed {'after' if after else 'before'} its work"
    uri = atomicity.start(operation, folder)
    process = FaultyProcess(uri, **operation.config)
    try:
        prepared = operation.prepare(process)
        hits = process.arm_tables(n, after=after, times=times)
        answer = attempt(process, operation, prepared)
        process.disarm_tables()
        happened = atomicity.check(operation, uri, answer, f"{case} {hits}")
        assert not (hits and answer.is_positive), f"{case}: and yet it was acknowledged"
    finally:
        process.close()
    atomicity.finish(operation, uri, happened, case, thorough=n == 1)
    return bool(hits)


@pytest.mark.parametrize("operation", _WITH_TABLE_WORK, ids=str)
def test_a_table_call_fails(
    operation: FaultOperation, atomicity: AtomicityCheck, tmp_path: Path, sweep_seed: int
) -> None:
    """One of the first calls, by the printed seed. S43–S45"""
    chance = random.Random(f"{sweep_seed}/tables/{operation}")
    n, after = chance.randint(1, 2), chance.random() < 0.5
    assert _case(atomicity, operation, tmp_path / "graph", n, after=after, times=chance.choice((1, None)))


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, None], ids=["once", "for-good"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("operation", _WITH_TABLE_WORK, ids=str)
def test_every_table_call_fails(
    operation: FaultOperation, after: bool, times: int | None, atomicity: AtomicityCheck, tmp_path: Path
) -> None:
    """S43–S45"""
    for n in itertools.count(1):
        if not _case(atomicity, operation, tmp_path / str(n), n, after=after, times=times):
            break
    assert n > 2


@pytest.mark.parametrize("operation", _WITH_TABLE_WORK, ids=str)
def test_the_same_handle_goes_on(operation: FaultOperation, atomicity: AtomicityCheck, tmp_path: Path) -> None:
    """After a failed staging the very handle that failed does the work. S6, S54"""
    uri = atomicity.start(operation, tmp_path / "graph")
    process = FaultyProcess(uri, **operation.config)
    try:
        prepared = operation.prepare(process)
        process.arm_tables(1, after=True, times=None)
        assert attempt(process, operation, prepared).is_negative
        process.disarm_tables()
        assert atomicity.check(
            operation, uri, attempt(process, operation, prepared), f"{operation} on the failed handle"
        )
    finally:
        process.close()
