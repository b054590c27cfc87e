"""Records made by hand, for tables of cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from omnigraph.log.commit_record import (
    CommitKind,
    CommitRecord,
    CommitRef,
    Epoch,
    Header,
    Member,
    Pin,
    TouchedTable,
    WriteSet,
)
from omnigraph.log.overlay import OverlayTable

STREAM = "01HZZZZZZZZZZZZZZZZZZZZZZZ"
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
COLUMNS = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("age", pa.int32())])


def rows(ages: Mapping[str, int | None]) -> pa.Table:
    return pa.table({"id": list(ages), "age": pa.array(list(ages.values()), pa.int32())}, schema=COLUMNS)


def entries(rid: str, ages: Mapping[str, int | None], deleted: Iterable[str] = ()) -> OverlayTable:
    return OverlayTable.of_change(COLUMNS, rows(ages), list(deleted), rid)


def ages_of(overlay: OverlayTable) -> dict[str, int | None]:
    return {row["id"]: row["age"] for row in overlay.rows.to_pylist()}


def header(seq: int = 5, kind: CommitKind = "mutate", **changes: Any) -> Header:
    fields: dict[str, Any] = {
        "stream": STREAM,
        "seq": seq,
        "rid": f"rid{seq}",
        "kind": kind,
        "parents": (CommitRef(STREAM, seq - 1, f"rid{seq - 1}"),) if seq else (),
        "gen": seq,
        "schema": "schema-1",
        "created_at": NOON,
        "actor": None,
        "message": None,
        "members": (Member(f"op{seq}", None, None, {}),),
        "branch": "main",
    }
    return Header(**{**fields, **changes})


def record(
    seq: int = 5,
    kind: CommitKind = "mutate",
    *,
    pins: Mapping[str, Pin] | None = None,
    overlay: Mapping[str, OverlayTable] | None = None,
    touched: Mapping[str, TouchedTable] | None = None,
    writes: WriteSet | None = None,
    trail: tuple[Header, ...] = (),
    epoch: Epoch | None = None,
    content_seq: int | None = None,
    **fields: Any,
) -> CommitRecord:
    """A record; `fields` go into its header."""
    return CommitRecord(
        header=header(seq, kind, **fields),
        epoch=epoch or Epoch(),
        content_seq=seq if content_seq is None else content_seq,
        pins=dict(pins or {}),
        touched=dict(touched or {}),
        writes=writes or WriteSet(),
        overlay=dict(overlay or {}),
        trail=trail,
    )


def pin(version: str | None, count: int = 0, changed_seq: int = 0) -> Pin:
    return Pin(version, count, 100, 1, changed_seq)
