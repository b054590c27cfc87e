"""The transaction as users hold it: mutations, and queries that see what the mutations have done so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.mutate.transaction import Transaction

if TYPE_CHECKING:
    from omnigraph.query.run.result import Result


class GraphTransaction(Transaction):
    """A transaction that can also run queries. The commit depends on every table that a query read."""

    def query(self, source: str, params: Mapping[str, Any] | None = None, *, name: str | None = None) -> Result:
        """Run a reading query; it sees what the transaction has done so far."""
        from omnigraph.query.run.run_query import start_query

        run = start_query(source, params, name, self.catalog, lambda query: self.state_for(query.reads), self.now)
        return run.result()
