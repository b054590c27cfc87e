"""A standalone cluster of real processes on the loopback interface: a master and two workers of one core each."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STARTED = re.compile(r"Successfully registered with master|I have been elected leader")
_START_S, _END_S = 120, 30

#: Two names for one machine: Spark runs the copy of a slow task on another host than the first.
HOSTS = ("127.0.0.1", "localhost")


@contextmanager
def running_cluster(path: Path) -> Iterator[str]:
    """The address of its master; `place` gets logs and working directories. All of it ends with the context."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    launcher, deploy, port = str(home / "bin" / "spark-class"), "org.apache.spark.deploy", _free_port()
    address = f"spark://127.0.0.1:{port}"
    master = ["master.Master", "--host", "127.0.0.1", "--port", str(port)]
    workers = [
        ["worker.Worker", address, "--host", host, "--cores", "1", "--memory", "1g", "--work-dir", f"{path}/{host}"]
        for host in HOSTS
    ]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number, (name, *arguments) in enumerate([master, *workers]):
            log = path / f"{number}.log"
            command = [launcher, f"{deploy}.{name}", *arguments, "--webui-port", "0"]
            with log.open("wb") as out:
                running.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
            _wait_started(log, running[-1])
        yield address
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(_END_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_started(log: Path, process: subprocess.Popen[bytes]) -> None:
    """Spark says in its log when it is ready, and nowhere else."""
    deadline = time.monotonic() + _START_S
    while not _STARTED.search(log.read_text(errors="replace")):
        assert process.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.2)
