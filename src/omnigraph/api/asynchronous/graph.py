"""The classes of `omnigraph.aio`: the facade, awaited."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Self, TypeVar

from omnigraph.api import Graph
from omnigraph.api.asynchronous.threads import CallQueue, ThreadRunner
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
from omnigraph.api.remote import RemoteGraph
from omnigraph.api.schema import Schema
from omnigraph.api.table import Table
from omnigraph.api.transaction import GraphTransaction
from omnigraph.api.view import GraphView
from omnigraph.commit.publish_plan import Receipt
from omnigraph.errors import InvalidInput
from omnigraph.schema.catalog import Catalog
from omnigraph.upkeep.tags import Tags

A = TypeVar("A")


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
    table = TwinVerb(GraphView.table, lambda: AsyncTable)
    snapshot = AwaitedVerb(GraphView.snapshot)
    commits = AwaitedVerb(GraphView.commits)
    commit = AwaitedVerb(GraphView.commit)
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
