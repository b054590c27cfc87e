"""Measures inserts per second: one writer, several processes on one branch, and threads that share commit records."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import omnigraph
from omnigraph.query.language.statements import InsertNode

SCHEMA = "node Note { text: String }\n"
PROCESSES = 4
THREADS = 12


def measure(folder: Path, seconds_each: float) -> list[dict[str, Any]]:
    """Measures each way to write, as one row of the table."""
    ways: dict[str, Callable[[str, float], int]] = {
        "1 process, 1 thread": lambda path, seconds_s: _in_threads(path, seconds_s, 1),
        f"{PROCESSES} processes, 1 thread each": _in_processes,
        f"1 process, {THREADS} threads (group commit)": lambda path, seconds_s: _in_threads(path, seconds_s, THREADS),
    }
    rows = []
    for number, (name, write) in enumerate(ways.items()):
        path = str(folder / f"throughput{number}")
        graph = omnigraph.init(path, SCHEMA)
        _insert(graph)
        acknowledged = write(path, seconds_each)
        commits = graph.commits(limit=None)
        landed = graph.table("Note").count()
        assert landed - acknowledged in (1, 1 + PROCESSES), f"{acknowledged} acknowledged, {landed} there"
        records = sum(commit.kind == "mutate" for commit in commits)
        rows.append(
            {
                "writers": name,
                "inserts/s": acknowledged / seconds_each,
                "inserts per record": acknowledged / max(1, records),
                "folds": sum(commit.kind == "fold" for commit in commits),
            }
        )
    return rows


def _in_threads(path: str, seconds_s: float, threads: int) -> int:
    graph = omnigraph.open(path)
    start = threading.Barrier(threads)

    def write(_: int) -> int:
        start.wait()
        until_s = time.monotonic() + seconds_s
        writes = 0
        while time.monotonic() < until_s:
            _insert(graph)
            writes += 1
        return writes

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(write, range(threads)))


def _insert(graph: omnigraph.Graph) -> None:
    graph.apply([InsertNode("Note", {"text": "x"})])


def _in_processes(path: str, seconds_s: float) -> int:
    """Runs child processes that start together; each reports in the end how many of its inserts were acknowledged."""
    command = [sys.executable, "-m", "bench.throughput", path, str(seconds_s)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    return sum(int(child.communicate()[0]) for child in children)


def _child(path: str, seconds_s: float) -> None:
    _insert(omnigraph.open(path))  # what is loaded by the first write is not what is measured
    print("ready", flush=True)
    sys.stdin.readline()
    print(_in_threads(path, seconds_s, 1), flush=True)


if __name__ == "__main__":
    _child(sys.argv[1], float(sys.argv[2]))
