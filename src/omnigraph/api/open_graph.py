"""How a graph is made and opened, and the parts of a process that all its handles share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import Lock
from weakref import WeakValueDictionary

from omnigraph.api.graph import Graph
from omnigraph.api.handle import Freshness
from omnigraph.api.recovery import make_recovery
from omnigraph.api.schema import read_schema
from omnigraph.api.view import GraphView
from omnigraph.commit.birth import init_graph
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.config import Config
from omnigraph.errors import InvalidInput
from omnigraph.intents.states import list_intents
from omnigraph.log.branches import MAIN
from omnigraph.log.commit_record import parse_commit_id
from omnigraph.log.snapshot import Snapshot
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from omnigraph.storage.address import parse_address
from omnigraph.storage.backend import Backend
from omnigraph.storage.open_backend import make_backend
from omnigraph.upkeep.verify.findings import VerifyReport
from omnigraph.upkeep.verify.verify import verify_graph

_TOKEN = 8


_SITES: WeakValueDictionary[tuple[object, ...], GraphRuntime] = WeakValueDictionary()
_SITES_LOCK = Lock()


def init(
    uri: str | os.PathLike[str],
    schema: str | os.PathLike[str] | Catalog,
    *,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
) -> Graph:
    """Create a graph. `schema` is a `.pg` file, the text of one, or a compiled catalog."""
    backend = make_backend(os.fspath(uri), storage_options, config)
    init_graph(backend, catalog_of(schema, backend))
    backend.close()
    return open(uri, storage_options=storage_options, config=config)


def open(
    uri: str | os.PathLike[str],
    branch: str = MAIN,
    *,
    read_only: bool = False,
    freshness: Freshness = "latest",
    exclusive: bool = False,
    recover: bool = True,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
) -> Graph:
    """A handle on one branch of a graph. `exclusive` claims the branch for this handle alone until it is closed.

    Opening for writing also ends the bulk operations that dead processes left, unless `recover` is off.
    """
    if exclusive and read_only:
        raise InvalidInput("a read-only handle cannot be exclusive", advice="Leave out one of the two")
    runtime = _shared_site(os.fspath(uri), read_only, storage_options, config)
    return open_branch(runtime, branch, freshness=freshness, exclusive=exclusive, recover=recover)


def open_branch(
    runtime: GraphRuntime,
    branch: str = MAIN,
    *,
    freshness: Freshness = "latest",
    exclusive: bool = False,
    recover: bool = True,
) -> Graph:
    """A handle on a branch of a graph, with what opening it for writing entails."""
    if runtime.read_only or not recover:
        found, ended = runtime.branch(branch), []
    else:
        # The listing costs a request, and no time beside those that open the branch.
        listed = runtime.backend.start(lambda: list_intents(runtime.backend.store))
        found = runtime.branch(branch)
        ended = make_recovery(runtime).run(folders=listed.result())
    holder = runtime.claim(found, WriteOptions()) if exclusive else None
    graph = Graph(runtime, found, freshness=freshness, holder=holder)
    if holder is not None and any(one.verdict == "waiting" for one in ended):
        _recover_claimed(graph)
    return graph


def _recover_claimed(graph: Graph) -> None:
    """What waited for the claim of a dead writer can be ended by the one that took it over."""
    try:
        graph.recover()
    except BaseException:
        graph.close()
        raise


def open_at(
    uri: str | os.PathLike[str],
    commit_id: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
) -> GraphView:
    """One commit, read-only, without a look at any branch: it can be read even if a newer record is damaged."""
    stream, seq = parse_commit_id(commit_id)
    runtime = _shared_site(os.fspath(uri), True, storage_options, config)
    record = runtime.records(stream).record(seq)
    return GraphView(runtime, Snapshot(runtime.backend, record, runtime.catalogs.get(record.schema)))


def verify(
    uri: str | os.PathLike[str],
    *,
    deep: bool = False,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
) -> VerifyReport:
    """Check a graph without opening a branch of it: that must be possible whatever is damaged."""
    return verify_graph(_shared_site(os.fspath(uri), True, storage_options, config), deep=deep)


def _shared_site(
    uri: str, read_only: bool, storage_options: Mapping[str, str] | None, config: Config | None
) -> GraphRuntime:
    """All handles of one process on one graph share a runtime; a forked child gets its own."""
    config = config or Config.from_environment()
    place = parse_address(uri, storage_options)
    key = (os.getpid(), place.uri, tuple(sorted(place.options.items())), read_only, config)
    with _SITES_LOCK:
        known = _SITES.get(key)
    if known is not None:
        return known
    runtime = GraphRuntime.open(make_backend(uri, storage_options, config), read_only=read_only)
    with _SITES_LOCK:
        return _SITES.setdefault(key, runtime)


def catalog_of(schema: str | os.PathLike[str] | Catalog, backend: Backend) -> Catalog:
    if isinstance(schema, Catalog):
        return schema
    text, file = read_schema(schema)
    return compile_schema(text, file=file, mint=lambda: backend.ids.token(_TOKEN))
