"""The examples of docs/guides/mutations.md run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "mutations.md"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "off")
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    out = capsys.readouterr().out
    assert "{'inserted': 1, 'updated': 0, 'deleted': 0}" in out
    assert "range node:Person Di 200" in out
    assert re.search(r"endpoint edge:Knows \w{26} nobody", out)
    ages = {row["name"]: row["age"] for row in names["g"].table("Person").to_arrow().to_pylist()}
    assert ages == {"Ada": 36, "Bob": 11, "Cy": 3, "Eve": None}
    assert len(blocks) == 6
