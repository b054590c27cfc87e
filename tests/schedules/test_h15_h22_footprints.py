"""H15 to H22: what a change depends on, and what happens to it when that has changed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from omnigraph.commit.publish_plan import Receipt
from omnigraph.errors import ConstraintViolation, KeyConflict, PreconditionFailed, ReadSetChanged
from omnigraph.log.commit_record import Stub
from omnigraph.log.stream import record_key
from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode, Update
from tests.schedules.guarded import run_without_rules
from tests.schedules.world import WAIT_S, Actor, World, by_name, knows, person, set_age, without


def _over(world: World, late_write: Callable[[Actor], Any], early_write: Callable[[Actor], Any]) -> Future[Any]:
    """`ours` is prepared and stands before its record while `theirs` lands; then it goes on."""
    actor, second_actor = world.actor(), world.actor()
    with actor.hold_at("write.before-record", lambda: late_write(actor)) as late:
        assert early_write(second_actor).commit_id is not None
    late.exception(WAIT_S)
    return late


def _seed(world: World, *statements: Any) -> Actor:
    seeder = world.actor()
    seeder.apply(*statements)
    return seeder


@run_without_rules("unique-claims")
def test_h15_one_unique_value_for_two_rows(world: World) -> None:
    """Two inserts with other ids and the same unique value, from the same base. H15"""
    late = _over(
        world,
        lambda actor: actor.apply(person("a", email="e@x")),
        lambda actor: actor.apply(person("b", email="e@x")),
    )
    with pytest.raises(ConstraintViolation) as refused:
        late.result(WAIT_S)
    assert refused.value.violations[0]["rule"] == "unique"
    assert set(world.ages()) == {"b"}


@run_without_rules("unique-claims")
def test_h15_a_freed_value_may_be_taken_only_after_it_was_freed(world: World) -> None:
    """b takes over what a gave up, while c takes it as well. H15"""
    _seed(world, person("a", email="e@x"), person("b"), person("c"))
    world.actor().apply(Update("Person", {"email": None}, by_name("a")))
    late = _over(
        world,
        lambda actor: actor.apply(Update("Person", {"email": "e@x"}, by_name("b"))),
        lambda actor: actor.apply(Update("Person", {"email": "e@x"}, by_name("c"))),
    )
    with pytest.raises(ConstraintViolation):
        late.result(WAIT_S)
    assert [actor for actor, row in world.rows("Person").items() if row["email"]] == ["c"]


@run_without_rules("card-claims")
def test_h15_two_edges_of_one_source_and_a_greatest_number(world: World) -> None:
    """`@card(0..2)`: one edge is there, two more come at the same time. H15"""
    notes = [InsertNode("Note", {"id": f"n{number}"}) for number in range(3)]
    _seed(world, person("a"), *notes, InsertEdge("Owns", "a", "n0"))
    late = _over(
        world,
        lambda actor: actor.apply(InsertEdge("Owns", "a", "n1")),
        lambda actor: actor.apply(InsertEdge("Owns", "a", "n2")),
    )
    with pytest.raises(ConstraintViolation) as refused:
        late.result(WAIT_S)
    assert refused.value.violations[0]["rule"] == "cardinality"
    assert world.edges("Owns") == {("a", "n0"), ("a", "n2")}


@run_without_rules("card-claims")
def test_h15_two_deletes_and_a_least_number(world: World) -> None:
    """`@card(1..)`: of two edges each writer removes one. H15"""
    task = InsertNode("Task", {"title": "t"})
    _seed(
        world,
        person("a"),
        person("b"),
        task,
        InsertEdge("Needs", "t", "a", {"id": "e1"}),
        InsertEdge("Needs", "t", "b", {"id": "e2"}),
    )
    late = _over(
        world,
        lambda actor: actor.apply(Delete("Needs", Compare("id", "=", "e1"))),
        lambda actor: actor.apply(Delete("Needs", Compare("id", "=", "e2"))),
    )
    with pytest.raises(ConstraintViolation):
        late.result(WAIT_S)
    assert world.edges("Needs") == {("t", "a")}


@run_without_rules("references")
def test_h16_a_node_is_deleted_while_an_edge_to_it_is_on_the_way(world: World) -> None:
    """The edge comes second: its end is gone. H16"""
    _seed(world, person("n"), person("m"))
    late = _over(world, lambda actor: actor.apply(knows("m", "n")), lambda actor: actor.apply(without("n")))
    with pytest.raises(ConstraintViolation) as refused:
        late.result(WAIT_S)
    assert refused.value.violations[0]["rule"] == "endpoint"
    assert world.edges() == set()


@run_without_rules("references")
def test_h16_an_edge_lands_while_the_delete_of_its_end_is_on_the_way(world: World) -> None:
    """The delete comes second and must take the new edge along. H16"""
    _seed(world, person("n"), person("m"))
    late = _over(world, lambda actor: actor.apply(without("n")), lambda actor: actor.apply(knows("m", "n")))
    assert late.result(WAIT_S).counts["deleted"] == 2
    assert world.edges() == set()


@run_without_rules("references")
def test_h16_a_node_deleted_and_made_again_has_lost_its_edges(world: World) -> None:
    """Delete and insert of one node in one mutation still cascade over an edge that landed meanwhile. H16"""
    _seed(world, person("n"), person("m"))
    late = _over(
        world, lambda actor: actor.apply(without("n"), person("n", 5)), lambda actor: actor.apply(knows("m", "n"))
    )
    assert late.result(WAIT_S).commit_id is not None
    assert world.edges() == set()
    assert world.ages()["n"] == 5


@run_without_rules("references")
def test_h16_a_moved_edge_needs_its_new_end(world: World) -> None:
    """Moving an edge's end is a delete and an insert. H16"""
    _seed(world, person("a"), person("b"), person("c"), knows("a", "b", id="e"))
    late = _over(world, lambda actor: actor.apply(knows("a", "c", id="e")), lambda actor: actor.apply(without("c")))
    with pytest.raises(ConstraintViolation):
        late.result(WAIT_S)
    assert world.edges() == {("a", "b")}


def test_h16_edges_at_one_node_do_not_meet(world: World) -> None:
    """Two inserts at one node: the second is sent again as it is, not prepared again. H16"""
    _seed(world, person("a"), person("b"), person("c"))
    late = _over(world, lambda actor: actor.apply(knows("a", "b")), lambda actor: actor.apply(knows("a", "c")))
    assert late.result(WAIT_S).attempts == 1
    assert world.edges() == {("a", "b"), ("a", "c")}


@run_without_rules("phantom")
def test_h17_a_new_row_that_the_condition_selects(world: World) -> None:
    """`update where age > 50` over an insert of age 52. H17"""
    _seed(world, person("a", 60), person("b", 10))
    late = _over(
        world,
        lambda actor: actor.apply(Update("Person", {"email": None, "age": 99}, Compare("age", ">", 50))),
        lambda actor: actor.apply(person("c", 52)),
    )
    assert late.result(WAIT_S).counts["updated"] == 2
    assert world.ages() == {"a": 99, "b": 10, "c": 99}


@run_without_rules("phantom")
def test_h17_a_row_that_was_changed_into_the_condition(world: World) -> None:
    """The row existed and did not match; now it does. H17"""
    _seed(world, person("a", 60), person("b", 10))
    late = _over(
        world,
        lambda actor: actor.apply(Delete("Person", Compare("age", ">", 50))),
        lambda actor: actor.apply(set_age("b", 70)),
    )
    assert late.result(WAIT_S).counts["deleted"] == 2
    assert world.ages() == {}


@run_without_rules("phantom")
def test_h17_a_staged_change_has_no_row_images_to_look_at(world: World) -> None:
    """So whoever selects rows of its table by a condition is prepared again. H17"""
    _seed(world, person("a", 60))
    actor, stager = world.actor(), world.actor(inline_share=0)
    change = Update("Person", {"age": 99}, Compare("age", ">", 50))
    with actor.hold_at("write.before-record", lambda: actor.apply(change)) as late:
        stager.apply(person("c", 52))
    assert late.result(WAIT_S).counts["updated"] == 2
    assert world.ages() == {"a": 99, "c": 99}


def test_h17_a_row_that_does_not_match_is_no_reason(world: World) -> None:
    """Nothing is prepared again for a row that the condition passes over. H17"""
    _seed(world, person("a", 60))
    late = _over(
        world,
        lambda actor: actor.apply(Update("Person", {"age": 99}, Compare("age", ">", 50))),
        lambda actor: actor.apply(person("c", 20)),
    )
    assert late.result(WAIT_S).attempts == 1
    assert world.ages() == {"a": 99, "c": 20}


@run_without_rules("looked-up-rows")
def test_h17_a_row_made_and_removed_within_one_mutation_was_read(world: World) -> None:
    """v is inserted and deleted by a condition in one mutation; meanwhile v appears. Serially it is gone. H17"""
    late = _over(
        world,
        lambda actor: actor.apply(person("v", 90), Delete("Person", Compare("age", ">", 80)), person("w")),
        lambda actor: actor.apply(person("v", 3, email="v@x")),
    )
    assert late.result(WAIT_S).counts["deleted"] == 1
    assert set(world.ages()) == {"w"}


@run_without_rules("negative-is-fresh")
def test_h18_nothing_matched_is_said_of_the_newest_record_only(world: World) -> None:
    """Another process's insert was acknowledged; our stale handle deletes it. H18"""
    stale, second_actor = world.actor(), world.actor()
    second_actor.apply(person("x"))
    assert stale.apply(without("x")).counts["deleted"] == 1
    assert world.ages() == {}


@run_without_rules("negative-is-fresh")
def test_h18_no_such_endpoint_is_said_of_the_newest_record_only(world: World) -> None:
    """Both ends were acknowledged to another process. H18"""
    stale, second_actor = world.actor(), world.actor()
    second_actor.apply(person("x"), person("y"))
    stale.apply(knows("x", "y"))
    assert world.edges() == {("x", "y")}


@run_without_rules("negative-is-fresh")
def test_h18_a_violation_is_said_of_the_newest_record_only(world: World) -> None:
    """The row that had the value is gone. H18"""
    stale, second_actor = world.actor(), world.actor()
    stale.apply(person("x", email="e@x"))
    second_actor.apply(without("x"))
    stale.apply(person("y", email="e@x"))
    assert set(world.ages()) == {"y"}


@run_without_rules("negative-is-fresh")
def test_h18_a_key_conflict_is_said_of_the_newest_record_only(world: World) -> None:
    """The strict insert's key was freed. H18"""
    stale, second_actor = world.actor(), world.actor()
    stale.apply(person("x", 1))
    second_actor.apply(without("x"))
    stale.apply(person("x", 2, strict=True))
    assert world.ages() == {"x": 2}


@run_without_rules("negative-is-fresh")
def test_h18_a_precondition_fails_on_the_newest_record_only(world: World) -> None:
    """The commit that the caller names is newer than what its handle has seen. H18"""
    stale, second_actor = world.actor(), world.actor()
    newest = second_actor.apply(person("x")).commit_id
    assert stale.apply(person("y"), if_commit=newest).commit_id is not None


@run_without_rules("if-commit-at-publish")
def test_h18_a_precondition_holds_where_the_change_lands(world: World) -> None:
    """A commit that does not meet ours lands in between: the state is no longer the one that the caller named. H18"""
    named_commit = _seed(world, person("x")).head.commit_id
    late = _over(
        world,
        lambda actor: actor.apply(person("y"), if_commit=named_commit),
        lambda actor: actor.apply(person("z")),
    )
    with pytest.raises(PreconditionFailed):
        late.result(WAIT_S)
    assert set(world.ages()) == {"x", "z"}


def test_h18_a_fold_does_not_break_a_precondition(world: World) -> None:
    """Folding changes nothing, so the named commit still is the state. H18"""
    named_commit = _seed(world, person("x")).head.commit_id
    actor, folder = world.actor(), world.actor()
    with actor.hold_at("write.before-record", lambda: actor.apply(person("y"), if_commit=named_commit)) as late:
        assert folder.graph.fold() is not None
    assert late.result(WAIT_S).commit_id is not None


@run_without_rules("wildcards")
def test_h19_too_many_keys_to_name_are_a_wildcard(world: World) -> None:
    """A bulk insert, too large to name its rows, wrote the one that we are about to write. H19"""
    many = [person(f"p{number}", 1, email=f"{number}@x") for number in range(4100)]
    late = _over(world, lambda actor: actor.apply(person("p7", 2)), lambda actor: actor.apply(*many))
    assert late.result(WAIT_S).counts["updated"] == 1
    assert world.rows("Person")["p7"]["email"] == "7@x"


@run_without_rules("stub-is-wild")
def test_h19_a_collected_record_in_between_may_have_written_anything(world: World) -> None:
    """The record that changed our row was collected before we could look at it. H19, H23"""
    _seed(world, person("x", 1))
    actor, second_actor = world.actor(), world.actor()
    with actor.hold_at("write.before-record", lambda: actor.apply(set_age("x", 2))) as late:
        second_actor.apply(Update("Person", {"email": "e@x"}, by_name("x")))
        collected = second_actor.head
        second_actor.apply(person("y"))
        second_actor.runtime.backend.store.put(
            record_key(collected.stream, collected.seq), Stub(collected.header).encode()
        )
    late.result(WAIT_S)
    row = world.rows("Person")["x"]
    assert (row["age"], row["email"]) == (2, "e@x")


def _queue_behind(actor: Actor, first: Callable[[], Any], *works: Callable[[], Any]) -> list[Future[Any]]:
    """`first` is on its way when the others are prepared and queue up; then all go on."""
    with actor.hold_at("write.before-record", first) as leading:
        waiting = [actor._world.start(work) for work in works]
        actor.wait_queued(1 + len(works))
    for future in [leading, *waiting]:
        future.exception(WAIT_S)
    return [leading, *waiting]


@run_without_rules("group-members-apart")
def test_h20_members_that_meet_go_into_different_records(world: World) -> None:
    """Two waiting inserts with one unique value: one lands, the other is answered alone. H20"""
    actor = world.actor()
    _, *both = _queue_behind(
        actor,
        lambda: actor.apply(person("a")),
        lambda: actor.apply(person("b", email="e@x")),
        lambda: actor.apply(person("c", email="e@x")),
    )
    failed = [receipt for receipt in both if receipt.exception() is not None]
    assert len(failed) == 1
    assert isinstance(failed[0].exception(), ConstraintViolation)
    assert len(world.ages()) == 2


@run_without_rules("group-members-apart")
def test_h20_a_condition_and_a_row_that_it_selects_do_not_share_a_record(world: World) -> None:
    """The order within a record must not matter. H20, H17"""
    _seed(world, person("x", 60))
    actor = world.actor()
    change = Update("Person", {"age": 99}, Compare("age", ">", 50))
    futures = _queue_behind(
        actor, lambda: actor.apply(person("a")), lambda: actor.apply(person("b", 70)), lambda: actor.apply(change)
    )
    inserted, updated = (future.result() for future in futures[1:])
    assert inserted.commit_id != updated.commit_id
    expected = 99 if _seq(inserted) < _seq(updated) else 70
    assert world.ages()["b"] == expected


def test_h20_a_refused_group_is_run_again_on_the_new_head(world: World) -> None:
    """Of two members one no longer holds: it alone is answered, the other lands. H20"""
    _seed(world, person("x", 1))
    actor, second_actor = world.actor(), world.actor()
    with actor.hold_at("write.before-record", lambda: actor.apply(person("a"))) as leading:
        waiting = [world.start(lambda: actor.apply(person("x", strict=True, email="e@x")))]
        waiting += [world.start(partial(actor.apply, person(name))) for name in ("b", "c")]
        with pytest.raises(KeyConflict):
            waiting[0].result(WAIT_S)
        actor.wait_queued(3)
        hold = actor.pauses.hold("write.before-record")
        second_actor.apply(without("x"))
    hold.wait_reached()
    second_actor.apply(person("d"))
    hold.release()
    for future in [leading, *waiting[1:]]:
        assert future.result(WAIT_S).commit_id is not None
    assert set(world.ages()) == {"a", "b", "c", "d"}
    world.assert_sound()


def test_h20_members_of_a_group_are_all_named(world: World) -> None:
    """A record with several members says for each who it was and what it did. H20"""
    actor = world.actor()
    futures = _queue_behind(
        actor,
        lambda: actor.apply(person("a")),
        lambda: actor.apply(person("b"), actor="bea", client_key="k1"),
        lambda: actor.apply(person("c"), actor="cem"),
    )
    assert len({future.result().commit_id for future in futures[1:]}) == 1
    members = {member.actor: member for member in actor.head.members}
    assert set(members) == {"bea", "cem"}
    assert members["bea"].client_key == "k1"
    assert members["cem"].counts["inserted"] == 1
    assert members["bea"].op_id != members["cem"].op_id


@run_without_rules("read-ahead")
def test_h21_a_loser_jumps_to_the_newest_record(world: World) -> None:
    """Thirty records landed before ours: one more round, not thirty. H21"""
    actor, second_actor = world.actor(), world.actor()
    with actor.hold_at("write.before-record", lambda: actor.apply(person("x"))) as late:
        for number in range(30):
            second_actor.apply(person(f"p{number}"))
    assert late.result(WAIT_S).attempts == 1
    assert actor.pauses.points_reached.count("write.before-record") == 2
    assert len(world.ages()) == 31


def test_h21_a_plan_too_far_behind_is_prepared_anew(world: World) -> None:
    """More records than anybody should walk: prepare again from the newest. H19, H21"""
    actor, second_actor = world.actor(walk_limit=8), world.actor()
    with actor.hold_at("write.before-record", lambda: actor.apply(person("x"))) as late:
        for number in range(40):
            second_actor.apply(person(f"p{number}"))
    assert late.result(WAIT_S).attempts == 2
    assert len(world.ages()) == 41


@run_without_rules("recapture")
def test_h22_a_plan_is_prepared_again_from_the_record_that_refused_it(world: World) -> None:
    """A staged update of a row that was changed meanwhile: two attempts, not two hundred. H22"""
    _seed(world, person("x", 1))
    stager, second_actor = world.actor(inline_share=0), world.actor()
    with stager.hold_at("write.staged", lambda: stager.apply(set_age("x", 2))) as late:
        second_actor.apply(Update("Person", {"email": "e@x"}, by_name("x")))
        second_actor.graph.fold()
    receipt = late.result(WAIT_S)
    assert receipt.attempts == 2
    row = world.rows("Person")["x"]
    assert (row["age"], row["email"]) == (2, "e@x")


def test_h22_the_caller_may_decide_instead(world: World) -> None:
    """`on_conflict="fail"`: told which table, and what was expected of it. H22"""
    _seed(world, person("x", 1))
    late = _over(
        world,
        lambda actor: actor.apply(set_age("x", 2), on_conflict="fail"),
        lambda actor: actor.apply(set_age("x", 3)),
    )
    with pytest.raises(ReadSetChanged) as refused:
        late.result(WAIT_S)
    conflict = refused.value.manifest_conflict
    assert conflict is not None
    assert conflict["table_key"] == "node:Person"
    assert world.ages() == {"x": 3}


@run_without_rules("write-set")
def test_section_1_a_record_states_what_it_wrote(world: World) -> None:
    """Two upserts of one row with different properties: without the write set the second undoes the first."""
    late = _over(world, lambda actor: actor.apply(person("x", 1)), lambda actor: actor.apply(person("x", email="e@x")))
    assert late.result(WAIT_S).attempts == 2
    row = world.rows("Person")["x"]
    assert (row["age"], row["email"]) == (1, "e@x")


def _joins(name: str) -> list[Any]:
    """A person with a unique value, a note of their own by an edge that is counted, and two edges at one busy node."""
    return [
        person(name, 1, email=f"{name}@x"),
        InsertNode("Note", {"id": f"note-{name}"}),
        InsertEdge("Owns", name, f"note-{name}"),
        knows(name, "hub"),
        knows("hub", name),
    ]


@pytest.mark.parametrize("share", [1, 0], ids=["inline", "staged"])
def test_section_1_many_inserts_do_not_meet(world: World, share: int) -> None:
    """Keys, unique values, ends and counted sources differ, though all are at one node: nothing is prepared again."""
    _seed(world, person("hub"))
    actor, second_actor = world.actor(inline_share=share), [world.actor(inline_share=1) for _ in range(3)]
    with actor.hold_at("write.before-record", lambda: actor.apply(*_joins("late"))) as late:
        landed = [
            inserter.apply(*_joins(f"p{number}{turn}"))
            for turn in range(4)
            for number, inserter in enumerate(second_actor)
        ]
    assert {landed_receipt.attempts for landed_receipt in landed} == {1}
    receipt = late.result(WAIT_S)
    assert receipt.counts["inserted"] == 5
    assert receipt.attempts == 1
    assert len(world.edges()) == 2 * (1 + len(landed))
    world.assert_sound()


def _seq(receipt: Receipt) -> int:
    assert receipt.commit_id is not None
    return int(receipt.commit_id.rpartition(".")[2])
