"""The tables of bad records and of small changes, on Spark: the same graph, rejects and codes. S8, S95–S99

Every bad record stands among good ones; `make test-all` takes 100 000 of those and the whole corpus.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph.errors import LoadRejected
from tests.load.bad_records import CASES, Mixture, mixture, prepare
from tests.load.corpus import CORPUS, Entry, contents
from tests.load.test_same_as_mutate import graph_at, try_load, try_mutate

_SAMPLE = 4


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A few entries of the corpus by the printed seed; the rest is slow."""
    if "entry" not in metafunc.fixturenames:
        return
    seed = os.environ.get("OMNIGRAPH_TEST_SEED") or metafunc.config.getoption("randomly_seed")
    chosen = random.Random(f"{seed}/corpus").sample(range(len(CORPUS)), _SAMPLE)
    entries = [one if at in chosen else pytest.param(one, marks=pytest.mark.slow) for at, one in enumerate(CORPUS)]
    metafunc.parametrize("entry", entries, ids=[str(one) for one in CORPUS])


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("good_count", [500, pytest.param(100_000, marks=pytest.mark.slow)])
def test_every_kind_of_bad_record(spark: SparkSession, tmp_path: Path, good_count: int) -> None:
    graph = prepare(tmp_path / "graph")
    mixed = mixture(CASES, good_count)
    path = tmp_path / "input.jsonl"
    path.write_bytes(mixed.data)
    before = graph.refresh()
    options: dict[str, Any] = {"mode": "append", "engine": "spark", "spark": spark, "progress": False}
    with pytest.raises(LoadRejected) as caught:
        graph.load(path, rejects=tmp_path / "failed", **options)
    error = caught.value
    assert graph.refresh() == before
    assert error.details["reject_count"] == sum(error.details["totals"].values()) == len(mixed.codes)
    assert len(error.details["rejects"]) == 20
    assert_complete(tmp_path / "failed", mixed)
    report = graph.load(path, on_error="skip", rejects=tmp_path / "skipped", **options)
    assert_complete(tmp_path / "skipped", mixed)
    assert (report.loaded, report.rejects_by_code) == (mixed.good, error.details["totals"])
    assert [commit.commit_id for commit in graph.commits(kind="load")] == [report.commit_id]
    assert graph.verify().ok


def assert_complete(folder: Path, mixed: Mixture) -> None:
    lines = mixed.data.decode("utf-8", errors="replace").splitlines()
    found = [json.loads(line) for file in folder.rglob("*.ndjson") for line in file.read_text().splitlines()]
    assert len(found) == len(mixed.codes)
    assert {one["line"]: one["code"] for one in found} == mixed.codes
    assert all(one["record"] == lines[one["line"] - 1] for one in found)


def test_the_same_graph_and_the_same_violations(spark: SparkSession, entry: Entry, tmp_path: Path) -> None:
    first_graph, second_graph = graph_at(tmp_path / "mutated", entry), graph_at(tmp_path / "loaded", entry)
    told = try_load(second_graph, entry, tmp_path / "input.jsonl", engine="spark", spark=spark)
    assert (try_mutate(first_graph, entry), told) == (entry.codes, entry.codes)
    assert contents(second_graph) == contents(first_graph)
