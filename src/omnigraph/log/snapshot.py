"""A snapshot: one commit and its schema, readable for as long as the commit is retained."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import pyarrow as pa

from omnigraph.errors import Corruption, OmnigraphError
from omnigraph.log.commit_record import CommitRecord, Stub
from omnigraph.log.stream import RecordStream
from omnigraph.log.table_view import TableView
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import Catalog, TypeDef, no_such_type
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import PinnedTable
from omnigraph.storage.store import ObjectMissing


def schema_key(schema_hash: str) -> str:
    return f"schemas/{schema_hash}.json"


@dataclass
class Catalogs:
    """Schemas by hash. Content-addressed objects never change, so this cache is never stale."""

    backend: Backend
    keep: int = 64
    _known: OrderedDict[str, Catalog] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def get(self, schema_hash: str) -> Catalog:
        with self._lock:
            catalog = self._known.get(schema_hash)
        if catalog is None:
            catalog = self._load(schema_hash)
            self.remember(catalog)
        return catalog

    def remember(self, catalog: Catalog) -> None:
        with self._lock:
            self._known[catalog.hash] = catalog
            while len(self._known) > self.keep:
                self._known.popitem(last=False)

    def _load(self, schema_hash: str) -> Catalog:
        key = schema_key(schema_hash)
        try:
            catalog = Catalog.decode(self.backend.store.get(key))
        except ObjectMissing as error:
            raise Corruption(f"{key} is missing though a commit names it", advice="Run `omnigraph verify`") from error
        except (ValueError, KeyError, TypeError) as error:
            raise Corruption(f"{key} cannot be read", advice="Restore it from a backup", key=key) from error
        if catalog.hash != schema_hash:
            raise Corruption(f"{key} does not hold what its name says", advice="Restore it from a backup", key=key)
        return catalog


@dataclass(frozen=True)
class Snapshot:
    """One commit as one operation sees it. It was captured once and cannot be asked for newer commits.

    `pending` is set if the overlay also holds changes that are not committed yet, such as those of a mutation.
    """

    backend: Backend
    record: CommitRecord
    catalog: Catalog
    pending: bool = False

    @property
    def commit_id(self) -> str:
        return self.record.commit_id

    def view(self, type_def: TypeDef) -> TableView:
        return self.view_of(type_def.id, arrow_schema(type_def))

    def view_of(self, table: str, schema: pa.Schema) -> TableView:
        """The table with this identity. A table that no commit has touched is empty and costs no request."""
        pin = self.record.pins.get(table)
        pinned = self._open_pin(table, pin.version) if pin and pin.version else None
        if pinned is not None:
            _check_columns(pinned, schema)
        return TableView(schema, pinned, self.record.overlay.get(table))

    def count(self, type_def: TypeDef) -> int:
        """The number of rows of a type. It is in the record, unless there are pending changes."""
        if self.pending:
            return self.view(type_def).count()
        pin = self.record.pins.get(type_def.id)
        return pin.rows if pin is not None else 0

    def _open_pin(self, table: str, version: str) -> PinnedTable:
        try:
            return self.backend.tables.open(table, version)
        except ObjectMissing as error:
            raise self._missing_version_error(table, version) from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raises SnapshotExpired instead of Corruption inside the block if cleanup collected the commit meanwhile."""
        try:
            yield
        except Corruption as error:
            expired = self._find_expired_error()
            if expired is None:
                raise
            raise expired from error

    def _find_expired_error(self) -> OmnigraphError | None:
        entry = RecordStream.open(self.backend, self.record.stream).get(self.record.seq)
        return entry.make_expired_error() if isinstance(entry, Stub) else None

    def _missing_version_error(self, table: str, version: str) -> OmnigraphError:
        """Why a table version that this commit names is missing: the commit was collected, or it is damage."""
        return self._find_expired_error() or Corruption(
            f"version {version} of table {table} is missing though commit {self.commit_id} names it",
            advice="Run `omnigraph verify`",
            table=table,
            commit_id=self.commit_id,
        )

    def type(self, name: str) -> TypeDef:
        """The node type of this name, or else the edge type. Raises NotFound."""
        type_def = self.catalog.node(name) or self.catalog.edge(name)
        if type_def is None:
            raise no_such_type(name, self.catalog)
        return type_def

    def describe(self) -> dict[str, Any]:
        """Counts and pins per type, as `omnigraph snapshot --json` prints them."""
        tables = []
        for type_def in self.catalog.types:
            pin = self.record.pins.get(type_def.id)
            entries = self.record.overlay.get(type_def.id)
            tables.append(
                {
                    "table_key": type_def.table_key,
                    "table_id": type_def.id,
                    "rows": pin.rows if pin else 0,
                    "version": pin.version if pin else None,
                    "fragments": pin.fragments if pin else 0,
                    "size_bytes": pin.size_bytes if pin else 0,
                    "changed_seq": pin.changed_seq if pin else 0,
                    "overlay_entries": entries.entries if entries else 0,
                }
            )
        return {"commit_id": self.commit_id, "schema": self.record.schema, "tables": tables}


def _check_columns(pinned: PinnedTable, schema: pa.Schema) -> None:
    """Raise Corruption if a column of the table version has another type than the schema says."""
    for column in pinned.schema:
        expected_type = schema.field(column.name).type if column.name in schema.names else column.type
        if expected_type != column.type:
            raise Corruption(
                f"column {column.name} of table {pinned.table} is {column.type}, the schema says {expected_type}",
                advice="Run `omnigraph verify`",
                table=pinned.table,
            )
