"""`g.schema`: what the schema is, what a new text would change, and the change itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.commit.publish_plan import Receipt, WriteOptions
from omnigraph.errors import InvalidInput
from omnigraph.intents.run_bulk import REWRITE_BYTES, run_bulk
from omnigraph.mutate.schema_change import SchemaChange
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.change_steps import SchemaPlan

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph


class Schema:
    """`g.schema`: what the schema is, what a new text would change, and the change itself."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def catalog(self) -> Catalog:
        return self._graph.view().catalog

    @property
    def source(self) -> str:
        """The text exactly as it was given."""
        return self.catalog.source

    def plan(self, schema: str | os.PathLike[str]) -> SchemaPlan:
        """The steps that lead to `schema` (a file or its text), and whether they are possible. Nothing is written."""
        text, file = read_schema(schema)
        return SchemaChange(self._graph._runtime.backend, text, file=file).plan(self.catalog)[0]

    def apply(
        self,
        schema: str | os.PathLike[str],
        *,
        allow_data_loss: bool = False,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
    ) -> Receipt:
        """Bring this branch to `schema`, in one commit. `Receipt.result` is the plan that was carried out."""
        graph = self._graph
        graph._require_writable()
        text, file = read_schema(schema)
        change = SchemaChange(graph._runtime.backend, text, file=file, allow_data_loss=allow_data_loss)
        options = WriteOptions(actor, message, client_key, if_commit)
        backend, writer = graph._runtime.backend, graph._branch.writer
        return run_bulk(backend, writer, change, options, graph._holder, above_bytes=REWRITE_BYTES)


def read_schema(schema: str | os.PathLike[str]) -> tuple[str, str]:
    """(text, name for errors). A string with a brace or a line break is the text itself; anything else a path."""
    if isinstance(schema, str) and ("{" in schema or "\n" in schema or not schema.strip()):
        return schema, "<schema>"
    path = Path(schema)
    try:
        return path.read_bytes().decode("utf-8"), str(path)
    except OSError as error:
        raise InvalidInput(
            f"the schema file {path} cannot be read: {error.strerror}",
            code="schema_file",
            advice="Give the path of a .pg file, or the schema's text",
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"the schema file {path} is not UTF-8", code="schema_file", advice="Save it as UTF-8"
        ) from error
