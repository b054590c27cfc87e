"""One call of a mutation: its text and its parameters, bound anew under the schema of every attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from omnigraph.errors import InvalidInput
from omnigraph.query.language.bind import BoundStatement, bind_params, value_resolver
from omnigraph.query.language.checked import CheckedMutation
from omnigraph.query.language.parse import pick_query
from omnigraph.query.language.query_cache import get_checked_query
from omnigraph.schema.catalog import Catalog


@dataclass(frozen=True)
class MutationCall:
    """The mutation `name` of a text, run once per set of parameters, all in one commit.

    `now()` is the same instant for all of them. Raises the syntax errors of the text when it is made, before any I/O.
    """

    source: str
    name: str | None
    params: Sequence[Mapping[str, Any]]
    now: datetime
    is_strict: bool = False

    def __post_init__(self) -> None:
        pick_query(self.source, self.name)

    def bind(self, catalog: Catalog) -> list[BoundStatement]:
        """The statements to execute under this schema, in order. A caller binds again after a schema change."""
        checked = get_checked_query(self.source, self.name, catalog)
        if not isinstance(checked.body, CheckedMutation):
            raise InvalidInput(
                f"query `{checked.name}` reads and changes nothing", code="not_a_mutation", advice="Run it as a query"
            )
        all_bound = [bind_params(checked, values) for values in self.params]
        return [
            BoundStatement(statement, resolve_value, self.is_strict)
            for resolve_value in (value_resolver(bound, self.now) for bound in all_bound)
            for statement in checked.body.statements
        ]
