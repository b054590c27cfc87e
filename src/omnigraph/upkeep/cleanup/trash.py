"""The list of condemned files: nothing is deleted that was not on such a list for a while (H37)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from omnigraph.errors import Corruption
from omnigraph.storage.store import ObjectInfo, Store

TRASH = "__trash/"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one stream was collected: everything `below` is a stub, except `kept`. Saves reading them again."""

    below: int
    kept: tuple[int, ...] = ()


@dataclass(frozen=True)
class TrashList:
    """Files that were unnamed when the list was written, which is when the store says that it was."""

    id: str
    files: tuple[ObjectInfo, ...]
    progress: Mapping[str, Progress] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{TRASH}{self.id}.json"

    def encode(self) -> bytes:
        return json.dumps(
            {
                "id": self.id,
                "files": [[one.key, one.size_bytes, one.modified_at.isoformat()] for one in self.files],
                "progress": {stream: [one.below, list(one.kept)] for stream, one in self.progress.items()},
            }
        ).encode()

    @classmethod
    def decode(cls, data: bytes, key: str) -> TrashList:
        try:
            raw = json.loads(data)
            files = tuple(ObjectInfo(name, size, datetime.fromisoformat(at)) for name, size, at in raw["files"])
            progress = {stream: Progress(below, tuple(kept)) for stream, (below, kept) in raw["progress"].items()}
            return cls(raw["id"], files, progress)
        except (ValueError, KeyError, TypeError) as error:
            raise Corruption(
                f"{key} cannot be read", advice="Move it away; its files are found again", key=key
            ) from error


def read_trash(store: Store) -> list[tuple[TrashList, ObjectInfo]]:
    """All lists, the oldest first by the store's clock."""
    listed = sorted(store.list(TRASH), key=lambda one: (one.modified_at, one.key))
    found = store.get_many([one.key for one in listed])
    return [
        (TrashList.decode(data, info.key), info) for info, data in zip(listed, found, strict=True) if data is not None
    ]


def latest_progress(lists: list[tuple[TrashList, ObjectInfo]]) -> Mapping[str, Progress]:
    """That of the newest list. What any other has kept is kept as well: their order is only as good as the clock."""
    if not lists:
        return {}
    kept: dict[str, set[int]] = {}
    for trash, _ in lists:
        for stream, one in trash.progress.items():
            kept.setdefault(stream, set()).update(one.kept)
    return {
        stream: Progress(one.below, tuple(sorted(seq for seq in kept[stream] if seq < one.below)))
        for stream, one in lists[-1][0].progress.items()
    }
