"""A real graph, and the command line called as a function."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.main import run

SCHEMA = """// people
node Person {
    name: String @key
    age: I32?
    @range(age, 0..150)
}

edge Knows: Person -> Person {
    since: Date?
}
"""


@dataclass(frozen=True)
class Outcome:
    """What one command line did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def error(self) -> dict[str, Any]:
        """The error object; stdout must hold no data then."""
        assert self.out == ""
        found: dict[str, Any] = json.loads(self.err)
        return found


Cli = Callable[..., Outcome]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "off")
    monkeypatch.delenv("OMNIGRAPH_GRAPH", raising=False)
    monkeypatch.delenv("OMNIGRAPH_DEBUG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def call(*words: str | Path) -> Outcome:
        capsys.readouterr()
        code = run([str(word) for word in words])
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return call


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    path = tmp_path / "people.pg"
    path.write_text(SCHEMA)
    return path


@pytest.fixture
def graph_path(tmp_path: Path, schema_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph with three commits by two actors."""
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "off")
    g = og.init(tmp_path / "graph", schema_file)
    add(g, ["Ada", "Bob"], actor="ada", message="first people")
    add(g, ["Cy"], actor="bob")
    add(g, ["Di"], actor="ada")
    return tmp_path / "graph"


def add(g: og.Graph, names: Sequence[str], **options: Any) -> str:
    receipt = g.apply([og.statements.InsertNode("Person", {"name": name}) for name in names], **options)
    assert receipt.commit_id is not None
    return receipt.commit_id
