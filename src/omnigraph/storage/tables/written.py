"""Ids of the data files this process has written: what such a file cannot hold need not be looked for in it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

_MOST_IDS = 200_000


class WrittenIds:
    """Data files are immutable and their names unique, so this is never stale; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._count = 0

    def remember(self, fragments: Sequence[FragmentMetadata], ids: Collection[str]) -> None:
        """Each of the fragments holds some of these ids and no others."""
        if not fragments or len(ids) > _MOST_IDS // 4:
            return
        known = frozenset(ids)
        with self._lock:
            for file in (file for one in fragments for file in one.files):
                self._ids[str(file.path)] = known
                self._count += len(known)
            while self._count > _MOST_IDS:
                self._count -= len(self._ids.popitem(last=False)[1])

    def may_hold(self, fragments: Sequence[FragmentMetadata], ids: Collection[str]) -> set[int] | None:
        """The fragments in which one of the ids could be; None if that is all of them."""
        with self._lock:
            sure = [self._ids.get(str(one.files[0].path)) if one.files else None for one in fragments]
        found = {
            one.id for one, known in zip(fragments, sure, strict=True) if known is None or not known.isdisjoint(ids)
        }
        return None if len(found) == len(fragments) else found
