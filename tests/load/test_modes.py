"""What a load does to rows that are there: the modes, repeated records, repeated loads. S8, S9, S96, S97, S164"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.config import Config
from omnigraph.errors import InvalidInput, LoadRejected, PreconditionFailed, ReadSetChanged, Unsupported
from omnigraph.load.inputs import LoadSources
from omnigraph.load.options import LoadOptions
from omnigraph.load.report import LoadReport
from omnigraph.load.run import LoadJob, find_inputs, run_load
from tests.load.corpus import SCHEMA, edge, node
from tests.schedules.world import World, person, set_age, without


class LoadBed:
    """A graph and files to load into it."""

    def __init__(self, folder: Path, config: Config | None = None) -> None:
        self.folder = folder
        self.graph = og.init(str(folder / "graph"), SCHEMA, config=config or Config(fsync=False))

    def file(self, *lines: Mapping[str, Any] | str, name: str = "input.jsonl") -> Path:
        path = self.folder / name
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("".join(text + "\n" for text in texts))
        return path

    def load(self, *lines: Mapping[str, Any] | str, **options: Any) -> LoadReport:
        return self.graph.load(self.file(*lines), progress=False, **options)

    def rows(self, name: str) -> dict[str, dict[str, Any]]:
        return {row["id"]: row for row in self.graph.table(name).to_arrow().to_pylist()}

    def expect_refusal(self, *lines: Mapping[str, Any] | str, **options: Any) -> dict[str, int]:
        """The totals of a load that must be refused without any effect."""
        before = (self.graph.refresh(), {name: self.rows(name) for name in ("Person", "Knows", "Note")})
        with pytest.raises(LoadRejected) as caught:
            self.load(*lines, **options)
        assert before == (self.graph.refresh(), {name: self.rows(name) for name in ("Person", "Knows", "Note")})
        return dict(caught.value.details["totals"])


@pytest.fixture(params=["inline", "staged"])
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> LoadBed:
    return LoadBed(tmp_path, Config(fsync=False, inline_share=4 if request.param == "inline" else 0))


ADA, BOB = node("Person", name="ada", age=36), node("Person", name="bob")


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_bad_reference_lands_nothing_and_the_next_load_works(bed: LoadBed, mode: str) -> None:  # S8
    bed.load(ADA)
    cy = node("Person", name="cy")
    assert bed.expect_refusal(cy, edge("Knows", "cy", "nobody"), mode=mode) == {"endpoint": 1}
    assert bed.load(cy, edge("Knows", "cy", "cy"), mode=mode).loaded == 2


def test_overwrite_checks_constraints_on_the_new_rows(bed: LoadBed) -> None:  # S9
    bed.load(ADA, BOB, edge("Knows", "ada", "bob", id="e"))
    assert bed.expect_refusal(ADA, mode="overwrite") == {"orphan_edge": 1}
    assert bed.expect_refusal(ADA, mode="overwrite", on_error="skip", rejects=bed.folder / "r") == {"orphan_edge": 1}
    assert bed.expect_refusal(ADA, edge("Knows", "ada", "bob"), mode="overwrite") == {"endpoint": 1}
    report = bed.load(ADA, edge("Knows", "ada", "ada", id="f"), mode="overwrite")
    assert report.counts["node:Person"] == {"inserted": 0, "updated": 1, "deleted": 1}
    assert (set(bed.rows("Person")), set(bed.rows("Knows"))) == ({"ada"}, {"f"})
    # Types that the input does not speak of stay.
    bed.load(node("Note", id="n", must=1))
    bed.load(BOB, edge("Knows", "bob", "bob", id="g"), mode="overwrite")
    assert (set(bed.rows("Note")), set(bed.rows("Person"))) == ({"n"}, {"bob"})


@pytest.mark.parametrize("shape", ["file", "folder"])
def test_overwrite_with_empty_input_empties_the_type(bed: LoadBed, shape: str) -> None:  # S164
    bed.load(ADA, BOB, edge("Knows", "ada", "bob", id="e"))
    bed.graph.optimize()
    empty = bed.folder / "empty"
    empty.mkdir()
    source = empty
    if shape == "file":
        source = empty / "rows.jsonl"
        source.write_text("")
    with pytest.raises(LoadRejected) as caught:
        bed.graph.load({"Person": source}, mode="overwrite", progress=False)
    assert caught.value.details["totals"] == {"orphan_edge": 2}
    indexes = {row["table_key"]: row["indexes"] for row in bed.graph.snapshot(indexes=True)["tables"]}
    bed.graph.load({"Knows": source}, mode="overwrite", progress=False)
    report = bed.graph.load({"Person": source}, mode="overwrite", progress=False)
    assert report.counts["node:Person"]["deleted"] == 2
    assert bed.rows("Person") == bed.rows("Knows") == {}
    bed.load(ADA, edge("Knows", "ada", "ada"))
    bed.graph.optimize()
    after = {row["table_key"]: row["indexes"] for row in bed.graph.snapshot(indexes=True)["tables"]}
    assert [row["name"] for row in after["node:Person"]] == [row["name"] for row in indexes["node:Person"]]


def test_the_last_record_of_an_id_wins_and_is_counted(bed: LoadBed) -> None:
    bed.load(node("Person", name="ada", city="Oslo"))
    report = bed.load(
        node("Person", name="ada", age=1, city="Bern"), node("Person", name="ada", age=2), edge("Knows", "ada", "ada")
    )
    assert (report.duplicates, report.rejects, report.loaded) == (1, 0, 2)
    # The one before counts for nothing: what the last one does not mention is as it was in the graph.
    assert (bed.rows("Person")["ada"]["age"], bed.rows("Person")["ada"]["city"]) == (2, "Oslo")
    assert bed.expect_refusal(ADA, ADA, on_duplicate="fail") == {"key_conflict": 1}


def test_files_with_the_same_records(bed: LoadBed) -> None:
    first = bed.file(ADA, BOB, name="a.jsonl")
    second = bed.file(node("Person", name="ada", age=1), BOB, name="b.jsonl")
    report = bed.graph.load([first, second], progress=False)
    assert (report.duplicates, report.loaded) == (2, 2)
    assert bed.rows("Person")["ada"]["age"] == 1
    with pytest.raises(LoadRejected) as caught:
        bed.graph.load([first, second], mode="overwrite", progress=False)
    assert [(reject["file"], reject["line"]) for reject in caught.value.details["rejects"]] == [
        (str(second), 1),
        (str(second), 2),
    ]
    with pytest.raises(InvalidInput) as refusal:
        bed.graph.load([first, bed.folder / "." / "a.jsonl"], progress=False)
    assert refusal.value.code == "duplicate_input"


def test_load_without_changes_makes_no_commit(bed: LoadBed) -> None:
    before = bed.graph.refresh()
    report = bed.load("", " ")
    assert (report.commit_id, report.counts, bed.graph.refresh()) == (None, {}, before)
    report = bed.load("x", on_error="skip", rejects=bed.folder / "r")
    assert (report.commit_id, report.rejects) == (None, 1)
    assert Path(report.rejects_path or "").read_text().startswith('{"file": ')


def test_one_commit_with_its_author(bed: LoadBed) -> None:
    report = bed.load(ADA, BOB, actor="ada", message="everybody")
    newest = bed.graph.commits(limit=1)[0]
    assert (newest.commit_id, newest.kind, newest.actor, newest.message) == (
        report.commit_id,
        "load",
        "ada",
        "everybody",
    )


def test_a_client_key_is_used_once(bed: LoadBed) -> None:
    first = bed.load(ADA, ADA, edge("Knows", "ada", "ada"), client_key="k1")
    again = bed.load(node("Person", name="other"), client_key="k1")
    assert again.replayed
    assert (again.commit_id, again.counts, again.duplicates) == (first.commit_id, first.counts, 1)
    assert set(bed.rows("Person")) == {"ada"}


def test_a_precondition(bed: LoadBed) -> None:
    before = bed.graph.refresh()
    bed.load(ADA, if_commit=before)
    with pytest.raises(PreconditionFailed):
        bed.load(BOB, if_commit=before)


def test_bounds_are_inclusive(bed: LoadBed) -> None:  # S100
    path = bed.file(ADA)
    size = path.stat().st_size
    before = bed.graph.refresh()
    with pytest.raises(InvalidInput) as caught:
        load_with_bounds(bed.graph, path, local_max_bytes=size - 1)
    assert caught.value.details["limit"] == "local_max_bytes"
    assert "spark" in str(caught.value)
    assert bed.graph.refresh() == before
    assert load_with_bounds(bed.graph, path, local_max_bytes=size).loaded == 1


def test_the_bound_holds_for_what_is_inside_a_compressed_file(bed: LoadBed) -> None:
    path = bed.folder / "many.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"type": "Person", "data": {"name": "a"}}\n' * 1000))
    with pytest.raises(InvalidInput) as caught:
        load_with_bounds(bed.graph, path, local_max_bytes=10_000)
    assert caught.value.code == "limit_exceeded"


def load_with_bounds(graph: Graph, path: Path, **bounds: Any) -> LoadReport:
    options = LoadOptions(engine="local", **bounds)
    inputs = find_inputs(LoadSources.of(path), graph._runtime.catalogs, graph._branch.publisher, options)
    return run_load(LoadJob(graph._runtime, graph._branch, None, inputs, options, WriteOptions(), False))


def test_overwrite_of_many_rows_by_a_small_input_runs_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = LoadBed(tmp_path, Config(fsync=False, mutation_max_rows=2))
    bed.load(*(node("Person", name=f"p{at}") for at in range(3)), node("Note", id="n", must=1))
    spark_jobs: list[LoadJob] = []

    def on_spark(job: LoadJob) -> LoadReport:
        spark_jobs.append(job)
        return LoadReport(None, {}, engine="spark")

    monkeypatch.setattr("omnigraph.load.spark.load.load_files", on_spark)
    people, notes = bed.file('{"name": "x"}', name="p.jsonl"), bed.file('{"must": 2}', name="n.jsonl")
    assert bed.graph.load({"Person": people}, mode="overwrite", progress=False).engine == "spark"
    assert bed.load(ADA, mode="overwrite").engine == "spark"
    assert len(spark_jobs) == 2
    assert bed.graph.load({"Note": notes}, mode="overwrite", progress=False).engine == "local"
    assert bed.graph.load({"Person": people}, mode="overwrite", engine="local", progress=False).engine == "local"
    assert bed.load(ADA).engine == "local"


def test_unknown_option_values_are_refused(bed: LoadBed) -> None:
    for option in ("mode", "on_error", "on_duplicate", "engine"):
        with pytest.raises(InvalidInput) as caught:
            bed.load(ADA, **{option: "perhaps"})
        assert caught.value.code == "invalid_option"
    with pytest.raises(InvalidInput) as caught:
        bed.load(ADA, on_error="skip")
    assert caught.value.code == "rejects_needed"


def test_a_read_only_graph_is_not_loaded_into(bed: LoadBed) -> None:
    with pytest.raises(Unsupported):
        og.open(bed.graph.uri, read_only=True).load(bed.file(ADA), progress=False)


def test_on_a_branch(bed: LoadBed) -> None:
    branch = bed.graph.branch.create("review")
    branch.load(bed.file(ADA), progress=False)
    assert (branch.table("Person").to_arrow().num_rows, bed.rows("Person")) == (1, {})


def test_a_type_that_was_added_by_another_process(bed: LoadBed) -> None:
    graph = og.open(bed.graph.uri)
    graph.schema.apply(SCHEMA + "\nnode Place { name: String @key }")
    path = bed.file('{"name": "here"}')
    assert bed.graph.load({"Place": path}, progress=False).loaded == 1
    third = og.open(bed.graph.uri)
    graph.schema.apply(SCHEMA + "\nnode Place { name: String @key }\nnode Town { name: String @key }")
    assert third.load(bed.file(node("Town", name="x")), progress=False).loaded == 1


# --- with others at work -------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.assert_sound()
    world.close()


def test_load_of_an_edge_to_a_node_deleted_meanwhile_is_refused(world: World, tmp_path: Path) -> None:
    """A commit lands between reading the ends of an edge and publishing it: the load looks again."""
    loader, second_actor = world.actor(), world.actor()
    loader.apply(person("ada"))
    path = tmp_path / "edge.jsonl"
    path.write_text('{"edge": "Knows", "from": "ada", "to": "ada"}\n')
    with loader.hold_at("write.validated", lambda: loader.graph.load(path, progress=False)) as loading:
        second_actor.apply(without("ada"))
    with pytest.raises(LoadRejected):
        loading.result()


def test_load_rebases_over_an_unrelated_commit(world: World, tmp_path: Path) -> None:
    loader, second_actor = world.actor(), world.actor()
    path = tmp_path / "people.jsonl"
    path.write_text('{"type": "Person", "data": {"name": "ada"}}\n{"edge": "Knows", "from": "ada", "to": "ada"}\n')
    with loader.hold_at("write.validated", lambda: loader.graph.load(path, progress=False)) as loading:
        second_actor.apply(person("bob"))
    assert loading.result().attempts == 1
    assert world.edges() == {("ada", "ada")}


def test_ids_stay_the_same_when_a_load_runs_again(world: World, tmp_path: Path) -> None:
    loader, second_actor = world.actor(), world.actor()
    loader.apply(person("ada", 1))
    path = tmp_path / "people.jsonl"
    path.write_text('{"type": "Person", "data": {"name": "ada", "email": "a"}}\n{"type": "Note", "data": {}}\n')
    with loader.hold_at("write.validated", lambda: loader.graph.load(path, progress=False)) as loading:
        second_actor.apply(set_age("ada", 7))
    assert loading.result().attempts == 2
    assert (world.rows("Person")["ada"]["age"], world.rows("Person")["ada"]["email"]) == (7, "a")
    assert len(world.rows("Note")) == 1


def test_overwrite_that_conflicts_is_not_retried(world: World, tmp_path: Path) -> None:  # S23
    loader, second_actor = world.actor(), world.actor()
    path = tmp_path / "people.jsonl"
    path.write_text('{"type": "Person", "data": {"name": "ada"}}\n')
    work = partial(loader.graph.load, path, mode="overwrite", progress=False)
    with loader.hold_at("write.validated", work) as loading:
        second_actor.apply(person("bob"))
    with pytest.raises(ReadSetChanged):
        loading.result()
    assert set(world.rows("Person")) == {"bob"}
