"""H36 to H40: dead bulk operations and what nobody names, against those who are alive after all."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit.publish_plan import Receipt, WriteOptions
from omnigraph.errors import Conflict, Unknown
from omnigraph.intents.objects import IntentAborted, decide_aborted
from omnigraph.intents.recovery import Recovery
from omnigraph.intents.run_bulk import run_bulk
from omnigraph.intents.states import list_intents
from omnigraph.mutate.mutation import Mutation
from omnigraph.storage.store import ObjectInfo
from omnigraph.upkeep.cleanup.cleanup import Cleanup
from omnigraph.upkeep.cleanup.report import CleanupReport
from omnigraph.upkeep.cleanup.retention import Policy
from omnigraph.upkeep.cleanup.trash import TrashList
from tests.schedules.guarded import run_without_rules
from tests.schedules.world import SCHEMA, WAIT_S, Actor, World, person

ROWS = 300
HORIZON_S = 3600.0
PATIENT = Policy(margin_s=0, horizon_s=HORIZON_S, newest_records=1)


def _bulk(actor: Actor) -> Receipt:
    """A staged change under an intent."""
    people = [person(f"p{number:04d}", number) for number in range(ROWS)]
    backend = actor.runtime.backend
    options = WriteOptions(actor="etl", on_conflict="fail")
    operation = Mutation(backend, lambda _: people)
    return run_bulk(backend, actor.branch.writer, operation, options, above_bytes=0)


def _age(world: World, part: str, seconds: float) -> None:
    """Let the store say that everything in a part of the layout was written so long ago."""
    long_ago = time.time() - seconds
    for path in (Path(world.path) / part).rglob("*"):
        if path.is_file():
            os.utime(path, (long_ago, long_ago))


def _recover_as_if_dead(world: World, actor: Actor) -> list[str]:
    _age(world, "__recovery", 10_000)
    return [result.verdict for result in Recovery(actor.runtime).run()]


def _files(world: World) -> set[str]:
    root = Path(world.path)
    return {str(path.relative_to(root)) for path in (root / "tables").rglob("*") if path.is_file()}


@run_without_rules("recovery-keeps-files")
def test_h36_a_roll_back_deletes_nothing_that_a_slow_driver_staged(world: World) -> None:
    """A driver stands still after staging and is taken for dead; everything it wrote is still there. H36"""
    driver, second_actor = world.actor(), world.actor()
    driver.apply(person("ada", 1))
    driver.graph.fold()
    with driver.hold_at("write.staged", lambda: _bulk(driver)) as late:
        staged = _files(world)
        assert _recover_as_if_dead(world, second_actor) == ["rolled_back"]
        assert _files(world) >= staged, "only cleanup deletes, behind its fence"
    with pytest.raises(Conflict) as raised:
        late.result(WAIT_S)
    assert raised.value.code == "intent_ended"
    assert world.ages() == {"ada": 1}
    assert _bulk(driver).counts["inserted"] == ROWS


def _collect(actor: Actor, **policy: Any) -> CleanupReport:
    return Cleanup(actor.runtime, replace(PATIENT, **policy)).run()


def _garbage(world: World, actor: Actor) -> set[str]:
    """Files of a bulk operation that was rolled back, and whose intent is over for long."""
    before = _files(world)
    with actor.hold_at("write.staged", lambda: _bulk(actor)) as late:
        _recover_as_if_dead(world, world.actor())
    assert late.exception(WAIT_S) is not None
    new_files = {path for path in _files(world) - before if "/data/" in path}
    assert new_files
    return new_files


@run_without_rules("condemned-for-a-while")
def test_h37_trash_is_a_list_and_files_stay_where_they_are(world: World) -> None:
    """Nothing is moved or copied; what is condemned goes by a later run, a horizon after it was put on a list. H37"""
    actor = world.actor(inline_share=0)
    actor.apply(person("ada", 1))
    garbage = _garbage(world, actor)
    everything = _files(world)
    assert _collect(actor).condemns
    assert _files(world) == everything
    assert {path.suffix for path in (Path(world.path) / "__trash").iterdir()} == {".json"}
    assert not _collect(actor).deletes
    assert _files(world) == everything, "the horizon has not passed"
    _age(world, "__trash", HORIZON_S + 1)
    _collect(actor)
    assert not garbage & _files(world)
    assert world.ages() == {"ada": 1}
    world.assert_sound()


@run_without_rules("mark-again")
def test_h37_a_condemned_file_that_is_named_again_stays(world: World) -> None:
    """A list from long ago names what the newest commit needs: the run that would delete it marks first. H37"""
    actor = world.actor(inline_share=0)
    actor.apply(person("ada", 1), person("bob", 2))
    store = actor.runtime.backend.store
    needed = [info for info in store.list("tables/") if "/data/" in info.key]
    assert needed
    _condemn(actor, needed)
    _age(world, "__trash", HORIZON_S + 1)
    _collect(actor)
    assert {path.key for path in needed} <= _files(world)
    assert world.ages() == {"ada": 1, "bob": 2}


def _condemn(actor: Actor, files: list[ObjectInfo]) -> None:
    trash_list = TrashList(actor.runtime.backend.ids.ulid(), tuple(files))
    actor.runtime.backend.store.put(trash_list.key, trash_list.encode())


@run_without_rules("first-decision-holds")
def test_h38_driver_and_recoverer_decide_once(world: World) -> None:
    """The recoverer comes between staging and confirmation; and once more, when everything is confirmed. H38"""
    driver, second_actor = world.actor(), world.actor()
    with driver.hold_at("write.staged", lambda: _bulk(driver)) as late:
        [folder] = list_intents(second_actor.runtime.backend.store)
        first = decide_aborted(second_actor.runtime.backend, folder.op_id, "no sign of life", "one")
        second = decide_aborted(second_actor.runtime.backend, folder.op_id, "none at all", "another")
        assert first == second == IntentAborted("no sign of life", "one")
    with pytest.raises(Conflict):
        late.result(WAIT_S)
    assert world.ages() == {}
    with driver.hold_at("intent.confirmed", lambda: _bulk(driver)) as late:
        folder = max(list_intents(second_actor.runtime.backend.store), key=lambda folder: folder.op_id)
        assert not isinstance(
            decide_aborted(second_actor.runtime.backend, folder.op_id, "late", "recoverer"), IntentAborted
        )
    assert late.result(WAIT_S).counts["inserted"] == ROWS
    assert len(world.ages()) == ROWS


@run_without_rules("no-blind-roll-forward")
def test_h40_no_roll_forward_over_a_schema_change(world: World) -> None:
    """The confirmed plan was checked against other rules, and its input is gone: it is given up, and audited. H40"""
    driver, second_actor = world.actor(), world.actor()
    driver.apply(person("ada", 7))
    with driver.hold_at("intent.confirmed", lambda: _bulk(driver)) as late:
        second_actor.graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32? @unique"))
        assert _recover_as_if_dead(world, second_actor) == ["rolled_back"]
    with pytest.raises((Conflict, Unknown)):  # it may not know yet what recovery made of it
        late.result(WAIT_S)
    assert world.ages() == {"ada": 7}
    assert second_actor.graph.commits(limit=1)[0].kind == "recovery"
    world.assert_sound()
