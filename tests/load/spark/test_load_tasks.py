"""Tasks that fail, die or run twice: every row is there exactly once, and what they left is named by nobody."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from omnigraph.api import Graph
from omnigraph.config import Config
from omnigraph.errors import Corruption, Unavailable
from omnigraph.load.spark import split as split_module
from omnigraph.load.spark.parse import StageJob
from omnigraph.load.spark.stage import stage_split
from omnigraph.spark.tasks import run_tasks
from tests.load.spark.loading import load, new_graph

pytestmark = pytest.mark.usefixtures("spark")

ROWS = 4_000


@pytest.fixture
def people(tmp_path: Path) -> dict[str, str]:
    rows = pa.table({"name": [f"n{number}" for number in range(ROWS)], "age": pa.array([7] * ROWS, pa.int32())})
    pa.parquet.write_table(rows, tmp_path / "people.parquet", row_group_size=1_000)
    return {"Person": str(tmp_path / "people.parquet")}


def _assert_exactly_once(graph: Graph, unnamed: int) -> None:
    """All rows once; so many data files lie about that no version names."""
    pinned = graph.view().state.view(graph.view().state.type("Person")).pinned
    assert pinned is not None
    ids = pinned.scan(["id"])["id"].to_pylist()
    assert sorted(ids) == sorted(f"n{number}" for number in range(ROWS))
    folder = Path(graph.uri) / "tables" / pinned.table / "data"
    assert len(list(folder.glob("*.lance"))) == pinned.fragments + unnamed
    assert graph.verify().ok


@pytest.mark.parametrize("way", ["raises", "dies"])
def test_a_task_that_fails_after_its_files_are_written(  # S136
    tmp_path: Path, people: dict[str, str], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    folder = str(marks)

    def failing_once(job: StageJob, number: int) -> Iterator[dict[str, Any]]:
        results = list(stage_split(job, number))
        mark = os.path.join(folder, str(number))
        if number % 2 == 0 and not os.path.exists(mark):
            open(mark, "w").close()
            if way == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("lost after the files were written")
        yield from results

    monkeypatch.setattr(split_module, "stage_split", failing_once)
    graph = new_graph(tmp_path / "g")
    assert load(graph, people, mode="append", split_bytes=1_000).loaded == ROWS
    assert sorted(path.name for path in marks.iterdir()) == ["0", "2"]
    _assert_exactly_once(graph, unnamed=2)


def test_a_task_that_runs_twice(tmp_path: Path, people: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As speculation does: both write, one of the two results counts. S137"""

    def twice(job: StageJob, number: int) -> Iterator[dict[str, Any]]:
        list(stage_split(job, number))
        yield from stage_split(job, number)

    monkeypatch.setattr(split_module, "stage_split", twice)
    graph = new_graph(tmp_path / "g")
    assert load(graph, people, mode="append", split_bytes=1_000).loaded == ROWS
    _assert_exactly_once(graph, unnamed=4)


def test_a_task_that_always_fails_loads_nothing(
    tmp_path: Path, people: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(job: StageJob, number: int) -> Iterator[dict[str, Any]]:
        yield from stage_split(job, number)
        raise RuntimeError("the disk of this worker is on fire")

    graph = new_graph(tmp_path / "g")
    with monkeypatch.context() as patch:
        patch.setattr(split_module, "stage_split", never)
        with pytest.raises(Unavailable, match="on fire") as refused:
            load(graph, people)
    assert refused.value.code == "spark_failed"
    assert [commit.kind for commit in graph.commits()] == ["init"]
    assert load(graph, people).loaded == ROWS


def test_writers_at_once_are_bounded(tmp_path: Path, people: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    busy = tmp_path / "busy"
    busy.mkdir()
    folder = str(busy)

    def alone(job: StageJob, number: int) -> Iterator[dict[str, Any]]:
        mark = os.path.join(folder, "one")
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        yield from list(stage_split(job, number))
        os.unlink(mark)

    monkeypatch.setattr(split_module, "stage_split", alone)
    graph = new_graph(tmp_path / "g", Config(fsync=False, load_concurrency=1))
    assert load(graph, people, split_bytes=1_000).loaded == ROWS


def test_a_final_error_is_not_tried_again(spark: Any, tmp_path: Path) -> None:
    tries = str(tmp_path / "tries")

    def broken(number: int) -> list[dict[str, Any]]:
        with open(tries, "a") as file:
            file.write("x")
        raise Corruption("a file is damaged", advice="Run verify", table="t")

    with pytest.raises(Corruption, match="damaged") as refused:
        run_tasks(spark, 1, broken)
    assert (refused.value.advice, refused.value.details) == ("Run verify", {"table": "t"})
    assert Path(tries).read_text() == "x"


def test_results_come_in_the_order_of_the_numbers(spark: Any) -> None:
    tasks = run_tasks(spark, 5, lambda number: [{"number": number}, {"again": number}], at_once=2)
    assert [next(iter(task.values())) for task in tasks] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert run_tasks(spark, 0, lambda number: [{}]) == []
