"""A standalone cluster of real processes: a master, two workers, executors of their own; one of them is killed."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from omnigraph.graph import Graph
from tests.spark.loading import ONE_TASK, new_graph

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 60_000
_STARTED = re.compile(r"Successfully registered with master|I have been elected leader")

_DRIVER = r"""
import json, os, resource, signal, sys
import omnigraph as og
from omnigraph.spark import load as load_module
from omnigraph.spark.staging import stage_split

root, people, knows, marks, master, speculate = sys.argv[1:]

def stage(job, number):
    results = list(stage_split(job, number))
    mark = os.path.join(marks, "killed" if speculate == "no" else "slow")
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        yield from results
        return
    if speculate == "no":
        executor = int(open(f"/proc/{os.getppid()}/stat").read().rsplit(")", 1)[1].split()[1])
        os.kill(executor, signal.SIGKILL)
    import time
    time.sleep(60)
    yield from results

load_module.stage_split = stage
conf = {
    "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
}
if speculate == "yes":
    conf |= {"spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.multiplier": "1.5",
             "spark.speculation.quantile": "0.3"}
report = og.open(root).load(
    {"Person": people, "Knows": knows}, mode="append", engine="spark", master=master, spark_conf=conf, progress=False
)
print(json.dumps({"loaded": report.loaded, "commit": report.commit_id}))
"""


@dataclass(frozen=True)
class Cluster:
    address: str
    log: Path


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    import pyspark

    place = tmp_path_factory.mktemp("cluster")
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    launcher = str(home / "bin" / "spark-class")
    port = _free_port()
    address = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [
        [launcher, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
        *(
            [
                launcher, f"{deploy}.worker.Worker", address, "--host", "127.0.0.1", "--cores", "1", "--memory", "1g",
                "--webui-port", "0", "--work-dir", str(place / f"work{number}"),
            ]
            for number in range(2)
        ),
    ]  # fmt: skip
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            log = place / f"{number}.log"
            with log.open("wb") as out:
                running.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
            _wait_started(log, running[-1])
        yield Cluster(address, place)
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(30)


def _wait_started(log: Path, process: subprocess.Popen[bytes]) -> None:
    """Spark says in its log when it is ready, and nowhere else."""
    deadline = time.monotonic() + 120
    while not _STARTED.search(log.read_text(errors="replace")):
        assert process.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.2)


def _inputs(place: Path) -> tuple[str, str]:
    names = [f"n{one}" for one in range(ROWS)]
    ages = pa.array([one % 90 for one in range(ROWS)], pa.int32())
    pa.parquet.write_table(pa.table({"name": names, "age": ages}), place / "people.parquet", row_group_size=10_000)
    ends = {"from": names, "to": names[::-1], "id": [f"k{one}" for one in range(ROWS)]}
    pa.parquet.write_table(pa.table(ends), place / "knows.parquet", row_group_size=10_000)
    return str(place / "people.parquet"), str(place / "knows.parquet")


@pytest.mark.parametrize("speculate", ["no", "yes"])
def test_exactly_once_on_a_cluster(cluster: Cluster, tmp_path: Path, speculate: str) -> None:  # S136, S137
    graph = new_graph(tmp_path / "g", ONE_TASK)
    people, knows = _inputs(tmp_path)
    marks = tmp_path / "marks"
    marks.mkdir()
    arguments = [str(tmp_path / "g"), people, knows, str(marks), cluster.address, speculate]
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMNIGRAPH_FSYNC": "off"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert json.loads(done.stdout.splitlines()[-1])["loaded"] == 2 * ROWS
    assert [one.name for one in marks.iterdir()] == ["killed" if speculate == "no" else "slow"]
    _assert_whole(graph)


def _assert_whole(graph: Graph) -> None:
    graph.refresh()
    assert [one.kind for one in graph.commits()] == ["load", "init"]
    found = graph.table("Person").to_arrow(columns=["id"])["id"].to_pylist()
    assert sorted(found) == sorted(f"n{one}" for one in range(ROWS))
    edges = graph.table("Knows").to_arrow(columns=["id", "from", "to"]).to_pylist()
    assert len(edges) == ROWS
    assert {row["id"]: (row["from"], row["to"]) for row in edges} == {
        f"k{one}": (f"n{one}", f"n{ROWS - 1 - one}") for one in range(ROWS)
    }
    assert graph.verify().ok
