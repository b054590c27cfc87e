"""Optimize: other files, the same rows, the same answers; nobody fails because of it."""

from __future__ import annotations

import random
from typing import Any

import pyarrow.compute as pc
import pytest

from omnigraph.clock import SystemClock
from omnigraph.errors import NotFound, WriterFenced
from omnigraph.log.indexes import list_schema_indexes
from omnigraph.query.language.statements import Compare, Delete, Overwrite, Update
from omnigraph.storage.lance import RewriteOptions
from omnigraph.storage.lance.compaction import FragmentSize, group_fragments
from omnigraph.upkeep.optimize import Optimizer
from omnigraph.upkeep.verify import check_tables
from omnigraph.upkeep.verify.check_tables import find_index_disagreements
from tests.schedules.world import Actor, World, person
from tests.upkeep.later_clock import LaterClock
from tests.upkeep.upkeep_graphs import contents, fill, make_scattered, open_pin


def _coverage(actor: Actor, name: str) -> dict[str, tuple[int, int]]:
    tables = actor.graph.snapshot(indexes=True)["tables"]
    (type_table,) = (table for table in tables if table["table_key"].endswith(f":{name}"))
    return {
        index["name"].split("_")[0] + "_" + index["column"].split("_")[0]: _share(index)
        for index in type_table["indexes"]
    }


def _share(index: dict[str, Any]) -> tuple[int, int]:
    return index["covered_fragments"], index["fragments"]


def _assert_indexes_tell_the_truth(actor: Actor) -> None:
    snapshot = actor.snapshot()
    for type_def in snapshot.catalog.types:
        table = snapshot.view(type_def).pinned
        if table is not None:
            assert list(find_index_disagreements(table, list_schema_indexes(type_def, table), 24)) == []


class TestOneRun:
    def test_keeps_contents_and_covers_everything_in_one_commit(self, world: World) -> None:  # S124, S125
        actor = make_scattered(world)
        before, seq = contents(actor), actor.head.seq
        report = actor.graph.optimize()
        assert report.folded is not None
        assert report.is_complete
        assert actor.head.seq == seq + 2  # the fold and one physical commit for all tables
        assert actor.head.kind == "physical"
        assert actor.head.touched.keys() == {
            type_def.id for type_def in actor.snapshot().catalog.types if type_def.name != "Note"
        }
        assert contents(actor) == before
        assert actor.head.content_seq == seq
        assert open_pin(actor, "Person").fragments == 1
        assert _coverage(actor, "Person") == {
            "by_id": (1, 1),
            "by_name": (1, 1),
            "by_email": (1, 1),
            "by_age": (1, 1),
            "by_mood": (1, 1),
            "by_size": (1, 1),
            "text_bio": (1, 1),
            "near_look": (1, 1),
        }
        assert set(_coverage(actor, "Knows").values()) == {(1, 1)}
        assert set(_coverage(actor, "Knows")) == {"by_id", "by_src", "by_dst", "by_since"}
        _assert_indexes_tell_the_truth(actor)
        world.assert_sound()

    def test_a_second_run_does_nothing(self, world: World) -> None:  # S124
        actor = make_scattered(world)
        actor.graph.optimize()
        seq = actor.head.seq
        again = world.actor().graph.optimize()
        assert (again.commits, again.tables, again.planned, again.folded) == ((), (), (), None)
        assert actor.head.seq == seq

    def test_a_dry_run_says_what_a_run_does_and_writes_nothing(self, world: World) -> None:
        actor = make_scattered(world)
        seq = actor.head.seq
        preview = actor.graph.optimize(dry_run=True)
        assert actor.head.seq == seq
        rows = {planned_table["table_key"]: planned_table for planned_table in preview.to_json()["planned"]}
        assert preview.overlay_entries == 2
        assert rows["node:Person"]["fragments"] == 5
        assert rows["node:Person"]["removed_rows"] == 6
        assert rows["edge:Knows"]["rewrites"] == 2
        missing = rows["node:Person"]["indexes"]
        assert {index["index"].split("_")[0] for index in missing} == {"by", "text", "near"}
        assert {index["fragments"] for index in missing} == {5}
        actor.graph.optimize()
        assert actor.graph.optimize(dry_run=True).planned == ()

    def test_of_one_type_leaves_the_others(self, world: World) -> None:
        actor = make_scattered(world)
        actor.graph.fold()
        report = actor.graph.optimize(["Knows"])
        assert [table.table_key for table in report.tables] == ["edge:Knows"]
        assert open_pin(actor, "Person").fragments > 1
        with pytest.raises(NotFound):
            actor.graph.optimize(["Nobody"])

    def test_of_an_empty_graph_and_of_a_type_without_rows(self, world: World) -> None:  # S127
        actor = world.actor(inline_share=0)
        assert actor.graph.optimize().commits == ()
        fill(actor, 3)
        actor.apply(Overwrite("Person", []))
        actor.graph.optimize()
        assert contents(actor)["Person"] == []
        fill(actor, 3)
        actor.graph.optimize()
        assert len(contents(actor)["Person"]) == 3

    def test_joins_fragments_that_do_not_lie_side_by_side(self, world: World) -> None:
        actor = world.actor(inline_share=0)
        for start, count in ((0, 3), (10, 200), (300, 3), (400, 200), (700, 3)):
            fill(actor, count, start)
        before = contents(actor)
        options = RewriteOptions(target_rows=150)
        report = Optimizer(actor.runtime, actor.branch, options=options).run()
        assert report.is_complete
        assert sorted(fragment.num_rows for fragment in open_pin(actor, "Person").metadata) == [9, 200, 200]
        assert contents(actor) == before
        assert Optimizer(actor.runtime, actor.branch, options=options).run().commits == ()
        _assert_indexes_tell_the_truth(actor)

    def test_optimize_of_a_read_only_graph_is_refused(self, world: World) -> None:
        make_scattered(world)
        holder = world.actor()
        claim = holder.runtime.claim(holder.branch, _no_options())
        with pytest.raises(WriterFenced):
            world.actor().graph.optimize()
        report = Optimizer(holder.runtime, holder.branch, claim).run()
        assert report.is_complete


class TestOptimizedIndexes:
    @pytest.mark.parametrize("covered", [0, 0.5, 1])
    def test_answers_do_not_depend_on_coverage(self, world: World, covered: float) -> None:  # S126
        actor = world.actor(inline_share=0)
        fill(actor, 60)
        if covered:
            actor.graph.optimize()
        if covered < 1:
            fill(actor, 60, 60)
        coverage = _coverage(actor, "Person")["by_age"]
        assert coverage[0] / coverage[1] == covered
        _assert_indexes_tell_the_truth(actor)
        table = open_pin(actor, "Person")
        people = table.scan(None).to_pylist()
        age = next(name for name in table.schema.names if name.startswith("age"))
        for number in range(0, 50, 7):
            expected = sorted(row["id"] for row in people if row[age] == number)
            assert sorted(table.find_by(age, [number], ["id"])["id"].to_pylist()) == expected
            assert table.count(pc.field(age) == number) == len(expected)

    def test_new_fragments_get_further_segments_and_many_of_them_one(self, world: World) -> None:
        actor = world.actor(inline_share=0)
        segments = []
        for step in range(12):
            fill(actor, 1000 if step == 0 else 2, 2000 * step)
            Optimizer(actor.runtime, actor.branch, options=RewriteOptions(target_rows=2)).run()
            segments.append(len(open_pin(actor, "Person").indices()[0].segments))
        assert segments[:3] == [1, 2, 3]
        assert segments[:9] == [1, 2, 3, 4, 5, 6, 7, 8, 1]
        _assert_indexes_tell_the_truth(actor)

    def test_missing_vectors_and_few_of_them(self, world: World) -> None:  # S127
        actor = world.actor(inline_share=0)
        actor.apply(*(person(f"q{number}") for number in range(300)))
        report = actor.graph.optimize()
        assert report.is_complete
        assert _coverage(actor, "Person")["near_look"] == (0, 1)
        seq = actor.head.seq
        assert actor.graph.optimize().commits == ()
        assert actor.head.seq == seq
        fill(actor, 300)
        actor.graph.optimize()
        assert _coverage(actor, "Person")["near_look"] == (1, 1)

    def test_a_renamed_type_keeps_its_indexes_and_a_new_rule_gets_one(self, world: World) -> None:  # S127
        actor = make_scattered(world)
        actor.graph.optimize()
        text = actor.graph.schema.source.replace("node Person {", 'node Human @rename_from("Person") {')
        text = text.replace("Person -> Person", "Human -> Human").replace("age: I32? @index", "age: I32?")
        text = text.replace("bio: String? @index", "bio: String?")
        actor.graph.schema.apply(text)
        assert _coverage(actor, "Human")["by_id"] == (1, 1)
        (table,) = actor.graph.optimize(dry_run=True).to_json()["planned"]
        assert sorted(name.split("_")[0] for name in table["drops"]) == ["by", "text"]
        assert actor.graph.optimize().is_complete
        assert not {"by_age", "text_bio"} & _coverage(actor, "Human").keys()
        names = {index.name.rsplit("_", 1)[0] for index in open_pin(actor, "Human").indices()}
        assert "by_age" not in names
        assert "text_bio" not in names
        assert actor.graph.optimize().commits == ()

    def test_index_that_misses_rows_is_reported(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        actor = make_scattered(world)
        actor.graph.optimize()
        real = check_tables._find_ids
        monkeypatch.setattr(
            check_tables, "_find_ids", lambda p, c, v, indexed: [] if indexed else real(p, c, v, indexed)
        )
        with pytest.raises(AssertionError):
            _assert_indexes_tell_the_truth(actor)


class TestAmongWriters:
    def test_a_table_that_was_written_meanwhile_is_done_again(self, world: World) -> None:  # S124
        actor = make_scattered(world)
        second_actor = world.actor(inline_share=0)
        with actor.hold_at("optimize.staged", actor.graph.optimize) as running:
            second_actor.apply(Delete("Person", Compare("age", "=", 8)), person("new", 5))
        report = running.result()
        assert report.is_complete
        assert len(report.commits) == 2  # Knows at first, Person in the second round
        ages = world.ages()
        assert ages["new"] == 5
        assert 8 not in ages.values()
        assert open_pin(actor, "Person").fragments == 1
        world.assert_sound()

    def test_inline_writers_do_not_disturb_it(self, world: World) -> None:  # S124
        actor = make_scattered(world)
        second_actor = world.actor()
        with actor.hold_at("optimize.before-record", actor.graph.optimize) as running:
            second_actor.apply(person("new", 5))
            second_actor.apply(Delete("Person", Compare("name", "=", "p0001")))
        assert len(running.result().commits) == 1
        assert world.ages()["new"] == 5
        assert "p0001" not in world.ages()
        assert not any("p0001" in edge for edge in world.edges())
        world.assert_sound()

    def test_many_commits_meanwhile_do_not_stop_it(self, world: World) -> None:
        actor = make_scattered(world)
        second_actor = world.actor()
        with actor.hold_at("optimize.staged", actor.graph.optimize) as running:
            for number in range(80):  # more than a publisher walks
                second_actor.apply(Update("Person", {"age": number}, Compare("name", "=", "late")))
        assert len(running.result().commits) == 1
        assert world.ages()["late"] == 79
        world.assert_sound()

    @pytest.mark.parametrize("change", ["schema", "gc"])
    def test_what_was_staged_before_a_fence_is_staged_again(self, world: World, change: str) -> None:
        actor = make_scattered(world)
        second_actor = world.actor()
        with actor.hold_at("optimize.before-record", actor.graph.optimize) as running:
            if change == "gc":
                second_actor.gc_record()
            else:
                second_actor.graph.schema.apply(
                    second_actor.graph.schema.source.replace("text: String?", "text: String? more: I32?")
                )
        assert running.result().is_complete
        assert contents(actor) == contents(world.actor())
        world.assert_sound()

    def test_writers_that_never_stop_leave_it_busy_and_unharmed(self, world: World) -> None:
        actor = make_scattered(world)
        second_actor = world.actor(inline_share=0)
        writes = 0

        def disturb(name: str) -> None:
            nonlocal writes
            if name == "optimize.staged":
                second_actor.apply(person(f"new{writes}", 1))
                writes += 1

        actor.pauses.reach = disturb  # type: ignore[method-assign]
        report = actor.graph.optimize()
        assert not report.is_complete
        assert {table.table_key: table.outcome for table in report.tables} == {
            "node:Person": "busy",
            "edge:Knows": "done",
        }
        assert writes == 5
        assert {f"new{number}" for number in range(5)} <= world.ages().keys()
        world.assert_sound()


def test_old_answers_of_client_keys_are_forgotten(world: World) -> None:  # H26
    first = world.actor()
    first.apply(person("a", 1), client_key="key-one")
    first.apply(person("a", 2), client_key="key-two")
    clock = LaterClock(SystemClock(), days=6)
    world.actor(clock=clock).graph.optimize()
    assert first.apply(person("a", 3), client_key="key-one").replayed
    later = world.actor(clock=LaterClock(SystemClock(), days=8))
    later.apply(person("b", 1), client_key="key-three")
    report = later.graph.optimize()
    assert (
        next(planned_table for planned_table in report.to_json()["planned"] if planned_table["table_key"] == "_ops")[
            "expired"
        ]
        == 2
    )
    assert later.apply(person("b", 2), client_key="key-three").replayed
    assert not later.apply(person("a", 3), client_key="key-one").replayed
    assert world.ages() == {"a": 3, "b": 1}
    world.assert_sound()


class TestGrouping:
    """What belongs together, as a pure function."""

    def _run(self, sizes: list[int], options: RewriteOptions, removed: dict[int, int] | None = None) -> list[int]:
        """Rows of all fragments after one run."""
        heaps = [FragmentSize(at, rows, (removed or {}).get(at, 0), rows * 10) for at, rows in enumerate(sizes)]
        groups = group_fragments(heaps, options)
        taken_ids = {heap_id for group in groups for heap_id in group}
        assert len(taken_ids) == sum(len(group) for group in groups)
        rows_left = [heap.rows for heap in heaps if heap.id not in taken_ids]
        return sorted(rows_left + [sum(heaps[heap_id].rows for heap_id in group) for group in groups])

    @pytest.mark.parametrize(
        ("sizes", "after"),
        [
            ([1] * 100, [100]),
            ([1] * 100 + [900], [100, 900]),
            ([1] * 300 + [900], [900, 300]),
            ([1000, 1000], [1000, 1000]),
            ([400, 500, 600], [600, 900]),
            ([], []),
            ([5], [5]),
        ],
    )
    def test_examples(self, sizes: list[int], after: list[int]) -> None:
        assert self._run(sizes, RewriteOptions(target_rows=1000, small_rows=0)) == sorted(after)

    def test_removed_rows_alone_are_a_reason(self) -> None:
        options = RewriteOptions(target_rows=100)
        assert group_fragments([FragmentSize(0, 80, 20, 1)], options) == [[0]]
        assert group_fragments([FragmentSize(0, 95, 5, 1)], options) == []
        assert group_fragments([FragmentSize(0, 800, 200, 1)], options) == [[0]]

    def test_bytes_bound_a_group(self) -> None:
        options = RewriteOptions(max_source_bytes=100)
        assert group_fragments([FragmentSize(at, 10, 0, 60) for at in range(4)], options) == []
        assert len(group_fragments([FragmentSize(at, 10, 0, 50) for at in range(4)], options)) == 2

    def test_a_second_run_never_finds_anything(self, sweep_seed: int) -> None:
        draw = random.Random(sweep_seed)
        for _ in range(500):
            options = RewriteOptions(
                target_rows=draw.choice([50, 1000]), size_ratio=draw.choice([2, 4]), small_rows=draw.choice([0, 9])
            )
            sizes = [int(draw.paretovariate(0.7)) for _ in range(draw.randrange(40))]
            once = self._run(sizes, options)
            assert sum(once) == sum(sizes)
            assert self._run(once, options) == once, (sizes, options)


def _no_options() -> Any:
    from omnigraph.commit.publish_plan import WriteOptions

    return WriteOptions()
