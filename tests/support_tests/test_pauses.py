"""Pauses hold one actor exactly where a test wants it, without sleeping."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from omnigraph.errors import Unavailable
from omnigraph.storage.pauses import NO_PAUSES
from tests.support.pauses import ControlledPauses


def test_no_pauses_never_waits() -> None:
    NO_PAUSES.reach("write.captured")


def test_a_held_actor_waits_until_it_is_released() -> None:
    pauses = ControlledPauses()
    order: list[str] = []
    hold = pauses.hold("write.staged")

    def write() -> None:
        pauses.reach("write.captured")
        pauses.reach("write.staged")
        order.append("writer")

    writer = threading.Thread(target=write)
    writer.start()
    hold.wait_reached(10)
    order.append("other")
    assert pauses.points_reached == ["write.captured", "write.staged"]
    hold.release()
    writer.join()
    assert order == ["other", "writer"]


def test_only_the_nth_visit_is_held_counted_from_the_call() -> None:
    pauses = ControlledPauses(give_up_after_s=0.01)
    pauses.reach("a")
    hold = pauses.hold("a", nth=2)
    pauses.reach("a")
    before = hold.is_reached
    with pytest.raises(TimeoutError, match="never released"):
        pauses.reach("a")
    assert (before, hold.is_reached) == (False, True)
    pauses.reach("a")


def test_two_holds_at_one_point_hold_two_actors() -> None:
    pauses = ControlledPauses()
    first, second = pauses.hold("a", nth=1), pauses.hold("a", nth=2)
    threads = [threading.Thread(target=pauses.reach, args=("a",)) for _ in range(2)]
    for thread in threads:
        thread.start()
    first.wait_reached(10)
    second.wait_reached(10)
    pauses.release_all()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def test_a_schedule_that_never_forms_is_an_error() -> None:
    pauses = ControlledPauses()
    with pytest.raises(TimeoutError, match="nobody reached 'a'"):
        pauses.hold("a").wait_reached(0.01)
    with pytest.raises(TimeoutError, match="0 times"):
        pauses.wait_seen("a", timeout_s=0.01)


def test_leaving_the_block_releases() -> None:
    pauses = ControlledPauses()
    with pauses.hold("a") as hold:
        actor = threading.Thread(target=pauses.reach, args=("a",))
        actor.start()
        hold.wait_reached(10)
    actor.join(10)
    assert not actor.is_alive()


def test_waiting_for_a_visit_that_others_make() -> None:
    pauses = ControlledPauses()

    def act() -> None:
        for _ in range(3):
            pauses.reach("a")

    actor = threading.Thread(target=act)
    actor.start()
    pauses.wait_seen("a", nth=3, timeout_s=10)
    actor.join()
    assert pauses.points_reached == ["a"] * 3


def test_a_point_can_fail_once() -> None:
    pauses = ControlledPauses()
    pauses.fail_at("fold.staged", Unavailable("gone"), nth=2)
    pauses.reach("fold.staged")
    with pytest.raises(Unavailable):
        pauses.reach("fold.staged")
    pauses.reach("fold.staged")


def test_another_actor_can_run_inside_a_point() -> None:
    pauses = ControlledPauses()
    ran: list[str] = []
    pauses.call_at("write.before-record", lambda: ran.append("other writer"))
    pauses.reach("write.before-record")
    pauses.reach("write.before-record")
    assert ran == ["other writer"]


def test_a_point_can_kill_the_process() -> None:
    code = """
from tests.support.pauses import ControlledPauses
pauses = ControlledPauses()
pauses.crash_at("write.after-record", nth=2)
pauses.reach("write.after-record")
print("alive", flush=True)
try:
    pauses.reach("write.after-record")
finally:
    print("cleaned up", flush=True)
"""
    root = Path(__file__).parents[2]
    outcome = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=root)
    assert (outcome.returncode, outcome.stdout) == (-signal.SIGKILL, "alive\n")


def test_visits_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="from 1"):
        ControlledPauses().hold("a", nth=0)
