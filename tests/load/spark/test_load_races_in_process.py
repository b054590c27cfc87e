"""More schedules of commits during a load: bulk changes of others, upkeep, overwrites (S140)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import LoadRejected, ReadSetChanged
from omnigraph.load.spark import rebase
from omnigraph.storage.open_backend import make_backend
from tests.load.spark.loading import ONE_TASK, SCHEMA, Line, contents, edge, load, node, write_lines
from tests.load.spark.racing import INPUT, Race
from tests.spark.in_process import run_tasks_here
from tests.support.s3 import S3Place


@pytest.fixture
def race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Race:
    run_tasks_here(monkeypatch)
    return Race(tmp_path)


def _other_load(race: Race, *lines: Line, mode: str = "append") -> Callable[[], object]:
    """Another process's load, on Spark as well: its rows are in table versions, not in the record."""
    path = write_lines(race.place / "other.ndjson", lines)
    return lambda: load(race.other, path, mode=mode)


def test_two_loads_at_once_that_do_not_meet(race: Race) -> None:
    others = [node("Person", name=f"y{number}", age=number) for number in range(30)]
    others += [edge("Knows", f"y{number}", "p0", f"ky{number}") for number in range(30)]
    race.pauses.call_at("load.indexed", _other_load(race, *others))
    race.load()
    assert race.stagings == 1
    assert len(race.people()) == 5 + 20 + 30
    assert len(contents(race.loader, ["Knows"])["Knows"]) == 1 + 20 + 30


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (node("Person", name="x3"), "key_conflict"),
        (node("Person", name="z", email="x3@x"), "unique"),
    ],
)
def test_two_loads_at_once_that_meet(race: Race, line: Line, code: str) -> None:
    race.pauses.call_at("load.indexed", _other_load(race, line))
    with pytest.raises(LoadRejected) as refused:
        race.load()
    assert refused.value.details["totals"][code] == 1
    assert race.stagings == 2


def test_a_change_too_large_to_be_compared_is_met_by_a_new_start(race: Race, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebase, "FOREIGN_ROWS_MAX", 3)
    others = [node("Person", name=f"y{number}") for number in range(9)]
    race.pauses.call_at("load.indexed", _other_load(race, *others))
    race.load()
    assert race.stagings == 2
    assert len(race.people()) == 5 + 20 + 9


def test_compaction_and_indexes_of_others(race: Race) -> None:
    race.loader.mutate('query q() { insert Person { name: "o", age: 5 } }')
    race.pauses.call_at("load.indexed", race.other.optimize)
    race.load([node("Person", name="o", age=6), node("Person", name="p0", age=60), *INPUT], mode="merge")
    assert race.stagings == 1
    people = race.people()
    assert (people["o"], people["p0"], len(people)) == (6, 60, 26)


def test_a_node_removed_by_a_load_and_needed_by_a_new_edge(race: Race) -> None:
    race.loader.mutate('query q() { delete Knows where id = "k0" }')
    race.during('insert Knows { from: "p3", to: "p4" }')
    people = [node("Person", name=name) for name in ("p0", "p1")]
    with pytest.raises(ReadSetChanged):
        race.load(people, mode="overwrite")
    race.loader.mutate('query q() { delete Knows where from = "p3" }')
    race.during('insert Knows { from: "p0", to: "p1" }')
    race.load(people, mode="overwrite")
    assert sorted(race.people()) == ["p0", "p1"]


def test_edges_that_nodes_need(race: Race) -> None:
    """A city needs one or two notes: whoever removes its last one, or adds a third, meets the load."""
    race.during('insert Owns { from: "rome", to: "n1" }')
    with pytest.raises(LoadRejected) as refused:
        race.load([node("Note", id="n9"), edge("Owns", "rome", "n9", "o9")])
    assert refused.value.details["totals"] == {"cardinality": 1}


def test_a_repeated_load_answers_what_it_did(race: Race) -> None:
    from omnigraph.commit.publish_plan import WriteOptions

    options = WriteOptions(client_key="01M7H00000000000000000000K")
    first = race.load(write=options)
    again = race.load(write=options)
    assert (again.replayed, again.commit_id, again.counts) == (True, first.commit_id, first.counts)
    assert race.stagings == 1


def test_a_precondition_that_is_lost_meanwhile(race: Race) -> None:
    from omnigraph.commit.publish_plan import WriteOptions
    from omnigraph.errors import PreconditionFailed

    head = race.loader.refresh()
    race.during('insert Person { name: "new" }')
    with pytest.raises(PreconditionFailed):
        race.load(write=WriteOptions(if_commit=head))
    assert len(race.people()) == 6


def test_a_commit_that_is_partly_in_tables_and_partly_in_its_record(race: Race) -> None:
    """A node that was only in the overlay is removed by a tombstone, beside a table that was staged."""
    race.loader.mutate('query q() { insert Person { name: "gone" } }')
    staging = make_backend(str(race.place / "g"), None, replace(ONE_TASK, inline_share=0, fold="never"))
    runtime = GraphRuntime.open(staging, read_only=False)
    graph = Graph(runtime, runtime.branch("main"))

    def act() -> None:
        with graph.transaction() as steps:
            steps.mutate('query q() { delete Person where name = "gone" }')
            steps.mutate('query q() { update City set { code: "changed" } where name = "rome" }')

    race.pauses.call_at("load.indexed", act)
    with pytest.raises(LoadRejected) as refused:
        race.load([edge("Lives", "gone", "rome", "l9")])
    assert refused.value.details["totals"] == {"endpoint": 1}
    (touched,) = [commit for commit in graph.commits(kind="mutate") if commit.commit_id == graph.refresh()]
    assert touched is not None


def test_rejects_of_a_second_attempt_are_kept_apart(race: Race) -> None:
    race.during('insert Person { name: "x3" }')
    place = race.place / "rejects"
    report = race.load([*INPUT, edge("Knows", "x1", "nobody", "kn")], on_error="skip", rejects=str(place))
    assert race.stagings == 2
    assert report.rejects == 2
    assert report.rejects_path is not None
    lines = [line for path in Path(report.rejects_path).iterdir() for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["code"] for line in lines) == ["endpoint", "key_conflict"]


@pytest.mark.s3
def test_on_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_place: S3Place) -> None:
    run_tasks_here(monkeypatch)
    graph = og.init(s3_place.uri, SCHEMA, storage_options=s3_place.storage_options)
    lines = [*INPUT, *(node("Person", name=f"p{number}") for number in range(5))]
    path = write_lines(tmp_path / "in.ndjson", lines)
    assert load(graph, path, mode="append").loaded == 45
    again = [node("Person", name="x1", age=99), node("Person", name="y")]
    report = load(graph, write_lines(tmp_path / "again.ndjson", again))
    assert report.counts["node:Person"] == {"inserted": 1, "updated": 1, "deleted": 0}
    ages = {row["name"]: row["age"] for row in contents(graph, ["Person"])["Person"]}
    assert (len(ages), ages["x1"]) == (26, 99)
    assert graph.verify().ok
