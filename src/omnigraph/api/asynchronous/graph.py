"""The facade, awaited: what `omnigraph.aio` hands out."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Self, TypeVar

from omnigraph.api import Graph
from omnigraph.api.asynchronous.threads import Runner, Turns
from omnigraph.api.asynchronous.twins import Asked, Awaited, Giving, Held, Iterated, Part, Plain, Queried, Twin
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

    key = Plain[str]("key")
    to_arrow = Awaited(Table.to_arrow)
    count = Awaited(Table.count)
    spark = Awaited(Table.spark)
    lance = Plain[Callable[..., NoReturn]]("lance")


class AsyncView(Held):
    """A graph pinned to one commit: everything that can be read, nothing that can be written."""

    commit_id = Plain[str]("commit_id")
    catalog = Plain[Catalog]("catalog")
    query = Queried(GraphView.query)
    explain = Queried(GraphView.explain)
    table = Giving(GraphView.table, lambda: AsyncTable)
    snapshot = Awaited(GraphView.snapshot)
    commits = Awaited(GraphView.commits)
    commit = Awaited(GraphView.commit)
    blob = Awaited(GraphView.blob)
    export = Awaited(GraphView.export)
    spark = Awaited(GraphView.spark)
    spark_views = Awaited(GraphView.spark_views)


class AsyncBranches(Twin):
    """`g.branch`: create, list, merge and delete branches."""

    create = Giving(Branches.create, lambda: AsyncGraph)
    list = Awaited(Branches.list)
    delete = Awaited(Branches.delete)
    merge = Awaited(Branches.merge)


class AsyncSchema(Twin):
    """`g.schema`: what the schema is, what a new text would change, and the change itself."""

    catalog = Asked[Catalog]("catalog")
    source = Asked[str]("source")
    plan = Awaited(Schema.plan)
    apply = Awaited(Schema.apply)


class AsyncTags(Twin):
    """`g.tags`: names for commits, which cleanup never collects."""

    create = Awaited(Tags.create)
    list = Awaited(Tags.list)
    get = Awaited(Tags.get)
    delete = Awaited(Tags.delete)
    scan = Iterated(Tags.scan)


class AsyncTransaction(Twin):
    """`async with g.transaction() as t:` commits at the end of the block, or nothing if the block raises.

    A block that is cancelled before its end has no effect. One that is cancelled while it commits may have one: give
    it a client key, and ask again with the same.
    """

    receipt = Plain[Receipt | None]("receipt")
    mutate = Awaited(GraphTransaction.mutate)
    query = Awaited(GraphTransaction.query)

    def __init__(self, begin: Callable[[], GraphTransaction], threads: Runner) -> None:
        super().__init__(self._begun, Turns(threads))
        self._begin = begin
        self._transaction: GraphTransaction | None = None

    async def __aenter__(self) -> Self:
        self._transaction = await self._threads.run(lambda: self._begin().__enter__())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After the step that may still run: its caller was cancelled, its thread was not.
        await self._threads.run(lambda: self._begun().__exit__(kind, error, trace))

    def _begun(self) -> GraphTransaction:
        if self._transaction is None:
            raise InvalidInput(
                "the transaction has not begun",
                code="transaction_not_begun",
                advice="Use it as `async with g.transaction() as t:`",
            )
        return self._transaction


class AsyncGraph(Held):
    """A handle on one branch, for programs with an event loop. May be used by any number of tasks at once.

    Verbs have the names and parameters of `Graph` and are awaited; `diff` is iterated with `async for`. A task that
    is cancelled stops its query; a write that has begun goes on to its end, which `close` waits for.
    """

    uri = Plain[str]("uri")
    branch_name = Plain[str]("branch_name")
    graph_id = Asked[str]("graph_id")
    branch = Part("branch", AsyncBranches)
    schema = Part("schema", AsyncSchema)
    tags = Part("tags", AsyncTags)

    query = Queried(Graph.query)
    blob = Awaited(Graph.blob)
    table = Giving(Graph.table, lambda: AsyncTable)
    view = Giving(Graph.view, lambda: AsyncView)
    at = Giving(Graph.at, lambda: AsyncView)
    snapshot = Awaited(Graph.snapshot)
    refresh = Awaited(Graph.refresh)
    on_branch = Giving(Graph.on_branch, lambda: AsyncGraph)

    apply = Awaited(Graph.apply)
    mutate = Awaited(Graph.mutate)
    mutate_many = Awaited(Graph.mutate_many)

    commits = Awaited(Graph.commits)
    diff = Iterated(Graph.diff)
    diff_spark = Awaited(Graph.diff_spark)
    diff_page = Awaited(Graph.diff_page)
    commit_changes = Awaited(Graph.commit_changes)
    changes = Awaited(Graph.changes)

    load = Awaited(Graph.load)
    load_frames = Awaited(Graph.load_frames)
    export = Awaited(Graph.export)
    spark = Awaited(Graph.spark)
    spark_views = Awaited(Graph.spark_views)
    draw = Plain[Callable[..., NoReturn]]("draw")
    stream = Plain[Callable[..., NoReturn]]("stream")
    analytics = Plain[NoReturn]("analytics")

    fold = Awaited(Graph.fold)
    optimize = Awaited(Graph.optimize)
    optimize_if_needed = Awaited(Graph.optimize_if_needed)
    needs_upkeep = Awaited(Graph.needs_upkeep)
    cleanup = Awaited(Graph.cleanup)
    recover = Awaited(Graph.recover)
    recover_list = Awaited(Graph.recover_list)
    verify = Awaited(Graph.verify)
    repair = Awaited(Graph.repair)

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
            begun: GraphTransaction = self._of().transaction(
                actor=actor, message=message, client_key=client_key, if_commit=if_commit
            )
            return begun

        return AsyncTransaction(begin, self._threads)

    async def run(self, work: Callable[[Graph], A]) -> A:
        """Something of one's own with the blocking handle, in one of the threads: several reads in one go."""
        return await self._threads.run(lambda: work(self._of()))

    def _end(self) -> None:
        self._of().close()


class AsyncRemoteGraph(AsyncGraph):
    """A graph behind a server, for programs with an event loop."""

    queries = Awaited(RemoteGraph.queries)
