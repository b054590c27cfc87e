"""S157: every long operation shows progress on a terminal and is quiet when piped."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.test_process import ENVIRONMENT, PROGRAM

OPERATIONS = {
    "load": ["load", "{t}/people.jsonl", "{g}"],
    "export": ["export", "{g}", "--output", "{t}/all.ndjson"],
    "optimize": ["optimize", "{g}"],
}


@pytest.fixture
def words(request: pytest.FixtureRequest, graph_path: Path, tmp_path: Path) -> list[str]:
    lines = [{"type": "Person", "data": {"name": f"p{n:04d}"}} for n in range(2000)]
    (tmp_path / "people.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return [word.format(g=graph_path, t=tmp_path) for word in OPERATIONS[request.param]]


def _on_terminal(words: list[str]) -> str:
    """What the program says on stderr when that is a terminal."""
    ours, theirs = pty.openpty()
    environment = {**ENVIRONMENT, "TERM": "xterm"}
    with subprocess.Popen([PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=theirs, env=environment) as child:
        os.close(theirs)
        said = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not chunk:
                break
            said += chunk
    os.close(ours)
    assert child.returncode == 0, said
    return _without_report(said.decode())


def _without_report(said: str) -> str:
    """Export says on stderr what it wrote, since stdout is for the data: that is its answer, not its progress."""
    return re.sub(r"^\d+ rows of .*\r?\n", "", said, flags=re.MULTILINE)


@pytest.mark.parametrize("words", OPERATIONS, indirect=True)
def test_s157_progress_on_a_terminal(words: list[str]) -> None:
    assert _on_terminal(words).strip() != ""


@pytest.mark.parametrize("words", OPERATIONS, indirect=True)
def test_s157_quiet_in_a_pipe(words: list[str]) -> None:
    outcome = subprocess.run(
        [PROGRAM, *words], capture_output=True, text=True, check=True, timeout=120, env=ENVIRONMENT
    )
    assert _without_report(outcome.stderr) == ""


@pytest.mark.parametrize("words", ["load", "export"], indirect=True)
def test_s157_quiet_if_that_is_wanted(words: list[str]) -> None:
    assert _on_terminal([*words, "--quiet"]) == ""
