"""The verbs of upkeep on the command line."""

from __future__ import annotations

from pathlib import Path

import omnigraph as og
from tests.cli.conftest import Cli, add


def test_optimize_shows_then_does_then_rests(cli: Cli, graph_path: Path) -> None:
    planned = cli("optimize", graph_path, "--dry-run", "--json").json()
    assert planned["dry_run"]
    assert planned["overlay_entries"] > 0
    assert planned["commits"] == []
    assert og.open(graph_path).commits(1)[0].kind != "physical"
    document = cli("optimize", graph_path, "--json").json()
    assert {table["table_key"]: table["outcome"] for table in document["tables"]} == {"node:Person": "done"}
    assert og.open(graph_path).commits(1)[0].commit_id == document["commits"][-1]
    again = cli("optimize", graph_path)
    assert again.code == 0
    assert "busy" not in again.out
    assert cli("optimize", graph_path, "--json").json()["tables"] == []


def test_optimize_of_one_type(cli: Cli, graph_path: Path) -> None:
    assert cli("optimize", graph_path, "--type", "Nobody", "--json").error()["code"] == "type_not_found"
    assert "node:Person" in cli("optimize", graph_path, "--type", "Person").out


def test_snapshot_shows_coverage(cli: Cli, graph_path: Path) -> None:
    cli("optimize", graph_path)
    (person, _) = cli("snapshot", graph_path, "--indexes", "--json").json()["tables"]
    assert {index["covered_fragments"] / index["fragments"] for index in person["indexes"]} == {1}
    assert "by_id" in cli("snapshot", graph_path, "--indexes").out
    assert "by_id" not in cli("snapshot", graph_path).out


def test_cleanup_previews_by_default(cli: Cli, graph_path: Path) -> None:
    outcome = cli("cleanup", graph_path, "--keep", "1")
    assert outcome.code == 0
    assert "preview" in outcome.err
    assert cli("cleanup", graph_path, "--keep", "1", "--json").json()["confirmed"] is False
    assert cli("cleanup", graph_path, "--keep", "0").code == 2
    assert cli("cleanup", graph_path, "--older-than", "soon", "--json").error()["code"] == "bad_age"
    document = cli("cleanup", graph_path, "--older-than", "0s", "--confirm", "--json").json()
    assert document["confirmed"] is True
    assert document["expired"] == []  # there are fewer than are never collected
    assert og.open(graph_path).commits(1)[0].kind != "gc"


def test_a_store_elsewhere_needs_a_second_word(cli: Cli) -> None:
    for words in (["cleanup", "s3://b/g", "--confirm"], ["tag", "delete", "x", "s3://b/g", "--confirm"]):
        refused = cli(*words)
        assert refused.code == 2
        assert "--yes" in refused.err


def test_tags(cli: Cli, graph_path: Path) -> None:
    newest = og.open(graph_path).commits(1)[0].commit_id
    document = cli("tag", "create", "v1", newest, graph_path, "--actor", "ada", "-m", "first", "--json").json()
    assert document["commit_id"] == newest
    outcome = cli("tag", "create", "v1", newest, graph_path, "--json")
    assert (outcome.code, outcome.error()["code"]) == (3, "tag_exists")
    assert cli("tag", "list", graph_path, "--format", "csv").out.splitlines()[1].startswith(f"v1,{newest},ada,")
    assert cli("tag", "delete", "v1", graph_path, "--json").json()["deleted"] is False
    assert cli("tag", "delete", "v1", graph_path, "--confirm", "--json").json()["deleted"] is True
    assert cli("tag", "delete", "v1", graph_path, "--json").error()["code"] == "tag_not_found"
    assert cli("tag", "list", graph_path, "--json").json() == {"tags": []}


def test_verify_and_repair(cli: Cli, graph_path: Path) -> None:
    g = og.open(graph_path)
    g.branch.create("gone")
    g.branch.delete("gone")
    assert cli("verify", graph_path).code == 0
    assert cli("verify", graph_path, "--deep", "--json").json()["checked"]["rows_read"] == 0
    (graph_path / "__branches" / "gone" / "00000001.json").unlink()
    outcome = cli("verify", graph_path, "--json")
    assert outcome.code == 1
    (problem,) = outcome.json()["problems"]
    assert (problem["code"], problem["repairable"]) == ("tombstone_missing", True)
    assert "tombstone_missing" in cli("verify", graph_path).out
    mended = cli("repair", graph_path, "--json")
    assert mended.code == 0
    assert mended.json()["repaired"] == ["wrote __branches/gone/00000001.json"]
    assert "repaired: 0" in " ".join(cli("repair", graph_path).out.split())


def test_verify_of_a_graph_that_cannot_be_opened(cli: Cli, graph_path: Path) -> None:
    newest = max((graph_path / "__manifest").rglob("*.rec"), key=lambda path: -int(path.stem))
    newest.write_bytes(newest.read_bytes()[:-3])
    outcome = cli("verify", graph_path, "--json")
    assert outcome.code == 1
    assert outcome.json()["problems"][0]["code"] == "record_damaged"
    assert cli("repair", graph_path, "--json").code == 1
    assert cli("cleanup", graph_path, "--json").code == 1


def test_damage_stays_damage(cli: Cli, graph_path: Path) -> None:
    g = og.open(graph_path)
    add(g, ["Zoe"], actor="ada", message="more")
    g.optimize()
    next((graph_path / "tables").rglob("data/*.lance")).unlink()
    assert cli("repair", graph_path).code == 1
