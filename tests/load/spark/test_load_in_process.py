"""The load engine of Spark with its tasks run in this process: many random inputs, compared with the local engine.

What Spark adds (scheduling, retries, shuffles) is tested with a real session beside this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.load.bad_records import CASES, BadRecordCase, mixture, prepare
from tests.load.corpus import CORPUS, Entry
from tests.load.corpus import contents as corpus_contents
from tests.load.spark.loading import BASE, ONE_TASK, both, edge, node, random_input, write_lines
from tests.load.test_bad_records import assert_complete, read_rejects, rows
from tests.load.test_same_as_mutate import graph_at, try_load, try_mutate
from tests.spark.in_process import run_tasks_here


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    run_tasks_here(monkeypatch)


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize("step", [*range(4), *(pytest.param(step, marks=pytest.mark.slow) for step in range(4, 16))])
def test_random_input_equals_the_local_engine(tmp_path: Path, mode: str, step: int, sweep_seed: int) -> None:  # S138
    path = write_lines(tmp_path / "in.ndjson", random_input(sweep_seed + 1000 * step))
    on_duplicate = "fail" if step % 3 == 0 else "last"
    on_error = "fail" if step % 4 == 0 else "skip"
    split_bytes = (300, 1_000, 1 << 20)[step % 3]
    options = {"on_error": on_error, "on_duplicate": on_duplicate, "split_bytes": split_bytes}
    both(tmp_path / "both", ONE_TASK, path, mode=mode, **options)


def test_portions_of_a_split_are_one_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be cut is worked through in bounded memory; lines are found again whatever the portion."""
    from omnigraph.load.records.batches import ReadLimits
    from omnigraph.load.spark import parse

    monkeypatch.setattr(parse, "PORTION_BYTES", 200)
    lines = [node("Person", name=f"x{number % 7}", age=number * 3) for number in range(60)]
    lines += [edge("Knows", f"x{number % 9}", "x1", f"e{number % 13}") for number in range(40)]
    path = write_lines(tmp_path / "in.ndjson", lines)
    answer, _ = both(
        tmp_path / "both",
        ONE_TASK,
        path,
        mode="merge",
        on_error="skip",
        split_bytes=1 << 20,
        limits=ReadLimits(batch_bytes=300),
    )
    assert answer.duplicates > 0
    assert {code for _, _, code in answer.rejects} == {"endpoint", "range"}


def test_a_type_that_is_named_and_empty(tmp_path: Path) -> None:  # S164
    nothing = tmp_path / "nothing.ndjson"
    nothing.write_text("")
    answer, _ = both(tmp_path / "both", ONE_TASK, {"Likes": str(nothing)}, mode="overwrite")
    assert answer.counts == {"edge:Likes": {"inserted": 0, "updated": 0, "deleted": 1}}


def test_the_same_input_again(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.ndjson", BASE)
    answer, _ = both(tmp_path / "append", ONE_TASK, path, mode="append")
    assert answer.refused
    again, _ = both(tmp_path / "merge", ONE_TASK, path, mode="merge")
    assert again.counts["node:Person"] == {"inserted": 1, "updated": 5, "deleted": 0}


@pytest.mark.parametrize("entry", CORPUS, ids=str)
def test_the_corpus_of_mutations(entry: Entry, tmp_path: Path) -> None:  # S95-S99
    first_graph, second_graph = graph_at(tmp_path / "mutated", entry), graph_at(tmp_path / "loaded", entry)
    told = try_load(second_graph, entry, tmp_path / "input.jsonl", engine="spark")
    assert (try_mutate(first_graph, entry), told) == (entry.codes, entry.codes)
    assert corpus_contents(second_graph) == corpus_contents(first_graph)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_kind_of_bad_record(tmp_path: Path, case: BadRecordCase) -> None:
    graph = prepare(tmp_path / "graph")
    mixed = mixture([case], 20)
    path = tmp_path / "input.jsonl"
    path.write_bytes(mixed.data)
    options: dict[str, Any] = {"mode": "append", "engine": "spark", "progress": False}
    report = graph.load(path, on_error="skip", rejects=tmp_path / "rejects", **options)
    assert_complete(read_rejects(tmp_path / "rejects"), mixed)
    assert (report.rejects, report.loaded, rows(graph)) == (len(mixed.codes), mixed.good, mixed.good + 1)
    assert len(graph.commits(kind="load")) == 1
