"""Running the random test: workers in processes of their own, killed at random instants and started again."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from omnigraph.api import init, make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.config import Config
from tests.oracle.model import SCHEMA
from tests.oracle.operations import first_operation, to_statements
from tests.oracle.oracle import Diaries, Verdict, judge
from tests.support.processes import WorkerFailed, WorkerResult, Workers

_WORKER = "tests.oracle.worker:run"
_PATIENCE = 5
_LIFE_LINES = (4, 70)


@dataclass(frozen=True)
class Trial:
    """One random history: `seconds` of it, and longer on a slow machine, until `least` operations have landed."""

    uri: str
    options: Mapping[str, str] | None
    diaries: Path
    seed: int
    seconds: float
    least: int = 0
    processes: int = 4
    kills: bool = True
    faults: bool = True
    broken: str | None = None


def run_trial(trial: Trial) -> Verdict:
    """Let it happen, then judge it. A worker that fails by itself fails the test."""
    trial.diaries.mkdir()
    _begin(trial)
    over, started = Event(), [Event() for _ in range(trial.processes)]
    with ThreadPoolExecutor(trial.processes) as pool:
        lives = [pool.submit(_live, trial, slot, started[slot], over) for slot in range(trial.processes)]
        try:
            _wait(trial, lives, started)
        finally:
            over.set()
        counts = [live.result() for live in lives]
    runtime = GraphRuntime.open(make_backend(trial.uri, trial.options, Config(fsync=False)), read_only=True)
    verdict = judge(runtime, Diaries.read(trial.diaries))
    for count in counts:
        verdict.counts.update(count)
    runtime.backend.close()
    return verdict


def _begin(trial: Trial) -> None:
    """The graph and its first rows, with a diary like everybody else's."""
    graph = init(trial.uri, SCHEMA, storage_options=trial.options, config=Config(fsync=False))
    stream, operation = graph.refresh().partition(".")[0], first_operation()
    beginning: dict[str, Any] = {
        "tag": "first",
        "stream": stream,
        "operation": operation,
        "options": {},
        "holder": None,
        "low": 0,
    }
    receipt = graph.apply(to_statements(operation), actor="first")
    ended = {"tag": "first", "answer": "landed", "commit_id": receipt.commit_id, "counts": receipt.counts, "high": 1}
    lines = [{"what": "begin", **beginning}, {"what": "end", **ended}]
    (trial.diaries / "first").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _wait(trial: Trial, lives: Sequence[Future[Counter[str]]], started: Sequence[Event]) -> None:
    """From the moment all are there until there is enough of it, somebody failed, or patience has an end."""
    while not all(process.wait(0.1) for process in started):
        if any(live.done() for live in lives):
            return
    began = time.monotonic()
    while time.monotonic() - began < trial.seconds * _PATIENCE:
        if any(live.done() for live in lives):
            return
        if time.monotonic() - began >= trial.seconds and _count_landed(trial.diaries) >= trial.least:
            return
        time.sleep(0.5)


def _count_landed(diaries: Path) -> int:
    return sum(path.read_text().count('"answer": "landed"') for path in diaries.iterdir())


def _live(trial: Trial, slot: int, started: Event, over: Event) -> Counter[str]:
    """One worker after the other in one slot, each killed after a random time, until the end."""
    chance = random.Random(f"{trial.seed}/{slot}")
    counts: Counter[str] = Counter()
    life = 0
    while not over.is_set():
        result = _one_life(trial, slot, f"w{slot}.{life}", started, over, chance)
        # Without a rule anything may happen to a worker; what counts then is what the oracle finds.
        if result.has_failed and result.exit_code != -signal.SIGKILL and trial.broken is None:
            raise WorkerFailed(f"seed {trial.seed}: {result.error}\n{result.output[-4000:]}")
        counts["kills"] += result.killed
        counts["own deaths"] += not result.killed and result.exit_code == -signal.SIGKILL
        life += 1
    return counts


def _one_life(trial: Trial, slot: int, name: str, started: Event, over: Event, chance: random.Random) -> WorkerResult:
    diary = trial.diaries / name
    arguments = {
        "uri": trial.uri,
        "options": dict(trial.options) if trial.options else None,
        "diary": str(diary),
        "name": name,
        "slot": slot,
        "seed": f"{trial.seed}/{name}",
        "faults": trial.faults,
        "broken": trial.broken,
    }
    longest_s = trial.seconds * _PATIENCE + 60
    with Workers(_WORKER, 1, arguments, timeout_s=longest_s) as workers:
        workers.start()
        started.set()
        [worker] = workers.workers
        # By its own progress, so that a slow machine sees as many kills per operation as a fast one.
        lines = chance.randint(*_LIFE_LINES) if trial.kills else None
        workers.wait_for(lambda: worker.has_ended or over.is_set() or _has_lines(diary, lines))
        worker.kill()
        [result] = workers.wait(check=False)
    return result


def _has_lines(diary: Path, count: int | None) -> bool:
    return count is not None and diary.exists() and diary.read_bytes().count(b"\n") >= count
