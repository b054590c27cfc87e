"""Loads, reads and exports through Spark Connect, against a real server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.spark.bed import make_graph

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="module")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    port = _free_port()
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    line = [f"{Path(pyspark.__file__).parent}/bin/spark-submit", "--master", "local[2,4]", "--driver-memory", "1g"]
    line += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    line += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with (tmp_path_factory.mktemp("connect") / "log").open("wb") as log:
        server = subprocess.Popen(line, stdout=log, stderr=log, env=environment)
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _client(remote: str | None, *arguments: str) -> list[str]:
    """What the client prints. The client itself tries again until the server answers."""
    environment = {**os.environ, "PYTHONPATH": ROOT, "OMNIGRAPH_FSYNC": "off"}
    if remote is not None:
        environment["SPARK_REMOTE"] = remote
    process = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_client", *arguments],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        cwd=ROOT,
        env=environment,
    )
    lines = process.stdout.splitlines()
    assert lines[-1:] == ["done"], process.stderr
    return lines[:-1]


def test_reads_and_exports(connect_server: str, tmp_path: Path) -> None:
    make_graph(tmp_path / "g", "pin and overlay")
    _client(connect_server, "read", str(tmp_path / "g"), str(tmp_path))
    assert (tmp_path / "spark.ndjson").read_bytes() == (tmp_path / "local.ndjson").read_bytes() != b""


def test_loads(connect_server: str, tmp_path: Path, sweep_seed: int) -> None:  # S138
    _client(connect_server, "load", str(tmp_path), str(sweep_seed))


def test_the_callers_session_and_its_frames(connect_server: str, tmp_path: Path) -> None:
    _client(None, "frames", connect_server, str(tmp_path))


def test_a_server_that_does_not_answer_is_told(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    address = f"sc://127.0.0.1:{_free_port()}"
    (told,) = _client(f"{address}/;token=secret", "refused", str(tmp_path))
    message = f"the Spark Connect server at {address} does not answer: no connection within 2 s"
    assert json.loads(told) == {"class": "Unavailable", "code": "unavailable", "message": message}
