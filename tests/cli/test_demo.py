"""`make demo` holds every claim that it prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_demo_runs_and_all_claims_hold() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "demo.demo"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=290
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "All claims hold." in done.stdout
    assert "✗" not in done.stdout
