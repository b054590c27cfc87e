"""`omnigraph query`: rows, formats, parameters, history, plans and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.conftest import Cli

NAMES = "query names() { match { $p: Person } return { $p.name } order { $p.name } }"
BY_NAME = "query one($n: String) { match { $p: Person { name: $n } } return { $p.name, $p.age } }"


@pytest.fixture
def people(graph_path: Path) -> Path:
    g = og.open(graph_path)
    g.mutate_many(
        "query a($n: String, $a: I32?) { insert Person { name: $n, age: $a } }", [{"n": "q1", "a": 1}, {"n": "q2"}]
    )
    return graph_path


def test_rows_in_every_format(cli: Cli, people: Path) -> None:
    assert {"p.name": "q1"} in cli("query", people, "-e", NAMES, "--json").json()["rows"]
    assert "q2" in cli("query", people, "-e", NAMES, "--format", "csv").out.splitlines()
    assert '{"p.name": "q1"}' in cli("query", people, "-e", NAMES, "--format", "jsonl").out


def test_parameters_are_values_and_never_text(cli: Cli, people: Path) -> None:
    assert cli("query", people, "-e", BY_NAME, "-p", "n=q1", "--json").json()["rows"] == [{"p.name": "q1", "p.age": 1}]
    assert cli("query", people, "-e", BY_NAME, "-p", "n=q1' OR '1'='1", "--json").json()["rows"] == []


def test_an_older_commit_is_read_as_it_was(cli: Cli, people: Path) -> None:
    g = og.open(people)
    then = g.commits(limit=1)[0].commit_id
    g.mutate('query d() { delete Person where name = "q1" }')
    assert {"p.name": "q1"} not in cli("query", people, "-e", NAMES, "--json").json()["rows"]
    assert {"p.name": "q1"} in cli("query", people, "-e", NAMES, "--at", then, "--json").json()["rows"]


def test_the_plan_is_shown_instead_of_rows(cli: Cli, people: Path) -> None:
    outcome = cli("query", people, "-e", BY_NAME, "-p", "n=q1", "--explain")
    assert outcome.code == 0
    assert "Person" in outcome.out


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["-e", "query q( {"], 5, "Q000"),
        (["-e", BY_NAME], 5, "P1"),
        (["-e", BY_NAME, "-p", "n=a", "-p", "m=b"], 5, "P2"),
        (["-e", 'query m() { insert Person { name: "x" } }'], 5, "not_a_query"),
    ],
)
def test_refusals(cli: Cli, people: Path, words: list[str], code: int, error: str) -> None:
    outcome = cli("query", people, *words, "--json")
    assert (outcome.code, outcome.error()["code"]) == (code, error)
