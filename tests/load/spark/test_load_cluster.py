"""A load on a standalone cluster of real processes: executors are killed, slow tasks are copied by Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from omnigraph.api import Graph
from tests.load.spark.loading import ONE_TASK, new_graph
from tests.spark.cluster import running_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 60_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


@dataclass(frozen=True)
class Seen:
    """The task that was disturbed (`first`), and what Spark's book-keeping says about it and about executors."""

    first: dict[str, int]
    lost: list[str]
    tries: list[dict[str, Any]]

    @property
    def find_disturbance(self) -> dict[str, Any]:
        (found,) = [one for one in self.tries if one["task"] == self.first["task"]]
        return found

    @property
    def other(self) -> dict[str, Any]:
        """The attempt that was made besides; there is one."""
        (found,) = [one for one in self.tries if one["task"] != self.first["task"]]
        return found


def _inputs(path: Path) -> tuple[str, str]:
    names = [f"n{number}" for number in range(ROWS)]
    ages = pa.array([number % 90 for number in range(ROWS)], pa.int32())
    pa.parquet.write_table(pa.table({"name": names, "age": ages}), path / "people.parquet", row_group_size=10_000)
    ends = {"from": names, "to": names[::-1], "id": [f"k{number}" for number in range(ROWS)]}
    pa.parquet.write_table(pa.table(ends), path / "knows.parquet", row_group_size=10_000)
    return str(path / "people.parquet"), str(path / "knows.parquet")


def _load_with_disturbance(path: Path, cluster: str, way: str) -> tuple[Graph, Seen]:
    graph = new_graph(path / "g", ONE_TASK)
    folder = path / "marks"
    folder.mkdir()
    arguments = [way, cluster, str(path / "g"), *_inputs(path), str(folder)]
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster_driver", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=root,
        env={**os.environ, "OMNIGRAPH_FSYNC": "off", "PYTHONPATH": root},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    document = json.loads(done.stdout.splitlines()[-1])
    assert document.pop("loaded") == 2 * ROWS
    graph.refresh()
    return graph, Seen(**document)


def _assert_whole(graph: Graph, unnamed: int) -> None:
    """Every row once, in one commit, indexed; so many data files lie about that no version names."""
    assert [commit.kind for commit in graph.commits()] == ["load", "init"]
    rows = graph.table("Person").to_arrow(columns=["id"])["id"].to_pylist()
    assert sorted(rows) == sorted(f"n{number}" for number in range(ROWS))
    edges = graph.table("Knows").to_arrow(columns=["id", "from", "to"]).to_pylist()
    assert len(edges) == ROWS
    assert {row["id"]: (row["from"], row["to"]) for row in edges} == {
        f"k{number}": (f"n{number}", f"n{ROWS - 1 - number}") for number in range(ROWS)
    }
    state = graph.view().state
    named = files = 0
    for name in ("Person", "Knows"):
        pinned = state.view(state.type(name)).pinned
        assert pinned is not None
        assert pinned.fragments > 1
        named += pinned.fragments
        files += len(list((Path(graph.uri) / "tables" / pinned.table / "data").glob("*.lance")))
    assert files == named + unnamed
    indexes = [index for table in graph.snapshot(indexes=True)["tables"] for index in table["indexes"]]
    assert indexes
    assert all(index["covered_rows"] == index["rows"] for index in indexes)
    assert graph.verify(deep=True).ok


@pytest.mark.parametrize(("way", "unnamed"), [("killed staging", 1), ("killed indexing", 0)])
def test_an_executor_dies(cluster: str, tmp_path: Path, way: str, unnamed: int) -> None:  # S136
    graph, seen = _load_with_disturbance(tmp_path, cluster, way)
    assert seen.lost == [seen.find_disturbance["executor"]]
    assert seen.find_disturbance["end"] == "FAILED"
    assert seen.other["end"] == "SUCCESS"
    assert not Path(f"/proc/{seen.first['pid']}").exists()
    _assert_whole(graph, unnamed)


def test_spark_copies_a_slow_task(cluster: str, tmp_path: Path) -> None:  # S137
    """Both attempts write their files; the first never comes to say so, and its files are named by nobody."""
    graph, seen = _load_with_disturbance(tmp_path, cluster, "slow")
    assert not seen.lost
    assert (seen.find_disturbance["copy"], seen.find_disturbance["end"]) == (False, "KILLED")
    assert (seen.other["copy"], seen.other["end"]) == (True, "SUCCESS")
    assert seen.other["executor"] != seen.find_disturbance["executor"]
    _assert_whole(graph, unnamed=1)
