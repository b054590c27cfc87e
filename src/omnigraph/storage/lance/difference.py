"""Which ids may differ between two versions of a table, found from fragments and deletion vectors alone.

Shared fragments are not read. A fragment that both versions have with other rows removed costs the rows that differ;
a fragment that only one of them has costs its id column. The answer is a set of candidates: rows that a fold or a
compaction only moved are among them, and comparing the rows tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.storage.lance.pinned_table import PinnedTable
from omnigraph.storage.lance.row_address import ROW_ADDRESS, pack_addresses

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

#: From this share of a fragment's rows on, reading all of it is cheaper than taking single rows.
_SCAN_SHARE = 8


@dataclass(frozen=True, slots=True)
class FragmentDifference:
    """A fragment of one version that another version does not have as it is.

    `twin` is the number that the same files have there, with other rows removed; None if they are not there at all.
    `rows` is how many rows only this version has, at least: what the two descriptions tell.
    """

    fragment: int
    twin: int | None
    rows: int
    size_bytes: int


def candidate_ids(one: PinnedTable | None, other: PinnedTable | None) -> set[str]:
    """Ids whose rows can differ between the two; None stands for a table without a version."""
    if one is not None and other is not None and one.version == other.version:
        return set()
    return {row_id for here, there in ((one, other), (other, one)) if here for row_id in _only_here(here, there)}


def fragment_differences(here: PinnedTable | None, there: PinnedTable | None) -> list[FragmentDifference]:
    """Where the rows are that `here` has and `there` has not, by their place in a file. Costs the two manifests."""
    if here is None or (there is not None and here.version == there.version):
        return []
    known = {_files(fragment): fragment for fragment in there.metadata} if there is not None else {}
    found = []
    for fragment in here.metadata:
        twin = known.get(_files(fragment))
        if twin is not None and _removed(fragment) == _removed(twin):
            continue
        size_bytes = sum(file.file_size_bytes or 0 for file in fragment.files)
        if twin is None:
            found.append(FragmentDifference(fragment.id, None, fragment.num_rows, size_bytes))
        else:
            more = max(fragment.num_rows - twin.num_rows, 0)
            share = more / max(fragment.physical_rows, 1)
            found.append(FragmentDifference(fragment.id, twin.id, more, int(size_bytes * share)))
    return found


def shared_fragments(here: PinnedTable | None, there: PinnedTable | None) -> dict[int, int]:
    """Fragments of `here` by the number that their files have `there`, whatever rows are removed on either side."""
    if here is None or there is None:
        return {}
    known = {_files(fragment): fragment.id for fragment in there.metadata}
    return {one.id: known[_files(one)] for one in here.metadata if _files(one) in known}


def differing_rows(
    here: PinnedTable, there: PinnedTable | None, piece: FragmentDifference, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Rows of a piece that `there` does not have: these columns and `_rowaddr`."""
    if piece.twin is None or there is None:
        yield from here.id_batches([piece.fragment], columns)
        return
    missing = _missing(here, there, piece.fragment, piece.twin)
    if not len(missing):
        return
    if len(missing) * _SCAN_SHARE < _physical_rows(here, piece.fragment):
        yield from here.rows_at(piece.fragment, missing, columns)
        return
    wanted = pa.array(pack_addresses(piece.fragment, missing))
    for batch in here.id_batches([piece.fragment], columns):
        kept = batch.filter(pc.is_in(batch.column(ROW_ADDRESS), wanted))
        if kept.num_rows:
            yield kept


def _only_here(here: PinnedTable, there: PinnedTable | None) -> Iterator[str]:
    """Ids of rows, by their place in a file, that `there` does not have."""
    pieces = fragment_differences(here, there)
    whole = [one.fragment for one in pieces if one.twin is None]
    if whole:
        yield from here.ids_of_fragments(whole)
    for one in pieces:
        if one.twin is None or there is None:
            continue
        missing = _missing(here, there, one.fragment, one.twin)
        if len(missing):
            yield from here.ids_at(one.fragment, missing)


def _missing(here: PinnedTable, there: PinnedTable, fragment: int, twin: int) -> npt.NDArray[np.uint64]:
    found: npt.NDArray[np.uint64] = np.setdiff1d(here.offsets_of(fragment), there.offsets_of(twin), assume_unique=True)
    return found


def _physical_rows(here: PinnedTable, fragment: int) -> int:
    return int(next(one.physical_rows for one in here.metadata if one.id == fragment))


def _files(fragment: FragmentMetadata) -> tuple[str, ...]:
    return tuple(str(file.path) for file in fragment.files)


def _removed(fragment: FragmentMetadata) -> str | None:
    return fragment.deletion_file.path(fragment.id) if fragment.deletion_file is not None else None
