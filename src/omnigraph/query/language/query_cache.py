"""Checked queries, remembered by text, name and schema: reads and mutations that come again are not checked again."""

from __future__ import annotations

import threading
from collections import OrderedDict

from omnigraph.query.language.check import check_query
from omnigraph.query.language.checked import CheckedQuery
from omnigraph.query.language.parse import pick_query
from omnigraph.schema.catalog import Catalog

_MAX_QUERIES = 256

_queries: OrderedDict[tuple[str, str | None, str], CheckedQuery] = OrderedDict()
_lock = threading.Lock()


def get_checked_query(source: str, name: str | None, catalog: Catalog) -> CheckedQuery:
    """Check the query `name` of the text `source` under this schema, or return it if the cache holds it.

    The key holds the hash of the schema, so a query is checked again after a schema change. Errors are not cached.
    """
    key = (source, name, catalog.hash)
    with _lock:
        if key in _queries:
            _queries.move_to_end(key)
            return _queries[key]
    checked = check_query(pick_query(source, name), catalog)
    with _lock:
        # Another thread may have checked the same query: all callers share one tree, by whose identity plans are kept.
        checked = _queries.setdefault(key, checked)
        while len(_queries) > _MAX_QUERIES:
            _queries.popitem(last=False)
    return checked
