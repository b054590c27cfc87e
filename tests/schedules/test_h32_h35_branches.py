"""H32 to H35: branches, forks of collected commits, birth of a graph, the fence of cleanup."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.api import Graph, make_backend
from omnigraph.commit.birth import GraphExists, init_graph
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.config import Config
from omnigraph.errors import BranchClosed, InvalidInput, NotFound, SnapshotExpired
from omnigraph.log.branches import BranchExists
from omnigraph.log.commit_record import Stub
from omnigraph.log.stream import record_key
from omnigraph.schema.compile import compile_schema
from omnigraph.storage.keys import KeyClass
from omnigraph.storage.metering import RequestKind
from omnigraph.upkeep.cleanup.cleanup import Cleanup
from omnigraph.upkeep.cleanup.retention import Policy
from tests.schedules.guarded import run_without_rules
from tests.schedules.world import SCHEMA, WAIT_S, World, person, set_age
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore
from tests.support.pauses import ControlledPauses


class _Crash(Exception):
    """The process dies here, as far as the store can tell."""


def _delete_half(world: World) -> None:
    """`dev` is closed, and the registry does not know."""
    crashing = world.actor()
    crashing.pauses.fail_at("branch.delete.before-registry", _Crash())
    with pytest.raises(_Crash):
        crashing.graph.branch.delete("dev")


@run_without_rules("close-fence")
def test_h32_a_writer_in_flight_is_fenced_by_the_close(world: World) -> None:
    """No record after `close`. H32"""
    main = world.actor()
    main.graph.branch.create("dev")
    writer = world.actor(branch="dev")
    with writer.hold_at("write.before-record", lambda: writer.apply(person("x"))) as late:
        main.graph.branch.delete("dev")
    with pytest.raises(BranchClosed):
        late.result(WAIT_S)
    world.assert_sound()


@run_without_rules("close-fence")
def test_h32_a_fold_in_flight_is_fenced_by_the_close(world: World) -> None:
    """Nothing lands after `close`, not even what changes nothing. H32"""
    main = world.actor()
    main.graph.branch.create("dev")
    folder = world.actor(branch="dev")
    folder.apply(person("x"))
    with folder.hold_at("fold.before-record", folder.graph.fold) as late:
        main.graph.branch.delete("dev")
    assert late.exception(WAIT_S) is None or isinstance(late.exception(), BranchClosed)
    world.assert_sound()


@run_without_rules("bury")
def test_h32_whoever_opens_a_closed_branch_completes_its_deletion(world: World) -> None:
    """A crash between the close record and the registry. H32"""
    main = world.actor()
    main.graph.branch.create("dev")
    _delete_half(world)
    opener = world.actor()
    with pytest.raises(NotFound):
        opener.graph.on_branch("dev")
    assert opener.graph.branch.list() == ["main"]


@run_without_rules("bury")
def test_h32_a_half_deleted_name_can_be_used_again(world: World) -> None:
    """The same crash, and the next one wants to create the branch. H32"""
    main = world.actor()
    main.graph.branch.create("dev")
    _delete_half(world)
    main.apply(person("x", 1))
    world.actor().graph.branch.create("dev")
    assert world.ages("dev") == {"x": 1}


def test_h32_an_end_entry_that_did_not_land_is_written_again(world: World) -> None:
    """409 on the registry's PUT: "exists" without effect. H25, H32"""
    world.actor().graph.branch.create("dev")
    plan = FaultPlan.at(1, Fault.EXISTS_WITHOUT_EFFECT, kinds=[RequestKind.PUT], key_classes=[KeyClass.REGISTRY])
    deleter = world.actor(wrap=lambda store: FaultyStore(store, plan))
    deleter.graph.branch.delete("dev")
    assert plan.hits
    assert world.actor().graph.branch.list() == ["main"]


def test_h32_a_crash_before_the_registry_leaves_no_branch(world: World) -> None:
    """Record 0 without a registry entry is garbage that nobody sees; the name is free. H32"""
    crashing = world.actor()
    crashing.pauses.fail_at("branch.create.before-registry", _Crash())
    with pytest.raises(_Crash):
        crashing.graph.branch.create("dev")
    actor = world.actor()
    assert actor.graph.branch.list() == ["main"]
    actor.graph.branch.create("dev")
    assert actor.graph.branch.list() == ["dev", "main"]


def test_h32_a_handle_of_an_old_incarnation_never_follows_the_name(world: World) -> None:
    """The branch was deleted and made again: the old handle is told, also by reads. H32"""
    main = world.actor()
    main.graph.branch.create("dev")
    old = world.actor(branch="dev")
    old.apply(person("x", 1))
    main.graph.branch.delete("dev")
    main.graph.branch.create("dev")
    world.actor(branch="dev").apply(person("y", 2))
    with pytest.raises(BranchClosed):
        old.apply(set_age("y", 3))
    with pytest.raises(BranchClosed):
        old.graph.table("Person")
    assert world.ages("dev") == {"y": 2}


def test_h32_two_creators_of_one_name(world: World) -> None:
    """One wins, the other is told; the loser's stream is garbage. H32"""
    first, second = world.actor(), world.actor()
    with first.hold_at("branch.create.before-registry", lambda: first.graph.branch.create("dev")) as late:
        second.graph.branch.create("dev")
    with pytest.raises(BranchExists):
        late.result(WAIT_S)
    assert first.graph.branch.list() == ["dev", "main"]


def test_h32_names_that_differ_only_by_case_are_refused(world: World) -> None:
    """They would be one directory on some file systems. H32"""
    main = world.actor()
    main.graph.branch.create("Feature/a b".replace(" ", "-"))
    with pytest.raises(BranchExists):
        main.graph.branch.create("feature/A-B")
    with pytest.raises(InvalidInput):
        main.graph.branch.create("MAIN")
    with pytest.raises(NotFound):
        main.graph.on_branch("feature/a-b")


@run_without_rules("look-after-fork")
def test_h33_a_fork_of_a_commit_that_is_collected_meanwhile_fails(world: World) -> None:
    """Record 0 is written, then cleanup stubs the source, then the fork looks again. H33"""
    main = world.actor()
    old = main.apply(person("x", 1)).commit_id
    main.apply(person("x", 2))
    source = main.runtime.records(main.head.stream).record(1)
    with main.hold_at("branch.create.before-registry", lambda: main.graph.branch.create("dev", old)) as late:
        main.runtime.backend.store.put(record_key(source.stream, source.seq), Stub(source.header).encode())
    with pytest.raises(SnapshotExpired):
        late.result(WAIT_S)
    assert world.actor().graph.branch.list() == ["main"]


@run_without_rules("list-again")
def test_h33_cleanup_sees_a_fork_that_has_not_looked_yet(world: World) -> None:
    """Cleanup knows its roots, record 0 of a fork is written, its source is collected, listed again, put back. H33"""
    main, cleaner = world.actor(), world.actor()
    old = main.apply(person("x", 1)).commit_id
    for age in range(2, 6):
        main.apply(set_age("x", age))
    policy = Policy(keep=1, margin_s=0, horizon_s=3600, newest_records=1)
    with main.pauses.hold("branch.create.before-registry") as hold:
        with cleaner.hold_at("cleanup.fenced", Cleanup(cleaner.runtime, policy).run) as cleaning:
            late = world.start(lambda: main.graph.branch.create("dev", old))
            hold.wait_reached(WAIT_S)
        assert cleaning.result(WAIT_S).expired
    late.result(WAIT_S)
    assert world.ages("dev") == {"x": 1}
    assert world.ages() == {"x": 5}


@run_without_rules("complete-birth")
def test_h34_a_stamp_without_record_0_is_completed(world: World) -> None:
    """`init` dies after graph.json: the graph opens, and cannot be made twice. H34"""
    path = str(Path(world.path).parent / "half")
    pauses = ControlledPauses()
    pauses.fail_at("init.stamped", _Crash())
    config = Config(fsync=False)
    catalog = compile_schema(SCHEMA, mint=iter(f"token{number:03d}" for number in range(1000)).__next__)
    with pytest.raises(_Crash):
        init_graph(make_backend(path, None, config, pauses=pauses), catalog)
    with pytest.raises(GraphExists):
        init_graph(make_backend(path, None, config), catalog)
    sites = [GraphRuntime.open(make_backend(path, None, config), read_only=False) for _ in range(2)]
    graphs = [Graph(runtime, runtime.branch("main")) for runtime in sites]
    for number, graph in enumerate(graphs):
        graph.apply([person(f"p{number}")])
    assert graphs[0].table("Person").count() == 2
    assert len({opened_graph.commits(limit=None)[-1].commit_id for opened_graph in graphs}) == 1


def _files(world: World) -> set[Path]:
    return {path for path in (Path(world.path) / "tables").rglob("*") if path.is_file()}


@run_without_rules("gc-fence")
def test_h35_what_was_staged_before_the_fence_is_not_named_after_it(world: World) -> None:
    """A staged writer pauses; cleanup fences and sweeps what nobody names; the writer stages again. H35"""
    seeder = world.actor()
    seeder.apply(person("z", 1))
    seeder.graph.fold()
    stager, cleaner = world.actor(inline_share=0), world.actor()
    files = _files(world)
    with stager.hold_at("write.before-record", lambda: stager.apply(person("x", 1), person("y", 1))) as late:
        assert cleaner.gc_record() is not None
        for unnamed in _files(world) - files:
            unnamed.unlink()
    receipt = late.result(WAIT_S)
    assert world.ages() == {"x": 1, "y": 1, "z": 1}
    assert receipt.attempts == 2
    world.assert_sound()


@run_without_rules("gc-fence")
def test_h35_a_fold_staged_before_the_fence_stops(world: World) -> None:
    """Folding is never worth a risk: the entries stay where they are. H35"""
    folder, cleaner = world.actor(), world.actor()
    folder.apply(person("z", 1))
    folder.graph.fold()
    folder.apply(person("x", 1))
    files = _files(world)
    with folder.hold_at("fold.before-record", folder.graph.fold) as late:
        cleaner.gc_record()
        for unnamed in _files(world) - files:
            unnamed.unlink()
    folded = late.result(WAIT_S)
    assert world.ages() == {"x": 1, "z": 1}
    assert folded is None


def test_h35_inline_changes_pass_the_fence(world: World) -> None:
    """They name no file. H35"""
    writer, cleaner = world.actor(), world.actor()
    with writer.hold_at("write.before-record", lambda: writer.apply(person("x", 1))) as late:
        cleaner.gc_record()
    assert late.result(WAIT_S).attempts == 1
    assert world.ages() == {"x": 1}


@run_without_rules("gc-honours")
def test_h35_an_honoured_operation_keeps_what_it_staged(world: World) -> None:
    """Cleanup marked its files, so nothing has to be staged again. H35"""
    stager, cleaner = world.actor(inline_share=0), world.actor()
    with stager.hold_at("write.before-record", lambda: stager.apply(person("x", 1))) as late:
        [ticket] = stager.publisher._queue
        cleaner.gc_record(ticket.plan.op_id)
    assert late.result(WAIT_S).attempts == 1
    assert world.ages() == {"x": 1}
