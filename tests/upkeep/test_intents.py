"""Rewrites that take long leave an intent: cleanup spares what they stage, and recovery ends what they could not.

S124, S149–S151, S161, H35, H36, H38–H40
"""

from __future__ import annotations

import signal
from typing import Any

import pytest

from omnigraph.errors import IntentEnded, Unknown
from omnigraph.intents.recovery import Recovery, RecoveryResult
from omnigraph.upkeep.optimize import Optimizer, OptimizeReport
from tests.schedules.world import Actor, World, knows
from tests.support.processes import Workers
from tests.upkeep.cleanup.test_cleanup import files, find_unnamed_files, to_the_end
from tests.upkeep.upkeep_graphs import PATIENT, contents, fill, make_scattered, open_pin
from tests.upkeep.workers import optimize_until_killed

UNCONFIRMED = ("intent.opened", "optimize.staged", "intent.staged")
CONFIRMED = ("intent.confirmed", "optimize.before-record")
PUBLISHED = ("optimize.after-record", "intent.before-done")


def run(actor: Actor, above_bytes: int = 0) -> OptimizeReport:
    return Optimizer(actor.runtime, actor.branch, intent_above_bytes=above_bytes).run()


def intents(world: World) -> dict[str, set[str]]:
    """What every intent consists of, by its id."""
    objects: dict[str, set[str]] = {}
    for file in files(world, "__recovery"):
        _, op_id, name = file.split("/")
        objects.setdefault(op_id, set()).add(name)
    return objects


def recover(actor: Actor, now: str | None = None) -> list[RecoveryResult]:
    return Recovery(actor.runtime).run(now=now)


def physical(actor: Actor) -> list[str]:
    return [commit.commit_id for commit in actor.graph.commits(None) if commit.kind == "physical"]


def test_small_optimize_opens_no_intent(world: World) -> None:
    actor = make_scattered(world, **PATIENT)
    assert actor.graph.optimize().commit_id is not None
    assert intents(world) == {}


def test_large_optimize_opens_confirms_and_ends_an_intent(world: World) -> None:
    actor = make_scattered(world, **PATIENT)
    before = contents(actor)
    report = run(actor)
    ((op_id, objects),) = intents(world).items()
    assert objects == {"0-open", "1", "2"}
    assert [member.op_id for member in actor.head.members] == [op_id]
    assert (report.is_complete, report.commits) == (True, (actor.head.commit_id,))
    assert contents(world.reader()) == before
    assert run(actor).commits == ()  # it left nothing to do, not even a row of `_ops`
    assert len(intents(world)) == 1
    to_the_end(actor)
    assert intents(world) == {}


@pytest.mark.parametrize("point", ["optimize.staged", "intent.staged", "optimize.before-record"])
def test_cleanup_spares_what_it_has_staged(world: World, point: str) -> None:  # H35
    actor, second_actor = make_scattered(world, **PATIENT), world.actor()
    before, files_before = contents(actor), files(world)
    actor.graph.fold()
    with actor.hold_at(point, lambda: run(actor)) as running:
        staged = files(world) - files_before
        to_the_end(second_actor, keep=1)
        assert staged
        assert staged <= files(world)
        (op_id,) = intents(world)
        assert second_actor.head.gc is not None
        assert second_actor.head.gc["honours"] == [op_id]
    report = running.result()
    assert (report.is_complete, len(report.commits)) == (True, 1)
    assert [member.op_id for member in actor.head.members] == [op_id]
    assert contents(world.reader()) == before
    to_the_end(second_actor, keep=1)
    assert find_unnamed_files(world) == []
    assert world.reader().graph.verify(deep=True).ok


def test_without_an_intent_it_stages_again(world: World) -> None:  # H35
    actor, second_actor = make_scattered(world, **PATIENT), world.actor()
    before = contents(actor)
    with actor.hold_at("optimize.staged", actor.graph.optimize) as running:
        to_the_end(second_actor, keep=1)
    assert running.result().is_complete
    assert contents(world.reader()) == before
    assert world.reader().graph.verify(deep=True).ok


def _kill_at(world: World, point: str) -> str:
    with Workers(optimize_until_killed, 1, {"uri": world.path, "point": point}) as workers:
        workers.start()
        (result,) = workers.wait(check=False)
    assert result.exit_code == -signal.SIGKILL, (result.value, result.error)
    (op_id,) = intents(world)
    return op_id


@pytest.mark.parametrize("point", [*UNCONFIRMED, *CONFIRMED, *PUBLISHED])
def test_killed_at_any_point(world: World, point: str) -> None:  # S149, S150, S151
    actor = make_scattered(world, **PATIENT)
    before = contents(actor)
    op_id = _kill_at(world, point)
    assert contents(world.reader()) == before
    assert len(physical(actor)) == (point in PUBLISHED)
    (recovered,) = recover(actor, op_id)
    forward = point not in UNCONFIRMED
    assert recovered.verdict == ("rolled_forward" if forward else "rolled_back")
    assert recovered.class_ == ("published" if point in PUBLISHED else "confirmed" if forward else "unconfirmed")
    assert len(physical(actor)) == forward
    assert contents(world.reader()) == before
    assert (open_pin(actor, "Person").fragments == 1) == forward
    assert run(actor).is_complete
    to_the_end(actor, keep=1)
    assert (intents(world), find_unnamed_files(world)) == ({}, [])
    assert contents(world.reader()) == before
    assert world.reader().graph.verify(deep=True).ok


def test_recovery_gives_up_tables_that_writers_changed(world: World) -> None:  # H40
    actor = make_scattered(world, **PATIENT)
    op_id = _kill_at(world, "intent.confirmed")
    fill(actor, 5, 800)
    actor.apply(*(knows(f"p{number:04d}", "p0001") for number in range(800, 804)))
    before = contents(actor)
    (recovered,) = recover(actor, op_id)
    assert (recovered.verdict, recovered.class_) == ("rolled_back", "conflicting")
    assert physical(actor) == []
    assert contents(world.reader()) == before
    assert actor.graph.optimize().is_complete
    assert contents(world.reader()) == before


def test_a_part_that_still_fits_is_published(world: World) -> None:
    actor = make_scattered(world, **PATIENT)
    op_id = _kill_at(world, "intent.confirmed")
    fill(actor, 5, 800)
    before = contents(actor)
    (recovered,) = recover(actor, op_id)
    assert recovered.verdict == "rolled_forward"
    assert open_pin(actor, "Knows").fragments == 1
    assert open_pin(actor, "Person").fragments > 1
    assert contents(world.reader()) == before
    assert world.reader().graph.verify(deep=True).ok


def test_a_driver_that_was_only_slow_finds_its_work_published(world: World) -> None:  # H39
    actor, second_actor = make_scattered(world, **PATIENT), world.actor()
    before = contents(actor)
    with actor.hold_at("optimize.before-record", lambda: run(actor)) as running:
        (op_id,) = intents(world)
        (recovered,) = recover(second_actor, op_id)
        assert recovered.verdict == "rolled_forward"
    assert running.result().commits == tuple(physical(second_actor)) == (recovered.commit_id,)
    assert contents(world.reader()) == before


@pytest.mark.parametrize("swept", [False, True])
def test_a_driver_that_was_given_up_publishes_nothing_of_it(world: World, swept: bool) -> None:  # H36, H38
    """It is told; or, if so much time has passed that its intent is swept with its files, it meets the fence."""
    actor, second_actor = make_scattered(world, **PATIENT), world.actor()
    before = contents(actor)
    with actor.hold_at("intent.staged", lambda: run(actor)) as running:
        (op_id,) = intents(world)
        assert recover(second_actor, op_id)[0].verdict == "rolled_back"
        if swept:
            to_the_end(second_actor, keep=1)
    if swept:
        assert running.result().is_complete
    else:
        with pytest.raises(IntentEnded):
            running.result()
    assert len(physical(actor)) == swept
    assert op_id not in {member.op_id for member in actor.head.members}
    assert contents(world.reader()) == before
    assert world.reader().graph.verify(deep=True).ok


@pytest.mark.parametrize("swept", [False, True])
def test_a_driver_that_was_rolled_back_publishes_nothing_of_it(world: World, swept: bool) -> None:  # H36, H38
    """It had confirmed; meanwhile its tables moved, and recovery could only give it up."""
    actor, second_actor = make_scattered(world, **PATIENT), world.actor(inline_share=0)
    with actor.hold_at("optimize.before-record", lambda: run(actor)) as running:
        (op_id,) = intents(world)
        fill(second_actor, 5, 800)
        second_actor.apply(*(knows(f"p{number:04d}", "p0001") for number in range(800, 804)))
        before = contents(second_actor)
        assert recover(second_actor, op_id)[0].verdict == "rolled_back"
        if swept:
            to_the_end(second_actor, keep=1)
    if swept:
        assert running.result().is_complete
    else:
        with pytest.raises(Unknown):
            running.result()
    assert len(physical(actor)) == swept
    assert contents(world.reader()) == before
    assert world.reader().graph.verify(deep=True).ok


class TestSchema:
    """A schema change that rewrites columns: only its own process can carry it out."""

    @pytest.fixture(autouse=True)
    def _everything_is_large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("omnigraph.api.schema.REWRITE_BYTES", 0)

    def _apply(self, actor: Actor, **options: Any) -> str:
        text = actor.graph.schema.source.replace("age: I32?", "age: I64?").replace(
            "edge Knows: Person -> Person {", "edge Knows: Person -> Person { weight: F64 @default(1.5)"
        )
        commit_id = actor.graph.schema.apply(text, **options).commit_id
        assert commit_id is not None
        return commit_id

    def _weights(self, world: World) -> set[Any]:
        return {row.get("weight") for row in world.rows("Knows").values()}

    def test_leaves_an_intent_and_no_plan(self, world: World) -> None:
        actor = make_scattered(world, **PATIENT)
        self._apply(actor)
        ((_, objects),) = intents(world).items()
        assert objects == {"0-open", "2"}
        assert self._weights(world) == {1.5}
        assert world.reader().graph.verify(deep=True).ok

    def test_schema_change_without_rewrite_opens_no_intent(self, world: World) -> None:
        actor = make_scattered(world, **PATIENT)
        actor.graph.schema.apply(actor.graph.schema.source.replace("text: String?", "text: String? more: I32?"))
        assert intents(world) == {}

    def test_cleanup_spares_what_it_has_staged(self, world: World) -> None:  # H35
        actor, second_actor = make_scattered(world, **PATIENT), world.actor()
        actor.graph.fold()
        files_before = files(world)
        with actor.hold_at("write.before-record", lambda: self._apply(actor)) as running:
            staged = files(world) - files_before
            to_the_end(second_actor, keep=1)
            assert staged
            assert staged <= files(world)
        assert running.result() == actor.head.commit_id
        assert self._weights(world) == {1.5}
        to_the_end(second_actor, keep=1)
        assert find_unnamed_files(world) == []
        assert world.reader().graph.verify(deep=True).ok

    def test_schema_change_that_was_given_up_is_reported(self, world: World) -> None:  # H38
        actor, second_actor = make_scattered(world, **PATIENT), world.actor()
        with actor.hold_at("write.before-record", lambda: self._apply(actor)) as running:
            (op_id,) = intents(world)
            assert recover(second_actor, op_id)[0].verdict == "rolled_back"
        with pytest.raises(IntentEnded):
            running.result()
        assert self._weights(world) == {None}
        assert world.reader().graph.verify(deep=True).ok

    def test_killed_after_its_record(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # S151
        actor = make_scattered(world, **PATIENT)
        with monkeypatch.context() as patch:
            patch.setattr("omnigraph.intents.scope.IntentScope.end", lambda *_: None)
            patch.setattr("omnigraph.intents.scope.IntentScope.abort", lambda *_: None)
            commit_id = self._apply(actor)
        (op_id,) = intents(world)
        (recovered,) = recover(actor, op_id)
        assert (recovered.verdict, recovered.class_, recovered.commit_id) == ("rolled_forward", "published", commit_id)
        assert self._weights(world) == {1.5}


def test_recovery_leaves_a_live_operation_alone(world: World) -> None:  # H38
    actor, second_actor = make_scattered(world, **PATIENT), world.actor()
    with actor.hold_at("optimize.staged", lambda: run(actor)) as running:
        assert [outcome.verdict for outcome in recover(second_actor)] == ["live"]
        assert [intent.state for intent in second_actor.graph.recover_list()] == ["live"]
    assert running.result().is_complete
    assert [(intent.state, intent.operation) for intent in second_actor.graph.recover_list()] == [("done", "optimize")]
