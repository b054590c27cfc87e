"""`Graph`: a branch as users hold it. Reads, writes and history; the other verbs are in the modules beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from omnigraph.api.branches import Branches
from omnigraph.api.handle import not_built
from omnigraph.api.schema import Schema
from omnigraph.api.table import Table
from omnigraph.api.transaction import GraphTransaction
from omnigraph.api.verbs import BulkVerbs, UpkeepVerbs
from omnigraph.api.view import CommitInfo
from omnigraph.commit.graph_runtime import Branch
from omnigraph.commit.publish_plan import Receipt, WriteOptions
from omnigraph.history.diff import Change, diff
from omnigraph.history.diff_pages import PAGE_LIMIT, DiffCursor, DiffPage, take_page
from omnigraph.history.feed import Feed, FeedLimits, Page
from omnigraph.mutate.mutation import Mutation, StatementSource
from omnigraph.query.language.mutation_call import MutationCall
from omnigraph.query.language.statements import Overwrite, Statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.query.limits import QueryLimits
    from omnigraph.query.run.result import Result


class Graph(BulkVerbs, UpkeepVerbs):
    """A handle on one branch. May be used from several threads, and always sees its own commits."""

    @property
    def branch(self) -> Branches:
        return Branches(self)

    @property
    def schema(self) -> Schema:
        return Schema(self)

    def snapshot(self, *, indexes: bool = False) -> dict[str, Any]:
        return {"branch": self.branch_name, **self.view().snapshot(indexes=indexes)}

    def table(self, name: str) -> Table:
        return self.view().table(name)

    def query(
        self,
        source: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        limits: QueryLimits | None = None,
        engine: Literal["local", "spark"] = "local",
    ) -> Result:
        """Run a reading query on the branch as it is now; the result names the commit it was read from."""
        if engine != "local":
            raise not_built("queries on Spark", "Run the query in-process, or read tables with g.spark")
        return self.view().query(source, params, name=name, limits=limits)

    def blob(self, type_name: str, row_id: str, name: str) -> bytes | None:
        """The bytes of one Blob property of one entity, on the branch as it is now."""
        return self.view().blob(type_name, row_id, name)

    def apply(
        self,
        statements: Sequence[Statement],
        *,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        on_conflict: Literal["retry", "fail"] = "retry",
    ) -> Receipt:
        """Run statements as one atomic commit. An overwrite is never repeated after a conflict."""
        if any(isinstance(statement, Overwrite) for statement in statements):
            on_conflict = "fail"
        options = WriteOptions(actor, message, client_key, if_commit, on_conflict)
        return self._run(lambda _: statements, options)

    def mutate(
        self,
        source: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        strict: bool = False,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        on_conflict: Literal["retry", "fail"] = "retry",
    ) -> Receipt:
        """Run a mutation of the query language as one atomic commit. `name` picks one of several in the text."""
        options = WriteOptions(actor, message, client_key, if_commit, on_conflict)
        return self._run(self._call(source, [params or {}], name, strict=strict).bind, options)

    def mutate_many(
        self,
        source: str,
        params: Sequence[Mapping[str, Any]],
        *,
        name: str | None = None,
        strict: bool = False,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        on_conflict: Literal["retry", "fail"] = "retry",
    ) -> Receipt:
        """Run one mutation for every set of parameters, all in one commit."""
        options = WriteOptions(actor, message, client_key, if_commit, on_conflict)
        return self._run(self._call(source, params, name, strict=strict).bind, options)

    def transaction(
        self,
        *,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
    ) -> GraphTransaction:
        """Several mutations in one commit, each seeing the ones before; for use in a `with` block."""
        self._require_writable()
        options = WriteOptions(actor, message, client_key, if_commit, "fail")
        return GraphTransaction(self._runtime.backend, self._branch.writer, options, self._holder)

    def commits(
        self, limit: int | None = 20, *, actor: str | None = None, kind: str | None = None, branch: str | None = None
    ) -> list[CommitInfo]:
        return self.view().commits(limit, actor=actor, kind=kind, branch=branch)

    def diff(
        self,
        old: str,
        new: str | None = None,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> Iterator[Change]:
        """What changed from `old` to `new`: commits or branches; by default up to this branch as it is now."""
        before, after = self._state(old), self._state(new)
        return diff(before, after, kinds=kinds, types=types, ops=ops)

    def diff_spark(
        self,
        old: str,
        new: str | None = None,
        spark: SparkSession | None = None,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> DataFrame:
        """The same changes as `diff`, of any number, as a Spark frame: op, kind, type, id, before, after.

        `before` and `after` are JSON. Workers find them when the frame is used; it stays at the commits of this call.
        """
        from omnigraph.history.spark.diff import diff_frame
        from omnigraph.spark.session import get_session

        before, after = self._state(old), self._state(new)
        return diff_frame(get_session(existing=spark), before, after, kinds=kinds, types=types, ops=ops)

    def diff_page(
        self,
        old: str,
        new: str | None = None,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
        limit: int | None = PAGE_LIMIT,
        cursor: str | None = None,
    ) -> DiffPage:
        """The same in pages. `cursor`, of the page before, names the commits: branches may have moved since."""
        if cursor is not None:
            return self._page_after(DiffCursor.decode(cursor), kinds, types, ops, limit)
        before, after = self._state(old), self._state(new)
        return take_page(before, after, diff(before, after, kinds=kinds, types=types, ops=ops), limit)

    def commit_changes(
        self,
        commit_id: str,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
        limit: int | None = PAGE_LIMIT,
        cursor: str | None = None,
    ) -> DiffPage:
        """What one commit changed against its first parent, in pages."""
        if cursor is not None:
            return self._page_after(DiffCursor.decode(cursor), kinds, types, ops, limit)
        parents = self.at(commit_id).state.record.header.parents
        if not parents:
            return DiffPage(None, commit_id, (), None)
        return self.diff_page(parents[0].commit_id, commit_id, kinds=kinds, types=types, ops=ops, limit=limit)

    def changes(self, since: str | None = None, *, limits: FeedLimits | None = None) -> Page:
        """Commits of this branch after the cursor `since`, each with its changes, and the cursor to go on from."""
        runtime = self._runtime
        return Feed(runtime.backend, runtime.catalogs, self._branch.publisher.records, limits or FeedLimits()).page(
            since
        )

    def draw(self, *_args: object, **_options: object) -> NoReturn:
        """Would draw a picture for a notebook; not part of this version."""
        raise not_built("drawing", "Use the rows of g.query(…), or g.table(…).to_arrow(), with a library for pictures")

    def refresh(self) -> str:
        """Look for newer commits now. Returns the id of the newest."""
        return self.view(fresh=True).commit_id

    def on_branch(self, name: str) -> Graph:
        """A handle on another branch of the same graph."""
        return self._with_branch(self._runtime.branch(name))

    def close(self) -> None:
        """Release the branch, if this handle holds it exclusively."""
        if self._holder is not None:
            self._runtime.release(self._branch, self._holder, WriteOptions())
            self._holder = None

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _with_branch(self, branch: Branch) -> Graph:
        return Graph(self._runtime, branch, freshness=self._freshness)

    def _call(
        self, source: str, params: Sequence[Mapping[str, Any]], name: str | None, *, strict: bool
    ) -> MutationCall:
        return MutationCall(source, name, params, self._runtime.backend.clock.now(), strict)

    def _run(self, bind_statements: StatementSource, options: WriteOptions) -> Receipt:
        self._require_writable()
        return self._branch.writer.run(Mutation(self._runtime.backend, bind_statements), options, self._holder)

    def _page_after(
        self,
        cursor: DiffCursor,
        kinds: Collection[str],
        types: Collection[str],
        ops: Collection[str],
        limit: int | None,
    ) -> DiffPage:
        before, after = self.at(cursor.old).state, self.at(cursor.new).state
        last = (cursor.type_id, cursor.row_id)
        return take_page(before, after, diff(before, after, kinds=kinds, types=types, ops=ops, after=last), limit)
