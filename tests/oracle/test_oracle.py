"""The random oracle over real processes, and what it finds if a rule of the protocol is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.oracle import Verdict
from tests.oracle.run import Trial, run_trial
from tests.support.s3 import S3Place


def _assert_passed(verdict: Verdict, least: int) -> None:
    """No violation, and enough of everything that the run means something."""
    print(verdict)
    assert not verdict.violations, str(verdict)
    minima = {
        "answer landed": least,
        "fold": least // 30,
        "staged": least // 30,
        "kills": 3,
        "groups": 1,
        "fork": 1,
        "read": 1,
        "answer nothing": 1,
        "answer violation": least // 20,
        "answer key_conflict": 1,
    }
    for name, count in minima.items():
        assert verdict.counts[name] >= count, f"too few: {name}\n{verdict}"
    assert any(name.startswith("fault") for name in verdict.counts), str(verdict)


def test_random_histories_are_serial(tmp_path: Path, sweep_seed: int) -> None:
    """Four processes, killed and restarted, with lost, late and false answers and random folding. H1–H41"""
    print(f"seed {sweep_seed}")
    least = 80
    trial = Trial(str(tmp_path / "graph"), None, tmp_path / "diaries", sweep_seed, seconds=20.0, least=least)
    _assert_passed(run_trial(trial), least)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [0, 2])
def test_long_random_histories_are_serial(tmp_path: Path, sweep_seed: int, number: int) -> None:
    """The same for longer, with more processes."""
    seed, least = sweep_seed + 1 + number, 160
    print(f"seed {seed}")
    trial = Trial(
        str(tmp_path / "graph"), None, tmp_path / "diaries", seed, seconds=50.0, least=least, processes=4 + number
    )
    _assert_passed(run_trial(trial), least)


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.timeout(600)
def test_long_random_histories_on_s3_are_serial(tmp_path: Path, s3_place: S3Place, sweep_seed: int) -> None:
    """The same on an S3-protocol server."""
    print(f"seed {sweep_seed}")
    least = 150
    trial = Trial(s3_place.uri, s3_place.storage_options, tmp_path / "diaries", sweep_seed, seconds=75.0, least=least)
    _assert_passed(run_trial(trial), least)


NOTICED_BY_CHANCE = [
    "entry-keys",
    "tombstone",
    "supersede",
    "restage-lookup",
    "pin-cas",
    "own-change-only",
    "unique-claims",
    "card-claims",
    "references",
    "phantom",
    "negative-is-fresh",
    "write-set",
]
NEEDS_FAULTS = ["exists-is-no-answer", "rid-and-op-id"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", NOTICED_BY_CHANCE + NEEDS_FAULTS)
def test_a_missing_rule_is_noticed(tmp_path: Path, sweep_seed: int, rule: str) -> None:
    """The workers run without one rule; the oracle must find out. For the other rules see tests/schedules."""
    for seed in range(sweep_seed, sweep_seed + 4):
        print(f"seed {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        verdict = run_trial(
            Trial(
                str(folder / "graph"),
                None,
                folder / "diaries",
                seed,
                seconds=12.0,
                least=150,
                processes=3,
                kills=False,
                faults=rule in NEEDS_FAULTS,
                broken=rule,
            )
        )
        if verdict.violations:
            print(verdict)
            return
    pytest.fail(f"nobody missed {rule}")
