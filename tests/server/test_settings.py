"""What a server can be told, and what it does by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.clock import SystemClock
from omnigraph.config import Config
from omnigraph.errors import InvalidInput
from omnigraph.server.hosting import HostedGraph, cleanup, fold, optimize, sweep
from omnigraph.server.metrics import Metrics
from omnigraph.server.settings import (
    GraphSettings,
    ServerLimits,
    UpkeepSettings,
    graphs_in,
    read_settings,
    settings_for_address,
)
from tests.server.bed import ADD, PEOPLE, QUICK, Door, metric

TOML = """
[server]
port = 9000
tokens = "tokens.json"

[graphs.social]
uri = "data/social"
queries = "queries"

[graphs.remote]
uri = "s3://bucket/graph"
read_only = true
storage_options = { aws_region = "eu-west-1" }

[limits]
writes_per_actor = 4

[upkeep]
cleanup_every = "24h"
keep = 10
"""


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(TOML)
    settings = read_settings(file)
    assert settings.graphs == (
        GraphSettings("social", str(tmp_path / "data/social"), False, tmp_path / "queries"),
        GraphSettings("remote", "s3://bucket/graph", True, None, {"aws_region": "eu-west-1"}),
    )
    assert (settings.host, settings.port, settings.tokens) == ("127.0.0.1", 9000, tmp_path / "tokens.json")
    assert settings.limits == ServerLimits(writes_per_actor=4)
    assert settings.upkeep == UpkeepSettings(cleanup_every_s=86400, keep=10)


def test_the_same_in_yaml_and_json(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("graphs:\n  social: data/social\nlimits:\n  threads: 4\n")
    (tmp_path / "a.json").write_text('{"graphs": {"social": "data/social"}, "limits": {"threads": 4}}')
    assert read_settings(tmp_path / "a.yaml") == read_settings(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.toml", "graphs = 5"),
        ("x.toml", "[graf]"),
        ("x.toml", "["),
        ("x.yaml", "a: b: c"),
        ("x.yaml", "- a"),
        ("x.json", "{"),
        ("x.json", '{"graphs": {"../x": "y"}}'),
        ("x.json", '{"graphs": {"x": {}}}'),
        ("x.json", '{"graphs": {"x": {"uri": "y", "color": 1}}}'),
        ("x.json", '{"limits": {"threads": 0}}'),
        ("x.json", '{"limits": {"threads": "many"}}'),
        ("x.json", '{"upkeep": {"cleanup_every": "soon"}}'),
        ("missing.json", None),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput):
        read_settings(tmp_path / name)


def test_graphs_of_a_directory(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "graph.json").write_text("{}")
    (tmp_path / "other").mkdir()
    assert [graph_settings.name for graph_settings in graphs_in(settings_for_address(str(tmp_path)))] == ["a", "b"]


@pytest.mark.parametrize(
    ("address", "name"), [("s3://bucket/My Graph/", "My-Graph"), ("./x.og", "x.og"), ("/", "graph"), ("..", "graph")]
)
def test_the_name_of_one_graph(address: str, name: str) -> None:
    assert settings_for_address(address).name == name


def test_a_read_only_server(serving: Callable[..., Door]) -> None:
    door = serving("--read-only")
    refused = door.mutate(ADD, {"n": "x"})
    assert (refused.status, refused.code) == (400, "read_only")
    assert door.query().status == 200


def test_a_graph_that_is_not_there(tmp_path: Path, serving: Callable[..., Door]) -> None:
    file = tmp_path / "server.json"
    file.write_text(json.dumps({"graphs": {"gone": str(tmp_path / "gone"), "own": str(tmp_path / "own")}}))
    og.init(tmp_path / "own", PEOPLE, config=QUICK)
    door = serving("--config", file)
    door.name = "gone"
    assert door.query().status == 404
    graphs = door.call("GET", "/graphs").document["graphs"]
    assert [(graph["name"], "problem" in graph) for graph in graphs] in (
        [("gone", True), ("own", False)],
        [("own", False)],
    )


@pytest.fixture
def hosted_graph(tmp_path: Path) -> HostedGraph:
    config = Config(fsync=False, fold="never", overlay_soft_entries=10)
    og.init(tmp_path / "own", PEOPLE, config=config)
    return HostedGraph(settings_for_address(str(tmp_path / "own")), Metrics(), config, SystemClock())


def test_folding_in_the_background(hosted_graph: HostedGraph) -> None:
    hosted_graph.with_branch(None, lambda g: g.mutate(ADD, {"n": "one"}))
    assert fold(hosted_graph) == []
    hosted_graph.with_branch(None, lambda g: g.mutate_many(ADD, [{"n": f"p{n}"} for n in range(2)]))
    for n in range(10):
        hosted_graph.with_branch(None, lambda g, n=n: g.mutate(ADD, {"n": f"q{n}"}))  # type: ignore[misc]
    folded = fold(hosted_graph)
    assert len(folded) == 1
    assert hosted_graph.with_branch(None, lambda g: g.commits(1)[0].kind) == "fold"
    assert fold(hosted_graph) == []
    hosted_graph.close()


def test_other_upkeep(hosted_graph: HostedGraph) -> None:
    hosted_graph.with_branch(None, lambda g: g.mutate(ADD, {"n": "one"}))
    assert sweep(hosted_graph) == []
    assert optimize(hosted_graph) == []
    assert cleanup(hosted_graph, UpkeepSettings(keep=1)) is None
    assert hosted_graph.with_branch(None, lambda g: g.table("Person").count()) == 1
    hosted_graph.close()


def test_upkeep_goes_on_by_itself(serving: Callable[..., Door], tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    often = {"fold_every_s": 0.05, "optimize_every_s": 0.05, "recover_every_s": 0.05, "cleanup_every": "1s", "keep": 1}
    file.write_text(json.dumps({"upkeep": often}))
    door = serving("--config", file)
    for number in range(5):
        assert door.mutate(ADD, {"n": f"p{number}"}).status == 200
    for _ in range(3000):
        text = door.call("GET", "/metrics").document.decode()
        runs = [metric(text, "operation_seconds_count", operation=name) for name in JOBS]
        if min(runs) >= 2:
            break
    assert min(runs) >= 2, dict(zip(JOBS, runs, strict=True))
    assert len(door.names()) == 5
    assert door.server is not None
    assert [line for line in door.server.log if line["level"] in ("warning", "error")] == []


JOBS = ("fold", "optimize", "recover", "cleanup")
