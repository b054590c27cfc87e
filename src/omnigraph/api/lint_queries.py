"""`omnigraph.lint`: queries checked against a schema before anything runs."""

from __future__ import annotations

import os
from typing import Protocol

from omnigraph.api.schema import Schema, read_schema
from omnigraph.clock import SystemIds
from omnigraph.query.language.lint import LintReport
from omnigraph.query.language.lint import lint as lint_queries
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema

_TOKEN = 8


class HasSource(Protocol):
    """`g.schema`, of a graph here or behind a server."""

    @property
    def source(self) -> str: ...


def lint(source: str, schema: HasSource | Catalog | str | os.PathLike[str]) -> LintReport:
    """All errors and warnings of the queries in `source`. Raises only for a wrong call, such as a broken schema.

    `schema` is `g.schema`, a `.pg` file, the text of one, or a compiled catalog.
    """
    return lint_queries(source, _catalog(schema))


def _catalog(schema: HasSource | Catalog | str | os.PathLike[str]) -> Catalog:
    if isinstance(schema, Schema):
        return schema.catalog
    if isinstance(schema, Catalog):
        return schema
    text, file = read_schema(schema) if isinstance(schema, (str, os.PathLike)) else (schema.source, "<schema>")
    ids = SystemIds()
    return compile_schema(text, file=file, mint=lambda: ids.token(_TOKEN))
