"""Cleanup and intents: what a pending one staged is kept, what an ended one left goes, nothing is misread."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit.publish_plan import PublishPlan
from omnigraph.commit.publisher import PlanPublished
from omnigraph.intents.objects import RECOVERY
from omnigraph.query.language.statements import InsertNode
from omnigraph.storage.metering import RequestKind
from omnigraph.upkeep.cleanup.cleanup import Cleanup
from omnigraph.upkeep.cleanup.report import CleanupReport
from omnigraph.upkeep.cleanup.retention import Policy
from tests.intents.conftest import DeadAt
from tests.intents.intent_actor import ROWS, IntentActor, acting, age, files, intents, names, objects
from tests.support.faulty_store import Fault, FaultPlan

AT_ONCE = Policy(margin_s=0, horizon_s=0, newest_records=1)


def _clean(actor: IntentActor, runs: int = 1, **policy: Any) -> CleanupReport:
    for _ in range(runs):
        report = Cleanup(actor.runtime, replace(AT_ONCE, **policy)).run()
    return report


def _list_staged_files(uri: str) -> set[str]:
    return {file for file in files(uri) if file.startswith("tables/")}


def _garbage(actor: IntentActor) -> int:
    return sum(
        garbage_size.files for intent in actor.graph.recover_list() for garbage_size in (intent.garbage or {}).values()
    )


@pytest.mark.parametrize("point", ["write.staged", "intent.confirmed"])
def test_what_a_pending_intent_staged_is_kept(point: str, dead_at: DeadAt) -> None:
    """The gc record names it; nothing younger than its beginning is condemned, in however many runs."""
    uri = dead_at(point)
    (intent,) = intents(uri)
    before = _list_staged_files(uri)
    with acting(uri) as actor:
        actor.graph.apply([InsertNode("Company", {"name": "Busy"})])
        actor.graph.fold()
        report = _clean(actor, 3, keep=1)
        assert report.confirmed
        gc = actor.graph._branch.publisher.refresh()
        assert (gc.kind, dict(gc.gc or {})["honours"]) == ("gc", [intent])
        assert before <= _list_staged_files(uri)
        recovered = actor.recover()
        assert [result["verdict"] for result in recovered] == [
            "rolled_forward" if point == "intent.confirmed" else "rolled_back"
        ]
        assert actor.graph.verify(deep=True).ok


def test_h40_a_gc_that_does_not_honour_it_rolls_it_back(dead_at: DeadAt) -> None:
    """H40: its files may have been swept; nobody tries to publish them."""
    uri = dead_at("intent.confirmed")
    with acting(uri) as actor:
        publisher = actor.graph._branch.publisher
        fence = PublishPlan("gc", actor.backend.ids.ulid(), publisher.refresh(), gc={"id": "gc-1", "honours": []})
        assert isinstance(publisher.publish(fence, actor.backend.clock.monotonic() + 5), PlanPublished)
        (recovered,) = actor.recover()
        assert (recovered["verdict"], "cleanup ran" in recovered["reason"]) == ("rolled_back", True)
        assert names(actor.graph) == {"Ada", "Bob"}


@pytest.mark.parametrize("point", ["write.staged", "intent.confirmed"])
def test_s149_cleanup_takes_what_a_rolled_back_operation_left(point: str, dead_at: DeadAt) -> None:
    """S149: listed as garbage as long as it is there; data files, the intent, everything."""
    uri = dead_at(point, fresh=True)
    (intent,) = intents(uri)
    with acting(uri) as actor:
        if point == "intent.confirmed":
            actor.graph.apply([InsertNode("Person", {"name": "p0001"})])
        assert [result["verdict"] for result in actor.recover(now=intent)] == ["rolled_back"]
        before = _list_staged_files(uri)
        garbage = _garbage(actor)
        assert garbage >= 3, "a data file, a transaction and a manifest at least"
        _clean(actor, 3)
        assert len(before - _list_staged_files(uri)) >= garbage
        assert intents(uri) == [] or objects(uri, intent) == []
        assert actor.graph.recover_list() == []
        assert len(names(actor.graph)) == 2 + (point == "intent.confirmed")
        assert actor.graph.verify(deep=True).ok
        assert not _clean(actor).has_work


def test_ended_intents_wait_for_the_horizon(graph_address: str) -> None:
    with acting(graph_address) as actor:
        actor.bulk()
        (intent,) = intents(graph_address)
        assert actor.graph.recover_list()[0].state == "done"
        report = _clean(actor, 2, horizon_s=3600)
        assert report.intents == 0, "condemned by the first run, waiting in the second"
        assert objects(graph_address, intent) == ["0-open", "1", "2"]
        _clean(actor)
        assert objects(graph_address, intent) == []
        assert len(names(actor.graph)) == 2 + ROWS
        assert actor.graph.verify(deep=True).ok


def test_a_sweep_that_dies_half_way_leaves_no_intent_to_recover(graph_address: str) -> None:
    """Its first object goes first: what remains, a confirmed plan without an end, is nobody's operation any more."""
    with acting(graph_address) as actor:
        actor.bulk()
        (intent,) = intents(graph_address)
        _clean(actor, horizon_s=3600)
        deletes = FaultPlan(
            lambda kind, key, _: (
                Fault.FAIL_BEFORE if kind is RequestKind.DELETE and key.endswith(f"{intent}/1") else None
            )
        )
        actor.arm(deletes)
        report = _clean(actor)
        assert [key for key in report.failures if RECOVERY in key] == [f"{RECOVERY}{intent}/1"]
        actor.arm(FaultPlan.none())
        assert objects(graph_address, intent) == ["1", "2"], "it stops where it fails"
        (Path(graph_address) / RECOVERY / intent / "2").unlink()
        age(graph_address)
        assert actor.recover() == []
        assert actor.graph.recover_list() == []
        _clean(actor, 2)
        assert objects(graph_address, intent) == []


def test_a_late_heartbeat_after_the_sweep_is_no_intent(graph_address: str) -> None:
    with acting(graph_address) as actor:
        folder = Path(graph_address) / RECOVERY / "01EEEEEEEEEEEEEEEEEEEEEEEE"
        folder.mkdir(parents=True)
        (folder / "heartbeat").write_bytes(b"")
        assert actor.recover() == []
        assert Cleanup(actor.runtime, AT_ONCE).preview().intents == 1
        _clean(actor, 2)
        assert not list(folder.iterdir() if folder.exists() else [])
