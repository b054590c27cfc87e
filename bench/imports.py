"""Measures the import of the library and the start of the command line, against the import of pyarrow alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.report import Report
from bench.timing import seconds

LIMIT = 3.0
"""The promise: at most this many times the import of pyarrow, which the library needs in any case."""

_PYTHON = [sys.executable, "-c"]
COMMANDS: dict[str, Sequence[str]] = {
    "import pyarrow": [*_PYTHON, "import pyarrow"],
    "import omnigraph": [*_PYTHON, "import omnigraph"],
    "import omnigraph and use it": [*_PYTHON, "import omnigraph; omnigraph.open"],
    "omnigraph --help": [str(Path(sys.executable).with_name("omnigraph")), "--help"],
}
PROMISED = ("import omnigraph", "omnigraph --help")
HEAVY = ("lance", "pyspark", "pandas", "duckdb", "obstore", "typer", "rich")


def run(report: Report, *, quick: bool) -> None:
    best = best_s(5 if quick else 15)
    base_s = best["import pyarrow"]
    rows = [
        {
            "command": name,
            "seconds": spent,
            "ratio": spent / base_s,
            "promised": f"≤ {LIMIT:g}" if name in PROMISED else "",
        }
        for name, spent in best.items()
    ]
    report.add("Start-up", rows, "the best of several runs, taken in turns")
    report.add(
        "Modules that `import omnigraph` loads",
        [{"module": name, "loaded": name in loaded_packages()} for name in HEAVY],
    )


def best_s(repeat: int) -> dict[str, float]:
    """Returns the shortest time of each command. The commands take turns, so that a busy machine slows all of them."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(repeat + 1):
        for name, command in COMMANDS.items():
            times[name].append(seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)))  # noqa: B023
    return {name: min(spent[1:]) for name, spent in times.items()}


def loaded_packages() -> set[str]:
    """Returns the top-level packages in memory after `import omnigraph`."""
    script = "import sys, omnigraph; print(*{name.partition('.')[0] for name in sys.modules})"
    return set(subprocess.run([*_PYTHON, script], check=True, capture_output=True, text=True).stdout.split())
