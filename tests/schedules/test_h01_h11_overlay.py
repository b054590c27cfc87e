"""H1 to H11: overlay and fold. Each schedule loses, doubles or brings back a row if its rule is missing."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.api import init
from omnigraph.commit.publish_plan import TableAction
from omnigraph.commit.publisher import PlanPublished
from omnigraph.log.commit_record import CommitRecord
from omnigraph.query.language.statements import Compare, Condition, InsertNode, NullTest, Update
from omnigraph.query.plan.arrow_predicate import condition_to_expression
from omnigraph.schema.arrow import arrow_schema
from tests.schedules.guarded import run_without_rules
from tests.schedules.world import WAIT_S, Actor, World, by_name, knows, person, set_age, without


def _folding(actor: Actor) -> str | None:
    return actor.graph.fold()


@run_without_rules("entry-keys")
def test_h01_a_fold_removes_only_the_very_entries_it_folded(world: World) -> None:
    """x is replaced while a fold of the older x stands before its record. H1"""
    folder, writer = world.actor(), world.actor()
    folder.apply(person("x", 1), person("y", 1))
    with folder.hold_at("fold.before-record", lambda: _folding(folder)) as late:
        writer.apply(set_age("x", 99))
    assert late.result(WAIT_S) is not None
    assert world.ages() == {"x": 99, "y": 1}
    world.assert_sound()


@run_without_rules("entry-keys")
def test_h01_a_merged_row_from_the_same_seq_of_a_branch_is_not_folded_away(world: World) -> None:
    """Main holds x@1, staged by a fold; a merge brings an x that was written at seq 1 of a branch. H1"""
    main = world.actor()
    main.graph.branch.create("dev")
    dev = world.actor(branch="dev")
    main.apply(person("x", 1), person("y", 1))
    dev.apply(person("x", 99))
    assert main.head.seq == dev.head.seq == 1
    with main.hold_at("fold.before-record", lambda: _folding(main)) as late:
        merger = world.actor()
        type_def = dev.snapshot().type("Person")
        rows = dev.snapshot().view(type_def).find(["x"])
        action = TableAction(type_def.id, arrow_schema(type_def), rows, updated=1)
        merged = merger.publish(merger.plan("merge", action, merged_header=dev.head.header))
        assert isinstance(merged, PlanPublished)
    late.result(WAIT_S)
    assert world.ages() == {"x": 99, "y": 1}
    world.assert_sound()


def test_h01_a_fork_inherits_entries_with_their_rids_and_can_fold_them(world: World) -> None:
    """Stamps of the source are no seqs of the fork: its first fold takes them all. H1"""
    main = world.actor()
    for age in range(5):
        main.apply(person("x", age), person(f"y{age}", age))
    main.graph.branch.create("dev")
    dev = world.actor(branch="dev")
    before = world.ages("dev")
    assert dev.graph.fold() is not None
    assert not dev.head.overlay
    assert world.ages("dev") == before == world.ages()


@run_without_rules("tombstone")
def test_h02_a_delete_of_an_overlay_row_leaves_a_tombstone(world: World) -> None:
    """x is in the overlay only, a fold has staged it, then it is deleted. H2"""
    folder, writer = world.actor(), world.actor()
    folder.apply(person("x", 1), person("y", 1))
    with folder.hold_at("fold.before-record", lambda: _folding(folder)) as late:
        writer.apply(without("x"))
    late.result(WAIT_S)
    assert world.ages() == {"y": 1}
    assert writer.graph.fold() is not None
    assert world.ages() == {"y": 1}
    world.assert_sound()


@run_without_rules("empty-staging-rides-inline")
def test_h02_a_staged_delete_of_an_overlay_row_is_not_undone_by_a_fold(world: World) -> None:
    """The delete is staged on a pin that never held x, so the pin need not move; the fold's version holds x. H2, H5"""
    folder, stager = world.actor(), world.actor(inline_share=0)
    folder.apply(person("z", 1))
    _folding(folder)
    folder.apply(person("x", 1), person("y", 1))
    with folder.hold_at("fold.before-record", lambda: _folding(folder)) as late:
        assert stager.apply(without("x")).counts["deleted"] == 1
    late.result(WAIT_S)
    assert world.ages() == {"y": 1, "z": 1}
    _folding(stager)
    assert world.ages() == {"y": 1, "z": 1}
    world.assert_sound()


def test_h02_the_same_before_the_table_has_a_dataset(world: World) -> None:
    """The fold gives birth to the table that the staged delete has looked at in vain. H2"""
    folder, stager = world.actor(), world.actor(inline_share=0)
    folder.apply(person("x", 1), person("y", 1))
    with folder.hold_at("fold.before-record", lambda: _folding(folder)) as late:
        stager.apply(without("x"))
    late.result(WAIT_S)
    assert world.ages() == {"y": 1}
    world.assert_sound()


@run_without_rules("tombstone")
def test_h02_the_edges_of_a_deleted_node_stay_gone(world: World) -> None:
    """The same with a cascade: both tables are folded late. H2, H16"""
    folder, writer = world.actor(), world.actor()
    folder.apply(person("a"), person("b"), knows("a", "b"), person("c"), knows("c", "b"))
    with folder.hold_at("fold.before-record", lambda: _folding(folder)) as late:
        writer.apply(without("a"))
    late.result(WAIT_S)
    assert world.edges() == {("c", "b")}
    assert set(world.ages()) == {"b", "c"}


@run_without_rules("supersede")
def test_h03_a_staged_write_lies_above_older_overlay_entries(world: World) -> None:
    """Overlay wins over the pin, so the record of a staged upsert takes its ids out of the overlay. H3"""
    writer, stager = world.actor(), world.actor(inline_share=0)
    writer.apply(person("x", 1), person("y", 1))
    stager.apply(person("x", 2))
    assert world.ages() == {"x": 2, "y": 1}
    assert "y" in next(iter(stager.head.overlay.values())).index, "entries of other ids stay"
    world.assert_sound()


@run_without_rules("restage-lookup")
def test_h04_a_staged_append_over_a_fold_holds_no_key_twice(world: World) -> None:
    """x in the overlay; an upsert of x is staged as an append; a fold brings x into the pin first. H4"""
    folder = world.actor()
    folder.apply(person("x", 1))
    stager = world.actor(inline_share=0)
    with stager.hold_at("write.staged", lambda: stager.apply(person("x", 2))) as late:
        assert _folding(folder) is not None
    assert late.result(WAIT_S).commit_id is not None
    assert world.ages() == {"x": 2}
    world.assert_sound()


@run_without_rules("restage-lookup")
def test_h04_on_a_table_with_rows_already(world: World) -> None:
    """The same on a pin that another staged write has moved as well. H4"""
    folder = world.actor()
    folder.apply(person("z", 1))
    _folding(folder)
    folder.apply(person("x", 1), person("w", 1))
    stager, second_actor = world.actor(inline_share=0), world.actor(inline_share=0)
    with stager.hold_at("write.staged", lambda: stager.apply(person("x", 2), without("z"))) as late:
        second_actor.apply(person("v", 1))
        assert _folding(folder) is not None
    late.result(WAIT_S)
    assert world.ages() == {"x": 2, "w": 1, "v": 1}
    world.assert_sound()


@run_without_rules("pin-cas")
def test_h05_a_late_fold_does_not_swap_away_a_load(world: World) -> None:
    """Two folds race, one lands, a staged write lands on top, the late fold must drop its table. H5"""
    late_folder, folder, stager = world.actor(), world.actor(), world.actor(inline_share=0)
    folder.apply(person("x", 1))
    with late_folder.hold_at("fold.before-record", lambda: _folding(late_folder)) as late:
        assert _folding(folder) is not None
        stager.apply(person("y", 1), person("z", 1))
        folder.apply(person("w", 1))
    folded = late.result(WAIT_S)
    assert world.ages() == {"x": 1, "y": 1, "z": 1, "w": 1}
    assert folded is None, "its entries are gone: it stops silently"
    world.assert_sound()


@run_without_rules("pin-cas")
def test_h05_a_late_staged_write_is_built_on_the_pin_it_replaces(world: World) -> None:
    """Two staged writes of different keys: the second re-commits its files on the first one's version. H5"""
    first, second = world.actor(inline_share=0), world.actor(inline_share=0)
    with first.hold_at("write.staged", lambda: first.apply(person("x", 1))) as late:
        second.apply(person("y", 1))
    late.result(WAIT_S)
    assert world.ages() == {"x": 1, "y": 1}
    world.assert_sound()


def test_h05_a_fold_drops_the_table_that_moved_and_keeps_the_rest(world: World) -> None:
    """Persons move under the fold, notes do not. H5"""
    folder, stager = world.actor(), world.actor(inline_share=0)
    folder.apply(person("x", 1), InsertNode("Note", {"text": "n"}))
    with folder.hold_at("fold.before-record", lambda: _folding(folder)) as late:
        stager.apply(person("y", 1))
    assert late.result(WAIT_S) is not None
    overlay = folder.head.overlay
    assert [entries.rows.num_rows for entries in overlay.values()] == [1], "x stays in the overlay, the note was folded"
    assert world.ages() == {"x": 1, "y": 1}
    assert len(world.rows("Note")) == 1
    world.assert_sound()


@run_without_rules("own-change-only")
def test_h06_a_refused_writer_brings_no_old_overlay_back(world: World) -> None:
    """x is in the overlay when the writer captures; it is folded and deleted before the writer's record. H6"""
    actor = world.actor()
    actor.apply(person("x", 1), person("z", 1))
    writer = world.actor()
    with writer.hold_at("write.before-record", lambda: writer.apply(person("y", 1))) as late:
        _folding(actor)
        actor.apply(without("x"))
        _folding(actor)
    late.result(WAIT_S)
    assert world.ages() == {"y": 1, "z": 1}
    world.assert_sound()


@run_without_rules("own-entries")
def test_h07_the_change_of_an_inline_commit_is_the_entries_with_its_rid(world: World) -> None:
    """Also at the bound, where the writer folds first: the fold is a record of its own. H7"""
    writer = world.actor(fold="auto", overlay_soft_entries=2, overlay_hard_factor=1, inline_share=1)
    writer.apply(person("a", 1))
    writer.apply(person("b", 1))
    receipt = writer.apply(person("c", 1))
    assert receipt.commit_id is not None
    record = writer.runtime.records(writer.head.stream).record(int(receipt.commit_id.rpartition(".")[2]))
    kinds = [commit.kind for commit in writer.graph.commits(limit=None)]
    assert kinds.count("fold") == 1
    own_entries = {table: entries for table in record.touched if (entries := record.own_entries(table)) is not None}
    assert [entries.rows["id"].to_pylist() for entries in own_entries.values()] == [["c"]]
    assert world.ages() == {"a": 1, "b": 1, "c": 1}


@run_without_rules("compare-images")
def test_h08_the_same_row_folded_on_two_branches_is_the_same_row(world: World) -> None:
    """Different fragments, equal images: whoever compares branches compares rows. H8"""
    main = world.actor()
    main.apply(person("x", 1))
    main.graph.branch.create("dev")
    dev = world.actor(branch="dev")
    _folding(main)
    _folding(dev)
    type_def = main.snapshot().type("Person")
    pins = [actor.head.pins[type_def.id].version for actor in (main, dev)]
    assert pins[0] != pins[1]
    assert world.rows("Person") == world.rows("Person", "dev")
    assert list(main.graph.diff("main", "dev")) == []
    dev.apply(person("y", 2))
    assert [(change.op, change.id) for change in main.graph.diff("main", "dev")] == [("insert", "y")]


@run_without_rules("never-inline")
def test_h09_a_type_with_a_blob_is_never_inlined(world: World) -> None:
    """A row image in a record cannot carry a blob. H9"""
    path = world.path + "-blobs"
    init(path, "node Doc { title: String @key  body: Blob?  size: I32? }", config=world.actor().runtime.backend.config)
    world.path = path
    writer = world.actor()
    writer.apply(InsertNode("Doc", {"title": "t", "body": b"0123456789" * 10}))
    assert not writer.head.overlay
    writer.apply(Update("Doc", {"size": 3}, Compare("title", "=", "t")))
    assert not writer.head.overlay
    assert writer.graph.table("Doc").count() == 1


def test_h09_a_change_above_its_share_of_the_bound_is_staged(world: World) -> None:
    """Encoded bytes and entries both count. H9"""
    writer = world.actor(overlay_soft_entries=40)
    writer.apply(*[person(f"p{number}") for number in range(10)])
    assert writer.head.overlay
    writer.apply(*[person(f"q{number}") for number in range(11)])
    assert next(iter(writer.head.touched.values())).staged
    bytes_writer = world.actor(overlay_soft_bytes=8192)
    bytes_writer.apply(person("big", email="x" * 3000))
    assert next(iter(bytes_writer.head.touched.values())).staged
    assert len(world.ages()) == 22


@run_without_rules("limit-after-hiding")
def test_h10_a_limit_is_applied_after_hiding(world: World) -> None:
    """Ten pinned rows, nine hidden by tombstones and images: a limit still finds what there is. H10"""
    writer = world.actor()
    writer.apply(*[person(f"p{number}", number) for number in range(10)])
    _folding(writer)
    writer.apply(
        *[without(f"p{number}") for number in range(5)], *[set_age(f"p{number}", 100) for number in range(5, 9)]
    )
    snapshot = writer.snapshot()
    type_def = snapshot.type("Person")
    view = snapshot.view(type_def)
    assert view.scan(["id"], limit=5).num_rows == 5
    young = condition_to_expression(type_def, by_name("p9"))
    assert view.scan(["id"], young, limit=1)["id"].to_pylist() == ["p9"]
    pinned_only = view.scan(["id"], pa.compute.field(type_def.by_name["age"].id) < 50, limit=1)
    assert pinned_only["id"].to_pylist() == ["p9"]


def test_h10_folding_changes_no_set_of_rows(world: World) -> None:
    """Every filter finds the same rows before and after a fold. H10"""
    writer = world.actor()
    writer.apply(*[person(f"p{number}", number % 4) for number in range(12)])
    _folding(writer)
    writer.apply(set_age("p1", 3), without("p2"), person("p12"))
    before = writer.head
    _folding(writer)
    after = writer.head
    assert before.rid != after.rid
    assert _answers(writer, before) == _answers(writer, after)


def _answers(actor: Actor, record: CommitRecord) -> list[list[str]]:
    table = actor.graph.at(record.commit_id).table("Person")
    conditions: list[Condition] = [
        Compare("age", ">", 1),
        Compare("age", "=", 3),
        NullTest("age"),
        Compare("name", "!=", "p3"),
    ]
    return [sorted(table.to_arrow(["id"], where=condition)["id"].to_pylist()) for condition in conditions]


@run_without_rules("one-fold-per-process")
def test_h11_a_volunteer_does_not_join_a_fold_that_runs(world: World) -> None:
    """One fold per process: the second finds the first at it and goes away without staging. H11"""
    writer = world.actor()
    writer.apply(person("x", 1))
    with writer.hold_at("fold.staged", lambda: _folding(writer)) as late:
        writer.branch.folder.fold_if_free()
        assert writer.pauses.points_reached.count("fold.captured") == 1
    assert late.result(WAIT_S) is not None


def test_h11_a_fold_whose_entries_are_gone_stops_silently(world: World) -> None:
    """Two processes fold the same entries: one record, one shrug. H11"""
    first, second = world.actor(), world.actor()
    first.apply(person("x", 1))
    with first.hold_at("fold.before-record", lambda: _folding(first)) as late:
        assert _folding(second) is not None
    assert late.result(WAIT_S) is None
    assert [commit.kind for commit in first.graph.commits(limit=None)] == ["fold", "mutate", "init"]


def test_h11_at_the_hard_bound_a_writer_folds_first(world: World) -> None:
    """No volunteer, but never beyond the hard bound. H11"""
    writer = world.actor(fold="auto", overlay_soft_entries=4, overlay_hard_factor=2)
    for number in range(30):
        writer.apply(person(f"p{number}"))
        assert sum(entries.entries for entries in writer.head.overlay.values()) <= 8
    assert "fold" in {commit.kind for commit in writer.graph.commits(limit=None)}
    assert len(world.ages()) == 30
