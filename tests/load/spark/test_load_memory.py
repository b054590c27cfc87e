"""The driver's memory does not grow with the rows of a load (S139)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.load.spark.loading import ONE_TASK, new_graph

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SMALL, LARGE = 100_000, 1_000_000
GROWTH_MAX_MB = 100

#: Loads two inputs, the second ten times the first, in a process of its own; says how much memory it had after each.
#: Not by `ru_maxrss`, which begins with what the process that started it had.
_DRIVER = """
import json, sys
from pathlib import Path
import omnigraph as og
from omnigraph.spark.session import get_session
from omnigraph.spark.settings import SparkSettings

get_session(SparkSettings(driver_memory="1g"))
peaks = []
for root, path in zip(sys.argv[1::2], sys.argv[2::2]):
    report = og.open(root).load({"Person": path}, mode="append", engine="spark", progress=False)
    peaks.append([report.loaded, int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) // 1024])
print(json.dumps(peaks))
"""


def test_ten_times_the_rows_need_no_more_memory_on_the_driver(tmp_path: Path) -> None:
    arguments: list[str] = []
    for rows in (SMALL, LARGE):
        numbers = np.arange(rows)
        names = pa.array(np.char.add("person-", numbers.astype(str)))
        cities = pa.array(np.char.add("a city with a long name ", (numbers % 977).astype(str)))
        path = tmp_path / f"{rows}.parquet"
        pa.parquet.write_table(pa.table({"name": names, "city": cities}), path, row_group_size=50_000)
        new_graph(tmp_path / f"g{rows}", ONE_TASK)
        arguments += [str(tmp_path / f"g{rows}"), str(path)]
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER, *arguments],
        capture_output=True,
        text=True,
        timeout=800,
        env={**os.environ, "OMNIGRAPH_FSYNC": "off"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    (small, small_mb), (large, large_mb) = json.loads(done.stdout.splitlines()[-1])
    assert (small, large) == (SMALL, LARGE)
    assert large_mb - small_mb < GROWTH_MAX_MB, (small_mb, large_mb)
