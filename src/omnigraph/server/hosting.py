"""The graphs of a server, each opened once and kept warm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TypeVar

from omnigraph.api import Graph, make_backend
from omnigraph.api.view import GraphView
from omnigraph.clock import Clock
from omnigraph.commit.graph_runtime import Site
from omnigraph.commit.idempotency import check_client_key
from omnigraph.config import Config
from omnigraph.errors import BranchClosed, InvalidInput, NotFound
from omnigraph.log.branches import MAIN
from omnigraph.server.keys import kept_key
from omnigraph.server.metrics import Meter, Metrics
from omnigraph.server.settings import GraphSettings, ServerSettings, graphs_in
from omnigraph.server.stored import StoredQueries

A = TypeVar("A")

_KEPT_BRANCHES = 256


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
        self._site: Site | None = None
        self._handles: dict[str, Graph] = {}

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def is_open(self) -> bool:
        return self._site is not None

    @property
    def handles(self) -> list[Graph]:
        """The handles that are warm now."""
        with self._lock:
            return list(self._handles.values())

    def site(self) -> Site:
        """Opened by whoever needs it first; a failure is told to that one and tried again by the next."""
        if self._site is not None:
            return self._site
        with self._opening, self.meter.operation("open"):
            if self._site is None:
                one = self.settings
                backend = make_backend(
                    one.uri, one.storage_options, self._config, wrap=self.meter.wrap, clock=self._clock
                )
                self.meter.watch(backend.tables)
                self._site = Site.open(backend, read_only=one.read_only)
        return self._site

    def on(self, branch: str | None, work: Callable[[Graph], A]) -> A:
        """`work` with the handle of a branch. A handle whose branch was deleted and made again is opened anew."""
        handle, warm = self._handle(branch or MAIN)
        try:
            return work(handle)
        except BranchClosed:
            # Nothing can have been written to a closed branch, so doing it again on its successor is safe.
            self.forget(handle.branch_name)
            if not warm:
                raise
        return work(self._handle(branch or MAIN)[0])

    def look(self, branch: str | None, at: str | None, work: Callable[[GraphView, str | None], A]) -> A:
        """`work` with what a reading verb looks at, and the branch's name unless a commit was named."""
        if at is None:
            return self.on(branch, lambda graph: work(graph.view(), graph.branch_name))
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

    def kept_key(self, actor: str | None, key: str) -> str:
        """The key of a caller as this graph keeps it; raises for one that cannot be."""
        check_client_key(key, self._clock.now(), self._config.idempotency_days)
        return kept_key(actor, key)

    def close(self) -> None:
        """Wait for folds in the background, then let go of everything."""
        with self._lock:
            self._handles.clear()
        site, self._site = self._site, None
        if site is not None:
            site.backend.close()

    def _handle(self, branch: str) -> tuple[Graph, bool]:
        with self._lock:
            known = self._handles.get(branch)
        if known is not None:
            return known, True
        site = self.site()
        made = Graph(site, site.branch(branch))
        with self._lock:
            while len(self._handles) >= _KEPT_BRANCHES:
                self._handles.pop(next(one for one in self._handles if one != MAIN))
            return self._handles.setdefault(branch, made), False


class Host:
    """All graphs of a server, by name; a graph's own id finds it as well."""

    def __init__(self, settings: ServerSettings, metrics: Metrics, config: Config, clock: Clock) -> None:
        self._made: Callable[[GraphSettings], HostedGraph] = lambda one: HostedGraph(one, metrics, config, clock)
        self._directory = settings.directory
        self._lock = Lock()
        self._graphs = {one.name: self._made(one) for one in settings.graphs}
        if len(self._graphs) != len(settings.graphs):
            raise InvalidInput("two graphs have the same name", code="bad_config", advice="Name each of them once")
        self.discover()

    def __iter__(self) -> Iterator[HostedGraph]:
        with self._lock:
            return iter(list(self._graphs.values()))

    def discover(self) -> None:
        """Look for graphs that were made in the directory since."""
        if self._directory is None:
            return
        found = graphs_in(self._directory)
        with self._lock:
            for one in found:
                if one.name not in self._graphs:
                    self._graphs[one.name] = self._made(one)

    def get(self, name: str) -> HostedGraph:
        found = self._find(name)
        if found is None and self._directory is not None:
            self.discover()
            found = self._find(name)
        if found is None:
            raise NotFound(
                f"there is no graph {name!r} here",
                code="no_such_graph",
                advice="GET /graphs lists them",
                graph=name,
            )
        return found

    def _find(self, name: str) -> HostedGraph | None:
        return self._graphs.get(name) or next((one for one in self if one.is_open and _id_of(one) == name), None)

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            yield
        finally:
            for one in self:
                one.close()


def _id_of(one: HostedGraph) -> str:
    return one.site().stamp.graph_id
