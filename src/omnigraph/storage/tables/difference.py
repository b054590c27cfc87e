"""Which ids may differ between two versions of a table, found from fragments and deletion vectors alone.

Shared fragments are not read. A fragment that both versions have with other rows removed costs the rows that differ;
a fragment that only one of them has costs its id column. The answer is a set of candidates: rows that a fold or a
compaction only moved are among them, and comparing the rows tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from omnigraph.storage.tables.pinned import PinnedTable

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata


def candidate_ids(one: PinnedTable | None, other: PinnedTable | None) -> set[str]:
    """Ids whose rows can differ between the two; None stands for a table without a version."""
    if one is not None and other is not None and one.version == other.version:
        return set()
    return {row_id for here, there in ((one, other), (other, one)) if here for row_id in _only_here(here, there)}


def _only_here(here: PinnedTable, there: PinnedTable | None) -> Iterator[str]:
    """Ids of rows, by their place in a file, that `there` does not have."""
    known = {_files(fragment): fragment for fragment in there.metadata} if there is not None else {}
    whole = [fragment.id for fragment in here.metadata if _files(fragment) not in known]
    if whole:
        yield from here.ids_of_fragments(whole)
    for fragment in here.metadata:
        twin = known.get(_files(fragment))
        if there is None or twin is None or _removed(fragment) == _removed(twin):
            continue
        kept = here.offsets_of(fragment.id)
        missing: npt.NDArray[np.uint64] = np.setdiff1d(kept, there.offsets_of(twin.id), assume_unique=True)
        if len(missing):
            yield from here.ids_at(fragment.id, missing)


def _files(fragment: FragmentMetadata) -> tuple[str, ...]:
    return tuple(str(file.path) for file in fragment.files)


def _removed(fragment: FragmentMetadata) -> str | None:
    return fragment.deletion_file.path(fragment.id) if fragment.deletion_file is not None else None
