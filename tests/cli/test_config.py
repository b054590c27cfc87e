"""Profiles of the configuration file, and what `config show` says of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.conftest import Cli


@pytest.fixture
def config(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file is looked for; it is not there yet."""
    monkeypatch.delenv("OMNIGRAPH_ACTOR", raising=False)
    path = tmp_path / "config" / "omnigraph" / "config.yaml"
    path.parent.mkdir(parents=True)
    return path


def value_and_source(cli: Cli, setting: str, *words: str) -> tuple[object, str]:
    document = cli(*words, "config", "show", "--json").json()
    found = {row["setting"]: (row["value"], row["source"]) for row in document["settings"]}
    return found[setting]


def test_without_a_file_everything_has_its_default(cli: Cli, config: Path) -> None:
    document = cli("config", "show", "--json").json()
    assert (document["file"], document["file_exists"], document["profile"]) == (str(config), False, None)
    assert value_and_source(cli, "read_ahead") == (16, "default")


def test_a_profile_names_graph_and_actor(cli: Cli, config: Path, graph_path: Path) -> None:
    config.write_text(f"profile: dev\nprofiles:\n  dev:\n    graph: {graph_path}\n    actor: eve\n")
    assert cli("mutate", "-e", 'query q() { insert Person { name: "Eve" } }').code == 0
    assert og.open(graph_path).commits(1)[0].actor == "eve"
    assert value_and_source(cli, "graph") == (str(graph_path), "profile")


def test_the_command_line_wins_over_the_environment_and_that_over_the_profile(
    cli: Cli, config: Path, graph_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("profiles:\n  a:\n    actor: from-profile\n    settings: {read_ahead: 4}\n")
    assert value_and_source(cli, "read_ahead", "--profile", "a") == (4, "profile")
    assert value_and_source(cli, "actor", "--profile=a") == ("from-profile", "profile")
    monkeypatch.setenv("OMNIGRAPH_ACTOR", "from-environment")
    assert value_and_source(cli, "actor", "--profile", "a") == ("from-environment", "environment")
    words = ("-e", 'query q() { insert Person { name: "Eve" } }', "--actor", "from-words")
    assert cli("--profile", "a", "mutate", graph_path, *words).code == 0
    assert og.open(graph_path).commits(1)[0].actor == "from-words"


def test_the_variable_chooses_a_profile(cli: Cli, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("profile: a\nprofiles: {a: {settings: {fsync: false}}, b: {settings: {walk_limit: 9}}}\n")
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "b")
    assert value_and_source(cli, "walk_limit") == (9, "profile")


def test_a_profile_leaves_nothing_behind_in_the_environment(cli: Cli, config: Path) -> None:
    config.write_text("profile: a\nprofiles: {a: {environment: {AWS_REGION: nowhere}, actor: eve}}\n")
    before = dict(os.environ)
    assert cli("config", "show").code == 0
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("profiles: [", "is not YAML"),
        ("- a\n- b\n", "the file must hold names and values"),
        ("profiles: {a: {grap: x}}\nprofile: a", "has no entry 'grap'"),
        ("profiles: {a: {settings: {colour: red}}}\nprofile: a", "there is no setting 'colour'"),
        ("profile: b\nprofiles: {a: {}}", "there is no profile 'b'"),
        ("profils: {}", "there is no entry 'profils'"),
    ],
)
def test_a_bad_file_is_refused_with_what_is_wrong(cli: Cli, config: Path, text: str, said: str) -> None:
    config.write_text(text)
    outcome = cli("config", "show", "--json")
    assert outcome.code == 5
    error = outcome.error()
    assert error["code"] == "bad_config"
    assert said in error["error"]
    assert str(config) in error["error"]


def test_a_profile_without_a_file_is_refused(cli: Cli, config: Path) -> None:
    assert "there is no" in cli("--profile", "dev", "config", "show", "--json").error()["error"]


def test_a_named_file_must_be_there(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_CONFIG", str(tmp_path / "nowhere.yaml"))
    assert cli("config", "show", "--json").error()["code"] == "bad_config"
