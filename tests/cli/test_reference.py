"""docs/reference/cli.md shows for every verb the JSON that it really prints. S158"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.query.language.statements import Compare, Update
from tests.cli.conftest import SCHEMA, Cli

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"

#: The verb as its heading names it → the words that make it print something.
CALLS = {
    "init": ["{t}/new", "--schema", "{t}/people.pg"],
    "snapshot": ["{g}"],
    "config show": [],
    "version": [],
    "load": ["{t}/people.jsonl", "{g}"],
    "mutate": ["{g}", "-e", 'query q() {{ insert Person {{ name: "Eve" }} }}'],
    "query": ["{g}", "-e", "query q() {{ match {{ $p: Person }} return {{ $p.name }} }}"],
    "export": ["{g}", "-o", "{t}/people.ndjson"],
    "commit list": ["{g}"],
    "commit show": ["{c}", "{g}"],
    "commit changes": ["{c}", "{g}"],
    "diff": ["x", "main", "{g}"],
    "changes": ["{g}"],
    "branch create": ["y", "{g}"],
    "branch list": ["{g}"],
    "branch merge": ["x", "{g}"],
    "branch delete": ["x", "{g}", "--confirm"],
    "tag create": ["v1", "{c}", "{g}"],
    "tag list": ["{g}"],
    "tag delete": ["v0", "{g}", "--confirm"],
    "optimize": ["{g}"],
    "cleanup": ["{g}", "--keep", "1", "--confirm"],
    "recover": ["{g}"],
    "verify": ["{g}"],
    "repair": ["{g}"],
    "schema show": ["{g}"],
    "schema plan": ["{g}", "--schema", "{t}/more.pg"],
    "schema apply": ["{g}", "--schema", "{t}/more.pg"],
    "lint": ["{t}/bad.pg"],
    "fmt": ["{t}/bad.pg", "--check"],
    "token create": ["--tokens", "{t}/new.json", "--name", "ada", "--role", "write", "--expires-in", "90d"],
    "token list": ["--tokens", "{t}/tokens.json"],
    "token revoke": ["--tokens", "{t}/tokens.json", "--name", "ada"],
}


def read_examples() -> dict[str, Any]:
    found = {}
    for section in re.split(r"^### ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        title = re.match(r"`omnigraph ([a-z ]+?)(?: [^a-z`].*)?`", section)
        assert title, section.splitlines()[0]
        example = re.search(r"```json\n(.*?)```", section, re.DOTALL)
        assert example, f"{title[1]} has no example"
        found[title[1]] = json.loads(example[1])
    return found


def test_every_call_is_documented_and_every_documented_verb_is_called() -> None:
    assert list(read_examples()) == list(CALLS)


@pytest.mark.parametrize("verb", CALLS)
def test_the_example_has_the_shape_of_the_output(cli: Cli, graph_path: Path, tmp_path: Path, verb: str) -> None:
    g = og.open(graph_path)
    g.branch.create("x").apply([Update("Person", {"age": 3}, Compare("name", "=", "Ada"))])
    (tmp_path / "more.pg").write_text(SCHEMA.replace("age: I32?", "age: I32?\n    born: Date?"))
    (tmp_path / "bad.pg").write_text("node Person { name: Strin }\n" if verb == "lint" else "node Person{}")
    (tmp_path / "people.jsonl").write_text('{"type": "Person", "data": {"name": "Eve"}}\n')
    cli("token", "create", "--tokens", tmp_path / "tokens.json", "--name", "ada")
    newest = g.commits(limit=1)[0].commit_id
    g.tags.create("v0", newest, actor="ada", message="before the move")
    words = [word.format(g=graph_path, t=tmp_path, c=newest) for word in CALLS[verb]]
    document = cli(*verb.split(), *words, "--json").json()
    assert_same_shape(read_examples()[verb], document, verb)


def assert_same_shape(example: Any, shown: Any, where: str) -> None:
    """The same fields in the same order, down to the first item of every list that has one in both."""
    if isinstance(example, dict):
        assert isinstance(shown, dict), where
        assert list(example) == list(shown), where
        for name in example:
            assert_same_shape(example[name], shown[name], f"{where}.{name}")
    elif isinstance(example, list):
        assert isinstance(shown, list), where
        if example and shown:
            assert_same_shape(example[0], shown[0], f"{where}[0]")
    elif example is not None and shown is not None:
        assert type(example) is type(shown), where
