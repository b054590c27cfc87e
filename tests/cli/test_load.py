"""`omnigraph load`: words, options, exit codes, what is printed where. S157"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.conftest import Cli

GOOD = '{"type": "Person", "data": {"name": "Eve", "age": 3}}\n{"edge": "Knows", "from": "Eve", "to": "Ada"}\n'
BAD = GOOD + '{"type": "Person", "data": {"name": "Old", "age": 200}}\nx\n'


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.jsonl"
    path.write_text(GOOD)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.jsonl"
    path.write_text(BAD)
    return path


def test_the_graph_is_the_last_word(cli: Cli, graph_path: Path, good: Path) -> None:
    outcome = cli("load", good, graph_path)
    assert outcome.code == 0
    assert "node:Person: 1 inserted" in outcome.out
    assert outcome.err == "", "a short load is quiet in a pipe"


def test_the_graph_by_option_or_environment(
    cli: Cli, graph_path: Path, good: Path, bad: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("load", good, "--graph", graph_path).code == 0
    monkeypatch.setenv("OMNIGRAPH_GRAPH", str(graph_path))
    assert cli("load", good).code == 0
    assert cli("load", good, bad).code == 5
    assert "is a graph" in cli("load", good, graph_path).err


def test_author_branch_and_json(cli: Cli, graph_path: Path, good: Path) -> None:
    og.open(graph_path).branch.create("review")
    document = cli("load", good, graph_path, "--branch", "review", "--actor", "ada", "-m", "why", "--json").json()
    assert (document["branch"], document["engine"], document["counts"]["edge:Knows"]["inserted"]) == (
        "review",
        "local",
        1,
    )
    newest = og.open(graph_path, "review").commits(limit=1)[0]
    assert (newest.commit_id, newest.actor, newest.message) == (document["commit_id"], "ada", "why")


def test_bad_records_are_listed_with_their_place(cli: Cli, graph_path: Path, bad: Path) -> None:
    outcome = cli("load", bad, graph_path)
    assert (outcome.code, outcome.out) == (5, "")
    assert f"{bad}:3:44: [range] property 'age': 200 is not in the range 0..150" in outcome.err
    assert f"{bad}:4:1: [not_json]" in outcome.err
    assert "in all: not_json 1, range 1" in outcome.err
    error = cli("load", bad, graph_path, "--json").error()
    assert (error["code"], error["reject_count"], error["totals"]) == ("load_rejected", 2, {"not_json": 1, "range": 1})
    assert [reject["line"] for reject in error["rejects"]] == [3, 4]


def test_skipping(cli: Cli, graph_path: Path, bad: Path, tmp_path: Path) -> None:
    assert cli("load", bad, graph_path, "--on-error", "skip").code == 5
    outcome = cli("load", bad, graph_path, "--on-error", "skip", "--rejects", tmp_path / "r")
    assert outcome.code == 0
    assert "2 (not_json 1, range 1)" in outcome.out
    (file,) = (tmp_path / "r").iterdir()
    assert str(file) in outcome.err
    assert [json.loads(line)["line"] for line in file.read_text().splitlines()] == [3, 4]


def test_files_of_one_type(cli: Cli, graph_path: Path, tmp_path: Path) -> None:
    (tmp_path / "p1.csv").write_text("name,age\nEve,3\n")
    (tmp_path / "p2.csv").write_text("name,age\nFay,4\n")
    (tmp_path / "k.csv").write_text("from,to\nEve,Fay\n")
    people = ["--type", f"Person={tmp_path}/p1.csv", "--type", f"Person={tmp_path}/p2.csv"]
    document = cli("load", graph_path, *people, "--edge", f"Knows={tmp_path}/k.csv", "--json").json()
    assert {table: one["inserted"] for table, one in document["counts"].items()} == {"node:Person": 2, "edge:Knows": 1}


def test_modes(cli: Cli, graph_path: Path, good: Path) -> None:
    assert cli("load", good, graph_path, "--mode", "append").code == 0
    assert cli("load", good, graph_path, "--mode", "append").code == 5
    twice = good.with_name("twice.jsonl")
    twice.write_text(GOOD + GOOD)
    assert cli("load", twice, graph_path, "--on-duplicate", "fail").code == 5
    assert "duplicates:  1" in cli("load", twice, graph_path).out


def test_a_lost_precondition_and_a_repetition(cli: Cli, graph_path: Path, good: Path) -> None:
    before = og.open(graph_path).refresh()
    first = cli("load", good, graph_path, "--if-commit", before, "--client-key", "k", "--json").json()
    again = cli("load", good, graph_path, "--client-key", "k", "--json").json()
    assert (again["replayed"], again["commit_id"]) == (True, first["commit_id"])
    assert cli("load", good, graph_path, "--if-commit", before).code == 4


@pytest.mark.parametrize(
    "words",
    [
        ["load"],
        ["load", "{g}"],
        ["load", "{f}", "{g}", "--mode", "perhaps"],
        ["load", "{g}", "--type", "Person"],
        ["load", "{g}", "--edge", "=x"],
        ["load", "{f}", "{g}", "--spark-conf", "x"],
    ],
)
def test_usage(cli: Cli, graph_path: Path, good: Path, words: list[str]) -> None:
    assert cli(*(word.format(g=graph_path, f=good) for word in words)).code == 2


def test_a_missing_file(cli: Cli, graph_path: Path, tmp_path: Path) -> None:
    error = cli("load", tmp_path / "nothing.jsonl", graph_path, "--json").error()
    assert error["code"] == "file_error"
