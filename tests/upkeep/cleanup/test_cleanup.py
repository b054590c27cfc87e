"""Cleanup: what must stay stays, what is unnamed goes, and nobody is told a lie about it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph.api import Graph
from omnigraph.clock import SystemClock
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.errors import Corruption, InvalidInput, NotFound, SnapshotExpired, Unavailable, Unsupported
from omnigraph.log.commit_record import Stub
from omnigraph.log.stream import record_key
from omnigraph.query.language.statements import Compare, Delete, InsertNode
from omnigraph.storage.store import ObjectInfo, Store
from omnigraph.upkeep.cleanup.cleanup import LOCK, Cleanup
from omnigraph.upkeep.cleanup.leases import end_lease, take_lease
from omnigraph.upkeep.cleanup.report import CleanupReport
from omnigraph.upkeep.cleanup.retention import Policy
from omnigraph.upkeep.tags import Tag, Tags
from tests.schedules.world import Actor, World, knows, person
from tests.upkeep.later_clock import LaterClock
from tests.upkeep.upkeep_graphs import contents, file_of, fill, make_scattered

#: Nothing waits: what is condemned by one run is deleted by the next.
AT_ONCE = Policy(margin_s=0, horizon_s=0, newest_records=1)


def collect(actor: Actor, runs: int = 1, **policy: Any) -> CleanupReport:
    for _ in range(runs):
        report = Cleanup(actor.runtime, replace(AT_ONCE, **policy)).run()
    return report


def to_the_end(actor: Actor, **policy: Any) -> None:
    """Until nothing is left to do: commits become stubs, bodies leave the archive, files are condemned, files go."""
    for _ in range(8):
        if not Cleanup(actor.runtime, replace(AT_ONCE, **policy)).run().has_work:
            return
    raise AssertionError("cleanup does not come to an end")


def files(world: World, part: str = "tables") -> set[str]:
    root = Path(world.path)
    return {str(path.relative_to(root)) for path in (root / part).rglob("*") if path.is_file()}


def history(actor: Actor) -> list[str]:
    return [commit.commit_id for commit in actor.graph.commits(None)]


def readable(world: World, commit_ids: list[str]) -> dict[str, dict[str, list[Any]] | None]:
    """What a new process reads at each commit; None where it was collected."""
    actor = world.reader()
    rows_by_commit: dict[str, dict[str, list[Any]] | None] = {}
    for commit_id in commit_ids:
        try:
            rows_by_commit[commit_id] = contents(actor, commit_id)
        except SnapshotExpired:
            rows_by_commit[commit_id] = None
    return rows_by_commit


def assert_whole(world: World, before: dict[str, dict[str, list[Any]] | None]) -> None:
    """Every commit reads as before or is expired as a whole, and verify finds nothing wrong."""
    after = readable(world, list(before))
    wrong = [commit_id for commit_id, rows in after.items() if rows is not None and rows != before[commit_id]]
    assert wrong == []
    report = world.reader().graph.verify(deep=True)
    assert report.errors == ()


def find_unnamed_files(world: World) -> list[str]:
    report = world.reader().graph.verify()
    return [problem.message for problem in report.problems if problem.code == "unnamed_files"]


def _some_history(world: World, steps: int = 6) -> Actor:
    actor = world.actor(inline_share=0)
    for step in range(steps):
        fill(actor, 3, 10 * step)
        if step % 2:
            actor.apply(Delete("Person", Compare("name", "=", f"p{10 * step:04d}")))
    return actor


class TestRetention:
    @pytest.mark.parametrize("policy", [{"keep": 1}, {"older_than_s": 0}, {"keep": 1, "older_than_s": 0}])
    def test_the_least_that_can_be_kept_is_the_head(self, world: World, policy: dict[str, Any]) -> None:  # S128
        actor = _some_history(world)
        before = readable(world, history(actor))
        head = contents(actor)
        to_the_end(actor, **policy)
        assert contents(world.reader()) == head
        readable_ids = [commit_id for commit_id, rows in readable(world, list(before)).items() if rows is not None]
        assert len(readable_ids) <= 1
        assert_whole(world, before)
        assert find_unnamed_files(world) == []
        assert len(files(world)) < 15
        fill(world.actor(), 3, 900)
        fill(world.actor(inline_share=0), 3, 950)
        assert len(contents(world.reader())["Person"]) == len(head["Person"]) + 6

    def test_more_than_there_is(self, world: World) -> None:  # S128
        actor = _some_history(world)
        before = readable(world, history(actor))
        to_the_end(actor, keep=100)
        assert readable(world, list(before)) == before

    def test_counts_changes_not_records(self, world: World) -> None:
        actor = _some_history(world)
        actor.graph.optimize()
        newest_ids = [commit.commit_id for commit in actor.graph.commits(None) if commit.kind == "mutate"][:3]
        to_the_end(actor, keep=3)
        assert None not in readable(world, newest_ids).values()
        assert [commit for commit in history(actor) if commit in newest_ids] == newest_ids

    def test_commits_stay_without_a_wish(self, world: World) -> None:
        actor = _some_history(world)
        before = readable(world, history(actor))
        garbage = _garbage(world)
        to_the_end(actor)
        assert readable(world, list(before)) == before
        assert not garbage & files(world)

    def test_young_commits_stay(self, world: World) -> None:  # H31
        actor = _some_history(world)
        before = readable(world, history(actor))
        collect(actor, 3, older_than_s=3600)
        assert readable(world, list(before)) == before

    def test_a_writer_with_a_wrong_clock_expires_nothing(self, world: World) -> None:  # H31
        actor = _some_history(world)
        before = readable(world, history(actor))
        ahead = world.actor(clock=LaterClock(SystemClock(), days=30))
        assert not Cleanup(ahead.runtime, replace(AT_ONCE, older_than_s=86_400)).run().expired
        _age(world, "__manifest", 86_401)
        assert not collect(actor, older_than_s=86_400).expired
        assert Cleanup(ahead.runtime, replace(AT_ONCE, older_than_s=86_400)).run().expired
        assert_whole(world, before)

    def test_the_newest_records_stay(self, world: World) -> None:  # H23
        actor = _some_history(world)
        before = readable(world, history(actor))
        collect(actor, 3, keep=1, newest_records=1024)
        assert readable(world, list(before)) == before
        seq = actor.head.seq
        collect(actor, 1, keep=1, newest_records=4)
        expired_ids = [commit_id for commit_id, rows in readable(world, list(before)).items() if rows is None]
        assert {int(commit_id.rpartition(".")[2]) for commit_id in expired_ids} == set(range(seq - 3))

    def test_history_can_still_be_listed(self, world: World) -> None:
        actor = _some_history(world)
        commits = history(actor)
        to_the_end(actor, keep=1)
        assert [commit for commit in history(world.reader()) if commit in commits] == commits

    def test_an_expired_commit_says_so(self, world: World) -> None:  # S116
        actor = _some_history(world)
        old = history(actor)[-2]
        view = world.reader().graph.at(old)
        to_the_end(actor, keep=1)
        with pytest.raises(SnapshotExpired) as raised:
            actor.graph.at(old)
        assert raised.value.details["commit_id"] == old
        with pytest.raises(SnapshotExpired):
            actor.graph.branch.create("late", old)
        with pytest.raises((SnapshotExpired, NotFound)):
            view.table("Person").to_arrow()

    def test_bad_wishes(self, world: World) -> None:
        graph = world.actor().graph
        for wish in ({"keep": 0}, {"older_than": "soon"}, {"older_than": "-1d"}):
            with pytest.raises(InvalidInput):
                graph.cleanup(**wish)
        reader = Graph(GraphRuntime.open(graph._runtime.backend, read_only=True), graph._branch)
        assert not reader.cleanup(keep=1).confirmed
        with pytest.raises(Unsupported):
            reader.cleanup(keep=1, confirm=True)


class TestPreview:
    def test_changes_nothing_and_tells_what_would_go(self, world: World) -> None:
        actor = _some_history(world)
        garbage = _garbage(world)
        before, seq = files(world, "."), actor.head.seq
        report = Cleanup(actor.runtime, replace(AT_ONCE, keep=1)).preview()
        assert not report.confirmed
        assert files(world, ".") == before
        assert actor.head.seq == seq
        (expired,) = report.expired
        assert (expired.branch, expired.commits) == ("main", seq)
        assert sum(condemn.files for condemn in report.condemns.values()) > len(garbage)
        document = report.to_json()
        assert document["files"][0]["condemned_bytes"] > 0
        assert document["expired"][0]["newest"] == f"{actor.head.stream}.{seq - 1}"

    def test_nothing_to_do_makes_no_commit(self, world: World) -> None:
        actor = _some_history(world)
        to_the_end(actor)
        seq = actor.head.seq
        assert not collect(actor).has_work
        assert actor.head.seq == seq
        assert files(world, "__locks") == set()

    def test_through_the_graph(self, world: World) -> None:
        actor = _some_history(world)
        assert not actor.graph.cleanup(keep=1).confirmed
        report = actor.graph.cleanup(keep=1, older_than="0s", confirm=True, policy=replace(AT_ONCE, keep=1))
        assert report.confirmed
        assert report.expired


def _garbage(world: World) -> set[str]:
    """What a writer leaves behind that dies before its record."""
    actor = world.actor(inline_share=0)
    before = files(world)

    def die(name: str) -> None:
        if name == "write.before-record":
            raise Died

    actor.pauses.reach = die  # type: ignore[method-assign]
    with pytest.raises(Died):
        fill(actor, 5, 7000)
    garbage = files(world) - before
    assert garbage
    return garbage


class TestGarbage:
    def test_of_crashed_writers_goes_on_idle_branches_too(self, world: World) -> None:  # S133
        actor = _some_history(world)
        actor.graph.branch.create("idle")
        garbage = _garbage(world)
        to_the_end(actor)
        assert not garbage & files(world)
        assert find_unnamed_files(world) == []

    def test_is_condemned_before_it_goes(self, world: World) -> None:  # H37
        actor = _some_history(world)
        garbage = _garbage(world)
        first = collect(actor, horizon_s=3600)
        assert first.condemns
        assert garbage <= files(world)
        assert not collect(actor, horizon_s=3600).deletes
        assert garbage <= files(world)
        _age(world, "__trash", 3601)
        report = collect(actor, horizon_s=3600)
        assert sum(delete.files for delete in report.deletes.values()) >= len(garbage)
        assert not garbage & files(world)

    def test_young_files_are_not_condemned(self, world: World) -> None:  # H35
        actor = _some_history(world)
        garbage = _garbage(world)
        collect(actor, 4, margin_s=600)
        assert garbage <= files(world)
        _age(world, "tables", 601)
        collect(actor, 2, margin_s=600)
        assert not garbage & files(world)

    def test_a_file_that_was_written_again_is_another_one(self, world: World) -> None:
        actor = _some_history(world)
        garbage = _garbage(world)
        collect(actor, horizon_s=3600)
        again = file_of(world, sorted(garbage)[0])
        _age(world, "__trash", 3601)
        os.utime(again)
        collect(actor, horizon_s=3600)
        assert again.exists()

    def test_files_of_a_dropped_type_go(self, world: World) -> None:
        actor = make_scattered(world)
        table = actor.snapshot().type("Knows").id
        text = actor.graph.schema.source
        actor.graph.schema.apply(text[: text.index("edge Knows")], allow_data_loss=True)
        actor.apply(person("after"))
        assert files(world, f"tables/{table}")
        to_the_end(actor, keep=1)
        assert files(world, f"tables/{table}") == set()
        assert world.reader().graph.verify(deep=True).ok

    def test_the_birth_of_a_table_stays(self, world: World) -> None:
        """A writer that finds a table born, however long ago, builds on it without touching it."""
        actor = _some_history(world)
        table = actor.snapshot().type("Note").id
        writer = world.actor(inline_share=0)

        def die(name: str) -> None:
            if name == "write.before-record":
                raise Died

        writer.pauses.reach = die  # type: ignore[method-assign]
        note = InsertNode("Note", {"text": "first"})
        with pytest.raises(Died):
            writer.apply(note)
        to_the_end(actor)
        assert len(files(world, f"tables/{table}")) == 3
        world.actor(inline_share=0).apply(note)
        assert world.reader().graph.verify(deep=True).ok

    def test_schemas_stay(self, world: World) -> None:
        """A writer that brings an old schema back finds its object there and relies on it."""
        actor = _some_history(world)
        before = actor.graph.schema.source
        actor.graph.schema.apply(before.replace("text: String?", "text: String? more: I32?"))
        schemas = files(world, "schemas")
        to_the_end(actor, keep=1)
        assert files(world, "schemas") == schemas


_KILLED_IN_A_PUT = """
import os, signal, sys
from omnigraph.storage.local import LocalStore
os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
LocalStore(sys.argv[1]).put_if_absent(sys.argv[2], b"half")
"""


def _kill_in_a_put(world: World, key: str) -> Path:
    """A process that dies before its object has a name; what it left."""
    before = _temporary(world)
    outcome = subprocess.run([sys.executable, "-c", _KILLED_IN_A_PUT, world.path, key], check=False, timeout=60)
    assert outcome.returncode == -signal.SIGKILL
    (leftover,) = _temporary(world) - before
    return leftover


def _temporary(world: World) -> set[Path]:
    return set(Path(world.path).rglob(".tmp-*"))


class TestLeftovers:
    """H41, S133"""

    def test_of_killed_puts_go_like_any_unnamed_file(self, world: World) -> None:
        actor = _some_history(world, 2)
        stream = actor.head.stream
        leftovers = {_kill_in_a_put(world, key) for key in ("top", f"__manifest/{stream}/x", "__tags/v1/00000000.json")}
        assert not collect(actor, margin_s=600).condemns
        for path in leftovers:
            os.utime(path, (path.stat().st_mtime - 601,) * 2)
        report = collect(actor, margin_s=600, horizon_s=3600)
        assert report.condemns[".tmp-*"].files == len(leftovers)
        assert _temporary(world) == leftovers
        _age(world, "__trash", 3601)
        assert collect(actor, margin_s=600, horizon_s=3600).deletes[".tmp-*"].files == len(leftovers)
        assert _temporary(world) == set()
        to_the_end(actor)
        assert world.reader().graph.verify(deep=True).ok

    def test_a_put_that_slept_for_so_long_is_made_again(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        actor, collector = _some_history(world, 2), world.actor()
        link = os.link
        collected: list[CleanupReport] = []

        def late(source: str, target: str) -> None:
            if "__manifest" in target and not collected:
                monkeypatch.setattr(os, "link", link)
                os.utime(source, (0, 0))
                collected.append(collect(collector, 2))
            link(source, target)

        monkeypatch.setattr(os, "link", late)
        actor.apply(person("slept", 5))
        assert collected[0].deletes[".tmp-*"].files == 1
        assert world.ages()["slept"] == 5
        assert _temporary(world) == set()
        assert world.reader().graph.verify(deep=True).ok

    def test_what_a_killed_collector_asked_the_time_with(self, world: World) -> None:
        actor = _some_history(world, 2)
        actor.runtime.backend.store.put("__locks/clock-01M7GVX9MEP5J21NPK0WBRZ53F", b"")
        actor.runtime.backend.store.put("__locks/clock", b"")
        _age(world, "__locks", 1)
        to_the_end(actor)
        assert files(world, "__locks") == {"__locks/clock"}


def _age(world: World, part: str, seconds: float) -> None:
    """Let the store believe that it is older."""
    for file in files(world, part):
        path = file_of(world, file)
        stamp = path.stat().st_mtime - seconds
        os.utime(path, (stamp, stamp))


class TestProtection:
    def test_tags(self, world: World) -> None:  # S129
        actor = _some_history(world)
        commits = history(actor)
        tagged = commits[len(commits) // 2]
        before = readable(world, commits)
        actor.graph.tags.create("v1", tagged)
        to_the_end(actor, keep=1)
        assert readable(world, [tagged]) == {tagged: before[tagged]}
        assert_whole(world, before)
        actor.graph.tags.delete("v1")
        to_the_end(actor, keep=1)
        assert readable(world, [tagged]) == {tagged: None}
        assert find_unnamed_files(world) == []

    def test_lazy_branches_the_oldest_of_several(self, world: World) -> None:  # S129
        actor = _some_history(world)
        commits = history(actor)
        starts = [commits[-3], commits[-6], commits[2]]
        before = readable(world, commits)
        for number, start in enumerate(starts):
            actor.graph.branch.create(f"b{number}", start)
        to_the_end(actor, keep=1)
        for number, start in enumerate(starts):
            assert contents(world.reader(f"b{number}")) == before[start]
        assert all(rows == before[commit_id] for commit_id, rows in readable(world, starts).items())
        assert_whole(world, before)
        for number in range(3):
            actor.graph.branch.delete(f"b{number}")
        to_the_end(actor, keep=1)
        assert set(readable(world, starts).values()) == {None}
        assert find_unnamed_files(world) == []
        assert [problem.code for problem in world.reader().graph.verify().problems] == []

    def test_merge_bases(self, world: World) -> None:  # S129
        actor = _some_history(world, 3)
        actor.graph.branch.create("side")
        side = world.actor(branch="side", inline_share=0)
        for step in range(4):
            side.apply(person(f"side{step}"))
            if step == 1:
                actor.graph.branch.merge("side")
            actor.apply(person(f"main{step}"))
        to_the_end(actor, keep=1)
        for step in range(4, 7):
            side.apply(person(f"side{step}"))
            actor.apply(person(f"main{step}"))
        to_the_end(actor, keep=1)
        actor.graph.branch.merge("side")
        people = world.rows("Person").keys()
        assert {f"{name}{step}" for name in ("side", "main") for step in range(7)} <= people
        assert world.reader().graph.verify(deep=True).ok

    def test_bases_of_merge_bases(self, world: World) -> None:  # S129, S74
        """After criss-cross merges there are two bases, which are made one on a base of their own."""
        actor = _some_history(world, 2)
        actor.graph.branch.create("side")
        side = world.actor(branch="side", inline_share=0)
        side.apply(person("side0"))
        actor.graph.branch.merge("side")  # from here on their base is not where the branch began
        actor.apply(person("main0"), person("p0001", 71))
        side.apply(person("p0002", 72))
        crossed = actor.graph.branch.create("crossed")
        actor.graph.branch.merge("side")
        side.graph.branch.merge("crossed")
        crossed.branch.delete("crossed")
        for step in range(3):
            actor.apply(person(f"main{step + 1}"))
            side.apply(person(f"side{step + 1}"))
        to_the_end(actor, keep=1)
        actor.graph.branch.merge("side")
        people = world.ages()
        assert {f"{name}{step}" for name in ("side", "main") for step in range(4)} <= people.keys()
        assert (people["p0001"], people["p0002"]) == (71, 72)
        assert world.reader().graph.verify(deep=True).ok

    def test_merges_walk_past_collected_branches(self, world: World) -> None:
        actor = _some_history(world, 2)
        for name in ("one", "two"):
            actor.graph.branch.create(name)
            world.actor(branch=name).apply(person(name))
        actor.graph.branch.merge("one")
        actor.graph.branch.delete("one")
        actor.apply(person("later"))
        to_the_end(actor, keep=1)
        actor.graph.branch.merge("two")
        assert {"one", "two", "later"} <= world.rows("Person").keys()

    def test_leases(self, world: World) -> None:
        actor = _some_history(world)
        commits = history(actor)
        lease = take_lease(actor.runtime, commits[4], 3600)
        before = readable(world, commits)
        to_the_end(actor, keep=1)
        assert readable(world, [commits[4]]) == {commits[4]: before[commits[4]]}
        end_lease(actor.runtime, lease)
        to_the_end(actor, keep=1)
        assert readable(world, [commits[4]]) == {commits[4]: None}
        assert files(world, "__leases") == set()

    def test_files_of_intents(self, world: World) -> None:  # H36, S149
        actor = _some_history(world)
        actor.runtime.backend.store.put("__recovery/01M7GVX9MEP5J21NPK0WBRZ53F/0-open", b"{}")
        garbage = _garbage(world)
        collect(actor, 4, keep=1)
        assert garbage <= files(world)
        assert actor.head.gc is not None
        assert actor.head.gc["honours"] == ["01M7GVX9MEP5J21NPK0WBRZ53F"]
        actor.runtime.backend.store.put("__recovery/01M7GVX9MEP5J21NPK0WBRZ53F/2", b"{}")
        to_the_end(actor)
        assert not garbage & files(world)

    def test_overlays_on_old_pins(self, world: World) -> None:
        """A branch that never folds stands on versions that are long compacted away elsewhere."""
        actor = make_scattered(world)
        actor.graph.branch.create("side")
        side = world.actor(branch="side")
        side.apply(person("sidekick"), knows("sidekick", "p0001"))
        before = contents(side)
        actor.graph.optimize()
        to_the_end(actor, keep=1)
        assert contents(world.reader("side")) == before
        side.graph.fold()
        assert contents(world.reader("side")) == before
        assert world.reader().graph.verify(deep=True).ok


class TestBranches:
    def test_the_end_of_a_deleted_branch_is_still_known(self, world: World) -> None:
        actor = _some_history(world, 2)
        actor.graph.branch.create("side")
        side, late = world.actor(branch="side"), world.actor(branch="side")
        side.apply(person("x"))
        late.head  # noqa: B018 - it has seen the branch alive
        actor.graph.branch.delete("side")
        to_the_end(actor, keep=1)
        stream = side.publisher.head.stream
        assert all(isinstance(side.runtime.records(stream).get(seq), Stub) for seq in range(3))
        with pytest.raises(NotFound) as closed:
            late.apply(person("y"))
        assert closed.value.code == "branch_closed"
        with pytest.raises(NotFound):
            world.actor(branch="side")
        file_of(world, "__branches/side/00000001.json").unlink()
        with pytest.raises(NotFound):
            world.actor(branch="side")
        assert actor.graph.branch.create("side").branch_name == "side"
        assert world.reader().graph.verify().ok

    def test_streams_that_never_became_branches_go(self, world: World) -> None:  # H32
        actor = _some_history(world, 2)
        maker = world.actor()

        def die(name: str) -> None:
            if name == "branch.create.before-registry":
                raise Died

        maker.pauses.reach = die  # type: ignore[method-assign]
        with pytest.raises(Died):
            maker.graph.branch.create("never")
        report = collect(actor, horizon_s=3600)
        assert report.closes == ()
        _age(world, "__manifest", 3601)
        assert collect(actor, horizon_s=3600).closes == ("never",)
        to_the_end(actor)
        assert [problem.code for problem in world.reader().graph.verify().problems] == []
        actor.graph.branch.create("never")

    def test_a_branch_whose_registry_entry_is_lost_stays(self, world: World) -> None:
        actor = _some_history(world, 2)
        actor.graph.branch.create("side")
        side = world.actor(branch="side", inline_share=0)
        side.apply(person("x"))
        commit = side.head.commit_id
        before = readable(world, [commit])
        file_of(world, "__branches/side/00000000.json").unlink()
        to_the_end(actor, keep=1)
        assert readable(world, [commit]) == before


class TestRefusal:
    @pytest.mark.parametrize("damage", ["version", "record", "tag", "registry", "lease", "schema", "gap"])
    def test_one_root_that_cannot_be_read(self, world: World, damage: str) -> None:  # S130
        actor = _some_history(world)
        actor.graph.branch.create("side", history(actor)[3])
        actor.graph.tags.create("v1", history(actor)[4])
        take_lease(actor.runtime, history(actor)[5], 3600)
        garbage = _garbage(world)
        collect(actor, keep=100)
        _break(world, actor, damage)
        before, seq = files(world, "."), len(files(world, f"__manifest/{actor.publisher.head.stream}"))
        with pytest.raises(Corruption) as refused:
            collect(actor, 1, keep=1)
        assert refused.value.code == "cleanup_refused"
        assert files(world, ".") == before
        assert len(files(world, f"__manifest/{actor.publisher.head.stream}")) == seq
        assert garbage <= files(world)
        with pytest.raises(Corruption):
            Cleanup(actor.runtime, replace(AT_ONCE, keep=1)).preview()

    def test_a_lock_that_was_left_behind_hides_no_damage(self, world: World) -> None:
        actor = _some_history(world)
        actor.runtime.backend.store.put(LOCK, b"a collector that died")
        os.utime(file_of(world, LOCK), (0, 0))
        actor.graph.branch.create("side", history(actor)[3])
        _break(world, actor, "version")
        with pytest.raises(Corruption) as refused:
            Cleanup(actor.runtime, replace(AT_ONCE, keep=1)).preview()
        assert refused.value.code == "cleanup_refused"

    def test_a_store_that_does_not_answer_deletes_nothing(self, world: World) -> None:
        actor = _some_history(world)
        garbage = _garbage(world)
        collect(actor, 1)

        class Silent:
            def __init__(self, inner: Store) -> None:
                self.inner = inner

            def __getattr__(self, name: str) -> Any:
                return getattr(self.inner, name)

            def list(self, prefix: str, **options: Any) -> list[ObjectInfo]:
                if prefix == "__tags/":
                    raise Unavailable("no answer")
                return self.inner.list(prefix, **options)

        with pytest.raises(Unavailable):
            collect(world.actor(wrap=Silent), 1)
        assert garbage <= files(world)
        assert files(world, "__locks") == set()


def _break(world: World, actor: Actor, damage: str) -> None:
    table = actor.snapshot().type("Person").id
    match damage:
        case "version":
            head = actor.runtime.branch("side").publisher.head
            file_of(world, f"tables/{table}/_versions/d{head.pins[table].version}.manifest").unlink()
        case "record":
            path = file_of(world, record_key(actor.head.stream, 2))
            path.write_bytes(path.read_bytes()[:-5])
        case "tag":
            file_of(world, "__tags/v1/00000000.json").write_text("")
        case "registry":
            file_of(world, "__branches/side/00000000.json").write_text("{}")
        case "lease":
            file_of(world, next(iter(files(world, "__leases")))).write_text("?")
        case "schema":
            actor.runtime.catalogs._known.clear()
            file_of(world, f"schemas/{actor.head.schema}.json").unlink()
        case "gap":
            file_of(world, record_key(actor.head.stream, 2)).unlink()


class TestRaces:
    def test_a_writer_that_staged_before_the_mark(self, world: World) -> None:  # S131, S161, H35
        actor = _some_history(world)
        actor.graph.branch.create("idle")
        writer = world.actor(branch="idle", inline_share=0)
        before = files(world)
        with writer.hold_at("write.before-record", lambda: writer.apply(person("paused", 4))) as late:
            staged = files(world) - before
            assert staged
            to_the_end(actor, keep=1)
            assert not staged & files(world)
        receipt = late.result()
        assert receipt.attempts > 1
        assert world.ages("idle")["paused"] == 4
        assert world.reader().graph.verify(deep=True).ok

    def test_a_paused_writer_whose_base_was_collected(self, world: World) -> None:  # S41, H23
        actor = _some_history(world)
        inline, staged = world.actor(), world.actor(inline_share=0)
        with (
            inline.hold_at("write.before-record", lambda: inline.apply(person("one", 1))) as first,
            staged.hold_at("write.before-record", lambda: staged.apply(person("two", 2))) as second,
        ):
            for step in range(6):
                actor.apply(person(f"more{step}"))
            to_the_end(actor, keep=1)
        for late in (first, second):
            commit = late.result().commit_id
            assert commit is not None
            assert readable(world, [commit])[commit] is not None
        assert {"one", "two"} <= world.ages().keys()
        assert world.reader().graph.verify(deep=True).ok

    def test_a_fold_and_an_optimize_that_staged_before_the_mark(self, world: World) -> None:  # H35
        actor = make_scattered(world)
        second_actor = world.actor()
        for point, work in (
            ("fold.before-record", second_actor.graph.fold),
            ("optimize.before-record", second_actor.graph.optimize),
        ):
            second_actor.apply(person(f"by-{point}"))
            expected = contents(second_actor)
            with second_actor.hold_at(point, work) as late:
                to_the_end(actor, keep=1)
            late.result()
            assert contents(world.reader()) == expected
            assert world.reader().graph.verify(deep=True).ok

    @pytest.mark.parametrize("asks_only", [False, True], ids=["run", "preview"])
    def test_a_second_collector_is_no_damage(self, world: World, asks_only: bool) -> None:
        """It has taken over the lock and deletes what the first one has seen."""
        actor = _some_history(world)
        collect(actor, keep=1)
        policy = replace(AT_ONCE, keep=1, lock_stale_s=3600 if asks_only else 0)
        first, second = Cleanup(actor.runtime, policy), Cleanup(world.actor().runtime, policy)
        listing = first._list_sweepable

        def overtaken() -> list[ObjectInfo]:
            assert second.run().archived
            if asks_only:
                actor.runtime.backend.store.put(LOCK, b"a third one")
            return listing()

        first._list_sweepable = overtaken  # type: ignore[method-assign]
        with pytest.raises(Unavailable) as raised:
            first.preview() if asks_only else first.run()
        assert raised.value.code == "cleanup_running"
        assert world.reader().graph.verify(deep=True).ok

    @pytest.mark.parametrize("point", ["cleanup.fenced", "cleanup.stubbed", "cleanup.listed", "cleanup.marked"])
    @pytest.mark.parametrize("name", ["tag", "branch", "lease"])
    def test_whoever_protects_a_commit_meanwhile_is_seen_or_refused(  # H33
        self, world: World, point: str, name: str
    ) -> None:
        actor = _some_history(world)
        old = history(actor)[-3]
        before = readable(world, [old])[old]
        second_actor = world.actor()
        protect: Callable[[], object] = {
            "tag": lambda: second_actor.graph.tags.create("v1", old),
            "branch": lambda: second_actor.graph.branch.create("side", old),
            "lease": lambda: take_lease(second_actor.runtime, old, 3600),
        }[name]
        refused = False
        with actor.hold_at(point, lambda: collect(actor, keep=1)) as running:
            try:
                protect()
            except SnapshotExpired:
                refused = True
        running.result()
        assert refused == (point != "cleanup.fenced")
        for _ in range(4):
            if not refused:
                assert readable(world, [old]) == {old: before}
            collect(actor, keep=1)
        assert world.reader().graph.verify(deep=True).ok

    @pytest.mark.parametrize("point", ["tag.create.written", "branch.create.before-registry"])
    def test_whoever_wrote_a_name_and_has_not_looked_again_yet(self, world: World, point: str) -> None:  # H33
        actor = _some_history(world)
        old = history(actor)[-3]
        before = readable(world, [old])[old]
        second_actor = world.actor()
        work: Callable[[], object] = (
            (lambda: second_actor.graph.tags.create("v1", old))
            if point.startswith("tag")
            else (lambda: second_actor.graph.branch.create("side", old))
        )
        with second_actor.hold_at(point, work) as late:
            collect(actor, 4, keep=1, horizon_s=3600)
        late.result()
        assert readable(world, [old]) == {old: before}
        assert world.reader().graph.verify(deep=True).ok

    def test_a_tag_whose_maker_died_brings_its_commit_back_while_its_body_is_there(self, world: World) -> None:
        actor = _some_history(world)
        old = history(actor)[-3]
        before = readable(world, [old])
        slow = {"keep": 1, "horizon_s": 3600}
        collect(actor, 2, **slow)
        _age(world, "__trash", 3601)
        collect(actor, 1, **slow)
        assert readable(world, [old]) == {old: None}
        Tags(actor.runtime)._append("v1", 0, Tag("v1", old, None, None, ""))
        collect(actor, 1, **slow)
        assert readable(world, [old]) == before
        assert world.reader().graph.verify(deep=True).ok

    @pytest.mark.parametrize("lists", ["as they are", "in disorder"])
    def test_a_commit_that_was_brought_back_can_be_collected_again(self, world: World, lists: str) -> None:  # H33
        """Though the run that brought it back died before it told, or its list seems to be older than another."""
        actor = _some_history(world)
        old = history(actor)[-3]
        before = readable(world, [old])
        _garbage(world)  # so that the first list is still needed when the second is written
        slow = {"keep": 1, "horizon_s": 3600}
        collect(actor, 2, **slow)
        Tags(actor.runtime)._append("v1", 0, Tag("v1", old, None, None, ""))
        dying = world.actor()

        def die(name: str) -> None:
            if name == "cleanup.listed":
                raise Died

        if lists == "as they are":
            dying.pauses.reach = die  # type: ignore[method-assign]
            with pytest.raises(Died):
                collect(dying, **slow)
            _age(world, "__locks", 3601)
        else:
            trash_before = files(world, "__trash")
            collect(actor, **slow)
            (newest,) = files(world, "__trash") - trash_before
            os.utime(file_of(world, newest), (0, 0))
        assert readable(world, [old]) == before
        actor.graph.tags.delete("v1")
        to_the_end(actor, keep=1)
        assert readable(world, [old]) == {old: None}
        assert find_unnamed_files(world) == []
        assert world.reader().graph.verify(deep=True).ok

    def test_a_tag_whose_commit_is_gone_for_good_is_told(self, world: World) -> None:
        actor = _some_history(world)
        old = history(actor)[-3]
        to_the_end(actor, keep=1)
        Tags(actor.runtime)._append("v1", 0, Tag("v1", old, None, None, ""))
        actor.apply(person("x"))
        assert collect(actor, keep=1).lost == {old: "tag v1"}
        assert [error.code for error in world.reader().graph.verify().errors] == ["tag_broken"]

    def test_a_branch_that_comes_too_late_does_not_block_cleanup_for_ever(self, world: World) -> None:
        actor = _some_history(world)
        old = history(actor)[-3]
        source = actor.runtime.records(actor.head.stream).record(int(old.rpartition(".")[2]))
        to_the_end(actor, keep=1)
        with pytest.raises(SnapshotExpired):
            actor.runtime.create_branch("late", source, WriteOptions())
        to_the_end(actor, keep=1)
        assert [problem.code for problem in world.reader().graph.verify().problems] == []

    def test_readers_of_what_is_retained_notice_nothing(self, world: World) -> None:  # S131
        actor = _some_history(world)
        view = world.reader().graph.view()
        expected = sorted(map(str, view.table("Person").to_arrow().to_pylist()))
        cold = world.reader().graph.view()
        to_the_end(actor, keep=1)
        for reader in (view, cold):
            assert sorted(map(str, reader.table("Person").to_arrow().to_pylist())) == expected

    def test_of_two_collectors_one_works(self, world: World) -> None:
        first_actor, second_actor = _some_history(world), world.actor()
        with first_actor.hold_at("cleanup.marked", lambda: collect(first_actor, keep=1)) as running:
            with pytest.raises(Unavailable) as raised:
                collect(second_actor, keep=1)
            assert raised.value.code == "cleanup_running"
            _age(world, "__locks", 3601)
            collect(second_actor, 3, keep=1)  # the first one seems to be dead
        running.result()
        to_the_end(second_actor, keep=1)
        assert world.reader().graph.verify(deep=True).ok
        assert not (Path(world.path) / LOCK).exists()

    def test_a_stream_that_another_writer_holds(self, world: World) -> None:
        actor = _some_history(world)
        actor.graph.branch.create("held", history(actor)[2])
        holder = world.actor(branch="held")
        claim = holder.runtime.claim(holder.branch, WriteOptions())
        owner = Graph(holder.runtime, holder.branch, holder=claim)
        for step in range(3):
            owner.apply([person(f"own{step}")])
        garbage = _garbage(world)
        before = readable(world, [commit for commit in history(holder) if commit.startswith(holder.head.stream)])
        report = collect(actor, 4, keep=1)
        assert report.unfenced == ("held",)
        assert garbage <= files(world)  # they might be the holder's
        assert readable(world, list(before)) == before
        for _ in range(4):
            assert owner.cleanup(confirm=True, policy=replace(AT_ONCE, keep=1)).unfenced == ()
        assert not garbage & files(world)
        assert None in readable(world, list(before)).values()


class TestCrashes:
    @pytest.fixture
    def grown_world(self, world: World) -> World:
        """Something in every stage: commits to collect, bodies in the archive, files condemned, files due."""
        actor = _some_history(world, 3)
        actor.graph.tags.create("v1", history(actor)[2])
        _garbage(world)
        collect(actor, 2, keep=3)
        _garbage(world)
        actor.graph.branch.create("gone")
        world.actor(branch="gone").apply(person("x"))
        actor.graph.branch.delete("gone")
        actor.apply(person("more"))
        return world

    def _dies(self, grown_world: World, path: Path, at: int) -> bool:
        """Run with a death at the n-th effect on a copy; False if it came through."""
        shutil.copytree(grown_world.path, path / "graph")
        world = World.__new__(World)
        world.__dict__.update(grown_world.__dict__, path=str(path / "graph"), _actors=[], _pauses=[])
        dying = world.actor(wrap=Dying)
        store = dying.runtime.backend.store
        assert isinstance(store, Dying)
        before = readable(world, history(dying))
        store.left = at
        died = False
        try:
            collect(dying, keep=1)
        except Died:
            died = True
        assert_whole(world, before)
        _age(world, "__locks", 4000)
        to_the_end(world.actor(), keep=1)
        assert_whole(world, before)
        assert find_unnamed_files(world) == []
        shutil.rmtree(path)
        return died

    def test_at_an_effect_and_a_second_run_converges(  # S132
        self, grown_world: World, tmp_path: Path, sweep_seed: int
    ) -> None:
        draw = random.Random(sweep_seed)
        for number in sorted(draw.sample(range(1, 20), 4)):
            assert self._dies(grown_world, tmp_path / f"at{number}", number), number

    @pytest.mark.slow
    def test_at_every_effect(self, grown_world: World, tmp_path: Path) -> None:  # S132
        number = 1
        while self._dies(grown_world, tmp_path / f"at{number}", number):
            number += 1
        assert number > 20

    def test_one_file_that_cannot_be_deleted_does_not_stop_the_others(self, world: World) -> None:  # S132
        actor = make_scattered(world)
        garbage = _garbage(world)
        stubborn = next(file for file in sorted(garbage) if "/data/" in file)

        class Stubborn:
            def __init__(self, inner: Store) -> None:
                self.inner = inner

            def __getattr__(self, name: str) -> Any:
                return getattr(self.inner, name)

            def delete(self, key: str) -> None:
                if key == stubborn:
                    raise Unavailable("locked by somebody")
                self.inner.delete(key)

        collect(actor)
        report = collect(world.actor(wrap=Stubborn))
        assert list(report.failures) == [stubborn]
        assert garbage & files(world) == {stubborn}
        to_the_end(actor)
        assert not garbage & files(world)


class Died(BaseException):
    """What kill -9 would have been."""


class Dying:
    """A store whose process dies at the n-th effect from when `left` is set; some effects have happened then."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.left: int | None = None

    def __getattr__(self, name: str) -> Any:
        attr = getattr(self.inner, name)
        if name not in ("put", "put_if_absent", "delete"):
            return attr

        def effect(*arguments: Any) -> Any:
            if self.left is None:
                return attr(*arguments)
            self.left -= 1
            if self.left == 0 and len(arguments[0]) % 2:
                attr(*arguments)
            if self.left <= 0:
                raise Died  # also from then on: a dead process does nothing more
            return attr(*arguments)

        return effect
