"""The installed program: what it imports, how its help reads, and how it behaves in a pipe and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from omnigraph.cli.main import app

HEAVY = ("pyarrow", "lance", "duckdb", "pyspark", "numpy", "pandas", "obstore", "lark")
PROGRAM = str(Path(sys.executable).with_name("omnigraph"))
# At 80 columns, and without what the caller's shell may have set.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("OMNIGRAPH_")},
    "COLUMNS": "80",
    "OMNIGRAPH_FSYNC": "off",
}


def modules_imported_by(*words: str) -> set[str]:
    script = (
        "import json, sys\n"
        "from omnigraph.cli.main import run\n"
        f"code = run({list(words)!r})\n"
        "print(json.dumps([code, sorted({name.partition('.')[0] for name in sys.modules})]), file=sys.stderr)\n"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    code, modules = json.loads(outcome.stderr.splitlines()[-1])
    assert code in (0, 1), outcome.stderr
    return set(modules)


@pytest.mark.parametrize(
    "words", [["--help"], ["version"], ["commit", "list", "--help"], ["schema", "apply", "--help"], ["studio", "x"]]
)
def test_light_verbs_import_no_heavy_module(words: list[str]) -> None:
    assert not modules_imported_by(*words) & set(HEAVY)


def test_the_check_above_can_fail(graph_path: Path) -> None:
    assert "pyarrow" in modules_imported_by("snapshot", str(graph_path))


def verbs() -> Iterator[list[str]]:
    """Every verb that help shows, and the groups."""
    found = get_command(app)
    yield []
    for name, command in found.commands.items():  # type: ignore[attr-defined]
        if command.hidden:
            continue
        yield [name]
        yield from ([name, inner] for inner, one in getattr(command, "commands", {}).items() if not one.hidden)


@pytest.mark.parametrize("words", list(verbs()), ids=" ".join)
def test_help_fits_eighty_columns(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from omnigraph.cli.main import run

    assert run([*words, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert lines[0].startswith(f"Usage: omnigraph {' '.join(words)}".rstrip())
    # No summary is cut off: a person sees what each verb does. No option is broken in two.
    assert not [line for line in lines if line.endswith("...") and not line.startswith("Usage:")]
    assert not [line for line in lines if re.search(r"--[a-z-]*-$", line)]


@pytest.mark.parametrize("words", list(verbs()), ids=" ".join)
def test_help_is_made_of_words(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Every option and argument is explained, by what it means and not by a type of Python."""
    from omnigraph.cli.main import run

    command = get_command(app)
    for word in words:
        command = command.commands[word]  # type: ignore[attr-defined]
    unexplained = [param.name for param in command.params if not getattr(param, "help", None)]
    assert unexplained == []
    assert run([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    for technical in ("<", ">=", "list[", "{", "]]..."):
        assert technical not in shown.replace("[ARGS]...", "").replace("{mutation_max_rows", "").replace("{AWS", "")


@pytest.mark.parametrize("words", [one for one in verbs() if one], ids=" ".join)
def test_every_verb_is_documented(words: list[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
    assert f"`omnigraph {' '.join(words)}" in page


def test_a_closed_pipe_is_no_error_message(graph_path: Path) -> None:
    command = f"{PROGRAM} commit list {graph_path} --format jsonl | head -n 0"
    outcome = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60, env=ENVIRONMENT
    )
    assert outcome.stderr == ""


def test_text_that_the_terminal_cannot_show_is_escaped(graph_path: Path) -> None:
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(
        [PROGRAM, "commit", "list", str(graph_path), "--branch", "名"],
        capture_output=True, text=True, check=False, timeout=60, env=environment,
    )  # fmt: skip
    assert done.returncode == 1
    assert "\\u540d" in done.stderr


def on_terminal(*words: str, **environment: str) -> str:
    """What the program prints when stdout is a terminal."""
    main_end, child_end = pty.openpty()
    with subprocess.Popen([PROGRAM, *words], stdout=child_end, env={**ENVIRONMENT, "TERM": "xterm", **environment}):
        os.close(child_end)
        shown = b""
        while chunk := _read(main_end):
            shown += chunk
    os.close(main_end)
    return shown.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


def test_colours_only_on_a_terminal(graph_path: Path) -> None:
    assert "\x1b[" in on_terminal("commit", "list", str(graph_path))
    assert "\x1b[36m" not in on_terminal("commit", "list", str(graph_path), NO_COLOR="1")
