"""`omnigraph export`: data on stdout and nothing else, files with a report, refusals by name. S157"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.conftest import Cli

PEOPLE = ["Ada", "Bob", "Cy", "Di"]


def names_in(text: str) -> list[str]:
    return [json.loads(line)["data"]["name"] for line in text.splitlines()]


def export(*words: str | Path) -> subprocess.CompletedProcess[bytes]:
    """In a process of its own: the records go to stdout as bytes."""
    line = [sys.executable, "-m", "omnigraph.cli.main", "export", *map(str, words)]
    return subprocess.run(line, capture_output=True, timeout=120, check=False, env=os.environ)


def test_stdout_holds_the_records_and_nothing_else(graph_path: Path) -> None:
    report = export(graph_path)
    assert names_in(report.stdout.decode()) == PEOPLE
    assert (report.stderr, report.returncode) == (b"", 0)


def test_a_file_and_its_report(cli: Cli, graph_path: Path, tmp_path: Path) -> None:
    outcome = cli("export", graph_path, "-o", tmp_path / "all.ndjson")
    assert outcome.out == ""
    assert outcome.err.startswith("4 rows of ")
    assert names_in((tmp_path / "all.ndjson").read_text()) == PEOPLE
    shown = cli("export", graph_path, "-o", tmp_path / "all.ndjson", "--overwrite", "--json")
    assert shown.err == ""
    assert shown.json()["counts"] == {"node:Person": 4, "edge:Knows": 0}


def test_an_old_commit_and_a_branch(cli: Cli, graph_path: Path) -> None:
    g = og.open(graph_path)
    first = g.commits(limit=None)[-2].commit_id
    side = g.branch.create("side")
    side.apply([og.statements.InsertNode("Person", {"name": "Eve"})])
    assert names_in(export(graph_path, "--at", first).stdout.decode()) == PEOPLE[:2]
    assert names_in(export(graph_path, "--branch", "side").stdout.decode()) == [*PEOPLE, "Eve"]


def test_formats_and_types(cli: Cli, graph_path: Path, tmp_path: Path) -> None:
    document = cli("export", graph_path, "--format", "parquet", "-o", f"{tmp_path}/out/", "--json").json()
    assert document["files"] == ["node_Person/part-00000.parquet", "edge_Knows/part-00000.parquet"]
    report = export(graph_path, "--format", "csv", "--type", "Person")
    assert report.stdout.decode().splitlines()[:2] == ['"id","name","age"', '"Ada","Ada",']


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (["--type", "Nobody", "-o", "x"], "type_not_found", 1),
        (["--format", "parquet", "-o", "x.parquet"], "one_type_per_file", 5),
        (["--at", "nonsense", "-o", "x"], None, 1),
        (["--json"], "usage", 2),
        (["--format", "xml"], "usage", 2),
    ],
)
def test_refusals(
    cli: Cli,
    graph_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: str | None,
    exit_code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = cli("export", graph_path, *words, "--json")
    assert outcome.code != 0
    assert code is None or outcome.error()["code"] == code
    assert not (tmp_path / "x").exists()


def test_what_is_there_stays(cli: Cli, graph_path: Path, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    assert cli("export", graph_path, "-o", tmp_path / "x", "--json").error()["code"] == "output_exists"
    assert (tmp_path / "x").read_text() == "mine"


def test_a_reader_that_goes_away_ends_it_quietly(graph_path: Path) -> None:
    line = [sys.executable, "-m", "omnigraph.cli.main", "export", str(graph_path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(120)
