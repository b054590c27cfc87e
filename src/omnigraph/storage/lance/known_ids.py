"""Ids of small data files this process has written or read: what a file lacks need not be looked for in it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

_MOST_IDS = 200_000
SMALL_ROWS = 4096
"""Fragments up to this size are worth knowing whole: folds and small writes make them, compaction merges them."""

_Key = tuple[str, str | None]


class KnownIds:
    """Data files are immutable and their names unique, so this is never stale; the oldest are forgotten first.

    A file is known whole (as written), or as of one deletion file (as read): rows removed then may be there in an
    older version, so that knowledge counts for that deletion file only.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: OrderedDict[_Key, frozenset[str]] = OrderedDict()
        self._count = 0

    def remember_written(self, fragments: Sequence[FragmentMetadata], ids: Collection[str]) -> None:
        """Each of these new fragments holds some of the ids and no others."""
        if fragments and len(ids) <= _MOST_IDS // 4:
            known = frozenset(ids)
            self._remember({(str(file.path), None): known for one in fragments for file in one.files})

    def remember_read(self, fragments: Sequence[FragmentMetadata], ids: Mapping[int, Collection[str]]) -> None:
        """These fragments, as they are in one version, hold exactly these ids (by the fragment's number)."""
        self._remember({_key(one): frozenset(ids[one.id]) for one in fragments})

    def unknown_small(self, fragments: Sequence[FragmentMetadata]) -> list[FragmentMetadata]:
        with self._lock:
            return [one for one in fragments if one.num_rows <= SMALL_ROWS and self._of(one) is None]

    def may_hold(self, fragments: Sequence[FragmentMetadata], ids: Collection[str]) -> set[int] | None:
        """The fragments in which one of the ids could be; None if that is all of them."""
        with self._lock:
            sure = [self._of(one) for one in fragments]
        found = {
            one.id for one, known in zip(fragments, sure, strict=True) if known is None or not known.isdisjoint(ids)
        }
        return None if len(found) == len(fragments) else found

    def _of(self, fragment: FragmentMetadata) -> frozenset[str] | None:
        now = _key(fragment)
        return self._ids.get((now[0], None)) or self._ids.get(now)

    def _remember(self, ids: Mapping[_Key, frozenset[str]]) -> None:
        with self._lock:
            for key, known in ids.items():
                self._count += len(known) - len(self._ids.pop(key, ()))
                self._ids[key] = known
            while self._count > _MOST_IDS:
                self._count -= len(self._ids.popitem(last=False)[1])


def _key(fragment: FragmentMetadata) -> _Key:
    removed = fragment.deletion_file.path(fragment.id) if fragment.deletion_file is not None else None
    return str(fragment.files[0].path) if fragment.files else "", removed
