"""`make demo` holds every claim that it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from demo.cast import PAGE, page_of
from demo.demo import STORY

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_demo_runs_and_all_claims_hold() -> None:
    outcome = subprocess.run(
        [sys.executable, "-m", "demo.demo"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=290
    )
    assert outcome.returncode == 0, outcome.stdout[-2000:] + outcome.stderr
    assert "All claims hold." in outcome.stdout
    assert "✗" not in outcome.stdout


def test_the_page_shows_the_demo_as_it_is() -> None:
    """`make cast` has been run since the story changed, and the page tells nothing of the machine it ran on."""
    page = PAGE.read_text()
    titles = re.findall(r"^(\d+\. [^─]+?) ─", page, re.MULTILINE)
    assert titles == [f"{number}. {step.__doc__}" for number, step in enumerate(STORY, start=1)]
    assert "All claims hold." in page
    assert "✗" not in page
    assert re.findall(r"(?<![\w:/])/(?!docs|graphs)\w+/\S*", page) == []


def test_a_page_is_made_of_what_was_printed() -> None:
    printed = (
        f"\n1. Begin ───\n  $ omnigraph init /var/x/omnigraph-demo-a1_b/people --schema {ROOT}/demo/people.pg   \n"
    )
    assert page_of(printed).endswith("```text\n1. Begin ───\n  $ omnigraph init people --schema demo/people.pg\n```\n")
