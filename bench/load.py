"""Measures bulk loads: rows per second of a validated, indexed load, beside writes without validation and indexes."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
from pyarrow import parquet

import omnigraph
from bench import load_growth
from bench.load_growth import SCHEMA
from bench.report import Report
from bench.timing import seconds
from omnigraph.spark.session import get_session, stop_session
from omnigraph.spark.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GROUP_ROWS = 250_000
_SEED = 7

Way = Callable[[], object]


@dataclass(frozen=True)
class Size:
    """How much is loaded. Afterwards `again` rows are upserted, half of which are new."""

    nodes: int
    edges: int
    again: int

    @property
    def rows(self) -> int:
        return self.nodes + self.edges


FULL, QUICK = Size(1_000_000, 5_000_000, 200_000), Size(50_000, 250_000, 10_000)


def run(report: Report, *, quick: bool, large: bool = False) -> None:
    _measure(report, QUICK if quick else FULL)
    load_growth.run(report, quick=quick, large=large)


def _measure(report: Report, size: Size) -> None:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        directory = Path(folder)
        # In a process of its own, so that its memory does not count as that of the load.
        writing = get_context("spawn").Process(target=_write_inputs, args=(directory, size))
        writing.start()
        writing.join()
        session = get_session(SparkSettings(driver_memory="1g"))
        try:
            _warm(directory, session)
            _compare(report, directory, session, size)
        finally:
            stop_session()


def _compare(report: Report, directory: Path, session: SparkSession, size: Size) -> None:
    files = {"Person": str(directory / "people.parquet"), "Knows": str(directory / "knows.parquet")}
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spent = {
        "(b) Spark reads Parquet and writes Parquet": seconds(lambda: _spark_copy(directory, session)),
        "omnigraph, Parquet": seconds(lambda: _load(directory / "g-parquet", files)),
        "omnigraph, NDJSON": seconds(lambda: _load(directory / "g-ndjson", str(directory / "mixed.ndjson"))),
    }
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    spent["(a) bare pylance, one process"] = seconds(lambda: _bare(directory))
    for name, way in (("Ladybug", "ladybug"), ("Kuzu", "kuzu")):
        copied = _copy_into(way, directory)
        if copied is not None:
            spent[f"(c) {name} COPY"] = copied
    base_s = spent["(b) Spark reads Parquet and writes Parquet"]
    rows = [
        {"way": name, "seconds": spent_s, "rows/s": round(size.rows / spent_s), "times (b)": spent_s / base_s}
        for name, spent_s in spent.items()
    ]
    title = f"Load of {size.nodes:,} nodes and {size.edges:,} edges"
    report.add(title, rows, f"Spark's session is running already; the driver's Python grew by {grown_mb:.0f} MiB")
    again_s = seconds(
        lambda: _load(directory / "g-parquet", {"Person": str(directory / "again.parquet")}, mode="merge")
    )
    report.add(
        f"Upsert of {size.again:,} nodes, half of them new, into that graph",
        [
            {
                "seconds": again_s,
                "rows/s": round(size.again / again_s),
                "of the load": again_s / spent["omnigraph, Parquet"],
            }
        ],
    )


def _names(numbers: np.ndarray) -> pa.Array:
    return pa.array(np.char.add("person-", np.char.zfill(numbers.astype(str), 8)))


def _write_inputs(directory: Path, size: Size) -> None:
    choose = np.random.default_rng(_SEED)
    everybody = _names(np.arange(size.nodes))
    ages = pa.array(choose.integers(0, 99, size.nodes), pa.int32())
    cities = pa.array(np.char.add("city-", choose.integers(0, 500, size.nodes).astype(str)))
    people = pa.table({"name": everybody, "age": ages, "city": cities})
    ends = [everybody.take(pa.array(choose.integers(0, size.nodes, size.edges))) for _ in range(2)]
    since = pa.array(choose.integers(1990, 2026, size.edges), pa.int32())
    knows = pa.table({"from": ends[0], "to": ends[1], "since": since})
    parquet.write_table(people, directory / "people.parquet", row_group_size=_GROUP_ROWS)
    parquet.write_table(knows, directory / "knows.parquet", row_group_size=_GROUP_ROWS)
    numbers = np.arange(size.nodes - size.again // 2, size.nodes + size.again // 2)
    again = pa.table({"name": _names(numbers), "age": pa.array(np.full(len(numbers), 50), pa.int32())})
    parquet.write_table(again, directory / "again.parquet", row_group_size=_GROUP_ROWS)
    with (directory / "mixed.ndjson").open("w") as out:
        for part in people.to_batches(max_chunksize=_GROUP_ROWS):
            out.writelines(json.dumps({"type": "Person", "data": row}) + "\n" for row in part.to_pylist())
        for part in knows.to_batches(max_chunksize=_GROUP_ROWS):
            out.writelines(_edge_line(row) for row in part.to_pylist())


def _edge_line(row: dict[str, Any]) -> str:
    return json.dumps({"edge": "Knows", "from": row["from"], "to": row["to"], "data": {"since": row["since"]}}) + "\n"


def _warm(directory: Path, session: SparkSession) -> None:
    """Runs everything once with a few rows, so that no measurement includes costs that a process pays once."""
    few = directory / "few.parquet"
    parquet.write_table(pa.table({"name": ["a", "b"]}), few)
    _load(directory / "g-warm", {"Person": str(few)})
    session.read.parquet(str(few)).write.parquet(str(directory / "copied-warm"))


def _load(directory: Path, inputs: Any, mode: Any = "append") -> None:
    graph = omnigraph.open(directory) if directory.exists() else omnigraph.init(directory, SCHEMA)
    graph.load(inputs, mode=mode, engine="spark", progress=False)


def _spark_copy(directory: Path, session: SparkSession) -> None:
    for name in ("people", "knows"):
        session.read.parquet(str(directory / f"{name}.parquet")).write.parquet(str(directory / f"copied-{name}"))


def _bare(directory: Path) -> None:
    for name in ("people", "knows"):
        lance.write_dataset(parquet.read_table(directory / f"{name}.parquet"), str(directory / f"bare-{name}"))


_COPY = """
import sys, time
package, place = sys.argv[1:]
module = __import__(package)
connection = module.Connection(module.Database(f"{place}/{package}.db"))
connection.execute("CREATE NODE TABLE Person(name STRING PRIMARY KEY, age INT32, city STRING)")
connection.execute("CREATE REL TABLE Knows(FROM Person TO Person, since INT32)")
started = time.perf_counter()
connection.execute(f"COPY Person FROM '{place}/people.parquet'")
connection.execute(f"COPY Knows FROM '{place}/knows.parquet'")
print(time.perf_counter() - started, flush=True)
"""


def _copy_into(package: str, directory: Path) -> float | None:
    """Measures a COPY of the same Parquet files in seconds; None if the package is not installed.

    Runs in a process of its own, since two such engines cannot be loaded into one process.
    """
    command = [sys.executable, "-c", _COPY, package, str(directory)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(completed.stdout.split()[0]) if completed.stdout.split() else None
