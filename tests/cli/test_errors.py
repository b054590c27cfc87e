"""Refusals: exit codes, and the same code and details through Python and the command line. S156"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.errors import exit_code_of, report_error
from omnigraph.cli.main import unbuilt_verbs
from omnigraph.errors import OmnigraphError
from tests.cli.conftest import SCHEMA, Cli

NOWHERE = "01ARZ3NDEKTSV4RRFFQ69G5FAV.7"


def _broken_schema(tmp_path: Path) -> Path:
    path = tmp_path / "broken.pg"
    path.write_text("node person {\n  id: String\n}\n")
    return path


def _breaking_schema(tmp_path: Path) -> Path:
    path = tmp_path / "breaking.pg"
    path.write_text(SCHEMA.replace("age: I32?", "age: String?").replace("    @range(age, 0..150)\n", ""))
    return path


def _tighter_schema(tmp_path: Path) -> Path:
    path = tmp_path / "tighter.pg"
    path.write_text(SCHEMA.replace("age: I32?", "age: I32"))
    return path


Python = Callable[[Path, Path], object]

# name → (exit code, error code, words after --json, the same through Python); {g} is the graph, {t} a scratch folder
SAME: dict[str, tuple[int, str, list[str], Python]] = {
    "missing graph": (1, "graph_not_found", ["snapshot", "{t}/none"], lambda g, t: og.open(t / "none", read_only=True)),
    "existing graph": (
        3, "graph_exists", ["init", "{g}", "--schema", "{t}/people.pg"], lambda g, t: og.init(g, t / "people.pg"),
    ),
    "unknown branch": (
        1, "branch_not_found", ["commit", "list", "{g}", "--branch", "none"], lambda g, t: og.open(g, "none"),
    ),
    "bad branch name": (
        5, "bad_branch_name", ["branch", "create", "a..b", "{g}"], lambda g, t: og.open(g).branch.create("a..b"),
    ),
    "reserved branch": (
        5, "reserved_branch", ["branch", "create", "Main", "{g}"], lambda g, t: og.open(g).branch.create("Main"),
    ),
    "taken branch": (
        3, "branch_exists", ["branch", "create", "taken", "{g}"], lambda g, t: og.open(g).branch.create("taken"),
    ),
    "main cannot go, in the preview": (
        5, "reserved_branch", ["branch", "delete", "main", "{g}"], lambda g, t: og.open(g).branch.delete("main"),
    ),
    "main cannot go, confirmed": (
        5, "reserved_branch", ["branch", "delete", "main", "{g}", "--confirm"],
        lambda g, t: og.open(g).branch.delete("main"),
    ),
    "unknown branch to delete": (
        1, "branch_not_found", ["branch", "delete", "none", "{g}", "--confirm"],
        lambda g, t: og.open(g).branch.delete("none"),
    ),
    "not a commit id": (5, "invalid_input", ["commit", "show", "what", "{g}"], lambda g, t: og.open(g).at("what")),
    "unknown commit": (1, "not_found", ["commit", "show", NOWHERE, "{g}"], lambda g, t: og.open(g).at(NOWHERE)),
    "unknown commit of a snapshot": (
        1, "not_found", ["snapshot", "{g}", "--at", NOWHERE], lambda g, t: og.open(g).at(NOWHERE),
    ),
    "bad address": (
        5, "invalid_address", ["snapshot", "ftp://x/y"], lambda g, t: og.open("ftp://x/y"),
    ),
    "missing schema file": (
        5, "schema_file", ["init", "{t}/new", "--schema", "{t}/none.pg"],
        lambda g, t: og.init(t / "new", t / "none.pg"),
    ),
    "broken schema": (
        5, "OG-S-010", ["init", "{t}/new", "--schema", "{t}/broken.pg"],
        lambda g, t: og.init(t / "new", t / "broken.pg"),
    ),
    "schema change that cannot be": (
        5, "OG-MF-106", ["schema", "apply", "{g}", "--schema", "{t}/breaking.pg"],
        lambda g, t: og.open(g).schema.apply(t / "breaking.pg"),
    ),
    "schema change that rows break": (
        5, "OG-MF-107", ["schema", "apply", "{g}", "--schema", "{t}/tighter.pg"],
        lambda g, t: og.open(g).schema.apply(t / "tighter.pg"),
    ),
    "lost precondition": (
        4, "precondition_failed", ["schema", "apply", "{g}", "--schema", "{t}/other.pg", "--if-commit", NOWHERE],
        lambda g, t: og.open(g).schema.apply(t / "other.pg", if_commit=NOWHERE),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_same_refusal_through_python_and_command_line(cli: Cli, graph_path: Path, tmp_path: Path, name: str) -> None:
    exit_code, code, words, python = SAME[name]
    og.open(graph_path).branch.create("taken")
    _broken_schema(tmp_path)
    _breaking_schema(tmp_path)
    _tighter_schema(tmp_path)
    (tmp_path / "other.pg").write_text(SCHEMA + "node Other {}\n")
    outcome = cli(*(word.format(g=graph_path, t=tmp_path) for word in words), "--json")
    with pytest.raises(OmnigraphError) as caught:
        python(graph_path, tmp_path)
    assert (outcome.code, caught.value.code) == (exit_code, code)
    assert outcome.error() == caught.value.to_json()


def test_a_person_reads_message_code_and_advice(cli: Cli, graph_path: Path) -> None:
    outcome = cli("commit", "list", graph_path, "--branch", "none")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == "error[branch_not_found]: there is no branch 'none'\n  See `omnigraph branch list`\n"


def test_every_violation_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    found = [{"type": "node:P", "id": str(n), "message": f"bad {n}"} for n in range(30)]
    error = og.errors.ConstraintViolation("bad 0", violations=found, violation_count=50)
    assert report_error(error, as_json=False) == 5
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "  - node:P 0: bad 0"
    assert lines[20:] == ["  - node:P 19: bad 19", "  - and 30 more"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (og.errors.Conflict("x"), 3),
        (og.errors.KeyConflict("x"), 3),
        (og.errors.MergeConflict("x"), 3),
        (og.errors.Contention("x"), 3),
        (og.errors.PreconditionFailed("x"), 4),
        (og.errors.ConstraintViolation("x"), 5),
        (og.errors.ParseError("x"), 5),
        (og.errors.NotFound("x"), 1),
        (og.errors.WriterFenced("x"), 1),
        (og.errors.Unknown("x"), 1),
        (og.errors.Unavailable("x"), 1),
        (og.errors.Forbidden("x"), 1),
        (og.errors.Corruption("x"), 1),
        (og.errors.Unsupported("x"), 1),
    ],
)
def test_exit_codes(error: OmnigraphError, code: int) -> None:
    assert exit_code_of(error) == code


@pytest.mark.parametrize("verb", unbuilt_verbs())
def test_unbuilt_verbs_are_refused_by_name(cli: Cli, verb: str) -> None:
    outcome = cli(*verb.split(), "some", "words", "--with", "options", "--json")
    assert outcome.code == 1
    error = outcome.error()
    assert (error["code"], error["verb"]) == ("unsupported", verb)
    assert f"`omnigraph {verb}` is not built yet in this version" in error["error"]
    assert cli(*verb.split(), "--help").code == 1


def test_unbuilt_verbs_stand_apart_in_the_help(cli: Cli) -> None:
    out = cli("--help").out
    commands, _, apart = out.partition("Not built yet")
    assert "studio" not in commands.partition("Commands:")[2]
    assert all(verb in " ".join(apart.split()) for verb in unbuilt_verbs())


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["snapshot"],
        ["snapshot", "--nonsense"],
        ["snapshot", "a", "--graph", "b"],
        ["snapshot", "a", "--branch", "x", "--at", NOWHERE],
        ["snapshot", "a", "--storage-option", "novalue"],
        ["commit", "list", "a", "--filter", "colour=red"],
        ["commit", "list", "a", "--filter", "actor=a", "--filter", "actor=b"],
        ["commit", "list", "a", "--limit", "-1"],
        ["commit", "list", "a", "--format", "xml"],
        ["commit", "show"],
        ["init", "a"],
        ["lint"],
        ["lint", "a.txt"],
        ["fmt", "a.txt"],
        ["fmt"],
    ],
    ids=" ".join,
)
def test_usage_errors(cli: Cli, words: list[str]) -> None:
    plain = cli(*words)
    assert (plain.code, plain.out) == (2, "")
    assert plain.err.startswith("error[usage]: ")
    assert "--help`" in plain.err
    if "--format" not in words:
        outcome = cli(*words, "--json")
        assert (outcome.code, outcome.error()["code"]) == (2, "usage")


def test_two_formats_contradict_each_other(cli: Cli) -> None:
    outcome = cli("commit", "list", "a", "--json", "--format", "csv")
    assert (outcome.code, outcome.error()["code"]) == (2, "usage")


def test_a_mistyped_verb_gets_a_hint(cli: Cli) -> None:
    assert "branch" in cli("brnch").err


def test_a_defect_is_one_line_unless_debugging(cli: Cli, graph_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("omnigraph.open", broken, raising=False)
    outcome = cli("snapshot", graph_path)
    assert outcome.code == 1
    assert outcome.err.startswith("error[internal]: internal error: ZeroDivisionError: oops\n")
    assert "Traceback" not in outcome.err
    assert cli("snapshot", graph_path, "--json").error()["code"] == "internal"
    monkeypatch.setenv("OMNIGRAPH_DEBUG", "1")
    assert "Traceback" in cli("snapshot", graph_path).err


def test_an_interrupt_is_quiet(cli: Cli, graph_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("omnigraph.open", interrupt, raising=False)
    outcome = cli("snapshot", graph_path)
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "")
