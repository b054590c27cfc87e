"""The 49 cells: what the source did by what the target did, whatever way either keeps its rows. S70, S74, S77, S81."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from omnigraph.api import Graph
from tests.history.bed import (
    LAYOUTS,
    MergeBed,
    change,
    conflicts_of,
    content,
    difference,
    ends,
    forget,
    kinds_of,
    knows,
    names,
    people,
    person,
    remove,
    summarize,
)

OPS = ("noop", "addNode", "removeNode", "addEdge", "removeEdge", "setProperty", "netZeroEdge")
UP_TO_DATE, FORWARD, MERGED = "already_up_to_date", "fast_forward", "merged"

#: (source, target) → kind of the conflict. Everything else follows from the two borders of the table.
CONFLICTS = {
    ("addNode", "addNode"): ("divergent_insert", "Eve"),
    ("removeNode", "addEdge"): ("orphan_edge", "a-d:target"),
    ("addEdge", "removeNode"): ("orphan_edge", "a-d:source"),
    ("removeNode", "setProperty"): ("delete_vs_update", "Alice"),
    ("setProperty", "removeNode"): ("delete_vs_update", "Alice"),
    ("setProperty", "setProperty"): ("divergent_update", "Alice"),
}
PLAIN = ("inline", "inline")
MIXED = [pair for pair in product(LAYOUTS, LAYOUTS) if pair != PLAIN]


def expected_outcome(source: str, target: str) -> str:
    if source == "noop":
        return UP_TO_DATE
    if target == "noop":
        return FORWARD
    return MERGED


def act(graph: Graph, op: str, side: str) -> None:
    age = {"source": 1, "target": 2}[side]
    match op:
        case "addNode":
            graph.apply([person("Eve", age=age)])
        case "removeNode":
            graph.apply([remove("Alice")])
        case "addEdge":
            graph.apply([knows("Alice", "Dan", f"a-d:{side}")])
        case "removeEdge":
            graph.apply([forget("Bob", "Carol")])
        case "setProperty":
            graph.apply([change("Alice", age=age)])
        case "netZeroEdge":
            graph.apply([knows("Dan", "Carol", f"d-c:{side}")])
            graph.apply([forget("Dan", "Carol")])


def effects(*ops: str) -> tuple[set[str], list[tuple[str, str]]]:
    """People and edges after these, one of them on either branch."""
    who = {"Alice", "Bob", "Carol", "Dan"}
    who |= {"Eve"} if "addNode" in ops else set()
    who -= {"Alice"} if "removeNode" in ops else set()
    pairs = [] if "removeEdge" in ops else [("Bob", "Carol")]
    return who, sorted(pairs + [("Alice", "Dan")] * ops.count("addEdge"))


def run_cell(path: Path, source: str, target: str, layouts: tuple[str, str]) -> None:
    bed = MergeBed.make(path)
    bed.main.apply([*people("Alice", "Bob", "Carol", "Dan"), knows("Bob", "Carol", "b-c")])
    bed.fork("work")
    act(bed.on("work", layouts[0]), source, "source")
    act(bed.on("main", layouts[1]), target, "target")
    main = bed.main
    before, head, theirs = content(main), main.refresh(), content(bed.on("work"))
    if (source, target) in CONFLICTS:
        conflicts = conflicts_of(lambda: bed.merge("work"))
        assert kinds_of(conflicts) == [CONFLICTS[source, target]]
        assert (content(main), main.refresh()) == (before, head)
    else:
        report = bed.merge("work")
        assert report.outcome == expected_outcome(source, target)
        assert (report.commit_id is None) == (report.outcome == UP_TO_DATE)
        assert (names(main), ends(main)) == effects(source, target)
        if report.commit_id:
            assert len(main.commits(1)[0].parents) == 2
            assert summarize(main.diff(head, report.commit_id)) == difference(before, content(main))
        assert bed.merge("work").outcome == UP_TO_DATE
    assert content(bed.on("work")) == theirs


@pytest.mark.parametrize("target", OPS)
@pytest.mark.parametrize("source", OPS)
def test_cell(tmp_path: Path, source: str, target: str) -> None:
    run_cell(tmp_path / "plain", source, target, PLAIN)
    number = OPS.index(source) * len(OPS) + OPS.index(target)
    run_cell(tmp_path / "mixed", source, target, MIXED[number % len(MIXED)])


@pytest.mark.slow
@pytest.mark.parametrize("target", OPS)
@pytest.mark.parametrize("source", OPS)
def test_cell_in_every_layout(tmp_path: Path, source: str, target: str) -> None:
    for number, layouts in enumerate(MIXED):
        run_cell(tmp_path / f"{number}", source, target, layouts)
