"""The same changes through Python and the command line: the text exactly as given, and exit codes for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.main import run
from omnigraph.query.language.statements import InsertNode

SOURCE = "// Leute, 人\r\nnode Person {\n\tname: String @key   age: I32?\n}\n\n/* end, without a line break */"
CHANGES = {
    "required without default": ("age: I32?", "age: I32?  rank: I32", 5, "OG-MF-103"),
    "another type": ("age: I32?", "age: String?", 5, "OG-MF-106"),
    "another key": ("String @key", "String", 5, "OG-MF-106"),
    "a rule that rows break": ("age: I32?", "age: I32", 5, "OG-MF-107"),
    "no schema at all": ("node Person", "node", 5, "OG-S-001"),
}


@pytest.fixture
def graph_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "off")
    monkeypatch.delenv("OMNIGRAPH_GRAPH", raising=False)
    file = tmp_path / "first.pg"
    file.write_bytes(SOURCE.encode())
    og.init(tmp_path / "graph", file).apply([InsertNode("Person", {"name": "Ada"})])
    return tmp_path / "graph"


def _file(folder: Path, text: str) -> str:
    path = folder.parent / "new.pg"
    path.write_bytes(text.encode())
    return str(path)


def test_schema_show_prints_the_source_exactly(graph_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    g = og.open(graph_path)
    assert g.schema.source == SOURCE
    later = SOURCE.replace("age", "years")
    first = g.refresh()
    g.schema.apply(later)
    for words, expected in (([], later), (["--at", first], SOURCE)):
        assert run(["schema", "show", str(graph_path), *words]) == 0
        assert capfdbinary.readouterr().out == expected.encode() + b"\n"
        assert run(["schema", "show", str(graph_path), *words, "--json"]) == 0
        assert json.loads(capfdbinary.readouterr().out)["source"] == expected


@pytest.mark.parametrize("change", CHANGES)
def test_a_refused_change_by_the_command_line(
    graph_path: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, exit_code, code = CHANGES[change]
    head = og.open(graph_path).refresh()
    file = _file(graph_path, SOURCE.replace(old, new))
    assert run(["schema", "apply", str(graph_path), "--schema", file, "--json"]) == exit_code
    out, err = capsys.readouterr()
    assert out == ""
    document = json.loads(err)
    assert document["code"] == code
    if code == "OG-MF-107":
        assert [violation["id"] for violation in document["violations"]] == ["Ada"]
    assert og.open(graph_path).refresh() == head
    planned = run(["schema", "plan", str(graph_path), "--schema", file, "--json"])
    assert planned == (0 if code == "OG-MF-107" else exit_code)  # a plan looks at no rows


def test_a_change_on_a_branch_by_the_command_line(graph_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    g = og.open(graph_path)
    g.branch.create("dev")
    file = _file(graph_path, SOURCE.replace("age: I32?", "age: I64?  nick: String?"))
    assert run(["schema", "apply", str(graph_path), "--branch", "dev", "--schema", file, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [step["step"] for step in document["steps"]] == ["add_property", "widen"]
    assert document["commit_id"] == g.on_branch("dev").refresh()
    assert g.schema.source == SOURCE
    assert run(["schema", "apply", str(graph_path), "--branch", "dev", "--schema", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["commit_id"] is None
