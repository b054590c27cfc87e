"""Merges while branches move: the source is captured, the target is followed, a re-created one is refused. S78–S80."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.api import Graph, make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.config import Config
from omnigraph.errors import BranchClosed, MergeConflict, NotFound
from tests.history.bed import MergeBed, change, content, kinds_of, knows, remove, rows
from tests.support.pauses import ControlledPauses

Actor = tuple[Graph, ControlledPauses]


def actor(path: Path, inline_share: float | None = None) -> Actor:
    """Another process on the same graph, which stops where a test wants it to."""
    pauses = ControlledPauses()
    config = (
        Config(fsync=False, fold="never") if inline_share is None else Config(fsync=False, fold="never", inline_share=0)
    )
    runtime = GraphRuntime.open(make_backend(str(path), None, config, pauses=pauses), read_only=False)
    return Graph(runtime, runtime.branch("main")), pauses


@pytest.fixture(params=["inline", "staged"])
def merger(request: pytest.FixtureRequest, bed: MergeBed) -> Actor:
    bed.fork("work").apply([change("Alice", age=1)])
    return actor(bed.place, 0 if request.param == "staged" else None)


POINTS = ["write.captured", "write.validated", "write.before-record"]


@pytest.mark.parametrize("point", POINTS)
def test_a_source_that_moves_on_is_merged_as_it_was(bed: MergeBed, merger: Actor, point: str) -> None:
    graph, pauses = merger
    pauses.call_at(point, lambda: bed.on("work").apply([change("Alice", age=2)]))
    assert graph.branch.merge("work").outcome == "fast_forward"
    assert rows(bed.main, "Person")["Alice"]["age"] == 1
    assert bed.merge("work").outcome == "merged"
    assert rows(bed.main, "Person")["Alice"]["age"] == 2


@pytest.mark.parametrize("point", POINTS)
def test_a_target_that_moves_on_elsewhere_keeps_its_change(bed: MergeBed, merger: Actor, point: str) -> None:
    graph, pauses = merger
    pauses.call_at(point, lambda: bed.main.apply([change("Bob", age=5)]))
    assert graph.branch.merge("work").outcome == "merged"
    assert {name: rows(bed.main, "Person")[name]["age"] for name in ("Alice", "Bob")} == {"Alice": 1, "Bob": 5}
    assert len(bed.main.commits(1)[0].parents) == 2


@pytest.mark.parametrize("point", POINTS)
def test_a_target_that_changes_the_same_row_makes_a_conflict(bed: MergeBed, merger: Actor, point: str) -> None:
    graph, pauses = merger
    pauses.call_at(point, lambda: bed.main.apply([change("Alice", age=7)]))
    with pytest.raises(MergeConflict) as caught:
        graph.branch.merge("work")
    assert kinds_of(caught.value.conflicts) == [("divergent_update", "Alice")]
    assert rows(bed.main, "Person")["Alice"]["age"] == 7


def test_a_target_that_makes_the_same_change_meanwhile(bed: MergeBed, merger: Actor) -> None:
    graph, pauses = merger
    pauses.call_at("write.before-record", lambda: bed.main.apply([change("Alice", age=1)]))
    assert graph.branch.merge("work").counts["updated"] == 0
    assert rows(bed.main, "Person")["Alice"]["age"] == 1


def test_the_same_merge_by_two_processes_lands_once(bed: MergeBed, merger: Actor) -> None:
    graph, pauses = merger
    pauses.call_at("write.before-record", lambda: bed.merge("work"))
    assert graph.branch.merge("work").outcome == "already_up_to_date"
    assert [commit.kind for commit in bed.main.commits(3)].count("merge") == 1


def test_an_edge_to_a_node_that_the_merge_deletes(bed: MergeBed, merger: Actor) -> None:
    graph, pauses = merger
    bed.on("work").apply([remove("Dan")])
    pauses.call_at("write.before-record", lambda: bed.main.apply([knows("Alice", "Dan", "a-d")]))
    with pytest.raises(MergeConflict) as caught:
        graph.branch.merge("work")
    assert kinds_of(caught.value.conflicts) == [("orphan_edge", "a-d")]


def test_a_node_deleted_to_which_the_merge_brings_an_edge(bed: MergeBed, merger: Actor) -> None:
    graph, pauses = merger
    bed.on("work").apply([knows("Alice", "Dan", "a-d")])
    pauses.call_at("write.before-record", lambda: bed.main.apply([remove("Dan")]))
    with pytest.raises(MergeConflict) as caught:
        graph.branch.merge("work")
    assert kinds_of(caught.value.conflicts) == [("orphan_edge", "a-d")]


@pytest.mark.parametrize("point", POINTS)
def test_a_target_deleted_and_made_again_is_refused(bed: MergeBed, merger: Actor, point: str) -> None:
    graph, pauses = merger
    bed.fork("goal").apply([change("Carol", age=3)])

    def replace() -> None:
        bed.main.branch.delete("goal")
        bed.fork("goal")

    pauses.call_at(point, replace)
    with pytest.raises(BranchClosed):
        graph.branch.merge("work", "goal")
    assert content(bed.on("goal")) == content(bed.main)


@pytest.mark.parametrize("point", POINTS)
def test_a_source_deleted_meanwhile_was_captured(bed: MergeBed, merger: Actor, point: str) -> None:
    graph, pauses = merger
    pauses.call_at(point, lambda: bed.main.branch.delete("work"))
    graph.branch.merge("work")
    assert rows(bed.main, "Person")["Alice"]["age"] == 1
    with pytest.raises(NotFound):
        bed.merge("work")


def test_a_fold_of_the_target_meanwhile(bed: MergeBed, merger: Actor) -> None:
    # H1: the fold must not take the row of the merge for the one that it folded.
    graph, pauses = merger
    bed.main.apply([change("Bob", age=4)])
    pauses.call_at("write.before-record", lambda: bed.main.fold())
    graph.branch.merge("work")
    assert {name: rows(bed.main, "Person")[name]["age"] for name in ("Alice", "Bob")} == {"Alice": 1, "Bob": 4}


def test_a_merge_lands_while_a_fold_is_under_way(bed: MergeBed) -> None:
    # H1: main and the branch write the same row at the same seq of their streams.
    bed.main.apply([change("Alice", age=7)])
    bed.fork("work").apply([change("Alice", age=99)])
    graph, pauses = actor(bed.place)
    pauses.call_at("fold.before-record", lambda: bed.merge("work"))
    graph.fold()
    assert rows(bed.main, "Person")["Alice"]["age"] == 99
    bed.main.fold()
    assert rows(bed.main, "Person")["Alice"]["age"] == 99


def test_the_branch_is_not_deleted_with_commits_that_were_not_merged(bed: MergeBed, merger: Actor) -> None:
    graph, pauses = merger
    pauses.call_at("write.before-record", lambda: bed.on("work").apply([change("Alice", age=2)]))
    graph.branch.merge("work", delete_branch=True)
    assert "work" in bed.main.branch.list()
    assert bed.merge("work", delete_branch=True).outcome == "merged"
    assert bed.main.branch.list() == ["main"]
