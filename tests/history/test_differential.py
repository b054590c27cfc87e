"""Two ways to the same merge: with and without taking tables over, with and without the commits between. S89, S90."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import MergeConflict
from omnigraph.history import merge as merging
from omnigraph.log.commit_record import Stub
from omnigraph.query.language.statements import Statement
from omnigraph.upkeep.cleanup.cleanup import Cleanup
from omnigraph.upkeep.cleanup.retention import Policy
from tests.history.bed import LAYOUTS, MergeBed, change, content, knows, person, remove, summarize

COLLECT = Policy(keep=1, margin_s=0, horizon_s=0, newest_records=1)
NAMES = [f"n{number}" for number in range(12)]


def steps(chance: random.Random, side: str, *, inserts_only: bool) -> list[list[Statement]]:
    """A few commits of one side."""
    groups: list[list[Statement]] = []
    for number in range(chance.randint(1, 5)):
        new = f"{side}{number}"
        batch: list[Statement] = [person(new, age=number), knows(new, chance.choice(NAMES), f"e-{new}")]
        if not inserts_only:
            name = chance.choice(NAMES)
            batch = chance.choice([batch, [change(name, age=chance.randint(0, 2))], [remove(name)]])
        groups.append(batch)
    return groups


def histories(path: Path, seed: int, *, inserts_only: bool) -> MergeBed:
    chance = random.Random(seed)
    bed = MergeBed.make(path)
    bed.on("main", chance.choice(sorted(LAYOUTS))).apply([person(name, age=0) for name in NAMES])
    bed.fork("work")
    for branch in ("work", "main") if chance.random() < 0.6 else ("work",):
        for batch in steps(chance, branch, inserts_only=inserts_only):
            try:
                bed.on(branch, chance.choice(sorted(LAYOUTS))).apply(batch)
            except Exception:  # noqa: BLE001 - an edge to somebody who was removed: the next step follows
                continue
        if chance.random() < 0.4:
            bed.on(branch).optimize()
    return bed


def outcome(bed: MergeBed) -> Any:
    """Everything that a user can tell of the merge."""
    before = bed.main.refresh()
    try:
        report = bed.merge("work")
    except MergeConflict as error:
        return error.conflicts, content(bed.main)
    after = bed.main.refresh()
    feed = [[summarize(commit.changes) for commit in bed.main.changes(before).commits], bed.main.snapshot()["branch"]]
    return report.outcome, report.counts, content(bed.main), summarize(bed.main.diff(before, after)), feed


def compare(bed: MergeBed, twin_bed: MergeBed) -> None:
    assert outcome(bed) == outcome(twin_bed)
    assert bed.main.verify(deep=True).ok
    assert twin_bed.main.verify(deep=True).ok


def twin(bed: MergeBed, path: Path) -> MergeBed:
    shutil.copytree(bed.place, path)
    return MergeBed(path)


@pytest.mark.parametrize("inserts_only", [True, False], ids=["inserts", "all"])
@pytest.mark.parametrize("number", [*range(6), *(pytest.param(n, marks=pytest.mark.slow) for n in range(6, 60))])
def test_tables_taken_over_or_merged_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep_seed: int, number: int, inserts_only: bool
) -> None:
    # S89
    bed = histories(tmp_path / "graph", sweep_seed + number, inserts_only=inserts_only)
    twin_bed = twin(bed, tmp_path / "other")
    first = outcome(bed)
    monkeypatch.setattr(merging, "adopt_tables", lambda plan, *_: plan)
    assert first == outcome(twin_bed)
    assert bed.main.verify(deep=True).ok
    assert twin_bed.main.verify(deep=True).ok


@pytest.mark.parametrize("number", [*range(5), *(pytest.param(n, marks=pytest.mark.slow) for n in range(5, 40))])
def test_commits_between_that_were_collected(tmp_path: Path, sweep_seed: int, number: int) -> None:
    # S90: the bases stay, what lies between base and heads is not needed.
    bed = histories(tmp_path / "graph", sweep_seed + number, inserts_only=False)
    twin_bed = twin(bed, tmp_path / "other")
    for _ in range(4):
        Cleanup(twin_bed.main._runtime, replace(COLLECT)).run()
    runtime = twin_bed.main._runtime
    between = [runtime.records(head.stream).get(seq) for head in _heads(twin_bed) for seq in range(head.seq)]
    assert any(isinstance(commit, Stub) for commit in between)
    compare(bed, twin_bed)


def _heads(bed: MergeBed) -> list[Any]:
    return [bed.on(branch).view().state.record for branch in ("main", "work")]
