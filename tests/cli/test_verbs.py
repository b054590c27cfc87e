"""Each verb on a real graph: what it does, and that `--json` is one document of the documented shape. S158"""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.conftest import SCHEMA, Cli, add

COMMIT_FIELDS = ["commit_id", "seq", "parents", "kind", "actor", "created_at", "message", "branch"]


# --- init, snapshot, version ---------------------------------------------------------------------------------------


def test_init_creates_a_graph_that_python_opens(cli: Cli, tmp_path: Path, schema_file: Path) -> None:
    document = cli("init", tmp_path / "new", "--schema", schema_file, "--json").json()
    assert list(document) == ["graph", "graph_id", "branch", "commit_id", "internal_schema", "types", "files"]
    g = og.open(tmp_path / "new")
    assert (g.graph_id, g.refresh(), g.schema.source) == (document["graph_id"], document["commit_id"], SCHEMA)
    assert document["types"] == ["node:Person", "edge:Knows"]
    assert document["internal_schema"] == 1


def test_init_for_a_person(cli: Cli, tmp_path: Path, schema_file: Path) -> None:
    outcome = cli("init", tmp_path / "new", "--schema", schema_file)
    assert outcome.code == 0
    assert re.search(r"^commit_id: +\w{26}\.0$", outcome.out, re.MULTILINE)


def test_snapshot_json_is_the_snapshot_of_python(cli: Cli, graph_path: Path) -> None:
    assert cli("snapshot", graph_path, "--json").json() == og.open(graph_path).snapshot()


def test_snapshot_at_a_commit_belongs_to_no_branch(cli: Cli, graph_path: Path) -> None:
    g = og.open(graph_path)
    first = g.commits()[-2].commit_id
    document = cli("snapshot", graph_path, "--at", first, "--json").json()
    assert document == {"branch": None, **g.at(first).snapshot()}
    assert document["tables"][0]["rows"] == 2


def test_snapshot_tells_the_storage_format(cli: Cli, graph_path: Path) -> None:
    out = cli("snapshot", graph_path).out
    assert "internal-schema 1" in out
    assert re.search(r"^node:Person +4 ", out, re.MULTILINE)


def test_snapshot_rows_as_csv_hold_nothing_else(cli: Cli, graph_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("snapshot", graph_path, "--format", "csv").out)))
    assert [(row["table_key"], row["rows"]) for row in rows] == [("node:Person", "4"), ("edge:Knows", "0")]


def test_snapshot_of_a_graph_without_types(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty.pg").write_text("// nothing\n")
    cli("init", tmp_path / "empty", "--schema", tmp_path / "empty.pg")
    assert cli("snapshot", tmp_path / "empty", "--format", "csv").code == 0


def test_version_tells_release_format_engine_and_python(cli: Cli) -> None:
    lines = dict(line.split(" ") for line in cli("version").out.splitlines())
    assert list(lines) == ["omnigraph", "internal-schema", "lance", "python"]
    assert lines["omnigraph"] == og.__version__
    assert lines["internal-schema"] == "1"
    assert list(cli("version", "--json").json()) == ["omnigraph", "internal_schema", "lance", "python"]
    assert cli("--version").out == cli("version").out


# --- commit --------------------------------------------------------------------------------------------------------


def test_commit_list_is_the_history_of_python(cli: Cli, graph_path: Path) -> None:
    document = cli("commit", "list", graph_path, "--json").json()
    assert list(document) == ["commits"]
    assert [list(commit) for commit in document["commits"]] == [COMMIT_FIELDS] * 4
    assert [commit["commit_id"] for commit in document["commits"]] == [
        commit.commit_id for commit in og.open(graph_path).commits()
    ]


@pytest.mark.parametrize(
    ("filters", "seqs"),
    [
        (["actor=ada"], [3, 1]),
        (["actor=nobody"], []),
        (["kind=init"], [0]),
        (["kind=mutate", "actor=bob"], [2]),
        (["branch=main", "kind=mutate"], [3, 2, 1]),
        (["branch=other"], []),
    ],
)
def test_commit_list_filters(cli: Cli, graph_path: Path, filters: list[str], seqs: list[int]) -> None:
    words = [word for filter in filters for word in ("--filter", filter)]
    assert [commit["seq"] for commit in cli("commit", "list", graph_path, *words, "--json").json()["commits"]] == seqs


def test_limit_counts_what_passes_the_filters(cli: Cli, graph_path: Path) -> None:
    document = cli("commit", "list", graph_path, "--filter", "kind=mutate", "--limit", "2", "--json").json()
    assert [commit["seq"] for commit in document["commits"]] == [3, 2]
    assert len(cli("commit", "list", graph_path, "--limit", "0", "--json").json()["commits"]) == 4


def test_commit_list_of_a_branch_goes_on_into_its_source(cli: Cli, graph_path: Path) -> None:
    og.open(graph_path).branch.create("review/x", actor="eve")
    found = cli("commit", "list", graph_path, "--branch", "review/x", "--json").json()["commits"]
    assert [one["kind"] for one in found] == ["fork", "mutate", "mutate", "mutate", "init"]
    only = cli("commit", "list", graph_path, "--branch", "review/x", "--filter", "branch=review/x", "--json").json()
    assert [commit["actor"] for commit in only["commits"]] == ["eve"]


def test_commit_list_at_a_commit(cli: Cli, graph_path: Path) -> None:
    second = og.open(graph_path).commits()[1].commit_id
    assert [
        commit["seq"] for commit in cli("commit", "list", graph_path, "--at", second, "--json").json()["commits"]
    ] == [2, 1, 0]


def test_row_formats_hold_the_same_rows(cli: Cli, graph_path: Path) -> None:
    expected = cli("commit", "list", graph_path, "--json").json()["commits"]
    assert cli("commit", "list", graph_path, "--format", "json").json()["commits"] == expected
    lines = cli("commit", "list", graph_path, "--format", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == expected
    rows = list(csv.DictReader(io.StringIO(cli("commit", "list", graph_path, "--format", "csv").out)))
    assert [row["commit_id"] for row in rows] == [one["commit_id"] for one in expected]
    assert list(rows[0]) == COMMIT_FIELDS
    blocks = cli("commit", "list", graph_path, "--format", "kv").out.split("\n\n")
    assert [block.splitlines()[0].split()[1] for block in blocks] == [one["commit_id"] for one in expected]


def test_the_piped_table_is_neither_folded_nor_coloured(cli: Cli, graph_path: Path) -> None:
    add(og.open(graph_path), ["Eve"], actor="eve", message="a long reason " * 20)
    lines = cli("commit", "list", graph_path).out.splitlines()
    assert len(lines) == 6
    assert lines[1].endswith(("a long reason " * 20).rstrip())
    assert "\x1b" not in "".join(lines)


def test_stored_text_cannot_steer_a_terminal(cli: Cli, graph_path: Path) -> None:
    add(og.open(graph_path), ["Eve"], actor="e\x1b[31mve", message="one\ntwo\x07")
    out = cli("commit", "list", graph_path, "--limit", "1").out
    assert len(out.splitlines()) == 2
    assert "\x1b" not in out
    assert "one two" in out
    # Machines get the text as it is.
    assert cli("commit", "list", graph_path, "--limit", "1", "--json").json()["commits"][0]["message"] == "one\ntwo\x07"


def test_commit_show(cli: Cli, graph_path: Path) -> None:
    info = og.open(graph_path).commits()[0]
    document = cli("commit", "show", info.commit_id, graph_path, "--json").json()
    assert list(document)[: len(COMMIT_FIELDS)] == COMMIT_FIELDS
    assert (document["commit_id"], document["actor"], document["parents"]) == (
        info.commit_id,
        "ada",
        list(info.parents),
    )
    assert document == og.open(graph_path).at(info.commit_id).commit()
    assert [one["inserted"] for one in document["touched"]] == [1]
    shown = cli("commit", "show", info.commit_id, "--graph", graph_path).out
    assert re.search(rf"^commit_id: +{info.commit_id}$", shown, re.MULTILINE)
    assert re.search(r"^node:Person +1 +0 +0 +false$", shown, re.MULTILINE)


# --- branch --------------------------------------------------------------------------------------------------------


def test_branch_create_and_list(cli: Cli, graph_path: Path) -> None:
    g = og.open(graph_path)
    words = ("--actor", "eve", "-m", "try it", "--json")
    document = cli("branch", "create", "review/x", graph_path, *words).json()
    assert list(document) == ["branch", "commit_id", "source"]
    assert document["source"] == g.refresh()
    fork = g.on_branch("review/x").commits(limit=1)[0]
    assert (fork.commit_id, fork.actor, fork.message) == (document["commit_id"], "eve", "try it")
    assert cli("branch", "list", graph_path, "--json").json() == {"branches": ["main", "review/x"]}
    assert cli("branch", "list", graph_path).out.split() == ["branch", "main", "review/x"]
    assert cli("branch", "list", graph_path, "--format", "jsonl").out.splitlines()[1] == '{"branch": "review/x"}'


def test_branch_from_a_commit_and_from_a_branch(cli: Cli, graph_path: Path) -> None:
    old = og.open(graph_path).commits()[2].commit_id
    assert cli("branch", "create", "old", graph_path, "--from", old, "--json").json()["source"] == old
    again = cli("branch", "create", "again", graph_path, "--from", "old", "--json").json()
    assert again["source"] == og.open(graph_path, "old").refresh()


def test_branch_delete_previews_first(cli: Cli, graph_path: Path) -> None:
    og.open(graph_path).branch.create("x")
    before = og.open(graph_path, "x").refresh()
    preview = cli("branch", "delete", "x", graph_path, "--json")
    assert (preview.code, preview.json()) == (0, {"branch": "x", "commit_id": before, "deleted": False})
    assert "--confirm" in preview.err
    assert og.open(graph_path).branch.list() == ["main", "x"]
    outcome = cli("branch", "delete", "x", graph_path, "--confirm", "--actor", "eve", "--json")
    assert outcome.json() == {"branch": "x", "commit_id": before, "deleted": True}
    assert og.open(graph_path).branch.list() == ["main"]
    assert cli("snapshot", graph_path, "--at", before).code == 0


def test_deleting_on_a_remote_store_needs_yes_as_well(cli: Cli) -> None:
    outcome = cli("branch", "delete", "x", "s3://bucket/graph", "--confirm", "--json")
    assert (outcome.code, outcome.error()["code"]) == (2, "usage")
    assert "--yes" in outcome.err


@pytest.mark.s3
def test_verbs_on_an_object_store(cli: Cli, s3_place: object, schema_file: Path) -> None:
    uri: str = s3_place.uri  # type: ignore[attr-defined]
    given: dict[str, str] = s3_place.storage_options  # type: ignore[attr-defined]
    options = [word for name, value in given.items() for word in ("--storage-option", f"{name}={value}")]
    assert cli("init", uri, "--schema", schema_file, *options).code == 0
    assert cli("branch", "create", "x", uri, *options).code == 0
    assert cli("branch", "delete", "x", uri, *options, "--confirm").code == 2
    assert cli("branch", "list", uri, *options, "--json").json() == {"branches": ["main", "x"]}
    assert cli("branch", "delete", "x", uri, *options, "--confirm", "--yes").code == 0
    assert cli("branch", "list", uri, *options, "--json").json() == {"branches": ["main"]}


# --- naming a graph ------------------------------------------------------------------------------------------------


def test_a_graph_is_named_by_argument_option_or_environment(
    cli: Cli, graph_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = cli("snapshot", graph_path, "--json").json()
    assert cli("snapshot", "--graph", graph_path, "--json").json() == expected
    assert cli("snapshot", graph_path, "--graph", graph_path, "--json").json() == expected
    monkeypatch.setenv("OMNIGRAPH_GRAPH", str(graph_path))
    assert cli("snapshot", "--json").json() == expected
    # The command line wins over the environment.
    assert cli("snapshot", graph_path / "elsewhere", "--json").error()["code"] == "graph_not_found"


# --- schema --------------------------------------------------------------------------------------------------------


def test_schema_show_prints_the_source_exactly(cli: Cli, graph_path: Path) -> None:
    assert cli("schema", "show", graph_path).out == SCHEMA
    document = cli("schema", "show", graph_path, "--json").json()
    assert list(document) == ["commit_id", "schema", "types", "source"]
    assert (document["source"], document["types"]) == (SCHEMA, ["node:Person", "edge:Knows"])


def test_schema_plan_and_apply(cli: Cli, graph_path: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.pg"
    new.write_text(SCHEMA.replace("age: I32?", "age: I64?\n    born: Date?"))
    before = og.open(graph_path).refresh()
    plan = cli("schema", "plan", graph_path, "--schema", new, "--json").json()
    assert list(plan) == ["branch", "supported", "steps", "refused"]
    assert [step["step"] for step in plan["steps"]] == ["add_property", "widen"]
    assert "widen node:Person.age type (I32 → I64)" in cli("schema", "plan", graph_path, "--schema", new).out
    assert og.open(graph_path).refresh() == before
    document = cli(
        "schema", "apply", graph_path, "--schema", new, "--actor", "eve", "--if-commit", before, "--json"
    ).json()
    assert list(document) == ["branch", "commit_id", "supported", "steps", "refused"]
    newest = og.open(graph_path).commits(limit=1)[0]
    assert (newest.commit_id, newest.kind, newest.actor) == (document["commit_id"], "schema", "eve")
    again = cli("schema", "apply", graph_path, "--schema", new)
    assert (again.code, again.out) == (0, "no change\n")
    assert cli("schema", "show", graph_path, "--at", before).out == SCHEMA


def test_dropping_data_for_good_previews_first(cli: Cli, graph_path: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.pg"
    new.write_text(SCHEMA.replace("    since: Date?\n", ""))
    before = og.open(graph_path).refresh()
    preview = cli("schema", "apply", graph_path, "--schema", new, "--allow-data-loss", "--json")
    assert (preview.code, preview.json()["commit_id"]) == (0, None)
    assert og.open(graph_path).refresh() == before
    assert cli("schema", "apply", graph_path, "--schema", new, "--allow-data-loss", "--confirm").code == 0
    assert og.open(graph_path).refresh() != before


# --- lint, fmt -----------------------------------------------------------------------------------------------------


def test_lint_reports_all_errors_of_all_files(cli: Cli, tmp_path: Path, schema_file: Path) -> None:
    bad = tmp_path / "bad.pg"
    bad.write_text("node Person {\n  name: Strin @key\n  id: String\n}\n")
    outcome = cli("lint", schema_file, bad, "--json")
    assert outcome.code == 5
    document = outcome.json()
    assert (document["ok"], [file["ok"] for file in document["files"]]) == (False, [True, False])
    assert [error["code"] for error in document["files"][1]["errors"]] == ["OG-S-020", "OG-S-013"]
    text = cli("lint", bad)
    assert text.code == 5
    assert f"error: {bad}:2:9: OG-S-020" in text.out
    assert cli("lint", "--schema", schema_file).code == 0


def test_lint_of_queries_against_a_file_and_against_a_graph(
    cli: Cli, tmp_path: Path, schema_file: Path, graph_path: Path
) -> None:
    query = tmp_path / "q.gq"
    query.write_text("query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }\n")
    for words in (("--schema", schema_file), ("--graph", graph_path)):
        outcome = cli("lint", query, *words, "--json")
        assert outcome.code == 0, outcome
        assert outcome.json()["files"][-1]["queries"][0]["name"] == "q"
    query.write_text("query q() { match { $p: Person } return { $p.agee } }\n")
    outcome = cli("lint", query, "--graph", graph_path, "--json")
    assert outcome.code == 5
    assert outcome.json()["files"][0]["errors"][0]["line"] == 1
    assert cli("lint", query).code == 2


def test_queries_are_not_checked_against_a_broken_schema(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.pg").write_text("node person {}\n")
    (tmp_path / "q.gq").write_text("query q() { match { $p: Person } return { $p.id } }\n")
    document = cli("lint", tmp_path / "q.gq", "--schema", tmp_path / "bad.pg", "--json").json()
    assert (document["ok"], document["unchecked"]) == (False, [str(tmp_path / "q.gq")])


def test_fmt_changes_files_in_place_and_only_once(cli: Cli, tmp_path: Path) -> None:
    schema, query = tmp_path / "a.pg", tmp_path / "a.gq"
    schema.write_text("node Person{name:String @key}")
    schema.chmod(0o640)
    query.write_text("query q() {match {$p: Person} return {$p.id}}")
    check = cli("fmt", "--check", schema, query)
    assert (check.code, schema.read_text()) == (5, "node Person{name:String @key}")
    assert cli("fmt", schema, query, "--json").json() == {
        "files": [{"file": str(schema), "changed": True}, {"file": str(query), "changed": True}]
    }
    assert schema.read_text() == "node Person {\n    name: String @key\n}\n"
    assert schema.stat().st_mode & 0o777 == 0o640
    assert cli("fmt", "--check", schema, query).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.gq", "a.pg"]


def test_fmt_writes_nothing_if_one_file_cannot_be_parsed(cli: Cli, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.pg", tmp_path / "bad.pg"
    good.write_text("node A{}")
    bad.write_text("node {")
    outcome = cli("fmt", good, bad, "--json")
    assert outcome.code == 5
    assert outcome.error()["code"].startswith("OG-S-")
    assert good.read_text() == "node A{}"


def test_fmt_of_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("node A{x:I32}"))
    assert cli("fmt", "-").out == "node A {\n    x: I32\n}\n"
