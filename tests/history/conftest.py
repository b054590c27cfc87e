"""A graph with four people; and, for tests of what a merge decides, the same again with upkeep at random points."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.api import Graph
from omnigraph.api.branches import Branches
from tests.history.bed import MergeBed, knows, people

#: Modules whose tests hold whatever files the rows are in.
LAYOUT_FREE = (
    "test_truth_table",
    "test_row_rule",
    "test_lineage",
    "test_merged_rules",
    "test_schemas",
    "test_on_tasks",
)

#: Those of them that are slow where another module collects them for another plane.
SLOW_AWAY = ("test_lineage", "test_schemas")


@pytest.fixture
def bed(tmp_path: Path) -> MergeBed:
    bed = MergeBed.make(tmp_path / "graph")
    bed.main.apply([*people("Alice", "Bob", "Carol", "Dan"), knows("Bob", "Carol", "b-c")])
    return bed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in LAYOUT_FREE:
        away = metafunc.function.__module__ != metafunc.module.__name__
        slow = away and metafunc.function.__module__.rpartition(".")[2] in SLOW_AWAY
        params = [
            pytest.param("plain", marks=[pytest.mark.slow] if slow else []),
            pytest.param("compacted", marks=pytest.mark.slow),
        ]
        if metafunc.function.__name__ == "test_cell_in_every_layout":
            params = params[1:]
        elif metafunc.module.__name__.endswith("test_on_tasks"):
            params = params[:1]  # the rule is the same one; what upkeep does to it is seen in every layout
        metafunc.parametrize("upkeep", params, indirect=True)


@pytest.fixture(autouse=True)
def upkeep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, sweep_seed: int) -> None:
    """Folds and compactions between the steps of a test: nothing that it asserts may depend on them."""
    if getattr(request, "param", "plain") == "plain":
        return
    chance = random.Random(f"{sweep_seed} {request.node.nodeid}")

    def tidy(graph: Graph) -> None:
        if chance.random() < 0.4:
            graph.fold()
        if chance.random() < 0.4:
            graph.optimize()

    def around_apply(real: Callable[..., Any]) -> Callable[..., Any]:
        def apply(graph: Graph, *args: Any, **options: Any) -> Any:
            tidy(graph)
            receipt = real(graph, *args, **options)
            tidy(graph)
            return receipt

        return apply

    def before_merge(real: Callable[..., Any]) -> Callable[..., Any]:
        def merge(branches: Branches, source: str, into: str | None = None, **options: Any) -> Any:
            # Of the source only: tests compare the target's newest commit before and after.
            if source != (into or branches._graph.branch_name):
                tidy(branches._graph.on_branch(source))
            return real(branches, source, into, **options)

        return merge

    monkeypatch.setattr(Graph, "apply", around_apply(Graph.apply))
    monkeypatch.setattr(Branches, "merge", before_merge(Branches.merge))
