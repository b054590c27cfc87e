"""Tags and leases: a name keeps a commit, and names are never taken away by mistake."""

from __future__ import annotations

import json

import pytest

from omnigraph.api import Graph
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import Corruption, InvalidInput, NotFound, SnapshotExpired, Unsupported
from omnigraph.log.commit_record import CommitRecord, Stub
from omnigraph.log.stream import record_key
from omnigraph.storage.keys import KeyClass
from omnigraph.storage.metering import RequestKind
from omnigraph.upkeep.cleanup.leases import end_lease, holds, scan_leases, take_lease
from omnigraph.upkeep.tags import TagExists, Tags
from tests.schedules.world import Actor, World, person
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore
from tests.upkeep.upkeep_graphs import file_of


def _replace_by_stub(actor: Actor, commit_id: str) -> None:
    """What cleanup leaves of a commit."""
    stream, _, seq = commit_id.partition(".")
    record = actor.runtime.records(stream).record(int(seq))
    assert isinstance(record, CommitRecord)
    actor.runtime.backend.store.put(record_key(stream, record.seq), Stub(record.header).encode())


def test_create_list_get_delete_and_create_again(world: World) -> None:
    actor = world.actor()
    first = actor.apply(person("a")).commit_id
    second = actor.apply(person("b")).commit_id
    assert first is not None
    assert second is not None
    tags = actor.graph.tags
    created = tags.create("v1", first, actor="ada", message="first")
    assert tags.create("release/2", second).commit_id == second
    assert world.actor().graph.tags.list() == [tags.get("release/2"), created]
    with pytest.raises(TagExists) as raised:
        tags.create("v1", second)
    assert (raised.value.code, raised.value.details["commit_id"]) == ("tag_exists", first)
    with pytest.raises(TagExists):
        tags.create("V1", second)
    assert tags.delete("v1") == created
    with pytest.raises(NotFound):
        tags.delete("v1")
    with pytest.raises(NotFound):
        tags.get("v1")
    assert tags.create("v1", second).commit_id == second
    assert [(tag.name, tag.commit_id) for tag in tags.list()] == [
        ("release/2", second),
        ("v1", second),
    ]


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 300, "01M7GVX9MEP5J21NPK0WBRZ53F.3"])
def test_bad_names(world: World, name: str) -> None:
    actor = world.actor()
    with pytest.raises(InvalidInput) as refused:
        actor.graph.tags.create(name, actor.head.commit_id)
    assert refused.value.code == "bad_tag_name"


def test_tag_of_a_missing_commit_is_refused(world: World) -> None:
    actor = world.actor()
    for commit_id in (f"{actor.head.stream}.77", "01M7GVX9MEP5J21NPK0WBRZ53F.0"):
        with pytest.raises(NotFound):
            actor.graph.tags.create("x", commit_id)
    with pytest.raises(InvalidInput):
        actor.graph.tags.create("x", "main")
    first = actor.apply(person("a")).commit_id or ""
    actor.apply(person("b"))
    _replace_by_stub(actor, first)
    with pytest.raises(SnapshotExpired):
        actor.graph.tags.create("x", first)
    assert actor.graph.tags.list() == []


def test_a_commit_that_is_collected_meanwhile_is_not_tagged(world: World) -> None:  # H33
    actor = world.actor()
    first = actor.apply(person("a")).commit_id or ""
    actor.apply(person("b"))
    with actor.hold_at("tag.create.written", lambda: actor.graph.tags.create("x", first)) as late:
        assert [tag.name for tag in world.actor().graph.tags.list()] == ["x"]  # cleanup would see it now
        _replace_by_stub(actor, first)
    with pytest.raises(SnapshotExpired):
        late.result()
    assert actor.graph.tags.list() == []
    with pytest.raises(SnapshotExpired):
        take_lease(actor.runtime, first, 60)


def test_one_of_two_concurrent_creations_of_a_tag_wins(world: World) -> None:
    first_actor, second_actor = world.actor(), world.actor()
    commit_id = first_actor.head.commit_id
    paused_create = first_actor.hold_at("tag.create.written", lambda: first_actor.graph.tags.create("x", commit_id))
    with paused_create as late, pytest.raises(TagExists):
        second_actor.graph.tags.create("x", commit_id)
    assert late.result() == second_actor.graph.tags.get("x")


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.EXISTS_AFTER_EFFECT, Fault.EXISTS_WITHOUT_EFFECT])
def test_tag_creation_after_an_unclear_answer_succeeds(world: World, fault: Fault) -> None:
    plan = FaultPlan.at(1, fault, kinds={RequestKind.PUT}, key_classes={KeyClass.TAG})
    actor = world.actor(wrap=lambda store: FaultyStore(store, plan))
    commit_id = actor.head.commit_id
    assert actor.graph.tags.create("x", commit_id).commit_id == commit_id
    assert len(plan.hits) == 1
    assert [tag.commit_id for tag in world.actor().graph.tags.list()] == [commit_id]


def test_read_only_and_damaged(world: World) -> None:
    actor = world.actor()
    actor.graph.tags.create("x", actor.head.commit_id)
    runtime = GraphRuntime.open(actor.runtime.backend, read_only=True)
    reader = Graph(runtime, runtime.branch("main"))
    assert [tag.name for tag in reader.tags.list()] == ["x"]
    with pytest.raises(Unsupported):
        reader.tags.create("y", actor.head.commit_id)
    with pytest.raises(Unsupported):
        reader.tags.delete("x")
    file_of(world, "__tags/x/00000000.json").write_text("{")
    with pytest.raises(Corruption):
        Tags(runtime).list()


def test_leases_hold_for_their_time(world: World) -> None:
    actor = world.actor()
    lease = take_lease(actor.runtime, actor.head.commit_id, 60)
    ((stored_lease, info),) = scan_leases(actor.runtime)
    assert stored_lease == lease
    now = info.modified_at
    assert holds(stored_lease, info, now)
    end_lease(actor.runtime, lease)
    ((stored_lease, info),) = scan_leases(actor.runtime)
    assert not holds(stored_lease, info, info.modified_at)
    file_of(world, lease.key).write_text(json.dumps({}))
    with pytest.raises(Corruption):
        list(scan_leases(actor.runtime))
