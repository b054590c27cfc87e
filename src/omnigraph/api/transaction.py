"""The transaction as users hold it: mutations, and queries that see what the mutations have done so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from omnigraph.commit.publish_plan import Receipt, WriteOptions
from omnigraph.commit.writer import Writer
from omnigraph.errors import InvalidInput
from omnigraph.log.snapshot import Snapshot
from omnigraph.mutate.mutation import MintedIds, MutationRun
from omnigraph.query.language.mutation_call import MutationCall
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.backend import Backend

if TYPE_CHECKING:
    from omnigraph.query.run.result import Result


class Transaction:
    """`with g.transaction() as t:` commits at the end of the block, or nothing if the block raises.

    Inserts and deletes may be mixed; later statements see what earlier ones did, and the schema constraints are checked
    once, at the end. If another commit changed rows that the transaction read, the commit raises `ReadSetChanged`: only
    the caller knows whether its decisions still hold. With a client key that is already committed, the block runs
    without effect and `receipt` is the receipt of that commit.
    """

    def __init__(self, backend: Backend, writer: Writer, options: WriteOptions, holder: str | None) -> None:
        self._backend = backend
        self._writer = writer
        self._options = options
        self._holder = holder
        self._run: MutationRun | None = None
        self.receipt: Receipt | None = None

    def __enter__(self) -> Self:
        self.now = self._backend.clock.now()
        self._txn, self._replay = self._writer.begin(self._options, self._holder)
        self._run = MutationRun(self._backend, self._txn, self._backend.ids.ulid(), MintedIds(self._backend))
        return self

    def mutate(
        self, source: str, params: Mapping[str, Any] | None = None, *, name: str | None = None, strict: bool = False
    ) -> None:
        """Run a mutation inside the transaction."""
        run = self._running()
        if self._replay is not None:
            return
        call = MutationCall(source, name, [params or {}], self.now, strict)
        run.execute_all(call.bind(self._txn.catalog))

    @property
    def catalog(self) -> Catalog:
        """The schema that the transaction runs under."""
        return self._txn.catalog

    def state_for(self, tables: Iterable[str]) -> Snapshot:
        """What a query inside the transaction reads. The commit then depends on all of these tables."""
        return self._running().read_whole(tables)

    def _running(self) -> MutationRun:
        if self._run is None:
            raise InvalidInput("the transaction is over", code="transaction_over", advice="Begin another one")
        return self._run

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run, self._run = self._run, None
        if error is not None or run is None:
            return
        if self._replay is not None:
            self.receipt = self._replay
            return
        plan = run.finish()
        self.receipt = plan if isinstance(plan, Receipt) else self._writer.run_once(plan, self._options, self._holder)


class GraphTransaction(Transaction):
    """A transaction that can also run queries. The commit depends on every table that a query read."""

    def query(self, source: str, params: Mapping[str, Any] | None = None, *, name: str | None = None) -> Result:
        """Run a reading query; it sees what the transaction has done so far."""
        from omnigraph.query.run.run_query import start_query

        run = start_query(source, params, name, self.catalog, lambda query: self.state_for(query.reads), self.now)
        return run.result()
