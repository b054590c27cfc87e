"""One table of the graph as a bulk operation found it, in a form that workers unpickle and open."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from omnigraph.log.overlay import OverlayTable
from omnigraph.log.table_view import TableView
from omnigraph.storage.lance import TablePlace


@dataclass(frozen=True, slots=True)
class BaseTable:
    """A table as the load found it: the pinned version and the entries that ride in the record."""

    version: str | None
    overlay: bytes | None

    @property
    def is_empty(self) -> bool:
        return self.version is None and self.overlay is None

    def view(self, place: TablePlace, schema: pa.Schema, table: str) -> TableView:
        pinned = place.open().open(table, self.version) if self.version is not None else None
        return TableView(schema, pinned, OverlayTable.decode(self.overlay) if self.overlay is not None else None)
