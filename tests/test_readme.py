"""The README's own commands and programs, run in an empty directory as a newcomer would."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.timeout(300)
def test_every_command_works_in_the_order_of_the_page(tmp_path: Path) -> None:
    script = "set -euo pipefail\nset -m\n" + "".join(blocks("sh")).replace("8080", str(free_port()))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"PATH": path, "HOME": str(tmp_path), "OMNIGRAPH_FSYNC": "off", "LC_ALL": "C.UTF-8"}
    outcome = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=settings, capture_output=True, text=True, check=False, timeout=280
    )
    assert outcome.returncode == 0, f"{outcome.stdout}\n{outcome.stderr}"
    for said in ("known_by", "inserted", "fast_forward", '"friend"', "Charles"):
        assert said in outcome.stdout, f"{said!r} is not in\n{outcome.stdout}"
    assert (tmp_path / "people.ndjson").read_text().count("\n") > 40
    assert "leaked" not in outcome.stderr  # what an engine below says if it is not let go of


def test_the_first_program_works(tmp_path: Path) -> None:
    program = next(block for block in blocks("python") if "og.init" in block)
    settings = {**os.environ, "OMNIGRAPH_FSYNC": "off"}
    outcome = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=settings, capture_output=True, text=True, check=False
    )
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert "fast_forward" in outcome.stdout
    assert "Bob" in outcome.stdout
