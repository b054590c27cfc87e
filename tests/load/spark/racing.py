"""A graph with a load about to run, and somebody else who commits to it meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omnigraph.api import Graph
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.config import Config
from omnigraph.load.report import LoadReport
from omnigraph.storage.open_backend import make_backend
from tests.load.spark.loading import ONE_TASK, Line, contents, edge, load, new_graph, node, write_lines
from tests.support.pauses import ControlledPauses

BASE: tuple[Line, ...] = (
    *(node("Person", name=f"p{number}", age=number, email=f"p{number}@x") for number in range(5)),
    node("City", name="rome", size=1, code="r"),
    node("Note", id="n1"),
    edge("Owns", "rome", "n1", "o1"),
    edge("Knows", "p0", "p1", "k0"),
)
INPUT: tuple[Line, ...] = (
    *(node("Person", name=f"x{number}", age=number, email=f"x{number}@x") for number in range(20)),
    *(edge("Knows", f"x{number}", f"p{number % 5}", f"kx{number}") for number in range(20)),
)


class Race:
    """A graph with a load about to run, and another process's handle on it."""

    def __init__(self, path: Path, config: Config = ONE_TASK) -> None:
        self.pauses = ControlledPauses()
        self.place = path
        self.loader = new_graph(path / "g", config, self.pauses)
        load(self.loader, write_lines(path / "base.ndjson", BASE), engine="local")
        self.loader.fold()
        runtime = GraphRuntime.open(make_backend(str(path / "g"), None, config), read_only=False)
        self.other = Graph(runtime, runtime.branch("main"))

    def during(self, *texts: str, at: str = "load.indexed") -> None:
        """Mutations of the other process once the load has come so far."""
        self.pauses.call_at(at, lambda: [self.other.mutate(f"query q() {{ {text} }}") for text in texts])

    def load(self, lines: Sequence[Line] = INPUT, mode: str = "append", **options: Any) -> LoadReport:
        return load(self.loader, write_lines(self.place / "in.ndjson", lines), mode=mode, **options)

    @property
    def stagings(self) -> int:
        return self.pauses.points_reached.count("load.staged")

    def people(self) -> dict[str, object]:
        assert self.loader.verify().ok
        return {row["name"]: row["age"] for row in contents(self.loader, ["Person"])["Person"]}
