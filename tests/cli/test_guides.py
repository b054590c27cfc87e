"""The commands of a guide run as they stand, and print what it says they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
_EXPECTED_CODE = re.compile(r"\s+# exit code (\d)$")


def commands(page: Path) -> list[tuple[str, int, list[str]]]:
    """(command, exit code, lines that it is shown to print) of every `$` line."""
    found: list[tuple[str, int, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                code = _EXPECTED_CODE.search(line)
                found.append((_EXPECTED_CODE.sub("", line[2:]), int(code[1]) if code else 0, []))
            else:
                found[-1][2].append(line)
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["branches-and-merge"])
def test_a_guide_in_an_empty_folder(tmp_path: Path, name: str) -> None:
    program = tmp_path / "bin" / "omnigraph"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m omnigraph.cli.main "$@"\n')
    program.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    # One shell for all of them: an exported variable must reach the commands after it.
    script = [f"PATH={program.parent}:$PATH; export OMNIGRAPH_FSYNC=off HOME={tmp_path}"]
    wanted = commands(GUIDES / f"{name}.md")
    for number, (command, _, _) in enumerate(wanted):
        script.append(f"{{ {command}; }} > {tmp_path}/{number}.out 2> {tmp_path}/{number}.err")
        script.append(f"echo $? >> {tmp_path}/codes")
    subprocess.run(["/bin/sh", "-c", "\n".join(script)], cwd=work, check=True, timeout=550)
    codes = [int(line) for line in (tmp_path / "codes").read_text().split()]
    for number, (command, code, lines) in enumerate(wanted):
        out, err = (_text(tmp_path / f"{number}.{end}") for end in ("out", "err"))
        assert codes[number] == code, f"{command}\n{out}{err}"
        if lines:
            assert [line.rstrip() for line in (err if code else out).splitlines()] == lines, command


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
