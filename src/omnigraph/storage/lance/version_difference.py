"""Which rows may differ between two versions of a table, found from fragments and deletion files alone.

Fragments that both versions share are not read. A fragment that both versions have with different rows removed costs
the rows that differ; a fragment that only one version has costs its id column. The result is a set of candidates:
rows that a fold or a compaction only moved are among them, and only comparing the rows tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.storage.lance.pinned_table import PinnedTable
from omnigraph.storage.lance.row_address import ROW_ADDRESS, Offsets, pack_addresses
from omnigraph.storage.lance.staged_table import deletion_path

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

#: If more than one row in this many is needed, reading the whole fragment is cheaper than taking single rows.
_SCAN_RATIO = 8


@dataclass(frozen=True, slots=True)
class FragmentDifference:
    """A fragment of one version with rows that another version does not have.

    `other_fragment_id` is the fragment of the other version with the same files and different rows removed, or None if
    the other version lacks the files. `rows` is a lower bound of the rows that only this version has, as far as the
    descriptions of the two fragments tell.
    """

    fragment_id: int
    other_fragment_id: int | None
    rows: int
    size_bytes: int


def candidate_ids(first: PinnedTable | None, second: PinnedTable | None) -> set[str]:
    """Ids whose rows can differ between the two versions; None stands for a table without a version."""
    if first is not None and second is not None and first.version == second.version:
        return set()
    ids: set[str] = set()
    if first is not None:
        ids.update(_ids_only_in(first, second))
    if second is not None:
        ids.update(_ids_only_in(second, first))
    return ids


def fragment_differences(version: PinnedTable | None, baseline: PinnedTable | None) -> list[FragmentDifference]:
    """The fragments of `version` with rows that `baseline` does not have at the same position of the same file.

    Costs the manifests of the two versions.
    """
    if version is None or (baseline is not None and version.version == baseline.version):
        return []
    baseline_fragments = {_files(fragment): fragment for fragment in baseline.metadata} if baseline is not None else {}
    differences = []
    for fragment in version.metadata:
        twin = baseline_fragments.get(_files(fragment))
        if twin is not None and deletion_path(fragment) == deletion_path(twin):
            continue
        size_bytes = sum(file.file_size_bytes or 0 for file in fragment.files)
        if twin is None:
            differences.append(FragmentDifference(fragment.id, None, fragment.num_rows, size_bytes))
        else:
            more_rows = max(fragment.num_rows - twin.num_rows, 0)
            share = more_rows / max(fragment.physical_rows, 1)
            differences.append(FragmentDifference(fragment.id, twin.id, more_rows, int(size_bytes * share)))
    return differences


def map_shared_fragments(version: PinnedTable | None, baseline: PinnedTable | None) -> dict[int, int]:
    """Fragment id in `version` → id of the fragment of `baseline` with the same files, whatever rows are removed."""
    if version is None or baseline is None:
        return {}
    baseline_ids = {_files(fragment): fragment.id for fragment in baseline.metadata}
    return {
        fragment.id: baseline_ids[_files(fragment)] for fragment in version.metadata if _files(fragment) in baseline_ids
    }


def differing_rows(
    version: PinnedTable, baseline: PinnedTable | None, difference: FragmentDifference, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a differing fragment that `baseline` does not have: these columns and `_rowaddr`."""
    fragment_id, twin_id = difference.fragment_id, difference.other_fragment_id
    if twin_id is None or baseline is None:
        yield from version.id_batches([fragment_id], columns)
        return
    offsets = _offsets_only_in(version, fragment_id, baseline, twin_id)
    if not len(offsets):
        return
    if len(offsets) * _SCAN_RATIO < _physical_rows(version, fragment_id):
        yield from version.rows_at(fragment_id, offsets, columns)
        return
    addresses = pa.array(pack_addresses(fragment_id, offsets))
    for batch in version.id_batches([fragment_id], columns):
        differing = batch.filter(pc.is_in(batch.column(ROW_ADDRESS), addresses))
        if differing.num_rows:
            yield differing


def _ids_only_in(version: PinnedTable, baseline: PinnedTable | None) -> Iterator[str]:
    """Ids of rows that `baseline` does not have at the same position of the same file."""
    differences = fragment_differences(version, baseline)
    new_fragments = [difference.fragment_id for difference in differences if difference.other_fragment_id is None]
    if new_fragments:
        yield from version.ids_of_fragments(new_fragments)
    for difference in differences:
        if difference.other_fragment_id is None or baseline is None:
            continue
        offsets = _offsets_only_in(version, difference.fragment_id, baseline, difference.other_fragment_id)
        if len(offsets):
            yield from version.ids_at(difference.fragment_id, offsets)


def _offsets_only_in(version: PinnedTable, fragment_id: int, baseline: PinnedTable, twin_id: int) -> Offsets:
    offsets: Offsets = np.setdiff1d(version.offsets_of(fragment_id), baseline.offsets_of(twin_id), assume_unique=True)
    return offsets


def _physical_rows(version: PinnedTable, fragment_id: int) -> int:
    return int(next(fragment.physical_rows for fragment in version.metadata if fragment.id == fragment_id))


def _files(fragment: FragmentMetadata) -> tuple[str, ...]:
    return tuple(str(file.path) for file in fragment.files)
