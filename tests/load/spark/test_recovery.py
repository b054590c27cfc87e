"""The driver of a load on Spark is killed, phase by phase; whoever opens the graph next needs no Spark. S149–S153"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.intents.recovery import RecoveryResult
from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode, Update
from tests.intents.intent_actor import age, audits, intents
from tests.load.spark.loading import ONE_TASK, contents, edge, load, new_graph, node, write_lines
from tests.spark.dying import load_until_killed
from tests.support.processes import Workers

PEOPLE = 9000

Dead = Callable[[str], str]


@pytest.fixture(scope="module")
def dead_load(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A graph with two people whose load of many more was killed at a point; made once per point."""
    folder = tmp_path_factory.mktemp("dead-load")
    file = write_lines(folder / "many.ndjson", _lines())
    assert file.stat().st_size > 1 << 20, "a load that is worth an intent"
    known: dict[str, Path] = {}

    def make(point: str) -> Path:
        if point not in known:
            place = folder / point
            graph = new_graph(place)
            load(
                graph,
                write_lines(folder / "few.ndjson", [node("Person", name="ada"), node("Person", name="bob")]),
                engine="local",
            )
            graph.fold()
            job = {"folder": str(place), "file": str(file), "point": point}
            with Workers(load_until_killed, 1, job, timeout_s=300) as workers:
                workers.start()
                result = workers.wait(check=False)[0]
            assert result.exit_code == -signal.SIGKILL, f"it lived on: {result.value} {result.error}"
            known[point] = place
        return known[point]

    return make


def _lines() -> Iterator[dict[str, object]]:
    for number in range(PEOPLE):
        yield dict(node("Person", name=f"p{number:05d}", age=number % 90, email=f"{number:05d}@{'x' * 60}"))
        yield dict(edge("Knows", "ada", f"p{number:05d}", f"k{number:05d}"))


@pytest.fixture
def dead(dead_load: Callable[[str], Path], tmp_path: Path) -> Dead:
    def copy(point: str) -> str:
        place = str(tmp_path / "graph")
        shutil.copytree(dead_load(point), place)
        age(place)
        return place

    return copy


def _open(place: str) -> Graph:
    return og.open(place, config=ONE_TASK, recover=False)


def _one(told: list[RecoveryResult]) -> tuple[str, str]:
    (only,) = told
    return only.verdict, only.class_


def _people(graph: Graph) -> int:
    return int(graph.view(fresh=True).table("Person").to_arrow(["id"]).num_rows)


@pytest.mark.parametrize(
    "point",
    [
        "intent.opened",
        "intent.staged",
        *(pytest.param(f"load.{step}", marks=pytest.mark.slow) for step in ("staged", "checked", "indexed")),
    ],
)
def test_s149_a_load_killed_while_staging_is_rolled_back(point: str, dead: Dead) -> None:
    """S149: unnamed files remain, are listed, and go by cleanup."""
    place = dead(point)
    graph = og.open(place, config=ONE_TASK)
    assert _people(graph) == 2
    (audit,) = audits(graph)
    assert (audit["recovery_kind"], audit["class"], audit["operation"]) == ("rolled_back", "unconfirmed", "load")
    assert audit["recovery_for_actor"] == "etl"
    (recovered,) = graph.recover_list()
    assert bool(recovered.garbage) == (point != "intent.opened")
    assert graph.verify().ok


def test_s150_a_load_killed_after_confirm_is_rolled_forward(dead: Dead) -> None:
    """S150: nodes and edges of both tables in one commit, without Spark."""
    place = dead("intent.confirmed")
    graph = og.open(place, config=ONE_TASK)
    rows = contents(graph, ["Person", "Knows"])
    assert (len(rows["Person"]), len(rows["Knows"])) == (2 + PEOPLE, PEOPLE)
    (audit,) = audits(graph)
    assert (audit["recovery_kind"], audit["class"]) == ("rolled_forward", "confirmed")
    assert audit["tables"]["node:Person"]["inserted"] == PEOPLE
    record = graph.at(audit["commit_id"]).state.record
    assert (record.kind, record.header.actor, dict(record.extra or {})["recovery_for"]) == (
        "load", "omnigraph:recovery", "etl",
    )  # fmt: skip
    assert [commit.kind for commit in graph.commits(limit=2)] == ["recovery", "load"]
    assert graph.verify(deep=True).ok
    assert intents(place) == [audit["operation_id"]]


@pytest.mark.slow
@pytest.mark.parametrize("point", ["write.after-record", "intent.before-done"])
def test_s151_a_load_killed_after_publish_is_consumed(point: str, dead: Dead) -> None:
    """S151"""
    graph = og.open(dead(point), config=ONE_TASK)
    assert _people(graph) == 2 + PEOPLE
    assert [audit["class"] for audit in audits(graph)] == ["published"]


def test_s153_a_load_is_rebased_over_rows_that_it_does_not_meet(dead: Dead) -> None:
    """S153: its own tables were written, folded and compacted since; every staged row is used, none is lost."""
    graph = _open(dead("intent.confirmed"))
    graph.apply([InsertNode("Person", {"name": "eve", "email": "eve@x"}), InsertEdge("Knows", "eve", "bob")])
    graph.apply([Update("Person", {"age": 40}, Compare("name", "=", "ada"))])
    graph.fold()
    graph.optimize()
    graph.apply([Delete("Person", Compare("name", "=", "bob"))])
    assert _one(graph.recover()) == ("rolled_forward", "confirmed")
    rows = contents(graph, ["Person", "Knows"])
    assert (len(rows["Person"]), len(rows["Knows"])) == (2 + PEOPLE, PEOPLE)
    assert next(row["age"] for row in rows["Person"] if row["id"] == "ada") == 40
    assert graph.verify(deep=True).ok


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ([InsertNode("Person", {"name": "p00007"})], "a row that the load writes was written"),
        ([InsertNode("Person", {"name": "eve", "email": f"00007@{'x' * 60}"})], "a unique value of the load was taken"),
        ([Delete("Person", Compare("name", "=", "ada"))], "a node was removed that an edge of the load needs"),
    ],
    ids=["same id", "same unique value", "its end is gone"],
)
def test_s153_a_load_that_meets_others_is_rolled_back(change: list[object], reason: str, dead: Dead) -> None:
    """S153: with the reason in the audit."""
    graph = _open(dead("intent.confirmed"))
    graph.apply(change)  # type: ignore[arg-type]
    before = contents(graph, ["Person", "Knows"])
    assert _one(graph.recover()) == ("rolled_back", "conflicting")
    assert [audit["reason"] for audit in audits(graph)] == [reason]
    assert contents(graph, ["Person", "Knows"]) == before
