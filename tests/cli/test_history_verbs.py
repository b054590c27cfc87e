"""`branch merge`, `diff`, `changes` and `commit changes` on a real graph. S71, S72, S93, S117, S120, S158"""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.history.feed import page_to_json
from omnigraph.query.language.statements import Compare, Delete, Update
from tests.cli.conftest import Cli, add

CONFLICT = {"entity_kind": "node", "type_name": "Person", "entity_id": "Ada"}


def set_age(path: Path, branch: str, name: str, age: int) -> None:
    og.open(path, branch).apply([Update("Person", {"age": age}, Compare("name", "=", name))], actor=branch)


def ages(path: Path, branch: str = "main") -> dict[str, int | None]:
    return {row["name"]: row["age"] for row in og.open(path, branch).table("Person").to_arrow().to_pylist()}


@pytest.fixture
def diverged_graph(graph_path: Path) -> Path:
    """`work` and `main` each changed Ada and Bob, and one row that the other did not."""
    og.open(graph_path).branch.create("work")
    for branch, age in (("work", 20), ("main", 40)):
        set_age(graph_path, branch, "Ada", age)
        set_age(graph_path, branch, "Bob", age + 1)
    set_age(graph_path, "work", "Cy", 30)
    set_age(graph_path, "main", "Di", 50)
    return graph_path


# --- branch merge --------------------------------------------------------------------------------------------------


def test_a_merge_without_conflict(cli: Cli, graph_path: Path) -> None:
    og.open(graph_path).branch.create("work")
    set_age(graph_path, "work", "Ada", 36)
    set_age(graph_path, "main", "Bob", 37)
    document = cli("branch", "merge", "work", graph_path, "--actor", "eve", "-m", "ages", "--json").json()
    newest = og.open(graph_path).commits(1)[0]
    assert document == {
        "source": "work",
        "into": "main",
        "outcome": "merged",
        "commit_id": newest.commit_id,
        "counts": {"inserted": 0, "updated": 1, "deleted": 0},
        "dry_run": False,
        "branch_deleted": False,
    }
    assert (newest.actor, newest.message, len(newest.parents)) == ("eve", "ages", 2)
    assert ages(graph_path) == {"Ada": 36, "Bob": 37, "Cy": None, "Di": None}
    assert cli("branch", "merge", "work", graph_path, "--json").json()["outcome"] == "already_up_to_date"


def test_a_merge_for_a_person(cli: Cli, graph_path: Path) -> None:
    og.open(graph_path).branch.create("work")
    set_age(graph_path, "work", "Ada", 36)
    out = cli("branch", "merge", "work", graph_path).out
    assert re.search(r"^outcome: +fast_forward$", out, re.MULTILINE)
    assert "1 updated" in out


def test_conflicts_are_all_listed_and_nothing_is_written(cli: Cli, diverged_graph: Path) -> None:
    head = og.open(diverged_graph).refresh()
    outcome = cli("branch", "merge", "work", diverged_graph)
    assert (outcome.code, outcome.out) == (3, "")
    assert [line.split()[3] for line in outcome.err.splitlines() if "divergent_update:" in line] == ["'Ada'", "'Bob'"]
    error = cli("branch", "merge", "work", diverged_graph, "--json").error()
    assert error["code"] == "merge_conflict"
    assert [merge_conflict["entity_id"] for merge_conflict in error["merge_conflicts"]] == ["Ada", "Bob"]
    assert error["merge_conflicts"][0]["source"]["age"] == 20
    assert cli("branch", "merge", "work", diverged_graph, "--dry-run").code == 3
    assert og.open(diverged_graph).refresh() == head


@pytest.mark.parametrize(("side", "age"), [("ours", 40), ("theirs", 20)])
def test_one_side_for_all_conflicts(cli: Cli, diverged_graph: Path, side: str, age: int) -> None:
    assert cli("branch", "merge", "work", diverged_graph, "--resolve", side).code == 0
    assert ages(diverged_graph) == {"Ada": age, "Bob": age + 1, "Cy": 30, "Di": 50}


def test_single_conflicts_are_settled_by_a_file(cli: Cli, diverged_graph: Path, tmp_path: Path) -> None:
    # The error itself, with what to take written into it, is such a file.
    error = json.loads(cli("branch", "merge", "work", diverged_graph, "--json").err)
    file = tmp_path / "settled.json"
    error["merge_conflicts"][0]["resolve"] = "theirs"
    file.write_text(json.dumps(error))
    left = cli("branch", "merge", "work", diverged_graph, "--resolve-file", file, "--json").error()
    assert [merge_conflict["entity_id"] for merge_conflict in left["merge_conflicts"]] == ["Bob"]
    error["merge_conflicts"][1]["resolve"] = "ours"
    file.write_text(json.dumps(error["merge_conflicts"]))
    assert cli("branch", "merge", "work", diverged_graph, "--resolve-file", file).code == 0
    assert ages(diverged_graph) == {"Ada": 20, "Bob": 41, "Cy": 30, "Di": 50}


def test_a_file_says_more_than_the_general_rule(cli: Cli, diverged_graph: Path, tmp_path: Path) -> None:
    file = tmp_path / "settled.json"
    file.write_text(json.dumps([{**CONFLICT, "resolve": "ours"}]))
    assert cli("branch", "merge", "work", diverged_graph, "--resolve-file", file, "--resolve", "theirs").code == 0
    assert ages(diverged_graph) == {"Ada": 40, "Bob": 21, "Cy": 30, "Di": 50}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("{}", "is not a list of conflicts"),
        ("[3]", "item 1, does not name an entity"),
        (json.dumps([{**CONFLICT, "resolve": "mine"}]), "item 1, is resolved by 'mine'"),
        (json.dumps([{**CONFLICT, "resolve": "ours"}, {**CONFLICT, "resolve": "theirs"}]), "both ways"),
    ],
)
def test_a_file_that_settles_nothing(cli: Cli, diverged_graph: Path, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "settled.json").write_text(text)
    outcome = cli("branch", "merge", "work", diverged_graph, "--resolve-file", tmp_path / "settled.json", "--json")
    assert (outcome.code, outcome.error()["code"]) == (5, "bad_resolutions")
    assert message in outcome.error()["error"]


def test_cells_dry_run_and_delete(cli: Cli, graph_path: Path) -> None:
    og.open(graph_path).branch.create("work")
    og.open(graph_path, "work").apply([Delete("Person", Compare("name", "=", "Di"))])
    head = og.open(graph_path).refresh()
    planned = cli("branch", "merge", "work", graph_path, "--dry-run", "--json").json()
    assert (planned["dry_run"], planned["commit_id"], planned["counts"]["deleted"]) == (True, None, 1)
    assert og.open(graph_path).refresh() == head
    assert cli("branch", "merge", "work", graph_path, "--dry-run", "--delete-branch").code == 2
    document = cli("branch", "merge", "work", graph_path, "--delete-branch", "--cell-level", "--json").json()
    assert document["branch_deleted"] is True
    assert cli("branch", "list", graph_path, "--json").json() == {"branches": ["main"]}


def test_into_another_branch_and_only_if_it_stands_there(cli: Cli, diverged_graph: Path) -> None:
    og.open(diverged_graph).branch.create("other", "main")
    stale = og.open(diverged_graph).commits()[-1].commit_id
    words = ("branch", "merge", "work", diverged_graph, "--into", "other", "--resolve", "theirs")
    assert cli(*words, "--if-commit", stale).code == 4
    document = cli(*words, "--client-key", "k1", "--json").json()
    assert (document["into"], document["outcome"]) == ("other", "merged")
    assert ages(diverged_graph, "other")["Ada"] == 20
    assert ages(diverged_graph)["Ada"] == 40
    assert cli(*words, "--client-key", "k1", "--json").json()["commit_id"] == document["commit_id"]
    assert cli("branch", "merge", "main", diverged_graph).code == 5


# --- diff ----------------------------------------------------------------------------------------------------------


def test_diff_is_the_diff_of_python(cli: Cli, diverged_graph: Path) -> None:
    document = cli("diff", "main", "work", diverged_graph, "--json").json()
    g = og.open(diverged_graph)
    assert document == {
        "old": g.refresh(),
        "new": g.on_branch("work").refresh(),
        "changes": [change.to_json() for change in g.diff("main", "work")],
        "cursor": None,
    }
    assert [change["id"] for change in document["changes"]] == ["Ada", "Bob", "Cy", "Di"]
    assert list(document["changes"][0]) == ["op", "kind", "type", "id", "before", "after"]


def test_diff_for_a_person(cli: Cli, diverged_graph: Path) -> None:
    lines = cli("diff", "main", "work", diverged_graph).out.splitlines()
    assert lines[0].split() == ["op", "table_key", "id", "what"]
    assert lines[1].split("  ", 1)[0] == "update"
    assert lines[1].endswith("age: 40 → 20")
    assert lines[4].endswith("age: 50 → null")


def test_filters_and_counts(cli: Cli, diverged_graph: Path) -> None:
    g = og.open(diverged_graph)
    start = g.commits()[-1].commit_id
    add(g, ["Eve"])

    def ids(*words: str) -> list[str]:
        return [
            change["id"] for change in cli("diff", start, "main", diverged_graph, *words, "--json").json()["changes"]
        ]

    assert ids("--op", "insert", "--type", "Person") == ["Ada", "Bob", "Cy", "Di", "Eve"]
    assert ids("--op", "update", "--op", "delete") == []
    assert ids("--kind", "edge") == []
    counted = cli("diff", start, "main", diverged_graph, "--stat", "--limit", "1", "--json").json()
    assert counted["tables"] == [{"table_key": "node:Person", "inserted": 5, "updated": 0, "deleted": 0}]
    assert cli("diff", start, "main", diverged_graph, "--stat").out.splitlines()[1].split() == [
        "node:Person",
        "5",
        "0",
        "0",
    ]
    assert cli("diff", start, "main", diverged_graph, "--type", "Nobody", "--json").error()["code"] == "type_not_found"
    assert cli("diff", start, "main", diverged_graph, "--op", "change").code == 2


def test_diff_in_pages_of_the_same_commits(cli: Cli, diverged_graph: Path) -> None:
    document = cli("diff", "main", "work", diverged_graph, "--json").json()
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(4):
        page = cli(
            "diff", "main", "work", diverged_graph, "--limit", "1", "--json", *(["--cursor", cursor] if cursor else [])
        ).json()
        found += page["changes"]
        cursor = page["cursor"]
        set_age(diverged_graph, "main", "Ada", len(found))  # a page does not follow the branch
    assert (found, cursor) == (document["changes"], None)
    assert cli("diff", "main", "work", diverged_graph, "--cursor", "x", "--json").error()["code"] == "bad_cursor"


def test_diff_as_lines(cli: Cli, diverged_graph: Path) -> None:
    outcome = cli("diff", "main", "work", diverged_graph, "--format", "jsonl", "--limit", "2")
    assert [json.loads(line)["id"] for line in outcome.out.splitlines()] == ["Ada", "Bob"]
    assert "--cursor" in outcome.err
    rows = list(csv.DictReader(io.StringIO(cli("diff", "main", "work", diverged_graph, "--format", "csv").out)))
    assert [json.loads(row["after"])["age"] for row in rows] == [20, 21, 30, None]


# --- changes, commit changes ---------------------------------------------------------------------------------------


def test_changes_is_the_feed_of_python(cli: Cli, diverged_graph: Path) -> None:
    document = cli("changes", diverged_graph, "--json").json()
    assert document == page_to_json(og.open(diverged_graph).changes())
    assert (len(document["commits"]), document["more"]) == (6, False)
    again = cli("changes", diverged_graph, "--since", document["cursor"], "--json").json()
    assert (again["commits"], again["cursor"]) == ([], document["cursor"])


def test_changes_in_pages(cli: Cli, diverged_graph: Path) -> None:
    first = cli("changes", diverged_graph, "--limit", "2", "--json").json()
    assert ([len(commit["changes"]) for commit in first["commits"]], first["more"]) == ([2], True)
    document = cli("changes", diverged_graph, "--since", first["cursor"], "--json").json()
    assert len(document["commits"]) == 5


def test_changes_of_a_branch_for_a_person(cli: Cli, diverged_graph: Path) -> None:
    outcome = cli("changes", diverged_graph, "--branch", "work")
    assert [line.split()[1:5] for line in outcome.out.splitlines()[1:]] == [
        ["work", "update", "node:Person", "Ada"],
        ["work", "update", "node:Person", "Bob"],
        ["work", "update", "node:Person", "Cy"],
    ]
    assert outcome.err.startswith("Caught up: go on with --since ")
    lines = cli("changes", diverged_graph, "--branch", "work", "--format", "jsonl").out.splitlines()
    assert [json.loads(line)["actor"] for line in lines] == ["work"] * 3


def test_a_gap_is_told(cli: Cli, diverged_graph: Path) -> None:
    cursor = cli("changes", diverged_graph, "--branch", "work", "--json").json()["cursor"]
    g = og.open(diverged_graph)
    g.branch.delete("work")
    g.branch.create("work")
    outcome = cli("changes", diverged_graph, "--branch", "work", "--since", cursor, "--json")
    assert (outcome.code, outcome.error()["code"]) == (1, "change_feed_gap")


def test_changes_of_one_commit(cli: Cli, diverged_graph: Path) -> None:
    commits = og.open(diverged_graph).commits()
    newest, first, birth = commits[0], commits[-2], commits[-1]
    document = cli("commit", "changes", newest.commit_id, diverged_graph, "--json").json()
    assert (document["old"], document["new"], document["cursor"]) == (newest.parents[0], newest.commit_id, None)
    assert [(change["op"], change["id"], change["after"]["age"]) for change in document["changes"]] == [
        ("update", "Di", 50)
    ]
    assert cli("commit", "changes", birth.commit_id, diverged_graph, "--json").json() == {
        "old": None,
        "new": birth.commit_id,
        "changes": [],
        "cursor": None,
    }
    page = cli("commit", "changes", first.commit_id, diverged_graph, "--limit", "1", "--json").json()
    rest = cli("commit", "changes", first.commit_id, diverged_graph, "--cursor", page["cursor"], "--json").json()
    assert [one["id"] for one in (*page["changes"], *rest["changes"])] == ["Ada", "Bob"]
    counted = cli("commit", "changes", first.commit_id, diverged_graph, "--stat", "--json").json()["tables"]
    assert counted == [{"table_key": "node:Person", "inserted": 2, "updated": 0, "deleted": 0}]
