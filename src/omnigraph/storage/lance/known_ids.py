"""Ids in small data files that this process has written or read: lookups skip files that lack an id."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from omnigraph.storage.lance.staged_table import deletion_path

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

_MOST_IDS = 200_000
SMALL_ROWS = 4096
"""Fragments up to this size have all their ids remembered: folds and small writes make them, compaction merges them."""

_Key = tuple[str, str | None]


class KnownIds:
    """Ids by data file. Never stale, since data files are immutable and their names unique; evicts the oldest first.

    Ids that this process wrote are valid for the data file in every table version. Ids that it read are valid only
    together with the deletion file of the version that was read: an older version may have rows deleted since.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: OrderedDict[_Key, frozenset[str]] = OrderedDict()
        self._count = 0

    def remember_written(self, fragments: Sequence[FragmentMetadata], ids: Collection[str]) -> None:
        """Remember that these new fragments hold no ids but these; which fragment holds which id is not known."""
        if fragments and len(ids) <= _MOST_IDS // 4:
            id_set = frozenset(ids)
            self._remember({(str(file.path), None): id_set for fragment in fragments for file in fragment.files})

    def remember_read(self, fragments: Sequence[FragmentMetadata], ids: Mapping[int, Collection[str]]) -> None:
        """Remember exactly which ids, by fragment id, the fragments hold in the version that was read."""
        self._remember({_key(fragment): frozenset(ids[fragment.id]) for fragment in fragments})

    def unknown_small(self, fragments: Sequence[FragmentMetadata]) -> list[FragmentMetadata]:
        with self._lock:
            return [
                fragment for fragment in fragments if fragment.num_rows <= SMALL_ROWS and self._of(fragment) is None
            ]

    def may_hold(self, fragments: Sequence[FragmentMetadata], ids: Collection[str]) -> set[int] | None:
        """Ids of the fragments that may hold one of the ids; None means all fragments."""
        with self._lock:
            ids_by_fragment = [self._of(fragment) for fragment in fragments]
        possible = {
            fragment.id
            for fragment, fragment_ids in zip(fragments, ids_by_fragment, strict=True)
            if fragment_ids is None or not fragment_ids.isdisjoint(ids)
        }
        return None if len(possible) == len(fragments) else possible

    def _of(self, fragment: FragmentMetadata) -> frozenset[str] | None:
        key = _key(fragment)
        return self._ids.get((key[0], None)) or self._ids.get(key)

    def _remember(self, ids: Mapping[_Key, frozenset[str]]) -> None:
        with self._lock:
            for key, id_set in ids.items():
                self._count += len(id_set) - len(self._ids.pop(key, ()))
                self._ids[key] = id_set
            while self._count > _MOST_IDS:
                self._count -= len(self._ids.popitem(last=False)[1])


def _key(fragment: FragmentMetadata) -> _Key:
    return str(fragment.files[0].path) if fragment.files else "", deletion_path(fragment)
