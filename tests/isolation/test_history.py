"""Histories of eight real processes are strictly serializable. S148"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.config import Config
from tests.isolation.checker import Transaction, check
from tests.isolation.workers import SCHEMA, read_all, run
from tests.support.processes import WorkerResult, random_kills, run_workers

PROCESSES = 8
#: Half of the processes ride in records, half stage; some fold, all meet.
CONFIGS: Sequence[dict[str, Any]] = (
    {"fold": "random"},
    {"fold": "never", "inline_share": 0},
    {"fold": "always"},
    {"fold": "auto", "overlay_soft_entries": 40},
)


def record(
    path: Path, seed: int, seconds_s: float, *, killed: Sequence[int] = (), broken: bool = False
) -> tuple[list[Transaction], dict[str, list[int]], Counter[tuple[str, str]]]:
    """What everybody did, what the lists held in the end, and how many of each kind ended how."""
    uri = str(path / "graph")
    omnigraph.init(uri, SCHEMA, config=Config(fsync=False))
    results = run_workers(
        run,
        PROCESSES,
        {"uri": uri, "seed": seed, "seconds_s": seconds_s, "broken": broken},
        args_of=[{"config": CONFIGS[index % len(CONFIGS)]} for index in range(PROCESSES)],
        kill=random_kills(seed, killed, max_messages=60),
        timeout_s=seconds_s + 90.0,
    )
    history: list[Transaction] = []
    ends: Counter[tuple[str, str]] = Counter()
    for result in results:
        for raw in _transactions(result):
            history.append(Transaction.from_json(f"{result.index}.{raw['begin']}", raw))
            ends[raw["kind"], raw["outcome"]] += 1
    return history, read_all(omnigraph.open(uri, config=Config(fsync=False))), ends


def _transactions(result: WorkerResult) -> list[dict[str, Any]]:
    """Begin and end put together; the last one of a killed process is undecided."""
    transactions = {
        message["begin"]: {**message, "outcome": "unknown", "ended_s": None}
        for message in result.messages
        if "begin" in message
    }
    for message in result.messages:
        if "end" in message:
            transactions[message["end"]] |= {"outcome": message["outcome"], "ended_s": message["ended_s"]}
    return list(transactions.values())


def assert_worth_checking(history: Sequence[Transaction], ends: Counter[tuple[str, str]]) -> None:
    """They met, and yet most got through: otherwise the verdict says nothing."""
    print(f"\n{len(history)} transactions: {dict(sorted(ends.items()))}")
    for kind in ("read", "if_commit", "mutation", "transaction"):
        assert ends[kind, "ok"] >= PROCESSES, ends
    assert sum(count for (_, outcome), count in ends.items() if outcome == "fail") >= PROCESSES, ends


def test_s148_eight_processes_are_strictly_serializable(tmp_path: Path, sweep_seed: int) -> None:
    history, final, ends = record(tmp_path, sweep_seed, seconds_s=10.0, killed=[1, 6])
    assert_worth_checking(history, ends)
    assert [str(anomaly) for anomaly in check(history, final)] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_s148_for_longer(tmp_path: Path, sweep_seed: int) -> None:
    history, final, ends = record(tmp_path, sweep_seed, seconds_s=45.0)
    assert_worth_checking(history, ends)
    assert [str(anomaly) for anomaly in check(history, final)] == []


@pytest.mark.slow
def test_s148_writers_that_ignore_each_other_are_found_out(tmp_path: Path, sweep_seed: int) -> None:
    """The same processes without the test for conflicts: the checker must object."""
    history, final, _ = record(tmp_path, sweep_seed, seconds_s=6.0, broken=True)
    assert check(history, final)
