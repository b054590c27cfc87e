"""Checked queries, remembered by text, name and schema: reads and mutations that come again are not checked again."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from omnigraph.query.language.check import check_query
from omnigraph.query.language.checked import CheckedQuery
from omnigraph.query.language.parse import pick_query
from omnigraph.schema.catalog import Catalog

_MAX_QUERIES = 256


@dataclass(frozen=True, slots=True)
class _SchemaKey:
    """A catalog as part of a cache key: equal by its hash, which is much cheaper than comparing all types."""

    hash: str
    catalog: Catalog = field(compare=False)


def get_checked_query(source: str, name: str | None, catalog: Catalog) -> CheckedQuery:
    """Check the query `name` of the text `source` under this schema, or return it if the cache holds it.

    The key holds the hash of the schema, so a query is checked again after a schema change. Errors are not cached.
    """
    return _check(source, name, _SchemaKey(catalog.hash, catalog))


@lru_cache(maxsize=_MAX_QUERIES)
def _check(source: str, name: str | None, schema: _SchemaKey) -> CheckedQuery:
    return check_query(pick_query(source, name), schema.catalog)
