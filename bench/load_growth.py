"""Measures how the time and the driver's memory of loads on Spark grow with their rows, and one-time costs.

Every size runs in a process of its own with a new JVM, so that the peak memory of each is measured.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import omnigraph
from bench.report import Report
from bench.timing import seconds

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
edge Knows: Person -> Person { since: I32? }
"""
QUICK = (100_000, 400_000)
FULL = (1_000_000, 5_000_000, 10_000_000)
LARGE = (*FULL, 20_000_000)
_EDGES_PER_NODE = 5
_GROUP_ROWS = 250_000
_FEW = 1_000
_SEED = 7


def run(report: Report, *, quick: bool, large: bool) -> None:
    first_s, second_s = _in_process("warm")
    report.add(
        f"Two loads of {_FEW:,} rows on Spark in one process",
        [{"first s (starts the JVM)": first_s, "second s": second_s, "second / first": second_s / first_s}],
        "must: at most a third",
    )
    grow(report, QUICK if quick else LARGE if large else FULL)


def grow(report: Report, sizes: Sequence[int]) -> None:
    """Loads each number of edges, and a fifth as many nodes, into an empty graph."""
    measurements: list[dict[str, Any]] = [_in_process("size", str(edges)) for edges in sizes]
    rows = [
        {
            "edges": measurement["edges"],
            "rows": measurement["rows"],
            "seconds": measurement["seconds"],
            "rows/s": round(measurement["rows"] / measurement["seconds"]),
            "driver's Python, peak MiB": measurement["python_mb"],
            "JVM's heap after a collection, MiB": measurement["heap_mb"],
            "JVM's peak, MiB": measurement["jvm_mb"],
        }
        for measurement in measurements
    ]
    report.add("Loads from Parquet by size, validated and indexed", rows, _slope(measurements))


def _slope(measurements: Sequence[dict[str, Any]]) -> str:
    """Returns the seconds per additional million rows, and the exponent with which the time grows."""
    first, last = measurements[0], measurements[-1]
    more = (last["seconds"] - first["seconds"]) / (last["rows"] - first["rows"]) * 1e6
    power = math.log(last["seconds"] / first["seconds"]) / math.log(last["rows"] / first["rows"])
    grown = last["python_mb"] - first["python_mb"]
    return (
        f"slope {more:.2f} s per million rows; time grows with the power {power:.2f} of the rows (linear: 1); "
        f"the driver's Python grew by {grown:.0f} MiB while rows grew {last['rows'] / first['rows']:.0f}-fold"
    )


def _in_process(*arguments: str) -> Any:
    command = [sys.executable, "-m", "bench.load_growth", *arguments]
    completed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(completed.stdout.splitlines()[-1])


# --- inside such a process -------------------------------------------------------------------------------------


def _warm() -> list[float]:
    """Measures the first load, which starts Spark, and the second one, in seconds."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        directory = Path(folder)
        graph = omnigraph.init(directory / "g", SCHEMA)
        spent = []
        for number in range(2):
            path = directory / f"{number}.parquet"
            parquet.write_table(pa.table({"name": [f"p{number}-{row}" for row in range(_FEW)]}), path)
            spent.append(seconds(lambda path=path: _load(graph, {"Person": str(path)})))  # type: ignore[misc]
        return spent


def _size(edges: int) -> dict[str, Any]:
    from omnigraph.spark.session import get_session
    from omnigraph.spark.settings import SparkSettings

    nodes = edges // _EDGES_PER_NODE
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        directory = Path(folder)
        # In another process, so that the memory for writing the input does not count as that of the load.
        subprocess.run([sys.executable, "-m", "bench.load_growth", "inputs", folder, str(edges)], check=True)
        session = get_session(SparkSettings(driver_memory="1g"))
        few = directory / "few.parquet"
        parquet.write_table(pa.table({"name": ["a", "b"]}), few)
        _load(omnigraph.init(directory / "warm", SCHEMA), {"Person": str(few)})
        graph = omnigraph.init(directory / "g", SCHEMA)
        files = {"Person": str(directory / "people.parquet"), "Knows": str(directory / "knows.parquet")}
        spent_s = seconds(lambda: _load(graph, files))
        return {"edges": edges, "rows": nodes + edges, "seconds": spent_s, **_memory(session)}


def _load(graph: omnigraph.Graph, files: dict[str, str]) -> None:
    graph.load(files, mode="append", engine="spark", progress=False)


def _memory(session: Any) -> dict[str, float]:
    from pyspark import SparkContext

    jvm, gateway = session._jvm, SparkContext._gateway
    assert gateway is not None
    jvm.java.lang.System.gc()
    heap = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    return {
        "python_mb": peak_mb("self"),
        "heap_mb": heap / 2**20,
        "jvm_mb": peak_mb(gateway.proc.pid),
    }


def peak_mb(process: int | str) -> float:
    """Returns the peak resident memory of a process. Unlike `ru_maxrss`, it does not include that of the parent."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _inputs(directory: Path, edges: int) -> None:
    """Writes people and whom they know, one row group at a time."""
    choose = np.random.default_rng(_SEED)
    nodes = edges // _EDGES_PER_NODE
    _write(directory / "people.parquet", (_people(choose, numbers) for numbers in _groups(nodes)))
    _write(directory / "knows.parquet", (_knows(choose, nodes, len(numbers)) for numbers in _groups(edges)))


def _groups(count: int) -> Iterator[np.ndarray]:
    for first in range(0, count, _GROUP_ROWS):
        yield np.arange(first, min(first + _GROUP_ROWS, count))


def _people(choose: np.random.Generator, numbers: np.ndarray) -> pa.Table:
    ages = pa.array(choose.integers(0, 99, len(numbers)), pa.int32())
    cities = pa.array(np.char.add("city-", choose.integers(0, 500, len(numbers)).astype(str)))
    return pa.table({"name": _names(numbers), "age": ages, "city": cities})


def _knows(choose: np.random.Generator, nodes: int, count: int) -> pa.Table:
    ends = [_names(choose.integers(0, nodes, count)) for _ in range(2)]
    return pa.table({"from": ends[0], "to": ends[1], "since": pa.array(choose.integers(1990, 2026, count), pa.int32())})


def _names(numbers: np.ndarray) -> pa.Array:
    return pa.array(np.char.add("person-", np.char.zfill(numbers.astype(str), 8)))


def _write(path: Path, tables: Iterator[pa.Table]) -> None:
    first = next(tables)
    with parquet.ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)


def main(verb: str, *arguments: str) -> None:
    if verb == "inputs":
        _inputs(Path(arguments[0]), int(arguments[1]))
        return
    from omnigraph.spark.session import stop_session

    try:
        print(json.dumps(_warm() if verb == "warm" else _size(int(arguments[0]))))
    finally:
        stop_session()


if __name__ == "__main__":
    main(*sys.argv[1:])
