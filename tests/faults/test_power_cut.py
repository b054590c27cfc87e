"""The power fails at any sync or link of any operation on a directory: before or after, never between (H41).

The cut is simulated from what the engine asked of the file system: what was not synced is gone, or is an empty file
under its name. Both are worse than what most file systems do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from tests.faults.atomicity import DIED, AtomicityCheck, FaultAnswer
from tests.faults.disk import Disk, Survivors
from tests.faults.faulty_process import FaultyProcess
from tests.faults.operations import OPERATIONS, FaultOperation

_SHARE = 0.15
_COMMITTING = [one for one in OPERATIONS if one.name != "open"]


class _Cutter:
    """Keeps what a cut would leave at chosen events of one run."""

    def __init__(self, disk: Disk, folder: Path, survivors: Survivors, chooses: Callable[[], bool]) -> None:
        self._disk = disk
        self._folder = folder
        self._survivors = survivors
        self._chooses = chooses
        self.events: list[str] = []

    def at_event(self, event: str) -> None:
        number = len(self.events)
        self.events.append(event)
        if self._chooses():
            self._disk.cut_power(self._folder / str(number), self._survivors)

    @property
    def remains(self) -> list[tuple[Path, str]]:
        return [(path, self.events[int(path.name)]) for path in sorted(self._folder.glob("*"))]


def _run(
    atomicity: AtomicityCheck,
    operation: FaultOperation,
    folder: Path,
    survivors: Survivors,
    chooses: Callable[[], bool],
) -> _Cutter:
    """The operation from start to answer, with the trees that cuts at the chosen events leave."""
    uri = atomicity.start(operation, folder / "graph")
    process = FaultyProcess(uri, fsync=True, **operation.config)
    prepared = operation.prepare(process)
    disk = Disk(Path(uri))
    cutter = _Cutter(disk, folder / "cuts", survivors, chooses)
    with disk.watch(cutter.at_event):
        operation.run(process, prepared)
    process.close()
    at_the_end = disk.cut_power(folder / "end", survivors)
    atomicity.check(operation, str(at_the_end), FaultAnswer(), f"{operation}: power cut after the acknowledgement")
    return cutter


def _check_cuts(atomicity: AtomicityCheck, operation: FaultOperation, cutter: _Cutter) -> None:
    for tree, event in cutter.remains:
        case = f"{operation}: power cut {event}"
        happened = atomicity.check(operation, str(tree), DIED, case)
        atomicity.finish(operation, str(tree), happened, case, thorough=False)


@pytest.mark.parametrize("operation", _COMMITTING, ids=str)
def test_power_cut_somewhere(
    operation: FaultOperation, atomicity: AtomicityCheck, tmp_path: Path, sweep_seed: int
) -> None:
    """H41"""
    chance = random.Random(f"{sweep_seed}/power/{operation}")
    survivors = chance.choice(get_args(Survivors))
    cutter = _run(atomicity, operation, tmp_path, survivors, lambda: chance.random() < _SHARE)
    assert len(cutter.events) > 2, "nothing was synced"
    _check_cuts(atomicity, operation, cutter)


@pytest.mark.slow
@pytest.mark.parametrize("survivors", get_args(Survivors))
@pytest.mark.parametrize("operation", _COMMITTING, ids=str)
def test_power_cut_anywhere(
    operation: FaultOperation, survivors: Survivors, atomicity: AtomicityCheck, tmp_path: Path
) -> None:
    """H41"""
    _check_cuts(atomicity, operation, _run(atomicity, operation, tmp_path, survivors, lambda: True))


def test_the_simulated_cut_loses_unsynced_names(atomicity: AtomicityCheck, tmp_path: Path) -> None:
    """Without syncs an acknowledged write is lost: the disk above would tell."""
    operation = next(candidate for candidate in OPERATIONS if candidate.name == "insert-staged")
    uri = atomicity.start(operation, tmp_path / "graph")
    process = FaultyProcess(uri, fsync=False, **operation.config)
    prepared = operation.prepare(process)
    disk = Disk(Path(uri))
    with disk.watch(lambda event: None):
        operation.run(process, prepared)
    process.close()
    remains = disk.cut_power(tmp_path / "left", "synced-names")
    assert not atomicity.check(operation, str(remains), DIED, "never synced")
