"""A process that did nothing for long, while others wrote, optimized and cleaned up: its next step is like anybody's.

A writer runs on the newest record it knows of and asks the store only if it must. Whatever fails there because that
record is old is a reason to look again, never an answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.api import Graph
from omnigraph.commit.publisher import Publisher
from omnigraph.errors import Corruption, InvalidInput, NotFound, Unavailable
from omnigraph.log.commit_record import Stub
from omnigraph.log.stream import record_key
from omnigraph.query.language.statements import InsertNode
from omnigraph.storage.keys import KeyClass
from omnigraph.storage.metering import MeteredStore, RequestKind
from omnigraph.storage.store import Store
from tests.schedules.world import WAIT_S, Actor, World, person, set_age
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore

NOTE = InsertNode("Note", {"text": "n"})


def _collect_before(actor: Actor) -> None:
    """What cleanup leaves of everything before the newest commit: stubs, and no file that only older ones name."""
    store, head = actor.runtime.backend.store, actor.head
    for seq in range(head.seq):
        response = actor.runtime.records(head.stream).get(seq)
        assert response is not None
        store.put(record_key(head.stream, seq), Stub(response.header).encode())
    tables = actor.runtime.backend.tables
    live_keys = {
        key for table, pin in head.pins.items() if pin.version for key in tables.open(table, pin.version).files()
    }
    root = Path(store.root)
    folders = tuple(key for key in live_keys if key.endswith("/"))
    for path in (root / "tables").rglob("*.lance"):
        key = str(path.relative_to(root))
        if key not in live_keys and not key.startswith(folders):
            path.unlink()


def test_a_writer_whose_version_was_collected_goes_on(world: World) -> None:
    """It holds the old version open, and a file of it is gone: not damage, but a reason to look again. S41"""
    idle, second_actor = world.actor(inline_share=0), world.actor(inline_share=0)
    second_actor.apply(person("x", 1))
    second_actor.apply(person("y", 1))
    assert idle.head.pins
    idle.graph.table("Person").to_arrow()
    second_actor.apply(person("x", 2))
    second_actor.graph.optimize()
    _collect_before(second_actor)
    idle.apply(set_age("x", 3))
    assert world.ages() == {"x": 3, "y": 1}


def test_a_writer_that_must_fold_a_collected_version_goes_on(world: World) -> None:
    """The same, where the record it knows is so full that it would have to be folded first. S41"""
    idle = world.actor(fold="auto", overlay_soft_entries=2, overlay_hard_factor=1)
    first_actor, stager = world.actor(), world.actor(inline_share=0)
    stager.apply(person("x", 1), person("y", 1))
    for number in range(4):
        first_actor.apply(person(f"p{number}", 1))
    first_actor.apply(set_age("x", 2))
    assert idle.head.commit_id == first_actor.head.commit_id
    first_actor.graph.fold()
    first_actor.graph.optimize()
    _collect_before(first_actor)
    idle.apply(set_age("x", 3))
    assert world.ages()["x"] == 3


def test_damage_of_the_newest_version_is_still_told(world: World) -> None:
    """A file that the newest record names is missing: looking again helps nobody. S51"""
    writer, stager = world.actor(), world.actor(inline_share=0)
    stager.apply(person("x", 1))
    for path in (Path(world.path) / "tables").rglob("*.lance"):
        path.unlink()
    with pytest.raises(Corruption):
        writer.apply(set_age("x", 3))


def test_a_refused_writer_notices_that_somebody_else_optimized(world: World) -> None:
    """Back-pressure is an answer that makes no commit: it is given only after a look at the store. S169, H18"""
    limits: dict[str, Any] = {"inline_share": 0, "pressure_wait_fragments": 3, "pressure_stop_fragments": 4}
    stager, refused = world.actor(inline_share=0), world.actor(**limits)
    for number in range(4):
        stager.apply(person(f"p{number}"))
    assert refused.head.seq == 4
    with pytest.raises(Unavailable, match="small fragments"):
        refused.apply(person("one too many"))
    stager.graph.optimize()
    assert refused.apply(person("one too many")).waited_s == 0


def test_who_is_far_behind_jumps(world: World) -> None:
    """The number of reads does not grow with the number of commits that were missed. H21"""
    meters: list[MeteredStore] = []

    def meter(store: Store) -> Store:
        meters.append(MeteredStore(store))
        return meters[-1]

    late, busy = world.actor(wrap=meter, walk_limit=4, read_ahead=4), world.actor()
    for _ in range(40):
        busy.apply(NOTE)
    with meters[0].measure() as cost:
        assert late.head.commit_id == busy.head.commit_id
    assert cost.by_kind[RequestKind.GET] <= 12, cost.by_kind


def test_a_fork_of_a_busy_branch_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look finds a newer commit: the first one that was newest since the call began will do."""
    creator, busy = world.actor(), world.actor()
    refresh = Publisher.refresh
    looks = 0

    def refresh_of_a_busy_branch(self: Publisher) -> Any:
        nonlocal looks
        if self is creator.publisher:
            looks += 1
            assert looks < 5, "it looks again and again"
            busy.apply(NOTE)
        return refresh(self)

    monkeypatch.setattr(Publisher, "refresh", refresh_of_a_busy_branch)
    result = world.start(lambda: creator.graph.branch.create("dev")).result(WAIT_S)
    assert result.table("Note").count() == 1
    assert looks <= 2


def test_branches_that_others_deleted_are_let_go(world: World) -> None:
    """A process that lives long meets many branches; of those that have ended it keeps nothing."""
    server, second_actor = world.actor(), world.actor()
    for _ in range(3):
        second_actor.graph.branch.create("dev")
        server.runtime.branch("dev")
        second_actor.graph.branch.delete("dev")
    assert sorted(branch.name for branch in server.runtime._branches.values()) == ["dev", "main"]
    with pytest.raises(NotFound):
        server.runtime.branch("dev")
    assert [branch.name for branch in server.runtime._branches.values()] == ["main"]


def test_a_look_that_failed_does_not_count_as_one(world: World) -> None:
    """A handle that may be an hour old asked an hour ago, at last, with success."""
    stores: list[FaultyStore] = []

    def faulty(store: Store) -> Store:
        stores.append(FaultyStore(store, FaultPlan.none()))
        return stores[-1]

    actor, second_actor = world.actor(wrap=faulty), world.actor()
    reader = Graph(actor.runtime, actor.branch, freshness=3600.0)
    second_actor.apply(NOTE)
    stores[0].plan = FaultPlan.at(1, Fault.FAIL_BEFORE, kinds=[RequestKind.GET], key_classes=[KeyClass.RECORD])
    with pytest.raises(Unavailable):
        reader.table("Note")
    assert reader.table("Note").count() == 1


@pytest.mark.parametrize("field_name", ["actor", "message"])
def test_a_text_that_no_record_can_hold_is_refused(world: World, field_name: str) -> None:
    """A byte of the command line that is no UTF-8 arrives as half of a surrogate pair."""
    actor = world.actor()
    with pytest.raises(InvalidInput, match="surrogate"):
        actor.apply(person("x"), **{field_name: "caf\udce9"})
    with pytest.raises(InvalidInput, match="surrogate"):
        actor.graph.branch.create("dev", **{field_name: "caf\udce9"})
    assert actor.head.seq == 0


def test_a_landed_write_is_answered_though_nobody_folds_any_more(world: World) -> None:
    """The interpreter is about to end, and takes no more background work: the write is acknowledged all the same."""
    actor = world.actor(fold="auto", overlay_soft_entries=2, inline_share=1)
    actor.runtime.backend._background.shutdown()
    assert actor.apply(person("x", 1), person("y", 1)).commit_id
    assert actor.branch.folder.wants_volunteer(actor.head)
    assert world.ages() == {"x": 1, "y": 1}
