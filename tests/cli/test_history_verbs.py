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
from omnigraph.history.feed import page_json
from omnigraph.query.language.statements import Compare, Delete, Update
from tests.cli.conftest import Cli, add

CONFLICT = {"entity_kind": "node", "type_name": "Person", "entity_id": "Ada"}


def set_age(place: Path, branch: str, name: str, age: int) -> None:
    og.open(place, branch).apply([Update("Person", {"age": age}, Compare("name", "=", name))], actor=branch)


def ages(place: Path, branch: str = "main") -> dict[str, int | None]:
    return {row["name"]: row["age"] for row in og.open(place, branch).table("Person").to_arrow().to_pylist()}


@pytest.fixture
def parted(place: Path) -> Path:
    """`work` and `main` each changed Ada and Bob, and one row that the other did not."""
    og.open(place).branch.create("work")
    for branch, age in (("work", 20), ("main", 40)):
        set_age(place, branch, "Ada", age)
        set_age(place, branch, "Bob", age + 1)
    set_age(place, "work", "Cy", 30)
    set_age(place, "main", "Di", 50)
    return place


# --- branch merge --------------------------------------------------------------------------------------------------


def test_a_merge_without_conflict(cli: Cli, place: Path) -> None:
    og.open(place).branch.create("work")
    set_age(place, "work", "Ada", 36)
    set_age(place, "main", "Bob", 37)
    found = cli("branch", "merge", "work", place, "--actor", "eve", "-m", "ages", "--json").json()
    newest = og.open(place).commits(1)[0]
    assert found == {
        "source": "work",
        "into": "main",
        "outcome": "merged",
        "commit_id": newest.commit_id,
        "counts": {"inserted": 0, "updated": 1, "deleted": 0},
        "dry_run": False,
        "branch_deleted": False,
    }
    assert (newest.actor, newest.message, len(newest.parents)) == ("eve", "ages", 2)
    assert ages(place) == {"Ada": 36, "Bob": 37, "Cy": None, "Di": None}
    assert cli("branch", "merge", "work", place, "--json").json()["outcome"] == "already_up_to_date"


def test_a_merge_for_a_person(cli: Cli, place: Path) -> None:
    og.open(place).branch.create("work")
    set_age(place, "work", "Ada", 36)
    out = cli("branch", "merge", "work", place).out
    assert re.search(r"^outcome: +fast_forward$", out, re.MULTILINE)
    assert "1 updated" in out


def test_conflicts_are_all_listed_and_nothing_is_written(cli: Cli, parted: Path) -> None:
    head = og.open(parted).refresh()
    outcome = cli("branch", "merge", "work", parted)
    assert (outcome.code, outcome.out) == (3, "")
    assert [line.split()[3] for line in outcome.err.splitlines() if "divergent_update:" in line] == ["'Ada'", "'Bob'"]
    error = cli("branch", "merge", "work", parted, "--json").error()
    assert error["code"] == "merge_conflict"
    assert [one["entity_id"] for one in error["merge_conflicts"]] == ["Ada", "Bob"]
    assert error["merge_conflicts"][0]["source"]["age"] == 20
    assert cli("branch", "merge", "work", parted, "--dry-run").code == 3
    assert og.open(parted).refresh() == head


@pytest.mark.parametrize(("side", "age"), [("ours", 40), ("theirs", 20)])
def test_one_side_for_all_conflicts(cli: Cli, parted: Path, side: str, age: int) -> None:
    assert cli("branch", "merge", "work", parted, "--resolve", side).code == 0
    assert ages(parted) == {"Ada": age, "Bob": age + 1, "Cy": 30, "Di": 50}


def test_single_conflicts_are_settled_by_a_file(cli: Cli, parted: Path, tmp_path: Path) -> None:
    # The error itself, with what to take written into it, is such a file.
    error = json.loads(cli("branch", "merge", "work", parted, "--json").err)
    file = tmp_path / "settled.json"
    error["merge_conflicts"][0]["resolve"] = "theirs"
    file.write_text(json.dumps(error))
    left = cli("branch", "merge", "work", parted, "--resolve-file", file, "--json").error()
    assert [one["entity_id"] for one in left["merge_conflicts"]] == ["Bob"]
    error["merge_conflicts"][1]["resolve"] = "ours"
    file.write_text(json.dumps(error["merge_conflicts"]))
    assert cli("branch", "merge", "work", parted, "--resolve-file", file).code == 0
    assert ages(parted) == {"Ada": 20, "Bob": 41, "Cy": 30, "Di": 50}


def test_a_file_says_more_than_the_general_rule(cli: Cli, parted: Path, tmp_path: Path) -> None:
    file = tmp_path / "settled.json"
    file.write_text(json.dumps([{**CONFLICT, "resolve": "ours"}]))
    assert cli("branch", "merge", "work", parted, "--resolve-file", file, "--resolve", "theirs").code == 0
    assert ages(parted) == {"Ada": 40, "Bob": 21, "Cy": 30, "Di": 50}


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
def test_a_file_that_settles_nothing(cli: Cli, parted: Path, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "settled.json").write_text(text)
    outcome = cli("branch", "merge", "work", parted, "--resolve-file", tmp_path / "settled.json", "--json")
    assert (outcome.code, outcome.error()["code"]) == (5, "bad_resolutions")
    assert message in outcome.error()["error"]


def test_cells_dry_run_and_delete(cli: Cli, place: Path) -> None:
    og.open(place).branch.create("work")
    og.open(place, "work").apply([Delete("Person", Compare("name", "=", "Di"))])
    head = og.open(place).refresh()
    planned = cli("branch", "merge", "work", place, "--dry-run", "--json").json()
    assert (planned["dry_run"], planned["commit_id"], planned["counts"]["deleted"]) == (True, None, 1)
    assert og.open(place).refresh() == head
    assert cli("branch", "merge", "work", place, "--dry-run", "--delete-branch").code == 2
    done = cli("branch", "merge", "work", place, "--delete-branch", "--cell-level", "--json").json()
    assert done["branch_deleted"] is True
    assert cli("branch", "list", place, "--json").json() == {"branches": ["main"]}


def test_into_another_branch_and_only_if_it_stands_there(cli: Cli, parted: Path) -> None:
    og.open(parted).branch.create("other", "main")
    stale = og.open(parted).commits()[-1].commit_id
    words = ("branch", "merge", "work", parted, "--into", "other", "--resolve", "theirs")
    assert cli(*words, "--if-commit", stale).code == 4
    found = cli(*words, "--client-key", "k1", "--json").json()
    assert (found["into"], found["outcome"]) == ("other", "merged")
    assert ages(parted, "other")["Ada"] == 20
    assert ages(parted)["Ada"] == 40
    assert cli(*words, "--client-key", "k1", "--json").json()["commit_id"] == found["commit_id"]
    assert cli("branch", "merge", "main", parted).code == 5


# --- diff ----------------------------------------------------------------------------------------------------------


def test_diff_is_the_diff_of_python(cli: Cli, parted: Path) -> None:
    found = cli("diff", "main", "work", parted, "--json").json()
    g = og.open(parted)
    assert found == {
        "old": g.refresh(),
        "new": g.on_branch("work").refresh(),
        "changes": [one.to_json() for one in g.diff("main", "work")],
        "cursor": None,
    }
    assert [one["id"] for one in found["changes"]] == ["Ada", "Bob", "Cy", "Di"]
    assert list(found["changes"][0]) == ["op", "kind", "type", "id", "before", "after"]


def test_diff_for_a_person(cli: Cli, parted: Path) -> None:
    lines = cli("diff", "main", "work", parted).out.splitlines()
    assert lines[0].split() == ["op", "table_key", "id", "what"]
    assert lines[1].split("  ", 1)[0] == "update"
    assert lines[1].endswith("age: 40 → 20")
    assert lines[4].endswith("age: 50 → null")


def test_filters_and_counts(cli: Cli, parted: Path) -> None:
    g = og.open(parted)
    start = g.commits()[-1].commit_id
    add(g, ["Eve"])

    def ids(*words: str) -> list[str]:
        return [one["id"] for one in cli("diff", start, "main", parted, *words, "--json").json()["changes"]]

    assert ids("--op", "insert", "--type", "Person") == ["Ada", "Bob", "Cy", "Di", "Eve"]
    assert ids("--op", "update", "--op", "delete") == []
    assert ids("--kind", "edge") == []
    counted = cli("diff", start, "main", parted, "--stat", "--limit", "1", "--json").json()
    assert counted["tables"] == [{"table_key": "node:Person", "inserted": 5, "updated": 0, "deleted": 0}]
    assert cli("diff", start, "main", parted, "--stat").out.splitlines()[1].split() == ["node:Person", "5", "0", "0"]
    assert cli("diff", start, "main", parted, "--type", "Nobody", "--json").error()["code"] == "type_not_found"
    assert cli("diff", start, "main", parted, "--op", "change").code == 2


def test_diff_in_pages_of_the_same_commits(cli: Cli, parted: Path) -> None:
    whole = cli("diff", "main", "work", parted, "--json").json()
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(4):
        page = cli(
            "diff", "main", "work", parted, "--limit", "1", "--json", *(["--cursor", cursor] if cursor else [])
        ).json()
        found += page["changes"]
        cursor = page["cursor"]
        set_age(parted, "main", "Ada", len(found))  # a page does not follow the branch
    assert (found, cursor) == (whole["changes"], None)
    assert cli("diff", "main", "work", parted, "--cursor", "x", "--json").error()["code"] == "bad_cursor"


def test_diff_as_lines(cli: Cli, parted: Path) -> None:
    outcome = cli("diff", "main", "work", parted, "--format", "jsonl", "--limit", "2")
    assert [json.loads(line)["id"] for line in outcome.out.splitlines()] == ["Ada", "Bob"]
    assert "--cursor" in outcome.err
    rows = list(csv.DictReader(io.StringIO(cli("diff", "main", "work", parted, "--format", "csv").out)))
    assert [json.loads(row["after"])["age"] for row in rows] == [20, 21, 30, None]


# --- changes, commit changes ---------------------------------------------------------------------------------------


def test_changes_is_the_feed_of_python(cli: Cli, parted: Path) -> None:
    found = cli("changes", parted, "--json").json()
    assert found == page_json(og.open(parted).changes())
    assert (len(found["commits"]), found["more"]) == (6, False)
    again = cli("changes", parted, "--since", found["cursor"], "--json").json()
    assert (again["commits"], again["cursor"]) == ([], found["cursor"])


def test_changes_in_pages(cli: Cli, parted: Path) -> None:
    first = cli("changes", parted, "--limit", "2", "--json").json()
    assert ([len(one["changes"]) for one in first["commits"]], first["more"]) == ([2], True)
    rest = cli("changes", parted, "--since", first["cursor"], "--json").json()
    assert len(rest["commits"]) == 5


def test_changes_of_a_branch_for_a_person(cli: Cli, parted: Path) -> None:
    outcome = cli("changes", parted, "--branch", "work")
    assert [line.split()[1:5] for line in outcome.out.splitlines()[1:]] == [
        ["work", "update", "node:Person", "Ada"],
        ["work", "update", "node:Person", "Bob"],
        ["work", "update", "node:Person", "Cy"],
    ]
    assert outcome.err.startswith("Caught up: go on with --since ")
    lines = cli("changes", parted, "--branch", "work", "--format", "jsonl").out.splitlines()
    assert [json.loads(line)["actor"] for line in lines] == ["work"] * 3


def test_a_gap_is_told(cli: Cli, parted: Path) -> None:
    cursor = cli("changes", parted, "--branch", "work", "--json").json()["cursor"]
    g = og.open(parted)
    g.branch.delete("work")
    g.branch.create("work")
    outcome = cli("changes", parted, "--branch", "work", "--since", cursor, "--json")
    assert (outcome.code, outcome.error()["code"]) == (1, "change_feed_gap")


def test_changes_of_one_commit(cli: Cli, parted: Path) -> None:
    commits = og.open(parted).commits()
    newest, first, birth = commits[0], commits[-2], commits[-1]
    found = cli("commit", "changes", newest.commit_id, parted, "--json").json()
    assert (found["old"], found["new"], found["cursor"]) == (newest.parents[0], newest.commit_id, None)
    assert [(one["op"], one["id"], one["after"]["age"]) for one in found["changes"]] == [("update", "Di", 50)]
    assert cli("commit", "changes", birth.commit_id, parted, "--json").json() == {
        "old": None,
        "new": birth.commit_id,
        "changes": [],
        "cursor": None,
    }
    page = cli("commit", "changes", first.commit_id, parted, "--limit", "1", "--json").json()
    rest = cli("commit", "changes", first.commit_id, parted, "--cursor", page["cursor"], "--json").json()
    assert [one["id"] for one in (*page["changes"], *rest["changes"])] == ["Ada", "Bob"]
    counted = cli("commit", "changes", first.commit_id, parted, "--stat", "--json").json()["tables"]
    assert counted == [{"table_key": "node:Person", "inserted": 2, "updated": 0, "deleted": 0}]
