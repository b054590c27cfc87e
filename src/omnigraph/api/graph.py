"""The graph as users hold it: each verb a few lines over the engine below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from omnigraph.api.branches import Branches
from omnigraph.api.bulk_verbs import BulkVerbs
from omnigraph.api.handle import not_built
from omnigraph.api.history_verbs import HistoryVerbs
from omnigraph.api.schema import Schema
from omnigraph.api.transaction import GraphTransaction
from omnigraph.api.upkeep_verbs import UpkeepVerbs
from omnigraph.api.view import Table
from omnigraph.commit.graph_runtime import Branch
from omnigraph.commit.publish_plan import Receipt, WriteOptions
from omnigraph.mutate.mutation import Mutation, StatementSource
from omnigraph.query.language.mutation_call import MutationCall
from omnigraph.query.language.statements import Overwrite, Statement

if TYPE_CHECKING:
    from omnigraph.query.limits import QueryLimits
    from omnigraph.query.run.result import Result


class Graph(HistoryVerbs, BulkVerbs, UpkeepVerbs):
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
        """Run statements as one atomic commit. An overwrite is never repeated by itself after a conflict."""
        if any(isinstance(one, Overwrite) for one in statements):
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
        self._for_writing()
        options = WriteOptions(actor, message, client_key, if_commit, "fail")
        return GraphTransaction(self._runtime.backend, self._branch.writer, options, self._holder)

    def draw(self, *_args: object, **_options: object) -> NoReturn:
        """A picture for a notebook, which this version does not have."""
        raise not_built("drawing", "Use the rows of g.query(…), or g.table(…).to_arrow(), with a library for pictures")

    def refresh(self) -> str:
        """Look for newer commits now. The newest commit's id."""
        return self.view(fresh=True).commit_id

    def on_branch(self, name: str) -> Graph:
        """A handle on another branch of the same graph."""
        return self._on(self._runtime.branch(name))

    def close(self) -> None:
        """Give up an exclusive claim, if this handle has one."""
        if self._holder is not None:
            self._runtime.release(self._branch, self._holder, WriteOptions())
            self._holder = None

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _on(self, branch: Branch) -> Graph:
        return Graph(self._runtime, branch, freshness=self._freshness)

    def _call(
        self, source: str, params: Sequence[Mapping[str, Any]], name: str | None, *, strict: bool
    ) -> MutationCall:
        return MutationCall(source, name, params, self._runtime.backend.clock.now(), strict)

    def _run(self, bind_statements: StatementSource, options: WriteOptions) -> Receipt:
        self._for_writing()
        return self._branch.writer.run(Mutation(self._runtime.backend, bind_statements), options, self._holder)
