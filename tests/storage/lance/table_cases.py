"""Tables used by the tests of `omnigraph.storage.lance`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from omnigraph.storage.lance import PinnedTable, TableDelta, TableStore

ID = pa.field("id", pa.utf8(), nullable=False)
AGE = pa.field("age_7k2m9x4q", pa.int64())
NOTE = pa.field("note_1a2b3c4d", pa.utf8())
TAGS = pa.field("tags_9z8y7x6w", pa.list_(pa.utf8()))
VECTOR = pa.field("vec_5t5t5t5t", pa.list_(pa.float32(), 4))
SIZE = pa.field("size_3u3u3u3u", pa.uint64())
DOC = pa.field("doc_2d2d2d2d", pa.large_binary())

PERSON = pa.schema([ID, AGE])


def people(ages: Mapping[str, int | None], schema: pa.Schema = PERSON) -> pa.Table:
    """Rows with an age each, null in every other column."""
    rows = [{"id": row_id, AGE.name: age} for row_id, age in ages.items()]
    return pa.Table.from_pylist(rows, schema=schema)


def rows_of(schema: pa.Schema, *rows: Mapping[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


def write(
    store: TableStore, base: PinnedTable, rows: pa.Table | None = None, *, delete: Sequence[str] = (), **more: Any
) -> PinnedTable:
    """Stage and commit in one go."""
    schema = more.pop("schema", rows.schema if rows is not None else base.schema)
    return store.commit(base, store.stage(base, TableDelta(schema, rows, delete, **more)))


def contents(pinned: PinnedTable, columns: Iterable[str] | None = None) -> dict[str, Any]:
    """Everything in a version by id; fails if an id is there twice."""
    rows = pinned.scan(None if columns is None else ["id", *columns]).to_pylist()
    by_id = {row.pop("id"): row for row in rows}
    assert len(by_id) == len(rows), "an id is there twice"
    assert len(by_id) == pinned.rows == pinned.count()
    return by_id


def ages(pinned: PinnedTable) -> dict[str, int | None]:
    return {row_id: row[AGE.name] for row_id, row in contents(pinned, [AGE.name]).items()}
