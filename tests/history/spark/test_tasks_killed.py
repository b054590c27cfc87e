"""A large merge while the target moves, and after its driver was killed: nothing half, nothing lost. H36, H38–H40, S91.

The tasks of the Spark plane run in the driver's process here; tests/spark has it with a real session.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import MergeConflict
from omnigraph.storage.open_backend import make_backend
from tests.history.bed import QUIET, Content, MergeBed, change, content, knows, people, person, remove, rows
from tests.history.dying import merge_until_killed
from tests.history.here import HereSession
from tests.intents.intent_actor import age, audits
from tests.support.pauses import ControlledPauses
from tests.support.processes import Workers

MERGED = {"Alice": 1, "Bob": 2, "Carol": None, "Eve": 5}


@pytest.fixture
def diverged_bed(tmp_path: Path) -> MergeBed:
    """Rows of the target in files and in the record; the source changes, removes and adds some of either."""
    bed = MergeBed.make(tmp_path / "graph")
    bed.main.apply([*people("Alice", "Bob", "Carol", "Dan"), knows("Bob", "Carol", "b-c"), knows("Dan", "Bob", "d-b")])
    bed.main.fold()
    bed.main.apply([person("Zed", age=9)])
    bed.fork("work").apply([change("Alice", age=1), remove("Dan"), remove("Zed"), person("Eve", age=5)])
    bed.main.apply([change("Bob", age=2)])
    return bed


def ages(graph: Graph) -> dict[str, int | None]:
    return {name: row["age"] for name, row in rows(graph.view(fresh=True), "Person").items()}


def check_merged(graph: Graph) -> None:
    assert ages(graph) == MERGED
    assert set(rows(graph, "Knows")) == {"b-c"}
    assert graph.verify(deep=True).ok


def merging(bed: MergeBed) -> tuple[Callable[[], object], ControlledPauses]:
    pauses = ControlledPauses()
    runtime = GraphRuntime.open(make_backend(str(bed.place), None, QUIET, pauses=pauses), read_only=False)
    graph, session = Graph(runtime, runtime.branch("main")), HereSession()
    return lambda: graph.branch.merge("work", engine="spark", spark=session, progress=False), pauses  # type: ignore[arg-type]


def tidy(path: Path) -> None:
    """By another process, which leaves dead operations alone."""
    main = og.open(path, config=QUIET, recover=False)
    main.fold()
    main.optimize()


@pytest.mark.parametrize("point", ["merge.staged", "merge.checked", "intent.confirmed", "write.before-record"])
def test_folded_and_compacted_meanwhile(diverged_bed: MergeBed, point: str) -> None:
    """Rows that the merge removes have moved into other files: they go all the same."""
    merge, pauses = merging(diverged_bed)
    pauses.call_at(point, lambda: tidy(diverged_bed.place))
    merge()
    check_merged(diverged_bed.main)


@pytest.mark.parametrize("point", ["merge.staged", "merge.checked", "intent.confirmed", "write.before-record"])
def test_written_meanwhile(diverged_bed: MergeBed, point: str) -> None:
    merge, pauses = merging(diverged_bed)
    pauses.call_at(point, lambda: diverged_bed.main.apply([change("Carol", age=8)]))
    merge()
    assert ages(diverged_bed.main) == {**MERGED, "Carol": 8}


def test_a_conflict_that_came_meanwhile(diverged_bed: MergeBed) -> None:
    merge, pauses = merging(diverged_bed)
    pauses.call_at("merge.checked", lambda: diverged_bed.main.apply([change("Alice", age=8)]))
    with pytest.raises(MergeConflict):
        merge()
    assert ages(diverged_bed.main)["Alice"] == 8
    assert [intent.state for intent in diverged_bed.main.recover_list()] == ["abandoned"]


@pytest.fixture(scope="module")
def dead_merge(tmp_path_factory: pytest.TempPathFactory) -> Callable[[MergeBed, str], Path]:
    """The graph after its merge was killed at a point; made once per point."""
    folder = tmp_path_factory.mktemp("dead-merge")
    graphs: dict[str, Path] = {}

    def make(bed: MergeBed, point: str) -> Path:
        if point not in graphs:
            graph_path = folder / point
            shutil.copytree(bed.place, graph_path)
            with Workers(
                merge_until_killed, 1, {"graph_path": str(graph_path), "point": point}, timeout_s=300
            ) as workers:
                workers.start()
                result = workers.wait(check=False)[0]
            assert result.exit_code == -signal.SIGKILL, f"it lived on: {result.value} {result.error}"
            graphs[point] = graph_path
        return graphs[point]

    return make


@pytest.fixture
def dead(dead_merge: Callable[[MergeBed, str], Path], diverged_bed: MergeBed, tmp_path: Path) -> Callable[[str], Path]:
    def copy(point: str) -> Path:
        graph_path = tmp_path / "dead"
        shutil.copytree(dead_merge(diverged_bed, point), graph_path)
        age(str(graph_path))
        return graph_path

    return copy


def read_content(path: Path) -> Content:
    return content(og.open(path, config=QUIET, recover=False))


@pytest.mark.parametrize("point", ["intent.opened", "merge.staged", "intent.staged"])
def test_killed_before_it_was_confirmed(diverged_bed: MergeBed, dead: Callable[[str], Path], point: str) -> None:
    graph_path = dead(point)
    assert read_content(graph_path) == content(diverged_bed.main)
    graph = og.open(graph_path, config=QUIET)
    (audit,) = audits(graph)
    assert (audit["recovery_kind"], audit["class"], audit["operation"]) == ("rolled_back", "unconfirmed", "merge")
    assert audit["recovery_for_actor"] == "etl"
    assert content(graph) == content(diverged_bed.main)
    assert graph.verify().ok
    assert graph.branch.merge("work").outcome == "merged"
    check_merged(graph)


@pytest.mark.parametrize("tidied", [False, True], ids=["as it was", "folded and compacted since"])
def test_killed_after_it_was_confirmed(dead: Callable[[str], Path], tidied: bool) -> None:
    graph_path = dead("intent.confirmed")
    if tidied:
        tidy(graph_path)
        age(str(graph_path))
    graph = og.open(graph_path, config=QUIET)
    (audit,) = audits(graph)
    assert (audit["recovery_kind"], audit["class"]) == ("rolled_forward", "confirmed")
    assert len(graph.at(audit["commit_id"]).state.record.header.parents) == 2
    check_merged(graph)
    assert graph.branch.merge("work").outcome == "already_up_to_date"


def test_killed_after_it_was_confirmed_and_others_wrote(dead: Callable[[str], Path]) -> None:
    graph_path = dead("intent.confirmed")
    og.open(graph_path, config=QUIET, recover=False).apply([change("Carol", age=8)])
    before = read_content(graph_path)
    age(str(graph_path))
    graph = og.open(graph_path, config=QUIET)
    assert [audit["class"] for audit in audits(graph)] == ["conflicting"]
    assert content(graph) == before
    assert graph.branch.merge("work").outcome == "merged"
    assert ages(graph) == {**MERGED, "Carol": 8}
