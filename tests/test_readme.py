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
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=settings, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for said in ("known_by", "inserted", "fast_forward", '"friend"', "Charles"):
        assert said in done.stdout, f"{said!r} is not in\n{done.stdout}"
    assert (tmp_path / "people.ndjson").read_text().count("\n") > 40
    assert "leaked" not in done.stderr  # what an engine below says if it is not let go of


def test_the_first_program_works(tmp_path: Path) -> None:
    program = next(one for one in blocks("python") if "og.init" in one)
    settings = {**os.environ, "OMNIGRAPH_FSYNC": "off"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=settings, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "fast_forward" in done.stdout
    assert "Bob" in done.stdout
