"""Everything that the guide tells people to type does what it says."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

import pytest

from omnigraph.cli.main import run

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "schema-change.md"
_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_guide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "off")
    names: dict[str, object] = {}
    blocks = [(kind, textwrap.dedent(text)) for _, kind, text in _BLOCK.findall(GUIDE.read_text("utf-8"))]
    assert [kind for kind, _ in blocks].count("python") == 8
    for kind, text in blocks:
        if kind == "pg":
            Path("people.pg").write_text(text)
        elif kind == "python":
            exec(compile(text, str(GUIDE), "exec"), names)
            _check_comments(text, capsys.readouterr().out)
        else:
            _next_schema(names)
            for line in re.findall(r"^\$ omnigraph (.*)$", text, re.MULTILINE):
                assert run(shlex.split(line)) == 0, line
            capsys.readouterr()


def _check_comments(text: str, printed: str) -> None:
    """What a comment behind a print says in words of Python is what was printed."""
    for match in re.findall(r"print\(.*\) +# (True|False|\d+|OG-\S+|\[.*\] \w+)", text):
        assert match in printed, f"{match!r} is not in {printed!r}"


def _next_schema(names: dict[str, object]) -> None:
    graph = names["g"]
    source: str = graph.schema.source  # type: ignore[attr-defined]
    Path("next.pg").write_text(source + "// next\n")
