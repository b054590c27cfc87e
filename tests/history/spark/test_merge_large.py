"""A merge of a million changed rows against a million others, in less memory than they take; and the same, killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.config import Config
from tests.intents.intent_actor import age, audits

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ROWS = int(os.environ.get("OMNIGRAPH_TEST_MERGE_ROWS", "1000000"))
TEXT = 300
HEAP = "512m"
DRIVER_MAX_MB = 600
CONFIG = Config(fsync=False)

#: Merges in a process of its own; tells when it has begun to stage, and how much memory it had in the end.
_DRIVER = f"""
import json, sys
from pathlib import Path
import omnigraph as og
from omnigraph.spark.session import get_session
from omnigraph.spark.settings import SparkSettings

get_session(SparkSettings(driver_memory="{HEAP}"))
graph = og.open(sys.argv[1])
print("ready", flush=True)
report = graph.branch.merge("work", actor="etl", progress=False)
# Not `ru_maxrss`, which begins with the peak of the process that started this one.
peak_mb = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) // 1024
print(json.dumps([report.outcome, dict(report.counts), peak_mb]))
"""


def _write(path: Path, first: int, count: int, seed: int) -> Path:
    """Rows of distinct texts that do not compress, so that the data is as large as it looks."""
    names = pa.array([f"p{number:08d}" for number in range(first, first + count)])
    noise = np.random.default_rng(seed).integers(0, 16, count * TEXT, dtype=np.uint8)
    letters = np.frombuffer(b"0123456789abcdef", np.uint8)[noise]
    offsets = pa.py_buffer((np.arange(count + 1) * TEXT).astype(np.int32))
    texts = pa.Array.from_buffers(pa.utf8(), count, [None, offsets, pa.py_buffer(letters)])
    pa.parquet.write_table(pa.table({"name": names, "text": texts}), path, row_group_size=50_000)
    return path


def _load(path: Path, branch: str, file: Path, mode: str) -> None:
    script = (
        "import sys, omnigraph as og\n"
        "from omnigraph.spark.session import get_session\n"
        "from omnigraph.spark.settings import SparkSettings\n"
        "get_session(SparkSettings(driver_memory='1g'))\n"
        "place, branch, file, mode = sys.argv[1:]\n"
        "og.open(place, branch).load({'Person': file}, mode=mode, engine='spark', progress=False)\n"
    )
    _run(script, str(path), branch, str(file), mode)


def _run(script: str, *arguments: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=1500,
        env={**os.environ, "OMNIGRAPH_FSYNC": "off"},
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3_000:]
    return process.stdout


@pytest.fixture(scope="module")
def diverged_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twice the rows; the source has changed the first half, the target the second, the source adds some as well."""
    folder = tmp_path_factory.mktemp("large-merge")
    graph_path = folder / "graph"
    graph = og.init(graph_path, "node Person { name: String @key  text: String }", config=CONFIG)
    _load(graph_path, "main", _write(folder / "base.parquet", 0, 2 * ROWS, 1), "append")
    graph.branch.create("work")
    _load(graph_path, "work", _write(folder / "theirs.parquet", 0, ROWS, 2), "merge")
    _load(graph_path, "main", _write(folder / "ours.parquet", ROWS, ROWS, 3), "merge")
    for path in folder.glob("*.parquet"):
        path.unlink()
    return graph_path


@pytest.fixture
def graph_path(diverged_graph: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(diverged_graph, tmp_path / "graph"))


def _sample(graph: Graph, names: list[str]) -> dict[str, str]:
    rows = graph.view(fresh=True).state.view(graph.view().catalog.types[0]).find(names).to_pylist()
    return {row["id"]: str(row) for row in rows}


def test_it_completes_in_less_memory_than_the_rows_take(graph_path: Path) -> None:
    chance = random.Random(7)
    source_ids = [f"p{chance.randrange(ROWS):08d}" for _ in range(50)]
    target_ids = [f"p{chance.randrange(ROWS, 2 * ROWS):08d}" for _ in range(50)]
    graph = og.open(graph_path, config=CONFIG)
    expected = {**_sample(graph.on_branch("work"), source_ids), **_sample(graph, target_ids)}
    outcome, counts, peak_mb = json.loads(_run(_DRIVER, str(graph_path)).splitlines()[-1])
    assert (outcome, counts) == ("merged", {"inserted": 0, "updated": ROWS, "deleted": 0})
    assert ROWS * TEXT > (512 << 20) // 2 or ROWS < 1_000_000, "both sides together are more than the heap"
    assert peak_mb < DRIVER_MAX_MB
    graph.refresh()
    assert graph.view().state.count(graph.view().catalog.types[0]) == 2 * ROWS
    assert _sample(graph, [*source_ids, *target_ids]) == expected


def test_killed_half_way_nothing_is_visible(graph_path: Path) -> None:
    """The driver is killed while workers stage: the target is as it was, and recovery closes the intent. S91, S149"""
    graph = og.open(graph_path, config=CONFIG)
    before = graph.refresh()
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(graph_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMNIGRAPH_FSYNC": "off"},
        start_new_session=True,
    )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline().strip() == "ready"
        data = next((graph_path / "tables").iterdir()) / "data"
        count = len(list(data.iterdir()))
        while len(list(data.iterdir())) < count + 2 and driver.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                driver.wait(0.05)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
    assert graph.refresh() == before
    age(str(graph_path))
    graph = og.open(graph_path, config=CONFIG)
    (audit,) = audits(graph)
    assert (audit["recovery_kind"], audit["operation"], audit["recovery_for_actor"]) == ("rolled_back", "merge", "etl")
    assert graph.view().state.count(graph.view().catalog.types[0]) == 2 * ROWS
    assert graph.verify().ok
