"""Stored queries: served by name, typed, read again when the file changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.bed import ADD, Door

FIND = """query find($n: String, $limit: I32?) {
    match { $p: Person { name: $n } }
    return { $p.name as name, $p.age as age }
}
query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "queries"
    path.mkdir()
    (path / "people.gq").write_text(FIND)
    return path


def test_typed_tools(serving: Callable[..., Door], folder: Path) -> None:
    (folder / "broken.gq").write_text("query oops( {")
    (folder / "twice.gq").write_text("query find() { match { $p: Person } return { $p.name } }")
    (folder / "misfit.gq").write_text("query cities() { match { $c: City } return { $c } }")
    door = serving("--queries", folder)
    document = door.get("queries").document
    tools = {query["name"]: query for query in document["queries"]}
    assert sorted(tools) == ["add", "cities", "find"]
    assert (tools["find"]["kind"], tools["add"]["kind"]) == ("query", "mutation")
    assert tools["find"]["columns"] == [{"name": "name", "type": "String"}, {"name": "age", "type": "I32?"}]
    assert tools["add"]["parameters"] == {
        "type": "object",
        "properties": {
            "n": {"type": "string"},
            "a": {"anyOf": [{"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}, {"type": "null"}]},
        },
        "required": ["n"],
        "additionalProperties": False,
    }
    assert "City" in tools["cities"]["error"]["error"]
    assert [problem["file"] for problem in document["problems"]] == ["broken.gq", "twice.gq"]


def test_calls(serving: Callable[..., Door], folder: Path) -> None:
    door = serving("--queries", folder)
    added = door.post("queries/add", {"params": {"n": "Ada", "a": 36}, "message": "by name"}, Idempotency_Key="k")
    assert added.document["counts"]["inserted"] == 1
    again = door.post("queries/add", {"params": {"n": "Ada", "a": 36}}, Idempotency_Key="k")
    assert again.document["replayed"]
    assert again.headers["idempotency-replayed"] == "true"
    response = door.post("queries/find", {"params": {"n": "Ada"}})
    assert response.document["rows"] == [{"name": "Ada", "age": 36}]
    assert door.post("queries/find", {"params": {"n": 5}}).code == "P3"
    assert door.post("queries/fynd", {}).document["error"].endswith("Did you mean `find`?")
    assert door.post("queries/add", {"params": {"n": "x"}, "at": added.document["commit_id"]}).status == 400
    refused = door.post("queries/add", {"params": {"n": "y"}}, If_Match='"01ARZ3NDEKTSV4RRFFQ69G5FAV.0"')
    assert refused.status == 412


def test_a_changed_file_is_read_again(serving: Callable[..., Door], folder: Path) -> None:
    door = serving("--queries", folder)
    door.mutate(ADD, {"n": "Ada"})
    assert door.post("queries/everybody", {}).status == 404
    (folder / "more.gq").write_text("query everybody() { match { $p: Person } return { $p.name as name } }")
    assert door.post("queries/everybody", {}).document["rows"] == [{"name": "Ada"}]
    (folder / "people.gq").unlink()
    assert door.post("queries/find", {"params": {"n": "Ada"}}).status == 404


def test_a_reader_may_not_call_a_mutation(serving: Callable[..., Door], folder: Path) -> None:
    door = serving("--queries", folder, token="r", OMNIGRAPH_TOKENS="bob:read:r")
    assert door.post("queries/add", {"params": {"n": "x"}}).code == "read_only_token"
    assert door.post("queries/find", {"params": {"n": "x"}}).status == 200
