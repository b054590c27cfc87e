"""A graph with four people; and, for tests of what a merge decides, the same again with upkeep at random points."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.graph import Graph
from omnigraph.graph.branches import Branches
from tests.history_graph.bed import Bed, knows, people

#: Modules whose tests hold whatever files the rows are in.
LAYOUT_FREE = ("test_truth_table", "test_row_rule", "test_lineage", "test_merged_rules", "test_schemas")


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    made = Bed.make(tmp_path / "graph")
    made.main.apply([*people("Alice", "Bob", "Carol", "Dan"), knows("Bob", "Carol", "b-c")])
    return made


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in LAYOUT_FREE and not hasattr(metafunc.function, "as_it_is"):
        params = ["plain", pytest.param("compacted", marks=pytest.mark.slow)]
        metafunc.parametrize("upkeep", params, indirect=True)


@pytest.fixture(autouse=True)
def upkeep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, sweep_seed: int) -> None:
    """Folds and compactions between the steps of a test: nothing that it asserts may depend on them."""
    if getattr(request, "param", "plain") == "plain":
        return
    chance = random.Random(f"{sweep_seed} {request.node.nodeid}")

    def tidy(graph: Graph, *names: str | None) -> None:
        for name in names:
            branch = graph if name is None else graph.on_branch(name)
            if chance.random() < 0.4:
                branch.fold()
            if chance.random() < 0.4:
                branch.optimize()

    def after_apply(real: Callable[..., Any]) -> Callable[..., Any]:
        def apply(graph: Graph, *args: Any, **options: Any) -> Any:
            receipt = real(graph, *args, **options)
            tidy(graph, None)
            return receipt

        return apply

    def around_merge(real: Callable[..., Any]) -> Callable[..., Any]:
        def merge(branches: Branches, source: str, into: str | None = None, **options: Any) -> Any:
            graph = branches._graph
            if source != (into or graph.branch_name):
                tidy(graph, source, into)
            report = real(branches, source, into, **options)
            tidy(graph, into)
            return report

        return merge

    monkeypatch.setattr(Graph, "apply", after_apply(Graph.apply))
    monkeypatch.setattr(Branches, "merge", around_merge(Branches.merge))
