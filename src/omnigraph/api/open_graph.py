"""Makes, opens and verifies graphs, and checks queries against a schema: the functions of `omnigraph` itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import Lock
from typing import Protocol
from weakref import WeakValueDictionary

from omnigraph.api.graph import Graph
from omnigraph.api.handle import Freshness
from omnigraph.api.recovery import make_recovery
from omnigraph.api.schema import Schema, read_schema
from omnigraph.api.view import GraphView
from omnigraph.clock import SystemIds
from omnigraph.commit.birth import init_graph
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.config import Config
from omnigraph.errors import InvalidInput
from omnigraph.intents.states import list_intents
from omnigraph.log.branches import MAIN
from omnigraph.log.commit_record import parse_commit_id
from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language.lint import LintReport
from omnigraph.query.language.lint import lint as lint_queries
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from omnigraph.storage.address import parse_address
from omnigraph.storage.backend import Backend
from omnigraph.storage.open_backend import make_backend
from omnigraph.upkeep.verify.findings import VerifyReport
from omnigraph.upkeep.verify.verify import verify_graph

_ID_LENGTH = 8  # characters of a new type or property id
_RUNTIMES: WeakValueDictionary[tuple[object, ...], GraphRuntime] = WeakValueDictionary()
_RUNTIMES_LOCK = Lock()


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
    """A handle on one branch of a graph. `exclusive` holds the branch for this handle alone until it is closed.

    Opening for writing also ends the bulk operations that dead processes left, unless `recover` is off.
    """
    if exclusive and read_only:
        raise InvalidInput("a read-only handle cannot be exclusive", advice="Leave out one of the two")
    runtime = _get_shared_runtime(os.fspath(uri), read_only, storage_options, config)
    return open_branch(runtime, branch, freshness=freshness, exclusive=exclusive, recover=recover)


def open_branch(
    runtime: GraphRuntime,
    branch: str = MAIN,
    *,
    freshness: Freshness = "latest",
    exclusive: bool = False,
    recover: bool = True,
) -> Graph:
    """A handle on a branch of an opened graph; recovers bulk operations and holds the branch as `open` does."""
    if runtime.read_only or not recover:
        opened, recovered = runtime.branch(branch), []
    else:
        # The listing costs a request but no time: it runs beside the requests that open the branch.
        folders = runtime.backend.start(lambda: list_intents(runtime.backend.store))
        opened = runtime.branch(branch)
        recovered = make_recovery(runtime).run(folders=folders.result())
    holder = runtime.claim(opened, WriteOptions()) if exclusive else None
    graph = Graph(runtime, opened, freshness=freshness, holder=holder)
    if holder is not None and any(result.verdict == "waiting" for result in recovered):
        _recover_as_holder(graph)
    return graph


def _recover_as_holder(graph: Graph) -> None:
    """End the bulk operations that waited because a dead writer held the branch; `graph` has taken it over."""
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
    runtime = _get_shared_runtime(os.fspath(uri), True, storage_options, config)
    record = runtime.records(stream).record(seq)
    return GraphView(runtime, Snapshot(runtime.backend, record, runtime.catalogs.get(record.schema)))


def verify(
    uri: str | os.PathLike[str],
    *,
    deep: bool = False,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
) -> VerifyReport:
    """Check a graph without opening a branch of it, which may be impossible in a damaged graph."""
    return verify_graph(_get_shared_runtime(os.fspath(uri), True, storage_options, config), deep=deep)


def _get_shared_runtime(
    uri: str, read_only: bool, storage_options: Mapping[str, str] | None, config: Config | None
) -> GraphRuntime:
    """All handles of one process on one graph share a runtime; a forked child gets its own."""
    config = config or Config.from_environment()
    address = parse_address(uri, storage_options)
    key = (os.getpid(), address.uri, tuple(sorted(address.options.items())), read_only, config)
    with _RUNTIMES_LOCK:
        runtime = _RUNTIMES.get(key)
    if runtime is not None:
        return runtime
    runtime = GraphRuntime.open(make_backend(uri, storage_options, config), read_only=read_only)
    with _RUNTIMES_LOCK:
        return _RUNTIMES.setdefault(key, runtime)


def catalog_of(schema: str | os.PathLike[str] | Catalog, backend: Backend) -> Catalog:
    """The catalog of a graph to be created. Its identities are made by the backend, since they will be stored."""
    if isinstance(schema, Catalog):
        return schema
    text, file = read_schema(schema)
    return compile_schema(text, file=file, mint=lambda: backend.ids.token(_ID_LENGTH))


class HasSource(Protocol):
    """`g.schema`, of a graph here or behind a server."""

    @property
    def source(self) -> str: ...


def lint(source: str, schema: HasSource | Catalog | str | os.PathLike[str]) -> LintReport:
    """All errors and warnings of the queries in `source`. Raises only for a wrong call, such as a broken schema.

    `schema` is `g.schema`, a `.pg` file, the text of one, or a compiled catalog.
    """
    return lint_queries(source, _compile_catalog(schema))


def _compile_catalog(schema: HasSource | Catalog | str | os.PathLike[str]) -> Catalog:
    """The catalog to check queries against: also that of `g.schema`. It needs no backend, since nothing is stored."""
    if isinstance(schema, Schema):
        return schema.catalog
    if isinstance(schema, Catalog):
        return schema
    text, file = read_schema(schema) if isinstance(schema, (str, os.PathLike)) else (schema.source, "<schema>")
    ids = SystemIds()
    return compile_schema(text, file=file, mint=lambda: ids.token(_ID_LENGTH))
