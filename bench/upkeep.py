"""What neglect costs and optimize gives back: `python -m bench upkeep`.

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
from omnigraph.commit.graph_runtime import Site
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
#: Every write is staged, so that each commit leaves a fragment: the worst that small commits can do to a table.
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
    whole = _loaded_at_once(folder / "whole", commits)
    small = omnigraph.init(folder / "small", SCHEMA, config=Config(**NEGLECT))
    for number in range(commits):
        small.apply(_people(number))
        small.apply(_edges(number))
    rows = []
    for moment in ("before optimize", "after optimize"):
        if moment == "after optimize":
            small.optimize()
        for title, query in (("lookup by key", LOOKUP), ("one hop", HOP)):
            ways = {"small": _asking(small, query, commits), "whole": _asking(whole, query, commits)}
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


def _loaded_at_once(place: Path, commits: int) -> Graph:
    graph = omnigraph.init(place, SCHEMA, config=Config(**NEGLECT, mutation_max_rows=10**9))
    statements: list[Statement] = []
    for number in range(commits):
        statements += [*_people(number), *_edges(number)]
    graph.apply(statements)
    graph.optimize()
    return graph


def _people(commit: int) -> list[InsertNode]:
    first = commit * PEOPLE_PER_COMMIT
    return [
        InsertNode("Person", {"name": f"p{one}", "age": one % 90}) for one in range(first, first + PEOPLE_PER_COMMIT)
    ]


def _edges(number: int) -> list[InsertEdge]:
    first = number * PEOPLE_PER_COMMIT
    return [
        InsertEdge("Knows", f"p{one}", f"p{(one * 7) % (first + PEOPLE_PER_COMMIT)}", {"since": one})
        for one in range(first, first + PEOPLE_PER_COMMIT)
    ]


def _asking(graph: Graph, query: str, commits: int) -> Callable[[], object]:
    numbers = iter(range(10**9))

    def ask() -> object:
        return graph.query(query, {"n": f"p{(next(numbers) * 37) % (commits * PEOPLE_PER_COMMIT)}"}).rows

    return ask


def _long_row(folder: Path, commits: int) -> list[dict[str, Any]]:
    """The graph with its history takes turns with one that has none: a busy moment of the machine hits both."""
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
    place = str(folder / f"cleanup{depth}")
    omnigraph.init(place, SCHEMA, config=Config(fsync=False))
    metered: list[MeteredStore] = []

    def wrap(store: Store) -> Store:
        metered.append(MeteredStore(store))
        return metered[-1]

    site = Site.open(make_backend(place, None, Config(fsync=False, fold="always"), wrap=wrap), read_only=False)
    graph = Graph(site, site.branch("main"))
    for number in range(depth):
        graph.apply([InsertNode("Person", {"name": f"p{number}"})])
    # Without margins, so that what one run condemns is gone a few runs later.
    policy = Policy(keep=5, older_than_s=0, margin_s=0, horizon_s=0, newest_records=1)
    spent, deleted = [], 0
    for number in range(RUNS):
        with metered[0].measure(f"cleanup {number}") as window:
            report = graph.cleanup(policy=policy, confirm=True)
        spent.append(len(window.log))
        deleted += sum(one.files for one in report.deletes.values())
    return {"commits": depth, "first run": spent[0], "files swept": deleted, "when all is swept": spent[-1]}
