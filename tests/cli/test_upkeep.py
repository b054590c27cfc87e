"""The verbs of upkeep on the command line."""

from __future__ import annotations

from pathlib import Path

import omnigraph as og
from tests.cli.conftest import Cli, add


def test_optimize_shows_then_does_then_rests(cli: Cli, place: Path) -> None:
    planned = cli("optimize", place, "--dry-run", "--json").json()
    assert planned["dry_run"]
    assert planned["overlay_entries"] > 0
    assert planned["commits"] == []
    assert og.open(place).commits(1)[0].kind != "physical"
    done = cli("optimize", place, "--json").json()
    assert {one["table_key"]: one["outcome"] for one in done["tables"]} == {"node:Person": "done"}
    assert og.open(place).commits(1)[0].commit_id == done["commits"][-1]
    again = cli("optimize", place)
    assert again.code == 0
    assert "busy" not in again.out
    assert cli("optimize", place, "--json").json()["tables"] == []


def test_optimize_of_one_type(cli: Cli, place: Path) -> None:
    assert cli("optimize", place, "--type", "Nobody", "--json").error()["code"] == "type_not_found"
    assert "node:Person" in cli("optimize", place, "--type", "Person").out


def test_snapshot_shows_coverage(cli: Cli, place: Path) -> None:
    cli("optimize", place)
    (person, _) = cli("snapshot", place, "--indexes", "--json").json()["tables"]
    assert {one["covered_fragments"] / one["fragments"] for one in person["indexes"]} == {1}
    assert "by_id" in cli("snapshot", place, "--indexes").out
    assert "by_id" not in cli("snapshot", place).out


def test_cleanup_previews_by_default(cli: Cli, place: Path) -> None:
    shown = cli("cleanup", place, "--keep", "1")
    assert shown.code == 0
    assert "preview" in shown.err
    assert cli("cleanup", place, "--keep", "1", "--json").json()["confirmed"] is False
    assert cli("cleanup", place, "--keep", "0").code == 2
    assert cli("cleanup", place, "--older-than", "soon", "--json").error()["code"] == "bad_age"
    done = cli("cleanup", place, "--older-than", "0s", "--confirm", "--json").json()
    assert done["confirmed"] is True
    assert done["expired"] == []  # there are fewer than are never collected
    assert og.open(place).commits(1)[0].kind != "gc"


def test_a_store_elsewhere_needs_a_second_word(cli: Cli) -> None:
    for words in (["cleanup", "s3://b/g", "--confirm"], ["tag", "delete", "x", "s3://b/g", "--confirm"]):
        refused = cli(*words)
        assert refused.code == 2
        assert "--yes" in refused.err


def test_tags(cli: Cli, place: Path) -> None:
    newest = og.open(place).commits(1)[0].commit_id
    made = cli("tag", "create", "v1", newest, place, "--actor", "ada", "-m", "first", "--json").json()
    assert made["commit_id"] == newest
    taken = cli("tag", "create", "v1", newest, place, "--json")
    assert (taken.code, taken.error()["code"]) == (3, "tag_exists")
    assert cli("tag", "list", place, "--format", "csv").out.splitlines()[1].startswith(f"v1,{newest},ada,")
    assert cli("tag", "delete", "v1", place, "--json").json()["deleted"] is False
    assert cli("tag", "delete", "v1", place, "--confirm", "--json").json()["deleted"] is True
    assert cli("tag", "delete", "v1", place, "--json").error()["code"] == "tag_not_found"
    assert cli("tag", "list", place, "--json").json() == {"tags": []}


def test_verify_and_repair(cli: Cli, place: Path) -> None:
    g = og.open(place)
    g.branch.create("gone")
    g.branch.delete("gone")
    assert cli("verify", place).code == 0
    assert cli("verify", place, "--deep", "--json").json()["checked"]["rows_read"] == 0
    (place / "__branches" / "gone" / "00000001.json").unlink()
    found = cli("verify", place, "--json")
    assert found.code == 1
    (problem,) = found.json()["problems"]
    assert (problem["code"], problem["repairable"]) == ("tombstone_missing", True)
    assert "tombstone_missing" in cli("verify", place).out
    mended = cli("repair", place, "--json")
    assert mended.code == 0
    assert mended.json()["repaired"] == ["wrote __branches/gone/00000001.json"]
    assert "repaired: 0" in " ".join(cli("repair", place).out.split())


def test_verify_of_a_graph_that_cannot_be_opened(cli: Cli, place: Path) -> None:
    newest = max((place / "__manifest").rglob("*.rec"), key=lambda path: -int(path.stem))
    newest.write_bytes(newest.read_bytes()[:-3])
    found = cli("verify", place, "--json")
    assert found.code == 1
    assert found.json()["problems"][0]["code"] == "record_damaged"
    assert cli("repair", place, "--json").code == 1
    assert cli("cleanup", place, "--json").code == 1


def test_damage_stays_damage(cli: Cli, place: Path) -> None:
    g = og.open(place)
    add(g, ["Zoe"], actor="ada", message="more")
    g.optimize()
    next((place / "tables").rglob("data/*.lance")).unlink()
    assert cli("repair", place).code == 1
