"""Graphs with bulk operations in every state of their life, and processes that can die in any of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import omnigraph
from omnigraph.api import Graph, make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import Receipt, WriteOptions
from omnigraph.config import Config
from omnigraph.intents.objects import RECOVERY
from omnigraph.intents.recovery import Recovery
from omnigraph.intents.run_bulk import run_bulk
from omnigraph.mutate.mutation import Mutation
from omnigraph.query.language.statements import InsertNode, Overwrite, Statement
from omnigraph.storage.store import Store
from tests.faults.faulty_process import HastyClock
from tests.support.faulty_store import FaultPlan, FaultyStore
from tests.support.pauses import ControlledPauses

SCHEMA = """
node Person { name: String @key  age: I32? }
node Company { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""
ACTOR = "etl"
ROWS = 300
GRACE_S = 900.0


class IntentActor:
    """What one process holds of a graph, with its own faults and pauses. It opens without recovering anything."""

    def __init__(
        self, uri: str, options: Mapping[str, str] | None = None, *, hasty: bool = True, **config: Any
    ) -> None:
        self.uri = uri
        self.pauses = ControlledPauses()

        def wrap(store: Store) -> Store:
            self.faults = FaultyStore(store, FaultPlan.none())
            return self.faults

        settings = {"fsync": False, "fold": "never", "publish_deadline_s": 5.0, **config}
        clock = HastyClock() if hasty else None
        self.backend = make_backend(uri, options, Config(**settings), wrap=wrap, pauses=self.pauses, clock=clock)
        self.runtime = GraphRuntime.open(self.backend, read_only=False)
        self.graph = Graph(self.runtime, self.runtime.branch("main"))

    def on(self, branch: str) -> Graph:
        return Graph(self.runtime, self.runtime.branch(branch))

    def bulk(
        self,
        statements: list[Statement] | None = None,
        *,
        graph: Graph | None = None,
        warn: Callable[[str], None] | None = None,
        **options: Any,
    ) -> Receipt:
        """A bulk operation: any change that is staged, under an intent."""
        target = graph or self.graph
        operation = Mutation(self.backend, lambda _: statements or people())
        write_options = WriteOptions(**{"actor": ACTOR, "on_conflict": "fail", **options})
        return run_bulk(self.backend, target._branch.writer, operation, write_options, above_bytes=0, warn=warn)

    def recover(self, **how: Any) -> list[dict[str, Any]]:
        return [result.to_json() for result in Recovery(self.runtime).run(**how)]

    def arm(self, plan: FaultPlan) -> FaultPlan:
        self.faults.plan = plan
        return plan

    def close(self) -> None:
        self.faults.plan = FaultPlan.none()
        self.pauses.release_all()
        self.backend.close()


@contextmanager
def acting(uri: str, **config: Any) -> Iterator[IntentActor]:
    actor = IntentActor(uri, **config)
    try:
        yield actor
    finally:
        actor.close()


def people(count: int = ROWS, prefix: str = "p") -> list[Statement]:
    return [InsertNode("Person", {"name": f"{prefix}{number:04d}", "age": number}) for number in range(count)]


def companies(count: int = ROWS) -> list[Statement]:
    return [InsertNode("Company", {"name": f"c{number:04d}"}) for number in range(count)]


def overwrite(names: list[str]) -> list[Statement]:
    return [Overwrite("Person", [{"name": name, "age": 1} for name in names])]


def build(uri: str) -> None:
    config = Config(fsync=False, fold="never")
    graph = omnigraph.init(uri, SCHEMA, config=config)
    graph.apply([InsertNode("Person", {"name": "Ada", "age": 36}), InsertNode("Company", {"name": "Acme"})])
    graph.fold()
    graph.apply([InsertNode("Person", {"name": "Bob", "age": 40})])


def names(graph: Graph, type_name: str = "Person") -> set[str]:
    return set(graph.view(fresh=True).table(type_name).to_arrow(["name"])["name"].to_pylist())


def intents(uri: str) -> list[str]:
    folder = Path(uri) / RECOVERY
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def objects(uri: str, intent: str) -> list[str]:
    return sorted(path.name for path in (Path(uri) / RECOVERY / intent).iterdir())


def age(uri: str, seconds: float = 2 * GRACE_S) -> None:
    """Let the store say that every intent was last touched so long ago: a local store's clock is the file's."""
    long_ago = time.time() - seconds
    for path in (Path(uri) / RECOVERY).rglob("*"):
        if path.is_file():
            os.utime(path, (long_ago, long_ago))


def files(uri: str) -> set[str]:
    """Every file of the graph, except what a probe or the store's clock leaves."""
    return {
        str(path.relative_to(uri))
        for path in Path(uri).rglob("*")
        if path.is_file() and not path.name.startswith(".tmp-") and "__locks" not in path.parts
    }


def audits(graph: Graph) -> list[dict[str, Any]]:
    """What the records of kind `recovery` tell, the oldest first, of this branch."""
    commits = graph.commits(limit=None, kind="recovery")
    return [dict(graph.at(commit.commit_id).state.record.extra or {}) for commit in reversed(commits)]
