"""Back-pressure on a neglected graph: slowed and told so, then refused, and optimize ends it. S169"""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.clock import SystemClock
from omnigraph.commit.back_pressure import small_fragments
from omnigraph.errors import Unavailable
from omnigraph.log.commit_record import Pin
from tests.schedules.world import Actor, World, knows, person

LIMITS: dict[str, Any] = {"inline_share": 0, "pressure_wait_fragments": 3, "pressure_stop_fragments": 6}


class WatchedClock(SystemClock):
    """Keeps what was slept instead of sleeping."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def make_neglected(world: World, clock: WatchedClock, count: int) -> Actor:
    """An actor whose every write left a fragment."""
    actor = world.actor(clock=clock, **LIMITS)
    for number in range(count):
        actor.apply(person(f"p{number}"))
    return actor


def test_writers_wait_longer_the_more_fragments_there_are_and_are_told(world: World) -> None:
    clock = WatchedClock()
    actor = make_neglected(world, clock, 3)
    assert clock.slept == []
    waits = [actor.apply(person(f"later{number}")).waited_s for number in range(3)]
    assert waits == clock.slept == pytest.approx([1 / 3, 2 / 3, 1.0])


def test_beyond_the_bound_a_write_is_refused_and_optimize_ends_it(world: World) -> None:
    actor = make_neglected(world, WatchedClock(), 6)
    before = actor.head.commit_id
    with pytest.raises(Unavailable) as refused:
        actor.apply(person("one too many"))
    assert refused.value.code == "needs_optimize"
    assert refused.value.retryable
    assert refused.value.details["retry_after_s"] > 0
    assert (refused.value.details["bound"], refused.value.details["value"]) == (6, 6)
    assert actor.head.commit_id == before
    actor.graph.optimize()
    assert actor.apply(person("one too many")).waited_s == 0


def test_writes_to_other_tables_do_not_wait(world: World) -> None:
    actor = make_neglected(world, WatchedClock(), 6)
    assert actor.apply(knows("p0", "p1")).waited_s == 0


def test_a_write_waits_once_however_often_it_is_prepared(world: World) -> None:
    clock = WatchedClock()
    slow, fast = make_neglected(world, clock, 3), world.actor(inline_share=0)
    with slow.hold_at("write.validated", lambda: slow.apply(person("p0", 7))) as running:
        fast.apply(person("p0", 8))
    receipt = running.result(20)
    assert receipt.attempts > 1
    assert len([pause_s for pause_s in clock.slept if pause_s == receipt.waited_s]) == 1


def test_a_large_table_of_whole_fragments_is_not_neglected() -> None:
    assert small_fragments(Pin("1", 10**9, 2000 * (64 << 20), 2000, 1)) == 0
    assert small_fragments(Pin("1", 2000, 2000 * 1000, 2000, 1)) == 2000


def test_needs_upkeep_reports_before_writers_wait_and_optimize_if_needed_mends(world: World) -> None:
    actor = world.actor(inline_share=0, upkeep_fragments=4)
    for number in range(3):
        actor.apply(person(f"p{number}"))
    assert actor.graph.needs_upkeep() == []
    assert actor.graph.optimize_if_needed() is None
    actor.apply(person("p3"))
    assert actor.graph.needs_upkeep() == ["Person"]
    assert actor.graph.optimize_if_needed() is not None
    assert actor.graph.needs_upkeep() == []
