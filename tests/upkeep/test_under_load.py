"""Writers at full speed, in processes of their own, while upkeep goes on."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.upkeep.cleanup.cleanup import Cleanup
from omnigraph.upkeep.cleanup.retention import Policy
from tests.schedules.world import World
from tests.support.processes import Workers
from tests.upkeep.workers import write_rows

WRITERS, ROWS = 4, 20
_CONFIG = {"fsync": False, "overlay_soft_entries": 40, "publish_deadline_s": 60.0}
_POLICY = Policy(keep=5, margin_s=600, horizon_s=0, newest_records=64)


def test_nobody_fails_because_of_optimize_and_cleanup(world: World) -> None:  # S124, S131
    actor = world.actor()
    landed = 0
    with Workers(write_rows, WRITERS, {"uri": world.path, "config": _CONFIG, "rows": ROWS}) as workers:
        workers.start()
        while not all(worker.has_ended for worker in workers.workers):
            landed += len(actor.graph.optimize().commits)
            Cleanup(actor.runtime, replace(_POLICY)).run()
        results = workers.wait()
    assert [result.value for result in results] == [ROWS] * WRITERS
    assert landed > 0
    assert actor.graph.optimize().is_complete
    expected = {
        f"w{writer}-{number}": 1000 + number if number % 5 == 1 else number
        for writer in range(WRITERS)
        for number in range(ROWS)
        if number % 5 != 2
    }
    assert world.ages() == expected
    assert world.edges() == {(name, name) for name in expected}
    assert world.reader().graph.verify(deep=True).errors == ()
