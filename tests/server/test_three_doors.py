"""S156: one failing input, three doors, one code, text and details."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.errors import ExitCode
from omnigraph.cli.main import run
from omnigraph.errors import OmnigraphError
from tests.server.bed import ADD, AGE, Door, HttpAnswer

TWO_BAD = "query two() { insert Person { name: 'x', age: 200 }  insert Person { name: 'y', age: -1 } }".replace(
    "'", '"'
)
STRICT = 'query add() { insert Person { name: "Ada" } }'
DANGLING = 'query link() { insert Knows { from: "Ada", to: "nobody" } }'
NARROW = "node Person { name: String @key  age: String? }\n"
NOWHERE = "01ARZ3NDEKTSV4RRFFQ69G5FAV.7"

Python = Callable[[og.Graph], Any]
Http = Callable[[Door], HttpAnswer]


@dataclass(frozen=True)
class DoorCase:
    """What is wrong, how it is asked through each door, and what scripts and clients see."""

    what: str
    python: Python
    words: tuple[str, ...]
    http: Http
    exit_code: int
    status: int

    def __str__(self) -> str:
        return self.what


CASES = [
    DoorCase(
        "text that does not parse",
        lambda g: g.query("query q() { match"),
        ("query", "-e", "query q() { match"),
        lambda door: door.query("query q() { match"),
        ExitCode.VALIDATION,
        400,
    ),
    DoorCase(
        "text that does not fit the schema",
        lambda g: g.query("query q() { match { $p: Persn } return { $p } }"),
        ("query", "-e", "query q() { match { $p: Persn } return { $p } }"),
        lambda door: door.query("query q() { match { $p: Persn } return { $p } }"),
        ExitCode.VALIDATION,
        400,
    ),
    DoorCase(
        "a parameter that is missing",
        lambda g: g.mutate(ADD, {}),
        ("mutate", "-e", ADD),
        lambda door: door.mutate(ADD),
        ExitCode.VALIDATION,
        400,
    ),
    DoorCase(
        "a mutation asked as a query",
        lambda g: g.query(STRICT),
        ("query", "-e", STRICT),
        lambda door: door.query(STRICT),
        ExitCode.VALIDATION,
        400,
    ),
    DoorCase(
        "two violations, both told",
        lambda g: g.mutate(TWO_BAD),
        ("mutate", "-e", TWO_BAD),
        lambda door: door.mutate(TWO_BAD),
        ExitCode.VALIDATION,
        400,
    ),
    DoorCase(
        "an edge to nobody",
        lambda g: g.mutate(DANGLING),
        ("mutate", "-e", DANGLING),
        lambda door: door.mutate(DANGLING),
        ExitCode.VALIDATION,
        400,
    ),
    DoorCase(
        "a key that exists",
        lambda g: g.mutate(STRICT, strict=True),
        ("mutate", "-e", STRICT, "--strict"),
        lambda door: door.mutate(STRICT, strict=True),
        ExitCode.CONFLICT,
        409,
    ),
    DoorCase(
        "a lost precondition",
        lambda g: g.mutate(AGE, {"n": "Ada", "a": 1}, if_commit=NOWHERE),
        ("mutate", "-e", AGE, "--params", '{"n": "Ada", "a": 1}', "--if-commit", NOWHERE),
        lambda door: door.mutate(AGE, {"n": "Ada", "a": 1}, if_commit=NOWHERE),
        ExitCode.PRECONDITION,
        412,
    ),
    DoorCase(
        "a branch that does not exist",
        lambda g: g.branch.delete("nothing"),
        ("branch", "delete", "nothing", "--confirm"),
        lambda door: door.call("DELETE", f"/graphs/{door.name}/branches", params={"name": "nothing"}),
        ExitCode.ERROR,
        404,
    ),
    DoorCase(
        "a branch that exists",
        lambda g: g.branch.create("taken"),
        ("branch", "create", "taken"),
        lambda door: door.post("branches", {"name": "taken"}),
        ExitCode.CONFLICT,
        409,
    ),
    DoorCase(
        "a name that is none",
        lambda g: g.branch.create("../../etc"),
        ("branch", "create", "../../etc"),
        lambda door: door.post("branches", {"name": "../../etc"}),
        ExitCode.VALIDATION,
        400,
    ),
    DoorCase(
        "a commit that does not exist",
        lambda g: g.at(NOWHERE).snapshot(),
        ("snapshot", "--at", NOWHERE),
        lambda door: door.get("snapshot", at=NOWHERE),
        ExitCode.ERROR,
        404,
    ),
    DoorCase(
        "a commit id that is none",
        lambda g: g.at("yesterday").snapshot(),
        ("snapshot", "--at", "yesterday"),
        lambda door: door.get("snapshot", at="yesterday"),
        ExitCode.VALIDATION,
        400,
    ),
    DoorCase(
        "a schema change that is not possible",
        lambda g: g.schema.apply(NARROW),
        ("schema", "apply", "--schema", "NARROW"),
        lambda door: door.post("schema/apply", {"schema": NARROW}),
        ExitCode.VALIDATION,
        400,
    ),
    DoorCase(
        "a merge with conflicts",
        lambda g: g.branch.merge("taken"),
        ("branch", "merge", "taken"),
        lambda door: door.post("branches/merge", {"source": "taken"}),
        ExitCode.CONFLICT,
        409,
    ),
    DoorCase(
        "a cursor that is none",
        lambda g: g.changes("what?"),
        ("changes", "--since", "what?"),
        lambda door: door.get("changes", since="what?"),
        ExitCode.VALIDATION,
        400,
    ),
    DoorCase(
        "a cursor of a branch that is gone",
        lambda g: g.changes(NOWHERE),
        ("changes", "--since", NOWHERE),
        lambda door: door.get("changes", since=NOWHERE),
        ExitCode.ERROR,
        410,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_answer_through_three_doors(
    case: DoorCase, door: Door, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph = door.open_embedded()
    graph.mutate(ADD, {"n": "Ada", "a": 1})
    graph.branch.create("taken").mutate(AGE, {"n": "Ada", "a": 2})
    graph.mutate(AGE, {"n": "Ada", "a": 3})

    with pytest.raises(OmnigraphError) as raised:
        case.python(graph)
    in_python = raised.value.to_json()

    answer = case.http(door)
    assert answer.status == case.status
    assert answer.headers["omnigraph-error"] == type(raised.value).__name__

    narrow = tmp_path_factory.mktemp("schema") / "narrow.pg"
    narrow.write_text(NARROW)
    words = [str(narrow) if word == "NARROW" else word for word in case.words]
    capsys.readouterr()
    code = run([*words, "--graph", str(door.place), "--json"])
    out, err = capsys.readouterr()
    assert (code, out) == (case.exit_code, "")

    assert _plain(json.dumps(answer.document)) == _plain(json.dumps(in_python))
    assert _plain(err) == _plain(json.dumps(in_python).replace("<schema>", str(narrow)))


def _plain(text: str) -> Any:
    """The document, with ids that are minted anew each time alike."""
    return json.loads(re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "ID", text))


def test_the_client_raises_the_same_errors(door: Door) -> None:
    graph, remote = door.open_embedded(), door.connect()
    graph.mutate(ADD, {"n": "Ada", "a": 1})
    calls: list[Callable[[Any], Any]] = [
        lambda g: g.query("query q() { match"),
        lambda g: g.mutate(TWO_BAD),
        lambda g: g.mutate(STRICT, strict=True),
        lambda g: g.mutate(AGE, {"n": "Ada", "a": 1}, if_commit=NOWHERE),
        lambda g: g.branch.delete("nothing"),
        lambda g: g.changes(NOWHERE),
        lambda g: g.schema.apply(NARROW),
        lambda g: g.at("yesterday"),
    ]
    for call in calls:
        with pytest.raises(OmnigraphError) as raised:
            call(graph)
        with pytest.raises(OmnigraphError) as raised_there:
            call(remote)
        assert type(raised_there.value) is type(raised.value)
        assert raised_there.value.to_json() == json.loads(json.dumps(raised.value.to_json()))
    remote.close()
