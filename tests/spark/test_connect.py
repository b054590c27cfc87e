"""The same reads and exports through Spark Connect, against a real server."""

from __future__ import annotations

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

SCRIPT = """
import sys
import omnigraph as og
from omnigraph.spark.session import get_session, is_connect, stop_session
from tests.spark.bed import comparable
g = og.open(sys.argv[1])
assert is_connect(get_session())
assert comparable(g.spark("Thing").toArrow()) == comparable(g.table("Thing").to_arrow())
assert [row.name for row in g.spark("Thing", columns=["name"], where="small = 41").collect()] == ["void"]
g.export(sys.argv[2] + "/spark.ndjson", engine="spark", progress=False, types=["Thing", "Has"])
g.export(sys.argv[2] + "/local.ndjson", engine="local", progress=False, types=["Thing", "Has"])
stop_session()
print("done")
"""


@pytest.fixture
def connect_server(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    line = [f"{Path(pyspark.__file__).parent}/bin/spark-submit", "--master", "local[2,4]", "--driver-memory", "1g"]
    line += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    line += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(line, stdout=log, stderr=log, env=environment)
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def test_reads_and_exports(connect_server: str, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    make_graph(tmp_path / "g", "pin and overlay")
    done = subprocess.run(  # the client itself tries again until the server answers
        [sys.executable, "-c", SCRIPT, str(tmp_path / "g"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env={**os.environ, "SPARK_REMOTE": connect_server, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.stdout == "done\n", done.stderr
    assert (tmp_path / "spark.ndjson").read_bytes() == (tmp_path / "local.ndjson").read_bytes() != b""
