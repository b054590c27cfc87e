"""`omnigraph mutate`: where the query and its parameters come from, and that Python and the command line agree. S156"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import OmnigraphError
from tests.cli.conftest import Cli

ADD = "query add($n: String, $age: I32?) { insert Person { name: $n, age: $age } }"
KNOWS = "query knows($a: String, $b: String, $d: Date?) { insert Knows { from: $a, to: $b, since: $d } }"


def _ages(path: Path) -> dict[str, int | None]:
    return {row["name"]: row["age"] for row in og.open(path).table("Person").to_arrow().to_pylist()}


# --- input ---------------------------------------------------------------------------------------------------------


def test_from_the_command_line(cli: Cli, graph_path: Path) -> None:
    words = ("-e", ADD, "-p", "n=Eve", "-p", "age=36", "--actor", "eve", "-m", "why not", "--json")
    document = cli("mutate", graph_path, *words).json()
    assert list(document) == ["branch", "commit_id", "counts", "replayed", "attempts", "waited_s"]
    newest = og.open(graph_path).commits(limit=1)[0]
    assert (newest.commit_id, newest.actor, newest.message) == (document["commit_id"], "eve", "why not")
    assert (document["branch"], document["counts"]) == ("main", {"inserted": 1, "updated": 0, "deleted": 0})
    assert (document["replayed"], document["attempts"]) == (False, 1)
    assert _ages(graph_path)["Eve"] == 36


def test_for_a_person(cli: Cli, graph_path: Path) -> None:
    out = cli("mutate", graph_path, "-e", ADD, "-p", "n=Eve").out
    assert out.splitlines()[1:] == ["inserted:  1", "updated:   0", "deleted:   0"]
    nothing = cli("mutate", graph_path, "-e", 'query q() { delete Person where name = "nobody" }')
    assert nothing.code == 0
    assert nothing.out.startswith("commit_id: none, nothing matched\n")


def test_from_a_file_with_several_queries(cli: Cli, graph_path: Path, tmp_path: Path) -> None:
    (tmp_path / "all.gq").write_text(f"{ADD}\n{KNOWS}\n")
    (tmp_path / "params.json").write_text('{"a": "Ada", "b": "Bob", "d": "2020-01-31"}')
    words = ("--file", tmp_path / "all.gq", "--name", "knows", "--params", tmp_path / "params.json")
    assert cli("mutate", graph_path, *words).code == 0
    row = og.open(graph_path).table("Knows").to_arrow().to_pylist()[0]
    assert (row["from"], row["to"], str(row["since"])) == ("Ada", "Bob", "2020-01-31")
    assert cli("mutate", graph_path, "-f", tmp_path / "all.gq", "--json").error()["code"] == "which_query"


@pytest.mark.parametrize("words", [[], ["--file", "-"]], ids=["implied", "asked for"])
def test_from_stdin(cli: Cli, graph_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(ADD))
    assert cli("mutate", graph_path, *words, "--params", '{"n": "Eve"}').code == 0
    assert "Eve" in _ages(graph_path)


def test_one_parameter_wins_over_the_object(cli: Cli, graph_path: Path) -> None:
    assert cli("mutate", graph_path, "-e", ADD, "--params", '{"n": "Eve", "age": 1}', "-p", "age=2").code == 0
    assert _ages(graph_path)["Eve"] == 2


@pytest.mark.parametrize("text", ["36", "null", "true", "2020-01-31", "a=b", '"quoted"', "[1]"])
def test_text_stays_text(cli: Cli, graph_path: Path, text: str) -> None:
    """The declared type decides, not what the value looks like."""
    assert cli("mutate", graph_path, "-e", ADD, "-p", f"n={text}", "-p", "age=null").code == 0
    assert _ages(graph_path)[text] is None


def test_a_batch_is_one_commit(cli: Cli, graph_path: Path, tmp_path: Path) -> None:
    before = len(og.open(graph_path).commits(limit=None))
    lines = [json.dumps({"n": f"p{number}"}) for number in range(30)]
    (tmp_path / "batch.jsonl").write_text("\n".join([*lines, "", '{"n": "late", "age": 9}']) + "\n")
    document = cli("mutate", graph_path, "-e", ADD, "--batch", tmp_path / "batch.jsonl", "-p", "age=7", "--json").json()
    assert document["counts"]["inserted"] == 31
    assert len(og.open(graph_path).commits(limit=None)) == before + 1
    ages = _ages(graph_path)
    assert (ages["p0"], ages["p29"], ages["late"]) == (7, 7, 9)


def test_a_batch_from_stdin(cli: Cli, graph_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"n": "x"}\n{"n": "y"}\n'))
    assert cli("mutate", graph_path, "-e", ADD, "--batch", "-").code == 0
    assert {"x", "y"} <= set(_ages(graph_path))


def test_an_empty_batch_is_no_commit(cli: Cli, graph_path: Path, tmp_path: Path) -> None:
    (tmp_path / "batch.jsonl").write_text("\n")
    assert (
        cli("mutate", graph_path, "-e", ADD, "--batch", tmp_path / "batch.jsonl", "--json").json()["commit_id"] is None
    )


# --- options -------------------------------------------------------------------------------------------------------


def test_on_a_branch(cli: Cli, graph_path: Path) -> None:
    og.open(graph_path).branch.create("x")
    document = cli("mutate", graph_path, "-e", ADD, "-p", "n=Eve", "--branch", "x", "--json").json()
    assert document["branch"] == "x"
    assert "Eve" not in _ages(graph_path)
    assert og.open(graph_path, "x").table("Person").count() == 5


def test_a_client_key_makes_it_safe_to_repeat(cli: Cli, graph_path: Path) -> None:
    words = ("-e", ADD, "-p", "n=Eve", "--strict", "--client-key", "k1", "--json")
    first, again = (cli("mutate", graph_path, *words).json() for _ in range(2))
    assert again == {**first, "replayed": True}
    assert "(done before)" in cli("mutate", graph_path, *words[:-1]).out


def test_if_commit(cli: Cli, graph_path: Path) -> None:
    head = og.open(graph_path).refresh()
    words = ("mutate", graph_path, "-e", ADD, "-p", "n=Eve", "--if-commit", head, "--json")
    assert cli(*words).code == 0
    again = cli(*words)
    assert (again.code, again.error()["code"]) == (4, "precondition_failed")


# --- refusals ------------------------------------------------------------------------------------------------------


def test_bad_text_is_refused_before_the_graph_is_opened(cli: Cli, tmp_path: Path) -> None:
    """The file, line and column of the error, though there is no such graph. S163"""
    path = tmp_path / "bad.gq"
    path.write_text('query q() {\n  insert Person { name: "x" }\n  delete Person where name = "y"\n}\n')
    outcome = cli("mutate", tmp_path / "nowhere", "--file", path, "--json")
    error = outcome.error()
    assert (outcome.code, error["code"], error["file"], error["line"]) == (5, "D2", str(path), 3)
    assert "g.transaction()" in error["error"]
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("params", "line"), [('{"n": ', None), ("[1]", None), ("missing.json", None), ('{"n": "x"}\n{"n"', 2)]
)
def test_bad_parameters(cli: Cli, graph_path: Path, tmp_path: Path, params: str, line: int | None) -> None:
    words: list[Any] = ["--params", params]
    if line is not None:
        (tmp_path / "batch").write_text(params)
        words = ["--batch", tmp_path / "batch"]
    elif params == "[1]":
        (tmp_path / "params").write_text(params)
        words = ["--params", tmp_path / "params"]
    outcome = cli("mutate", graph_path, "-e", ADD, *words, "--json")
    error = outcome.error()
    assert (outcome.code, error["code"]) == (5, "file_error" if params == "missing.json" else "bad_params")
    assert error.get("line") == line


@pytest.mark.parametrize(
    "words",
    [
        ["mutate", "-e", "x"],
        ["mutate", "g", "-e", "x", "--file", "y"],
        ["mutate", "g", "--batch", "-"],
        ["mutate", "g", "--file", "-", "--batch", "-"],
        ["mutate", "g", "-e", ADD, "-p", "novalue"],
        ["mutate", "g", "-e", ADD, "-p", "n=1", "-p", "n=2"],
        ["mutate", "g", "-e", "x", "--on-conflict", "maybe"],
    ],
    ids=" ".join,
)
def test_usage_errors(cli: Cli, words: list[str]) -> None:
    outcome = cli(*words, "--json")
    assert (outcome.code, outcome.error()["code"]) == (2, "usage")


def test_no_query_on_a_terminal_is_a_usage_error(cli: Cli, graph_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than a program that seems to hang."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    assert cli("mutate", graph_path).code == 2


Python = Callable[[og.Graph], object]
BAD_EDGES = (
    'query q() { insert Knows { id: "k1", from: "Ada", to: "nobody" } '
    'insert Knows { id: "k2", from: "none", to: "Bob" } '
    'insert Person { name: "Old", age: 200 } }'
)

# name → (exit code, error code, words, the same through Python)
SAME: dict[str, tuple[int, str, list[str], Python]] = {
    "mixed": (
        5, "D2", ["-e", 'query q() { insert Person { name: "x" } delete Person where name = "Ada" }'],
        lambda g: g.mutate('query q() { insert Person { name: "x" } delete Person where name = "Ada" }'),
    ),
    "parse": (5, "Q000", ["-e", "query q() { insert }"], lambda g: g.mutate("query q() { insert }")),
    "unknown type": (
        5, "T1", ["-e", 'query q() { insert Persn { name: "x" } }'],
        lambda g: g.mutate('query q() { insert Persn { name: "x" } }'),
    ),
    "missing parameter": (5, "P1", ["-e", ADD], lambda g: g.mutate(ADD)),
    "unknown parameter": (
        5, "P2", ["-e", ADD, "-p", "n=x", "-p", "m=y"], lambda g: g.mutate(ADD, {"n": "x", "m": "y"}),
    ),
    "misfit parameter": (
        5, "P3", ["-e", ADD, "-p", "n=x", "-p", "age=old"], lambda g: g.mutate(ADD, {"n": "x", "age": "old"}),
    ),
    "key in an update": (
        5, "T37", ["-e", 'query q() { update Person set { name: "x" } where age = 1 }'],
        lambda g: g.mutate('query q() { update Person set { name: "x" } where age = 1 }'),
    ),
    "key conflict": (
        3, "key_conflict", ["-e", ADD, "-p", "n=Ada", "--strict"], lambda g: g.mutate(ADD, {"n": "Ada"}, strict=True),
    ),
    "violations": (5, "constraint_violation", ["-e", BAD_EDGES], lambda g: g.mutate(BAD_EDGES)),
    "a read": (
        5, "not_a_mutation", ["-e", "query q() { match { $p: Person } return { $p.name } }"],
        lambda g: g.mutate("query q() { match { $p: Person } return { $p.name } }"),
    ),
    "bad client key": (
        5, "bad_client_key", ["-e", ADD, "-p", "n=x", "--client-key", "\t"],
        lambda g: g.mutate(ADD, {"n": "x"}, client_key="\t"),
    ),
    "stale precondition": (
        4, "precondition_failed", ["-e", ADD, "-p", "n=x", "--if-commit", "01ARZ3NDEKTSV4RRFFQ69G5FAV.7"],
        lambda g: g.mutate(ADD, {"n": "x"}, if_commit="01ARZ3NDEKTSV4RRFFQ69G5FAV.7"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_same_refusal_through_python_and_command_line(cli: Cli, graph_path: Path, name: str) -> None:
    exit_code, code, words, python = SAME[name]
    before = og.open(graph_path).refresh()
    outcome = cli("mutate", graph_path, *words, "--json")
    with pytest.raises(OmnigraphError) as caught:
        python(og.open(graph_path))
    assert (outcome.code, caught.value.code) == (exit_code, code)
    assert outcome.error() == caught.value.to_json()
    assert og.open(graph_path).refresh() == before


def test_a_person_sees_every_violation(cli: Cli, graph_path: Path) -> None:
    outcome = cli("mutate", graph_path, "-e", BAD_EDGES)
    assert outcome.code == 5
    assert "(and 2 more)" in outcome.err.splitlines()[0]
    assert all(word in outcome.err for word in ("nobody", "none", "Old"))
