"""Child processes: started together, heard completely, killed without warning, never left behind."""

from __future__ import annotations

import dataclasses
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import obstore
import pytest

from tests.support.processes import Kill, WorkerFailed, Workers, random_kills, run_workers
from tests.support.proxy import Proxy
from tests.support.s3 import S3Place
from tests.support_tests import workers


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _ends_within(pid: int, timeout_s: float) -> bool:
    """Whether a process that is not our child ends in time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], timeout_s)[0])
    finally:
        os.close(handle)


def test_results_come_back_in_order_with_every_message() -> None:
    results = run_workers(workers.count_up, 2, {"to": 400}, args_of=[{}, {"step": 100}])
    assert [result.value for result in results] == [0, 1]
    assert [message["number"] for message in results[0].messages] == list(range(400))
    assert [message["number"] for message in results[1].messages] == [0, 100, 200, 300]
    assert not any(result.killed or result.has_failed for result in results)
    assert "noise 399" in results[0].output


def test_a_worker_needs_no_barrier_and_knows_its_index() -> None:
    results = run_workers("tests.support_tests.workers:who_is_there", 2)
    assert [(result.value["index"], result.value["count"]) for result in results] == [(0, 2), (1, 2)]
    assert len({result.value["pid"] for result in results} | {os.getpid()}) == 3


def test_a_script_can_be_a_worker(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("def main(link, word):\n    return word * 2\n")
    (result,) = run_workers(f"{script}:main", 1, {"word": "ab"})
    assert result.value == "abab"


def test_a_failure_shows_what_the_worker_said() -> None:
    with pytest.raises(WorkerFailed, match=r"(?s)worker 1.*of the second worker.*last words"):
        run_workers(workers.fail, 2)
    results = run_workers(workers.fail, 2, check=False)
    assert [result.has_failed for result in results] == [False, True]


def test_a_death_before_the_start_is_a_failure_not_a_hang() -> None:
    with pytest.raises(WorkerFailed, match="exit code 3"):
        run_workers(workers.die_before_ready, 1)


def test_too_late_shows_where_the_threads_are() -> None:
    with Workers(workers.stay_for_ever, 1) as group:
        group.start()
        with pytest.raises(WorkerFailed, match=r"(?s)did not end in time.*stay_for_ever"):
            group.wait(timeout_s=0.1)


def test_never_ready_is_a_failure_not_a_hang() -> None:
    with pytest.raises(WorkerFailed, match=r"(?s)in vain for all to be ready.*worker 0.*did not end in time"):
        run_workers(workers.never_ready, 1, timeout_s=1.0)


def test_kills_happen_after_the_planned_message() -> None:
    kills = (Kill(0, after_messages=5), Kill(1, after_messages=50, delay_s=0.02))
    results = run_workers(workers.count_for_ever, 2, kill=kills, timeout_s=30)
    assert [result.killed for result in results] == [True, True]
    for result, least in zip(results, (5, 50), strict=True):
        assert result.exit_code == -signal.SIGKILL
        assert [message["number"] for message in result.messages] == list(range(len(result.messages)))
        assert len(result.messages) >= least


def test_random_kills_repeat_by_seed() -> None:
    assert random_kills(7, range(5)) == random_kills(7, range(5))
    assert random_kills(7, range(5)) != random_kills(8, range(5))
    assert [kill.worker for kill in random_kills(7, [1, 3])] == [1, 3]


def test_orders_and_conditions_steer_a_worker() -> None:
    with Workers(workers.echo, 1, timeout_s=30) as group:
        group.start()
        (worker,) = group.workers
        worker.order(word="one")
        group.wait_for(lambda: worker.messages == [{"word": "one"}])
        worker.order(word="two")
        group.wait_for(lambda: len(worker.messages) == 2)
        worker.order(stop=True)
        (result,) = group.wait()
    assert result.messages == ({"word": "one"}, {"word": "two"})


def test_leaving_the_block_ends_all_workers() -> None:
    with Workers(workers.stay_for_ever, 2) as group:
        group.start()
        pids = [worker.pid for worker in group.workers]
        assert all(_is_alive(pid) for pid in pids)
    assert not any(_is_alive(pid) for pid in pids)


def test_children_end_with_the_process_that_started_them() -> None:
    program = (
        "import os, signal\n"
        "from tests.support.processes import Workers\n"
        "group = Workers('tests.support_tests.workers:stay_for_ever', 1)\n"
        "group.start()\n"
        "os.write(1, b'%d' % group.workers[0].pid)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, env=env, timeout=60, check=False)
    assert parent.returncode == -signal.SIGKILL
    assert _ends_within(int(parent.stdout), 10.0)


@pytest.mark.s3
def test_processes_race_for_keys(s3_place: S3Place) -> None:
    results = run_workers(workers.claim, 3, {**dataclasses.asdict(s3_place), "rounds": 60})
    won = [number for result in results for number in result.value]
    assert sorted(won) == list(range(60))


@pytest.mark.s3
def test_a_killed_writer_leaves_whole_objects_or_none(s3_proxy: Proxy, proxied_place: S3Place, sweep_seed: int) -> None:
    """What was acknowledged is there; what is there is whole."""
    kills = random_kills(sweep_seed, range(2), max_messages=4, max_delay_s=0.02)
    results = run_workers(workers.put_until_killed, 2, dataclasses.asdict(proxied_place), kill=kills, timeout_s=30)
    assert all(result.killed for result in results)
    stored = obstore.list(proxied_place.object_store()).collect()
    assert {meta["size"] for meta in stored} <= {1 << 20}
    acknowledged = {message["put"] for result in results for message in result.messages}
    assert acknowledged <= {meta["path"] for meta in stored}


@pytest.mark.s3
def test_the_proxy_can_kill_at_the_nth_effect(s3_proxy: Proxy, proxied_place: S3Place) -> None:
    """The third PUT is in the store, and its writer is dead before it learns of it."""
    with Workers(workers.put_until_killed, 1, dataclasses.asdict(proxied_place), timeout_s=30) as group:
        (worker,) = group.workers
        s3_proxy.fail("drop_answer", nth=3, method="PUT", on_hit=worker.kill)
        group.start()
        (result,) = group.wait()
    assert result.killed
    assert [message["put"] for message in result.messages] == ["0/0", "0/1"]
    assert proxied_place.list_keys() == ["0/0", "0/1", "0/2"]
