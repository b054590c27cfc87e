"""The stamp `graph.json`: says that an address holds a graph, and in which storage format."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from omnigraph.errors import Corruption, NotFound, Unsupported
from omnigraph.storage.store import ObjectMissing, Store

STAMP_KEY = "graph.json"
INTERNAL_SCHEMA = 1
"""The storage format this code reads and writes. No other is ever opened, in any mode."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The content of `graph.json`. Record 0 of `main` is a function of it."""

    graph_id: str
    main_stream: str
    schema: str
    created_at: str
    internal_schema: int = INTERNAL_SCHEMA

    def encode(self) -> bytes:
        return json.dumps({"format": "omnigraph", **asdict(self)}, sort_keys=True, indent=1).encode()

    @property
    def creation_time(self) -> datetime:
        return datetime.fromisoformat(self.created_at)


def read_stamp(store: Store) -> tuple[Stamp, bytes]:
    """The stamp and its exact bytes. Raises Unsupported for any other storage format, before anything else is read."""
    try:
        data = store.get(STAMP_KEY)
    except ObjectMissing as error:
        raise NotFound(
            f"there is no graph at {store.root}",
            code="graph_not_found",
            advice="Create one with `omnigraph init`, or check the address",
            graph=store.root,
        ) from error
    try:
        raw = json.loads(data)
        if raw["format"] != "omnigraph":
            raise ValueError("not an omnigraph stamp")
        version = int(raw["internal_schema"])
    except (ValueError, KeyError, TypeError) as error:
        raise Corruption(f"{STAMP_KEY} at {store.root} cannot be read", advice="Restore it from a backup") from error
    if version != INTERNAL_SCHEMA:
        raise _other_format_error(store.root, version)
    return _stamp_of(raw), data


def _stamp_of(raw: dict[str, Any]) -> Stamp:
    try:
        return Stamp(raw["graph_id"], raw["main_stream"], raw["schema"], raw["created_at"])
    except KeyError as error:
        raise Corruption(f"{STAMP_KEY} lacks {error}", advice="Restore it from a backup") from error


def _other_format_error(root: str, version: int) -> Unsupported:
    newer = version > INTERNAL_SCHEMA
    return Unsupported(
        f"the graph at {root} has storage format {version}, this program reads {INTERNAL_SCHEMA}",
        code="storage_format",
        advice="Upgrade omnigraph"
        if newer
        else "Export it with the version that wrote it, then `omnigraph init` and `omnigraph load` the export",
        internal_schema=version,
        supported=INTERNAL_SCHEMA,
    )
