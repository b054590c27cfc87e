"""Measures what a graph costs that is never optimized, and what optimize gives back: `python -m bench upkeep`.

The same people and edges are written by many small commits, and loaded at once. Lookups and hops are timed before and
after optimize, taking turns with the graph that was loaded at once. Then a long row of commits with upkeep on: the last
writes must cost what the first did. And cleanup: its requests follow what is kept and swept, not the length of history.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import omnigraph
from bench.report import Report
from bench.timing import medians_s, seconds
from omnigraph.api import Graph, make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.config import Config
from omnigraph.query.language.statements import InsertEdge, InsertNode, Statement
from omnigraph.storage.metering import MeteredStore
from omnigraph.storage.store import Store
from omnigraph.upkeep.cleanup.retention import Policy

SCHEMA = """
node Person { name: String @key  age: I32? @index }
edge Knows: Person -> Person { since: I32? }
"""
LOOKUP = "query one($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
HOP = "query hop($n: String) { match { $p: Person { name: $n } $p knows $q } return { $q.name } }"
#: Every write is staged, so that each commit leaves a fragment: the worst case for a table.
NEGLECT: dict[str, Any] = {"fsync": False, "inline_share": 0, "pressure_wait_fragments": 1 << 30}
PEOPLE_PER_COMMIT = 20
RUNS = 5


def run(report: Report, *, quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as name:
        folder = Path(name)
        commits = 60 if quick else 500
        report.add(
            f"Reads after {commits} small commits, before and after optimize",
            _reads(folder, commits, repeat=10 if quick else 50),
            "milliseconds, medians, warm; ratio to the same data loaded at once; promised after optimize: at most 1.3",
        )
        commits = 200 if quick else 2000
        report.add(
            f"{commits} small commits with upkeep on",
            _long_row(folder, commits),
            "median milliseconds of 100 one-row inserts each, taking turns, fsync off; promised ratio: at most 1.2",
        )
        report.add(
            "Requests of cleanup that keeps 5 commits",
            [_cleanup(folder, depth) for depth in ((20, 40) if quick else (50, 200, 800))],
            f"run {RUNS} times without margins; the first run writes a stub for every commit that goes",
        )


def _reads(folder: Path, commits: int, repeat: int) -> list[dict[str, Any]]:
    whole_graph = _load_at_once(folder / "whole", commits)
    small = omnigraph.init(folder / "small", SCHEMA, config=Config(**NEGLECT))
    for number in range(commits):
        small.apply(_people(number))
        small.apply(_edges(number))
    rows = []
    for moment in ("before optimize", "after optimize"):
        if moment == "after optimize":
            small.optimize()
        for title, query in (("lookup by key", LOOKUP), ("one hop", HOP)):
            ways = {"small": _asking(small, query, commits), "whole": _asking(whole_graph, query, commits)}
            spent = medians_s(ways, repeat)
            rows.append(
                {
                    "question": title,
                    "when": moment,
                    "small commits ms": 1000 * spent["small"],
                    "loaded at once ms": 1000 * spent["whole"],
                    "ratio": spent["small"] / spent["whole"],
                }
            )
    return rows


def _load_at_once(graph_path: Path, commits: int) -> Graph:
    graph = omnigraph.init(graph_path, SCHEMA, config=Config(**NEGLECT, mutation_max_rows=10**9))
    statements: list[Statement] = []
    for number in range(commits):
        statements += [*_people(number), *_edges(number)]
    graph.apply(statements)
    graph.optimize()
    return graph


def _people(commit: int) -> list[InsertNode]:
    first = commit * PEOPLE_PER_COMMIT
    return [
        InsertNode("Person", {"name": f"p{number}", "age": number % 90})
        for number in range(first, first + PEOPLE_PER_COMMIT)
    ]


def _edges(number: int) -> list[InsertEdge]:
    first = number * PEOPLE_PER_COMMIT
    return [
        InsertEdge("Knows", f"p{person}", f"p{(person * 7) % (first + PEOPLE_PER_COMMIT)}", {"since": person})
        for person in range(first, first + PEOPLE_PER_COMMIT)
    ]


def _asking(graph: Graph, query: str, commits: int) -> Callable[[], object]:
    numbers = iter(range(10**9))

    def ask() -> object:
        return graph.query(query, {"n": f"p{(next(numbers) * 37) % (commits * PEOPLE_PER_COMMIT)}"}).rows

    return ask


def _long_row(folder: Path, commits: int) -> list[dict[str, Any]]:
    """Measures a graph with history and one without in turns, so that a busy machine slows both."""
    config = Config(fsync=False, overlay_soft_entries=16, upkeep_fragments=20)
    old = omnigraph.init(folder / "long", SCHEMA, config=config)
    upkeep: list[float] = []
    for number in range(commits):
        old.apply([InsertNode("Person", {"name": f"p{number}", "age": number % 90})])
        if old.needs_upkeep():
            upkeep.append(seconds(old.optimize_if_needed))
    new = omnigraph.init(folder / "new", SCHEMA, config=config)
    names = (f"later {number}" for number in range(10**9))
    ways = {
        "old": lambda: old.apply([InsertNode("Person", {"name": next(names)})]),
        "new": lambda: new.apply([InsertNode("Person", {"name": next(names)})]),
    }
    spent = medians_s(ways, 100)
    return [
        {
            "without history ms": 1000 * spent["new"],
            f"after {commits} commits ms": 1000 * spent["old"],
            "ratio": spent["old"] / spent["new"],
            "times optimized": len(upkeep),
            "seconds in optimize": sum(upkeep),
        }
    ]


def _cleanup(folder: Path, depth: int) -> dict[str, Any]:
    graph_path = str(folder / f"cleanup{depth}")
    omnigraph.init(graph_path, SCHEMA, config=Config(fsync=False))
    metered: list[MeteredStore] = []

    def wrap(store: Store) -> Store:
        metered.append(MeteredStore(store))
        return metered[-1]

    runtime = GraphRuntime.open(
        make_backend(graph_path, None, Config(fsync=False, fold="always"), wrap=wrap), read_only=False
    )
    graph = Graph(runtime, runtime.branch("main"))
    for number in range(depth):
        graph.apply([InsertNode("Person", {"name": f"p{number}"})])
    # Without margins, so that a later run deletes what an earlier one condemned.
    policy = Policy(keep=5, older_than_s=0, margin_s=0, horizon_s=0, newest_records=1)
    spent, deleted = [], 0
    for number in range(RUNS):
        with metered[0].measure(f"cleanup {number}") as window:
            report = graph.cleanup(policy=policy, confirm=True)
        spent.append(len(window.log))
        deleted += sum(total.files for total in report.deletes.values())
    return {"commits": depth, "first run": spent[0], "files swept": deleted, "when all is swept": spent[-1]}
