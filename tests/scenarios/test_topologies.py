"""Who writes at once: threads, handles, processes, and all of them. Also with processes killed at random instants.

In every topology: all writes land or get a typed retryable error within the bound, the chain is linear, every
acknowledged row is there, and no other row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

import omnigraph
from omnigraph.api import Graph
from omnigraph.storage.keys import KeyClass
from omnigraph.storage.metering import Measurement, RequestKind
from tests.scenarios import workers
from tests.scenarios.bed import ScenarioBed, at_once, outcomes, person, rows_of
from tests.support.processes import Kill, WorkerResult, random_kills, run_workers

DEADLINE_S = 20.0
FAIR_TRIES = 3


def _record_puts(cost: Measurement) -> list[str]:
    return [
        request.outcome
        for request in cost.log
        if (request.kind, request.key_class) == (RequestKind.PUT, KeyClass.RECORD)
    ]


def _write_together(bed: ScenarioBed, handles: Sequence[Graph], rows: int) -> None:
    """Every handle in a thread of its own; nobody prepares twice."""

    def write(graph: Graph, number: int) -> list[int]:
        return [graph.apply([person(f"t{number}-{row}", row)]).attempts for row in range(rows)]

    works: list[Callable[[], list[int]]] = [partial(write, item, number) for number, item in enumerate(handles)]
    successes, failed = outcomes(at_once(bed, works))
    assert not failed
    assert {attempts for item in successes for attempts in item} == {1}
    expected = {f"t{number}-{row}" for number in range(len(handles)) for row in range(rows)}
    assert set(bed.ages()) == expected


def test_twelve_threads_on_one_handle_lose_no_round(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    with process.meter.measure() as cost:
        _write_together(local_bed, [process.graph] * 12, 10)
    puts = _record_puts(cost)
    assert set(puts) == {"ok"}, "no record was ever refused"
    assert len(puts) == len(local_bed.chain()) - 1
    assert sum(len(record.members) for record in local_bed.logical()) == 120
    assert len(local_bed.logical()) < 120, "waiting writers share records"


def test_eight_handles_in_one_process_lose_no_round(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    handles = [Graph(process.runtime, process.runtime.branch("main")) for _ in range(8)]
    with process.meter.measure() as cost:
        _write_together(local_bed, handles, 10)
    assert set(_record_puts(cost)) == {"ok"}
    local_bed.chain()


def test_eight_handles_by_the_public_door(local_bed: ScenarioBed) -> None:
    handles = [local_bed.open() for _ in range(8)]
    assert len({id(handle._branch.publisher) for handle in handles}) == 1, "one process, one queue"
    _write_together(local_bed, handles, 6)
    branch = handles[0].branch.create("dev")
    again = omnigraph.open(local_bed.place.uri, "dev", config=local_bed.config())
    again.apply([person("there")])
    assert "there" in rows_of(branch, "Person")
    assert "there" not in local_bed.ages()


def _check(bed: ScenarioBed, results: Sequence[WorkerResult], *, writing_threads: int = 1) -> None:
    landed = {
        message["row"]: message["commit_id"] for result in results for message in result.messages if "row" in message
    }
    refused = {message["refused"] for result in results for message in result.messages if "refused" in message}
    took_s = [message["seconds"] for result in results for message in result.messages]
    assert max(took_s, default=0.0) < DEADLINE_S + 10
    names = set(bed.ages())
    chain = bed.chain()
    assert names >= landed.keys(), "every acknowledged row is there"
    assert not names & refused, "a refused row is not"
    killed = sum(result.killed for result in results)
    assert len(names - landed.keys()) <= killed * writing_threads, "besides, only what was in flight at a kill"
    assert {record.commit_id for record in chain} >= set(landed.values())
    assert sum(len(record.members) for record in chain if record.is_logical and record.seq) == len(names)
    bed.process().apply(person("next"))
    assert set(bed.ages()) == names | {"next"}, "the next operation needs no repair"


def _run(bed: ScenarioBed, processes: int, *, rows: int, threads: int = 1, kill: Sequence[Kill] = ()) -> None:
    config = {"fold": bed.fold, "publish_deadline_s": DEADLINE_S}
    args = {"uri": bed.place.uri, "config": config, "rows": rows, "threads": threads}
    results = run_workers(workers.write_rows, processes, args, env=bed.place.env, kill=kill, timeout_s=280)
    if kill:
        assert {result.index for result in results if result.killed} <= {result.worker for result in kill}
    else:
        assert all(len(result.messages) == rows * threads for result in results)
    _check(bed, results, writing_threads=threads)


@pytest.mark.parametrize(
    ("processes", "rows"),
    [
        (2, 12),
        (3, 12),
        (12, 4),
        pytest.param(5, 12, marks=pytest.mark.slow),
    ],
)
def test_processes_on_one_branch(local_bed: ScenarioBed, processes: int, rows: int) -> None:
    _run(local_bed, processes, rows=rows)


@pytest.mark.s3
@pytest.mark.parametrize("processes", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_processes_on_one_branch_of_a_bucket(moto_bed: ScenarioBed, processes: int) -> None:
    _run(moto_bed, processes, rows=5)


@pytest.mark.slow
def test_a_hundred_writers(local_bed: ScenarioBed) -> None:
    """Ten processes of ten threads each."""
    _run(local_bed, 10, rows=5, threads=10)


@pytest.mark.parametrize(
    "processes", [3, pytest.param(5, marks=pytest.mark.slow), pytest.param(12, marks=pytest.mark.slow)]
)
def test_processes_killed_at_random_instants(local_bed: ScenarioBed, processes: int, sweep_seed: int) -> None:
    kill = random_kills(sweep_seed, range(processes - 1), max_messages=20)
    _run(local_bed, processes, rows=25, kill=kill)
    local_bed.assert_sound()


@pytest.mark.slow
def test_a_hundred_writers_and_half_of_the_processes_killed(local_bed: ScenarioBed, sweep_seed: int) -> None:
    _run(local_bed, 10, rows=5, threads=10, kill=random_kills(sweep_seed, range(5), max_messages=40))


def test_four_processes_at_forty_milliseconds_share_fairly(local_bed: ScenarioBed) -> None:
    """Nobody lands fewer than a third of what the most successful one does. H21

    Beside other tests the machine itself may give one process less, so a run that is uneven is played again. Without
    the rule no run is even: the winner of the first round lands hundreds, everybody else one.
    """
    args = {
        "uri": local_bed.place.uri,
        "config": {"fold": "auto"},
        "latency_s": 0.04,
        "duration_s": 10.0,
        "least": 80,
    }
    runs: list[list[int]] = []
    while len(runs) < FAIR_TRIES and not (runs and _is_fair(runs[-1])):
        runs.append([run_worker.value for run_worker in run_workers(workers.write_for_a_while, 4, args)])
    print("landed in 10 s at 40 ms per request:", *runs)
    assert sum(map(sum, runs)) == len(local_bed.logical())
    assert _is_fair(runs[-1]), runs


def _is_fair(landed: Sequence[int]) -> bool:
    return min(landed) * 3 >= max(landed)
