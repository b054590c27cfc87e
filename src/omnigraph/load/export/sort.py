"""Sorts the rows of a table by id, in bounded memory for tables of any size."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pyarrow as pa

from omnigraph.load.export.formats import export_schema
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.table_view import TableView
from omnigraph.schema.catalog import TypeDef
from omnigraph.storage.lance.arrow_fit import cast_by_position, make_nullable

#: Tables up to this size are sorted in memory; larger ones by DuckDB, which spills to disk.
SMALL_BYTES = 64 << 20
_SORT_MEMORY = "512MiB"
_ROWS_PER_BATCH = 8_192


def sort_rows(snapshot: Snapshot, type_def: TypeDef, small_bytes: int = SMALL_BYTES) -> Iterator[pa.RecordBatch]:
    """Yields all rows of a type, sorted by the bytes of their ids, with the columns of `export_schema`."""
    view = snapshot.view(type_def)
    size_bytes = view.pinned.size_bytes if view.pinned is not None else 0
    schema = export_schema(type_def)
    batches = _sort_in_memory(view) if size_bytes <= small_bytes else _sort_on_disk(view)
    for batch in batches:
        # Some Arrow operations forget which columns are never null.
        yield cast_by_position(batch, schema)


def _sort_in_memory(view: TableView) -> Iterator[pa.RecordBatch]:
    rows = view.scan()
    return iter(rows.sort_by("id").to_batches(_ROWS_PER_BATCH)) if rows.num_rows else iter(())


def _sort_on_disk(view: TableView) -> Iterator[pa.RecordBatch]:
    import duckdb

    with (
        tempfile.TemporaryDirectory(prefix="omnigraph-sort-", ignore_cleanup_errors=True) as folder,
        duckdb.connect(":memory:", config={"temp_directory": folder, "memory_limit": _SORT_MEMORY}) as duck,
    ):
        duck.execute("SET TimeZone = 'UTC'")
        rows = pa.RecordBatchReader.from_batches(make_nullable(view.schema), view.batches())
        # DuckDB compares texts by their bytes, like the sort in memory.
        yield from duck.from_arrow(rows).order('"id"').to_arrow_reader(_ROWS_PER_BATCH)
