"""`omnigraph recover`: the verb, its listing and its refusals. S149, S150, S154"""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.intents.objects import RECOVERY
from tests.cli.conftest import Cli
from tests.intents.conftest import DeadAt, dead_at, dead_template
from tests.intents.intent_actor import ROWS, intents

__all__ = ["dead_at", "dead_template"]


def test_recover_tells_what_it_did(cli: Cli, dead_at: DeadAt) -> None:
    uri = dead_at("intent.confirmed")
    (intent,) = intents(uri)
    (before,) = cli("recover", uri, "--list", "--json").json()["intents"]
    assert (before["id"], before["state"], before["actor"]) == (intent, "confirmed", "etl")
    (recovered,) = cli("recover", uri, "--json").json()["intents"]
    assert (recovered["id"], recovered["verdict"]) == (intent, "rolled_forward")
    assert cli("recover", uri, "--json").json() == {"intents": []}
    tables = cli("snapshot", uri, "--json").json()["tables"]
    assert next(table["rows"] for table in tables if table["table_key"] == "node:Person") == ROWS + 2
    listed = cli("commit", "list", uri, "--filter", "actor=omnigraph:recovery", "--json").json()["commits"]
    assert [one["kind"] for one in listed] == ["recovery", "mutate"]


def test_recover_lists_what_was_given_up(cli: Cli, dead_at: DeadAt) -> None:
    """What it staged is garbage for cleanup, and still there."""
    uri = dead_at("intent.staged", fresh=True)
    (intent,) = intents(uri)
    assert cli("recover", uri, "--json").json()["intents"][0]["verdict"] == "live"
    outcome = cli("recover", uri, "--now", intent)
    assert (outcome.code, "rolled_back" in outcome.out, "cleanup" in outcome.err) == (0, True, True)
    (after,) = cli("recover", uri, "--list", "--json").json()["intents"]
    assert after["state"] == "abandoned"
    assert sum(one["files"] for one in after["garbage"]) >= 2
    assert {one["place"].split("/")[0] for one in after["garbage"]} == {"tables"}
    assert "abandoned" in cli("recover", uri, "--list").out


def test_recover_refuses_what_it_cannot_do(cli: Cli, dead_at: DeadAt) -> None:
    uri = dead_at("intent.opened")
    (intent,) = intents(uri)
    assert cli("recover", uri, "--list", "--now", intent).code == 2
    assert cli("recover", uri, "--now", "nobody", "--json").error()["code"] == "intent_not_found"
    (Path(uri) / RECOVERY / intent / "0-open").write_bytes(b"nonsense")
    assert cli("recover", uri, "--json").error()["code"] == "intent_unreadable"
    assert cli("recover", uri, "--list", "--json").json()["intents"][0]["state"] == "unreadable"


@pytest.mark.parametrize("words", [["recover", "--list"], ["recover"]])
def test_recover_on_a_quiet_graph(cli: Cli, graph_path: Path, words: list[str]) -> None:
    assert cli(*words, graph_path, "--json").json() == {"intents": []}
