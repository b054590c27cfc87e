"""The benchmark runs, keeps its numbers, and what it promises about start-up rests on what is not loaded."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from bench.imports import HEAVY, loaded_packages
from bench.report import Report, save


def test_it_starts() -> None:
    root = Path(__file__).parents[2]
    outcome = subprocess.run(
        [sys.executable, "-m", "bench", "--help"], cwd=root, check=True, capture_output=True, text=True
    )
    assert "--quick" in outcome.stdout


def test_a_report_is_printed_and_kept(tmp_path: Path) -> None:
    printed = io.StringIO()
    report = Report("writes", Console(file=printed, width=100))
    report.add("Some costs", [{"operation": "insert", "requests": 1}, {"operation": "fold", "seconds": 0.25}], "a note")
    document = json.loads(save(report, tmp_path / "new").read_text())
    assert document["tables"]["Some costs"] == [
        {"operation": "insert", "requests": 1},
        {"operation": "fold", "seconds": 0.25},
    ]
    assert {"pylance", "omnigraph"} <= document["versions"].keys()
    for part in ("Some costs", "insert", "0.25", "a note"):
        assert part in printed.getvalue()


def test_importing_the_library_loads_nothing_heavy() -> None:
    assert not loaded_packages().intersection(HEAVY)
    assert "pyarrow" not in loaded_packages()
