"""The classes and functions of `omnigraph.aio`: the facade, awaited, and how it is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar

from omnigraph import api
from omnigraph.api import Graph, remote
from omnigraph.api.asynchronous.threads import THREADS, CallQueue, ThreadRunner, Threads
from omnigraph.api.asynchronous.twins import (
    AwaitedProperty,
    AwaitedVerb,
    CancellableQuery,
    ClosableTwin,
    IteratedVerb,
    PlainProperty,
    Twin,
    TwinVerb,
    VerbGroup,
)
from omnigraph.api.branches import Branches
from omnigraph.api.remote.graph import RemoteGraph
from omnigraph.api.schema import Schema
from omnigraph.api.table import Table
from omnigraph.api.transaction import GraphTransaction
from omnigraph.api.view import GraphView
from omnigraph.commit.publish_plan import Receipt
from omnigraph.config import Config
from omnigraph.errors import InvalidInput
from omnigraph.log.branches import MAIN
from omnigraph.schema.catalog import Catalog
from omnigraph.upkeep.tags import Tags

A = TypeVar("A")
T = TypeVar("T", bound=ClosableTwin)


class AsyncTable(Twin):
    """One type of one snapshot."""

    key = PlainProperty[str]("key")
    to_arrow = AwaitedVerb(Table.to_arrow)
    count = AwaitedVerb(Table.count)
    spark = AwaitedVerb(Table.spark)
    lance = PlainProperty[Callable[..., NoReturn]]("lance")


class AsyncView(ClosableTwin):
    """A graph pinned to one commit: everything that can be read, nothing that can be written."""

    commit_id = PlainProperty[str]("commit_id")
    catalog = PlainProperty[Catalog]("catalog")
    query = CancellableQuery(GraphView.query)
    explain = CancellableQuery(GraphView.explain)
    commits = AwaitedVerb(GraphView.commits)
    commit = AwaitedVerb(GraphView.commit)
    table = TwinVerb(GraphView.table, lambda: AsyncTable)
    snapshot = AwaitedVerb(GraphView.snapshot)
    blob = AwaitedVerb(GraphView.blob)
    export = AwaitedVerb(GraphView.export)
    spark = AwaitedVerb(GraphView.spark)
    spark_views = AwaitedVerb(GraphView.spark_views)


class AsyncBranches(Twin):
    """`g.branch`: create, list, merge and delete branches."""

    create = TwinVerb(Branches.create, lambda: AsyncGraph)
    list = AwaitedVerb(Branches.list)
    delete = AwaitedVerb(Branches.delete)
    merge = AwaitedVerb(Branches.merge)


class AsyncSchema(Twin):
    """`g.schema`: what the schema is, what a new text would change, and the change itself."""

    catalog = AwaitedProperty[Catalog]("catalog")
    source = AwaitedProperty[str]("source")
    plan = AwaitedVerb(Schema.plan)
    apply = AwaitedVerb(Schema.apply)


class AsyncTags(Twin):
    """`g.tags`: names for commits, which cleanup never collects."""

    create = AwaitedVerb(Tags.create)
    list = AwaitedVerb(Tags.list)
    get = AwaitedVerb(Tags.get)
    delete = AwaitedVerb(Tags.delete)
    scan = IteratedVerb(Tags.scan)


class AsyncTransaction(Twin):
    """`async with g.transaction() as t:` commits at the end of the block, or nothing if the block raises.

    A block that is cancelled before its end has no effect. One that is cancelled while it commits may have one: give
    it a client key, and ask again with the same.
    """

    receipt = PlainProperty[Receipt | None]("receipt")
    mutate = AwaitedVerb(GraphTransaction.mutate)
    query = AwaitedVerb(GraphTransaction.query)

    def __init__(self, begin: Callable[[], GraphTransaction], threads: ThreadRunner) -> None:
        super().__init__(self._require_begun, CallQueue(threads))
        self._begin = begin
        self._transaction: GraphTransaction | None = None

    async def __aenter__(self) -> Self:
        self._transaction = await self._threads.run(lambda: self._begin().__enter__())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The queue runs this after a verb whose caller was cancelled but whose thread still runs.
        await self._threads.run(lambda: self._require_begun().__exit__(kind, error, trace))

    def _require_begun(self) -> GraphTransaction:
        if self._transaction is None:
            raise InvalidInput(
                "the transaction has not begun",
                code="transaction_not_begun",
                advice="Use it as `async with g.transaction() as t:`",
            )
        return self._transaction


class AsyncGraph(ClosableTwin):
    """A handle on one branch, for programs with an event loop. May be used by any number of tasks at once.

    Verbs have the names and parameters of `Graph` and are awaited; `diff` is iterated with `async for`. A task that
    is cancelled stops its query; a write that has begun goes on to its end, which `close` waits for.
    """

    uri = PlainProperty[str]("uri")
    branch_name = PlainProperty[str]("branch_name")
    graph_id = AwaitedProperty[str]("graph_id")
    branch = VerbGroup("branch", AsyncBranches)
    schema = VerbGroup("schema", AsyncSchema)
    tags = VerbGroup("tags", AsyncTags)

    query = CancellableQuery(Graph.query)
    blob = AwaitedVerb(Graph.blob)
    table = TwinVerb(Graph.table, lambda: AsyncTable)
    view = TwinVerb(Graph.view, lambda: AsyncView)
    at = TwinVerb(Graph.at, lambda: AsyncView)
    snapshot = AwaitedVerb(Graph.snapshot)
    refresh = AwaitedVerb(Graph.refresh)
    on_branch = TwinVerb(Graph.on_branch, lambda: AsyncGraph)

    apply = AwaitedVerb(Graph.apply)
    mutate = AwaitedVerb(Graph.mutate)
    mutate_many = AwaitedVerb(Graph.mutate_many)

    commits = AwaitedVerb(Graph.commits)
    diff = IteratedVerb(Graph.diff)
    diff_spark = AwaitedVerb(Graph.diff_spark)
    diff_page = AwaitedVerb(Graph.diff_page)
    commit_changes = AwaitedVerb(Graph.commit_changes)
    changes = AwaitedVerb(Graph.changes)

    load = AwaitedVerb(Graph.load)
    load_frames = AwaitedVerb(Graph.load_frames)
    export = AwaitedVerb(Graph.export)
    spark = AwaitedVerb(Graph.spark)
    spark_views = AwaitedVerb(Graph.spark_views)
    draw = PlainProperty[Callable[..., NoReturn]]("draw")
    stream = PlainProperty[Callable[..., NoReturn]]("stream")
    analytics = PlainProperty[NoReturn]("analytics")

    fold = AwaitedVerb(Graph.fold)
    optimize = AwaitedVerb(Graph.optimize)
    optimize_if_needed = AwaitedVerb(Graph.optimize_if_needed)
    needs_upkeep = AwaitedVerb(Graph.needs_upkeep)
    cleanup = AwaitedVerb(Graph.cleanup)
    recover = AwaitedVerb(Graph.recover)
    recover_list = AwaitedVerb(Graph.recover_list)
    verify = AwaitedVerb(Graph.verify)
    repair = AwaitedVerb(Graph.repair)

    def transaction(
        self,
        *,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
    ) -> AsyncTransaction:
        """Several mutations in one commit, each seeing the ones before; for use in an `async with` block."""

        def begin() -> GraphTransaction:
            transaction: GraphTransaction = self._get_target().transaction(
                actor=actor, message=message, client_key=client_key, if_commit=if_commit
            )
            return transaction

        return AsyncTransaction(begin, self._threads)

    async def run(self, work: Callable[[Graph], A]) -> A:
        """Run a function of the caller with the blocking handle in one of the threads: several reads in one call."""
        return await self._threads.run(lambda: work(self._get_target()))

    def _close_target(self) -> None:
        self._get_target().close()


class AsyncRemoteGraph(AsyncGraph):
    """A graph behind a server, for programs with an event loop."""

    queries = AwaitedVerb(RemoteGraph.queries)


class Opening(Generic[T]):
    """A graph that is being opened: `g = await aio.open(…)` or `async with aio.open(…) as g:`.

    A caller who awaits it closes the graph. The end of the block waits for running calls and closes the graph itself.
    """

    def __init__(self, twin_class: type[T], threads: int, open_target: Callable[[], Any]) -> None:
        self._twin_class = twin_class
        self._threads = Threads(threads)
        self._open_target = open_target
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def _open(self) -> T:
        try:
            # A handle whose caller was cancelled may hold the branch exclusively, so it is closed.
            target = await self._threads.run(self._open_target, on_abandoned=_close)
        except BaseException:
            self._threads.shut_down()
            raise
        return self._twin_class(lambda: target, self._threads).owning(self._threads)


def init(
    uri: str | os.PathLike[str],
    schema: str | os.PathLike[str] | Catalog,
    *,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
    threads: int = THREADS,
) -> Opening[AsyncGraph]:
    """Create a graph. `schema` is a `.pg` file, the text of one, or a compiled catalog."""
    return Opening(AsyncGraph, threads, lambda: api.init(uri, schema, storage_options=storage_options, config=config))


def open(
    uri: str | os.PathLike[str],
    branch: str = MAIN,
    *,
    read_only: bool = False,
    freshness: api.Freshness = "latest",
    exclusive: bool = False,
    recover: bool = True,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
    threads: int = THREADS,
) -> Opening[AsyncGraph]:
    """A handle on one branch of a graph; at most `threads` of its calls run at once, the others wait."""
    return Opening(
        AsyncGraph,
        threads,
        lambda: api.open(
            uri,
            branch,
            read_only=read_only,
            freshness=freshness,
            exclusive=exclusive,
            recover=recover,
            storage_options=storage_options,
            config=config,
        ),
    )


def open_at(
    uri: str | os.PathLike[str],
    commit_id: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
    threads: int = THREADS,
) -> Opening[AsyncView]:
    """One commit, read-only, without a look at any branch."""
    return Opening(
        AsyncView, threads, lambda: api.open_at(uri, commit_id, storage_options=storage_options, config=config)
    )


def connect(
    url: str,
    token: str | None = None,
    *,
    graph: str | None = None,
    branch: str = MAIN,
    ca: str | os.PathLike[str] | None = None,
    threads: int = THREADS,
) -> Opening[AsyncRemoteGraph]:
    """A graph behind a server: `http://host:port/graphs/NAME`, or `graph=`; neither is needed if it has only one."""
    return Opening(AsyncRemoteGraph, threads, lambda: remote.connect(url, token, graph=graph, branch=branch, ca=ca))


def _close(opened: Any) -> None:
    if hasattr(opened, "close"):
        opened.close()
