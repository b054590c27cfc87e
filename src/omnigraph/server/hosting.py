"""The graphs of a server, each opened once and kept warm, and the idempotency keys of their callers.

`run_upkeep` runs the background work on them: folds, optimize, recovery, cleanup.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from omnigraph.api import Graph, make_backend
from omnigraph.api.recovery import make_recovery
from omnigraph.api.view import GraphView
from omnigraph.clock import Clock
from omnigraph.commit.fold import fullness
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.idempotency import check_client_key
from omnigraph.config import Config
from omnigraph.errors import BranchClosed, InvalidInput, NotFound, OmnigraphError
from omnigraph.log.branches import MAIN
from omnigraph.server.metrics import Meter, Metrics
from omnigraph.server.settings import GraphSettings, ServerSettings, UpkeepSettings, graphs_in
from omnigraph.server.stored import StoredQueries
from omnigraph.upkeep.cleanup.retention import Policy

if TYPE_CHECKING:
    from omnigraph.server.calls import Service

A = TypeVar("A")

_MAX_HANDLES = 256
_MAX_KEY_LENGTH = 255


class HostedGraph:
    """One graph with its warm handles. Safe to use from all worker threads."""

    def __init__(self, settings: GraphSettings, metrics: Metrics, config: Config, clock: Clock) -> None:
        self.settings = settings
        self.meter: Meter = metrics.meter()
        self.stored = StoredQueries(settings.queries)
        self._config = config
        self._clock = clock
        self._lock = Lock()
        self._opening = Lock()
        self._runtime: GraphRuntime | None = None
        self._handles: dict[str, Graph] = {}

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def is_open(self) -> bool:
        return self._runtime is not None

    @property
    def handles(self) -> list[Graph]:
        """The handles that are open now, one per branch in use."""
        with self._lock:
            return list(self._handles.values())

    def runtime(self) -> GraphRuntime:
        """The graph, opened by the first caller. If that fails, this caller gets the error and the next tries again."""
        if self._runtime is not None:
            return self._runtime
        with self._opening, self.meter.operation("open"):
            if self._runtime is None:
                settings = self.settings
                backend = make_backend(
                    settings.uri, settings.storage_options, self._config, wrap=self.meter.wrap, clock=self._clock
                )
                self.meter.watch(backend.tables)
                self._runtime = GraphRuntime.open(backend, read_only=settings.read_only)
        return self._runtime

    def with_branch(self, branch: str | None, work: Callable[[Graph], A]) -> A:
        """Run `work` with the handle of a branch. If the branch was deleted and made again, it is opened anew."""
        handle, was_warm = self._handle(branch or MAIN)
        try:
            return work(handle)
        except BranchClosed:
            # Nothing can have been written to a closed branch, so running `work` again on its successor is safe.
            self.forget(handle.branch_name)
            if not was_warm:
                raise
        return work(self._handle(branch or MAIN)[0])

    def with_view(self, branch: str | None, at: str | None, work: Callable[[GraphView, str | None], A]) -> A:
        """Run `work` with the view that a reading verb asks for, and the branch's name unless it asks for a commit."""
        if at is None:
            return self.with_branch(branch, lambda graph: work(graph.view(), graph.branch_name))
        if branch is not None:
            raise InvalidInput(
                "`branch` and `at` contradict each other: a commit belongs to no branch in particular",
                code="bad_request",
                advice="Leave out one of the two",
            )
        return work(self._handle(MAIN)[0].at(at), None)

    def forget(self, branch: str) -> None:
        with self._lock:
            self._handles.pop(branch, None)

    def graph_key(self, actor: str | None, key: str) -> str:
        """The client key, scoped to its actor, as this graph stores it; raises for one that is malformed or too old."""
        check_client_key(key, self._clock.now(), self._config.idempotency_days)
        return scope_client_key(actor, key)

    def close(self) -> None:
        """Wait for folds in the background, then release the handles and the backend."""
        with self._lock:
            self._handles.clear()
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.backend.close()

    def _handle(self, branch: str) -> tuple[Graph, bool]:
        with self._lock:
            handle = self._handles.get(branch)
        if handle is not None:
            return handle, True
        runtime = self.runtime()
        opened = Graph(runtime, runtime.branch(branch))
        with self._lock:
            while len(self._handles) >= _MAX_HANDLES:
                self._handles.pop(next(name for name in self._handles if name != MAIN))
            return self._handles.setdefault(branch, opened), False


class Host:
    """All graphs of a server, by name; a graph's own id finds it as well."""

    def __init__(self, settings: ServerSettings, metrics: Metrics, config: Config, clock: Clock) -> None:
        self._host_graph: Callable[[GraphSettings], HostedGraph] = lambda graph: HostedGraph(
            graph, metrics, config, clock
        )
        self._directory = settings.directory
        self._lock = Lock()
        self._graphs = {graph.name: self._host_graph(graph) for graph in settings.graphs}
        if len(self._graphs) != len(settings.graphs):
            raise InvalidInput("two graphs have the same name", code="bad_config", advice="Name each of them once")
        self.discover()

    def __iter__(self) -> Iterator[HostedGraph]:
        with self._lock:
            return iter(list(self._graphs.values()))

    def discover(self) -> None:
        """Look for graphs that were made in the directory since the last look."""
        if self._directory is None:
            return
        settings_by_folder = graphs_in(self._directory)
        with self._lock:
            for settings in settings_by_folder:
                if settings.name not in self._graphs:
                    self._graphs[settings.name] = self._host_graph(settings)

    def get(self, name: str) -> HostedGraph:
        graph = self._find(name)
        if graph is None and self._directory is not None:
            self.discover()
            graph = self._find(name)
        if graph is None:
            raise NotFound(
                f"there is no graph {name!r} here",
                code="no_such_graph",
                advice="GET /graphs lists them",
                graph=name,
            )
        return graph

    def _find(self, name: str) -> HostedGraph | None:
        return self._graphs.get(name) or next(
            (graph for graph in self if graph.is_open and graph.runtime().stamp.graph_id == name), None
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            yield
        finally:
            for graph in self:
                graph.close()


def scope_client_key(actor: str | None, key: str) -> str:
    """The client key as the graph stores it: one caller's key never answers another caller's request.

    Without tokens there is no actor, and the key stays as it is.
    """
    if actor is None:
        return key
    # The actor's part has no colon, so that no two pairs of actor and key have the same form.
    scoped = f"{quote(actor, safe='')}:{key}"
    return scoped if len(scoped) <= _MAX_KEY_LENGTH else hashlib.sha256(scoped.encode()).hexdigest()


@contextmanager
def restore_client_key(key: str | None) -> Iterator[None]:
    """Errors name the idempotency key as the caller sent it, not as the graph stores it."""
    try:
        yield
    except OmnigraphError as error:
        if key is not None and "client_key" in error.details:
            error.details = {**error.details, "client_key": key}
        raise


@asynccontextmanager
async def run_upkeep(service: Service, config: Config) -> AsyncIterator[None]:
    """Run the jobs while the block lasts. A failure goes to the journal, and the job runs again at its next time."""
    settings = service.settings.upkeep
    jobs: list[tuple[str, float, Callable[[HostedGraph], object]]] = []
    if config.fold == "auto":
        jobs.append(("fold", settings.fold_every_s, fold))
        jobs.append(("optimize", settings.optimize_every_s, optimize))
    jobs.append(("recover", settings.recover_every_s, sweep))
    if settings.cleanup_every_s is not None:
        jobs.append(("cleanup", settings.cleanup_every_s, lambda graph: cleanup(graph, settings)))
    tasks = [asyncio.create_task(_repeat(service, *job)) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _repeat(service: Service, name: str, every_s: float, work: Callable[[HostedGraph], object]) -> None:
    # Recovery starts at once, as it does when a graph is opened for writing; the other jobs can wait.
    wait_s = 0.0 if work is sweep else every_s
    while True:
        await asyncio.sleep(wait_s)
        wait_s = every_s
        for graph in service.host:
            if graph.is_open and not graph.settings.read_only:
                # Shielded: when the server stops, `Workers.stop` waits for a job that runs.
                await asyncio.shield(service.workers.start(partial(_run_once, service, name, graph, work)))


def _run_once(service: Service, name: str, graph: HostedGraph, work: Callable[[HostedGraph], object]) -> None:
    try:
        with graph.meter.operation(name):
            outcome = work(graph)
    except OmnigraphError as error:
        service.journal.write(name, logging.WARNING, error, graph=graph.name)
    except Exception as error:  # noqa: BLE001 nobody would notice that the task has ended
        service.journal.write(name, logging.ERROR, error, graph=graph.name)
    else:
        if outcome:
            service.journal.write(name, graph=graph.name, done=outcome)


def fold(graph: HostedGraph) -> list[str]:
    """Fold branches in use whose overlay is past its soft bound. Other processes fold their own branches."""
    folded = []
    for handle in graph.handles:
        state = handle.view(fresh=False).state
        if fullness(state.record, state.backend.config) >= 1:
            commit_id = handle.fold()
            folded += [commit_id] if commit_id else []
    return folded


def cleanup(graph: HostedGraph, settings: UpkeepSettings) -> dict[str, Any] | None:
    """Collect the commits and files beyond the retention of the settings."""
    policy = Policy(settings.keep, settings.older_than_s)
    report = graph.with_branch(None, lambda handle: handle.cleanup(confirm=True, policy=policy)).to_json()
    return {name: len(report[name]) for name in ("expired", "files", "failures")} if report["files"] else None


def sweep(graph: HostedGraph) -> list[dict[str, Any]]:
    """End bulk operations whose process is gone."""
    ended = ("rolled_forward", "rolled_back")
    return [result.to_json() for result in make_recovery(graph.runtime()).run() if result.verdict in ended]


def optimize(graph: HostedGraph) -> list[str]:
    """Compact branches in use before their small fragments make writers wait."""
    reports = [handle.optimize_if_needed() for handle in graph.handles]
    return [commit_id for report in reports if report is not None for commit_id in report.commits]
