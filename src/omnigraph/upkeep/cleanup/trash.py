"""Trash lists name condemned files. A file is deleted only after it was on such a list for a while (H37)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from omnigraph.errors import Corruption
from omnigraph.storage.store import ObjectInfo, Store

TRASH = "__trash/"


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """How far one stream is swept: all records below `stubs_below` are stubs, except `full_seqs`.

    The next run need not read the stubs again.
    """

    stubs_below: int
    full_seqs: tuple[int, ...] = ()


@dataclass(frozen=True)
class TrashList:
    """Files that no commit named when the list was written; the modification time of the list says when that was."""

    id: str
    files: tuple[ObjectInfo, ...]
    progress: Mapping[str, SweepProgress] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{TRASH}{self.id}.json"

    def encode(self) -> bytes:
        return json.dumps(
            {
                "id": self.id,
                "files": [[file.key, file.size_bytes, file.modified_at.isoformat()] for file in self.files],
                "progress": {
                    stream: [swept.stubs_below, list(swept.full_seqs)] for stream, swept in self.progress.items()
                },
            }
        ).encode()

    @classmethod
    def decode(cls, data: bytes, key: str) -> TrashList:
        try:
            raw = json.loads(data)
            files = tuple(ObjectInfo(name, size, datetime.fromisoformat(at)) for name, size, at in raw["files"])
            progress = {
                stream: SweepProgress(below, tuple(full_seqs)) for stream, (below, full_seqs) in raw["progress"].items()
            }
            return cls(raw["id"], files, progress)
        except (ValueError, KeyError, TypeError) as error:
            raise Corruption(
                f"{key} cannot be read", advice="Move it away; its files are found again", key=key
            ) from error


def read_trash(store: Store) -> list[tuple[TrashList, ObjectInfo]]:
    """Reads all trash lists, the oldest first by the store's clock."""
    infos = sorted(store.list(TRASH), key=lambda info: (info.modified_at, info.key))
    contents = store.get_many([info.key for info in infos])
    return [
        (TrashList.decode(data, info.key), info) for info, data in zip(infos, contents, strict=True) if data is not None
    ]


def latest_progress(lists: list[tuple[TrashList, ObjectInfo]]) -> Mapping[str, SweepProgress]:
    """Returns the progress of the newest list, with the full records of all lists.

    The order of lists is only as good as the store's clock, so a record that any list calls full is read again.
    """
    if not lists:
        return {}
    full_seqs: dict[str, set[int]] = {}
    for trash, _ in lists:
        for stream, swept in trash.progress.items():
            full_seqs.setdefault(stream, set()).update(swept.full_seqs)
    return {
        stream: SweepProgress(
            swept.stubs_below, tuple(sorted(seq for seq in full_seqs[stream] if seq < swept.stubs_below))
        )
        for stream, swept in lists[-1][0].progress.items()
    }
