"""The transaction as users hold it: mutations below, queries on top of what they did so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.mutate.transaction import Transaction
from omnigraph.query.language.bind import bind_params

if TYPE_CHECKING:
    from omnigraph.query.run.result import Result


class GraphTransaction(Transaction):
    """A transaction that can also be asked. What it answered is part of what the commit depends on."""

    def query(self, source: str, params: Mapping[str, Any] | None = None, *, name: str | None = None) -> Result:
        """Run a reading query; it sees what the transaction has done so far."""
        from omnigraph.query.language.query_cache import get_checked_query
        from omnigraph.query.run.run_query import run_query

        checked = get_checked_query(source, name, self.catalog)
        bound = bind_params(checked, params or {})
        return run_query(self.state_for(checked.reads), checked, bound, now=self.now)
