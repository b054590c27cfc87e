"""A mutation as text and parameters, ready to become statements under whatever schema it meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from omnigraph.errors import InvalidInput
from omnigraph.query.language.bind import bind_params
from omnigraph.query.language.check import check_query
from omnigraph.query.language.lower import lower
from omnigraph.query.language.parse import parse_queries
from omnigraph.query.language.statements import Statement
from omnigraph.query.language.syntax import QuerySyntax
from omnigraph.schema.catalog import Catalog


def pick_query(source: str, name: str | None, file: str = "<query>") -> QuerySyntax:
    """The query called `name`, or the only one of the text."""
    queries = parse_queries(source, file)
    known = ", ".join(one.name.text for one in queries) or "none"
    if name is None and len(queries) == 1:
        return queries[0]
    if name is None:
        raise InvalidInput(
            f"the text holds {len(queries)} queries", code="which_query", advice=f"Name one of them: {known}"
        )
    found = next((one for one in queries if one.name.text == name), None)
    if found is None:
        raise InvalidInput(f"the text has no query `{name}`", code="which_query", advice=f"It has {known}")
    return found


@dataclass(frozen=True)
class MutationScript:
    """One mutation, run once per set of parameters, all in one commit. `now()` is one instant for all of them."""

    query: QuerySyntax
    params: Sequence[Mapping[str, Any]]
    now: datetime
    strict: bool = False

    def __call__(self, catalog: Catalog) -> list[Statement]:
        checked = check_query(self.query, catalog)
        if not checked.is_mutation:
            raise InvalidInput(
                f"query `{self.query.name.text}` reads and changes nothing",
                code="not_a_mutation",
                advice="Run it as a query",
            )
        bound = [bind_params(checked, one) for one in self.params]
        return [one for values in bound for one in lower(checked, values, catalog, now=self.now, strict=self.strict)]
