"""The graph that every fault strikes, ready to be copied, and a process's handle on it whose clock costs nothing."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import omnigraph
from omnigraph.api import Graph, make_backend
from omnigraph.clock import SystemClock
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.config import Config
from omnigraph.errors import NotFound, Unavailable
from omnigraph.query.language.statements import Compare, InsertEdge, InsertNode, Update
from omnigraph.storage.metering import RequestKind
from omnigraph.storage.store import Store
from tests.support.faulty_store import FaultPlan, FaultyStore
from tests.support.pauses import ControlledPauses

SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique }
node Company { name: String @key }
node Note { text: String? }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company { role: String? }
"""
_MINTED_IDS = frozenset({"Note", "Memo", "Knows", "WorksAt"})
_TABLE_CALLS = ("birth", "open", "stage", "stage_columns", "restage", "commit")
_ENDLESS = 3000

Content = dict[str, Any] | None
"""All that a reader can see, by branch; None where there is no graph."""


class Runaway(BaseException):
    """The engine asks the store again and again without waiting: no handler may turn that into an answer."""


class HastyClock(SystemClock):
    """Real time, except that waiting takes none: a deadline is reached by sleeping often enough."""

    def __init__(self) -> None:
        self._skipped_s = 0.0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        return super().monotonic() + self._skipped_s

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self._skipped_s += seconds


class PatientStore(FaultyStore):
    """A faulty store whose plan can be changed, and which tells an endless loop from a long one."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, FaultPlan.none())

    def put_if_absent(self, key: str, data: bytes) -> Any:
        self._check_not_endless()
        return super().put_if_absent(key, data)

    def get(self, key: str) -> bytes:
        self._check_not_endless()
        return super().get(key)

    def _check_not_endless(self) -> None:
        if self.plan.request_count > _ENDLESS:
            raise Runaway(f"{self.plan.request_count} requests for one operation")


class FaultyProcess:
    """What one operating-system process holds: runtime, caches, pauses, and the faults that strike its requests."""

    def __init__(
        self,
        uri: str,
        options: Mapping[str, str] | None = None,
        *,
        wrap: Callable[[Store], Store] = lambda store: store,
        hasty: bool = True,
        **config: Any,
    ) -> None:
        self.uri = uri
        self.pauses = ControlledPauses()

        def wrap_with_faults(store: Store) -> Store:
            self.faults = PatientStore(wrap(store))
            return self.faults

        settings = {"fsync": False, "fold": "never", "publish_deadline_s": 10.0, **config}
        clock = HastyClock() if hasty else SystemClock()
        self.backend = make_backend(
            uri, options, Config(**settings), wrap=wrap_with_faults, pauses=self.pauses, clock=clock
        )

    def open(self, branch: str = "main", *, read_only: bool = False) -> Graph:
        runtime = GraphRuntime.open(self.backend, read_only=read_only)
        return Graph(runtime, runtime.branch(branch))

    def arm(self, plan: FaultPlan) -> FaultPlan:
        """From now on requests fail as planned."""
        self.faults.plan = plan
        return plan

    def watch(self) -> list[tuple[RequestKind, str, bool]]:
        """The requests from now on, as (kind, key, whether it is a conditional PUT)."""
        requests: list[tuple[RequestKind, str, bool]] = []
        self.arm(FaultPlan(lambda kind, key, conditional: requests.append((kind, key, conditional))))
        return requests

    def disarm(self) -> None:
        self.faults.plan = FaultPlan.none()

    def arm_tables(self, n: int, *, after: bool, times: int | None = 1) -> list[str]:
        """The n-th call into the tables fails, with or without its effect; the calls that were hit are listed."""
        hits: list[str] = []
        counter = _Counter(n, times)
        tables = self.backend.tables
        for name in _TABLE_CALLS:
            original = getattr(type(tables), name).__get__(tables)
            object.__setattr__(tables, name, _failing(name, original, counter, hits, after=after))
        return hits

    def disarm_tables(self) -> None:
        for name in _TABLE_CALLS:
            if name in vars(self.backend.tables):
                object.__delattr__(self.backend.tables, name)

    def close(self) -> None:
        self.pauses.release_all()
        self.backend.close()


class _Counter:
    """Counts calls from 1 and says which of them are hit."""

    def __init__(self, n: int, times: int | None) -> None:
        self._n, self._times = n, times
        self._seen = 0
        self._lock = threading.Lock()

    def count_call(self) -> bool:
        with self._lock:
            self._seen += 1
            return self._seen >= self._n and (self._times is None or self._seen < self._n + self._times)


def _failing(
    name: str, original: Callable[..., Any], counter: _Counter, hits: list[str], *, after: bool
) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        hit = counter.count_call()
        if hit:
            hits.append(name)
        if hit and not after:
            raise Unavailable(f"injected: {name} did not answer, nothing happened", code="injected_fault")
        result = original(*args, **kwargs)
        if hit:
            raise Unavailable(f"injected: {name} did not answer, but it happened", code="injected_fault")
        return result

    return call


def build_graph(uri: str, options: Mapping[str, str] | None = None) -> None:
    """A graph whose rows are partly in tables and partly in the overlay, with a live branch and a dead one."""
    config = Config(fsync=False, fold="never")
    graph = omnigraph.init(uri, SCHEMA, storage_options=options, config=config)
    graph.apply(
        [
            *(
                InsertNode("Person", {"name": name, "age": age})
                for name, age in [("Ada", 36), ("Bob", 40), ("Cid", 50)]
            ),
            InsertNode("Company", {"name": "Acme"}),
            InsertNode("Note", {"text": "first"}),
            InsertEdge("Knows", "Ada", "Bob", {"since": 1}),
            InsertEdge("WorksAt", "Ada", "Acme", {"role": "chief"}),
        ]
    )
    graph.fold()
    graph.branch.create("dead")
    graph.branch.delete("dead")
    graph.branch.create("dev").apply([InsertNode("Person", {"name": "Dev"})])
    graph.apply([InsertNode("Person", {"name": "Dan", "age": 20}), InsertEdge("Knows", "Dan", "Ada", {"since": 2})])
    graph.apply([Update("Person", {"age": 41}, Compare("name", "=", "Bob"))])


def copy_graph(template: Path, target: Path) -> str:
    """A fresh copy of a graph in a directory; a missing template stands for an empty address."""
    if template.exists():
        shutil.copytree(template, target)
    return str(target)


def content_of(uri: str, options: Mapping[str, str] | None = None) -> Content:
    """What a new process sees on every branch. Fails if registry and streams contradict each other for good."""
    process = FaultyProcess(uri, options)
    try:
        return _content(process)
    finally:
        process.close()


def _content(process: FaultyProcess) -> Content:
    try:
        graph = process.open()
    except NotFound as error:
        if error.code != "graph_not_found":
            raise
        return None
    content: dict[str, Any] = {}
    for name in graph.branch.list():
        try:
            content[name] = _branch_content(graph.on_branch(name))
        except NotFound as error:
            # A deletion that died before the registry: whoever opens the branch completes it.
            if error.code != "branch_not_found":
                raise
    assert graph.branch.list() == sorted(content)
    return content


def _branch_content(graph: Graph) -> dict[str, Any]:
    view = graph.view()
    epoch = graph._branch.publisher.head.epoch
    return {
        "held": epoch.holder is not None,
        "schema": {type_def.name: [prop.name for prop in type_def.properties] for type_def in view.catalog.types},
        "rows": {
            type_def.name: _rows(type_def.name, view.table(type_def.name).to_arrow().to_pylist())
            for type_def in view.catalog.types
        },
    }


def _rows(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """Rows in an order of their own; ids are compared only where the operation decides them."""
    assert len({row["id"] for row in rows}) == len(rows), f"an id of {name} is there twice"
    hidden = {"id"} if name in _MINTED_IDS else set()
    return sorted(json.dumps({key: row[key] for key in row if key not in hidden}, sort_keys=True) for row in rows)
