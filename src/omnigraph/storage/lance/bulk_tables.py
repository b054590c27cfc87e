"""Changes that many processes write and one process puts together.

A worker needs only a `TableLocation`. It writes data files and deletion files and returns their descriptions; no
version names what it leaves behind when it dies. One process makes detached versions from the descriptions: first the
rows as written, readable for checks, then without the removed rows, then with indexes. Each step is a version on top
of the last one, all of them stand on one pin, and a commit record only ever names the last.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.storage.lance.build_operation import find_new_fields, find_unchanged_fragments
from omnigraph.storage.lance.errors import lance_call
from omnigraph.storage.lance.indexes import IndexPlan, IndexSpec, build_index, index_from_json, index_to_json
from omnigraph.storage.lance.pinned_table import PinnedTable
from omnigraph.storage.lance.row_address import ROW_ADDRESS, group_by_fragment
from omnigraph.storage.lance.staged_table import (
    StagedTable,
    data_bytes,
    deletion_path,
    dump_fragment,
    fragment_files,
    load_fragment,
)
from omnigraph.storage.store import ObjectMissing

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

    from omnigraph.storage.lance.table_store import TableStore

#: Ids of a changed base that are compared with the staged ones at a time.
_IDS_AT_ONCE = 500_000
_WORKER_CACHE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class TableLocation:
    """Where the tables of a graph are: all that another process needs to write and read them. Safe to pickle."""

    address: str
    options: tuple[tuple[str, str], ...] = ()
    local_root: str | None = None  # set if files must be made durable here

    def open(self) -> TableStore:
        """The tables; one store per process and location, so that tasks share its caches."""
        return _open_in_process(self, os.getpid())


@lru_cache(maxsize=8)
def _open_in_process(location: TableLocation, _process: int) -> TableStore:
    """Cached per process, since threads of Lance do not survive a fork."""
    from omnigraph.storage.lance.table_store import TableStore

    return TableStore(
        location.address,
        dict(location.options),
        fsync=location.local_root is not None,
        local_root=Path(location.local_root) if location.local_root is not None else None,
        index_cache_bytes=_WORKER_CACHE_BYTES,
        metadata_cache_bytes=_WORKER_CACHE_BYTES,
    )


@dataclass(frozen=True, slots=True)
class Removal:
    """A fragment after rows of it were removed: its new description as JSON, or None if no row remains."""

    fragment_id: int
    fragment: str | None


def delete_offsets(pinned: PinnedTable, fragment_id: int, offsets: npt.NDArray[np.uint64]) -> Removal:
    """Write a deletion file that removes the rows at `offsets` of one fragment; any process may call this."""
    with lance_call(f"stage deletes in table {pinned.table}"):
        fragment = pinned.lance().get_fragment(fragment_id)
        shrunk_fragment = fragment.delete_rows(offsets.astype(np.uint32)) if fragment is not None else None
    return Removal(fragment_id, None if shrunk_fragment is None else dump_fragment(shrunk_fragment))


def build_segment(location: TableLocation, table: str, version: str, plan: IndexPlan) -> dict[str, Any] | None:
    """Build one index segment over some fragments of a version, in any process, and return it as JSON.

    Returns None if the rows have nothing that a vector index could learn from. No version names the segment yet.
    """
    index = build_index(location.open().open(table, version), plan.spec, plan.fragments)
    return index_to_json(index) if index is not None else None


class BulkTables:
    """Puts the files of many processes together into versions, in one process."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    def stage(
        self, base: PinnedTable, schema: pa.Schema, fragments: Sequence[str], *, overwrite: bool = False
    ) -> StagedTable:
        """Make a detached version of `base` plus these fragments, or with `overwrite` of the fragments alone.

        The ids in the fragments are not looked at: until `remove` has removed the rows that they replace, the version
        may hold an id twice.
        """
        staged = StagedTable(
            table=base.table,
            base_version=base.version,
            schema=schema,
            overwrite=overwrite,
            fragments=tuple(fragments),
            touched=(),
            emptied=(),
            delete_ids=(),
            rows_written=0,
            bytes_written=data_bytes(map(load_fragment, fragments)),
            rows_removed=0,
            adds_columns=not overwrite and bool(find_new_fields(base, schema)),
        )
        version = self._store._commit_staged(base, staged)
        return self._count_rows(staged, base, self._store._versions.keep(version))

    def open_staged(self, staged: StagedTable) -> PinnedTable:
        assert staged.version is not None
        return self._store.open(staged.table, staged.version)

    def ids_of_new_fragments(self, staged: StagedTable) -> list[int]:
        """Ids of the fragments of the staged version that this change wrote, in the order of `staged.fragments`."""
        return list(self.new_fragments_by_path(staged).values())

    def new_fragments_by_path(self, staged: StagedTable) -> dict[str, int]:
        """The fragments that this change wrote: path of the data file → fragment id in the staged version."""
        ids_by_path = {_path(fragment): fragment.id for fragment in self.open_staged(staged).metadata}
        return {
            path: ids_by_path[path] for path in map(_path, map(load_fragment, staged.fragments)) if path in ids_by_path
        }

    def remove(self, staged: StagedTable, removals: Sequence[Removal]) -> StagedTable:
        """The staged change without the rows that `removals` remove from its version, old rows or new ones."""
        if not removals:
            return staged
        from lance import LanceOperation as Op

        staged_version = self.open_staged(staged)
        shrunk_fragments = [load_fragment(removal.fragment) for removal in removals if removal.fragment is not None]
        emptied = [removal.fragment_id for removal in removals if removal.fragment is None]
        files = [name for fragment in shrunk_fragments for name in fragment_files(fragment)]
        operation = Op.Update(removed_fragment_ids=emptied, updated_fragments=shrunk_fragments, new_fragments=[])
        version = self._store._commit(staged.table, staged_version, operation, files, built_on=staged.base_version)
        base = self._store.open(staged.table, staged.base_version)
        return self._count_rows(staged, base, self._store._versions.keep(version))

    def index(self, staged: StagedTable, specs: Sequence[IndexSpec]) -> StagedTable:
        """The staged change with these indexes; builds what its version lacks of them."""
        version = self._store._build_indexes(self.open_staged(staged), specs, (), staged.base_version)
        return _with_indexes(staged, version, specs)

    def index_plans(self, staged: StagedTable, specs: Sequence[IndexSpec]) -> list[IndexPlan]:
        """What the staged version lacks of these indexes; `build_segment` builds it, `put_indexes` commits it."""
        return self._store._plan_indexes(self.open_staged(staged), specs)

    def put_indexes(
        self, staged: StagedTable, specs: Sequence[IndexSpec], built: Iterable[Mapping[str, Any]]
    ) -> StagedTable:
        """The staged change with index segments that other processes have built on its version."""
        dead_segments = [segment for plan in self.index_plans(staged, specs) for segment in plan.dead]
        segments = [index_from_json(segment) for segment in built]
        version = self._store._commit_indexes(self.open_staged(staged), segments, dead_segments, staged.base_version)
        return _with_indexes(staged, version, specs)

    def restage(self, staged: StagedTable, base: PinnedTable) -> StagedTable:
        """Put the same data files on another base, and remove from that base the rows they replace (H4).

        Reads only the fragments of the new base that differ from the old one, and compares ids in portions, so that
        memory does not grow with the change. Builds the indexes of the new rows again, since an index knows rows by
        their address.
        """
        staged_version = self.open_staged(staged)
        moved = self.stage(base, staged.schema, staged.fragments, overwrite=staged.overwrite)
        moved_version = self.open_staged(moved)
        removals = list(self._repeat_removals_of_new_rows(staged, staged_version, moved_version))
        if not staged.overwrite:
            old_base = self._open_old_base(staged)
            unchanged = find_unchanged_fragments(old_base, base) if old_base is not None else set()
            if old_base is not None:
                removals += _carry_over_removals(old_base, staged_version, moved_version, unchanged)
            changed = [fragment.id for fragment in base.metadata if fragment.id not in unchanged]
            removed_ids = (
                self._find_removed_ids(staged, staged_version, old_base, unchanged) if old_base is not None else None
            )
            removals += self._remove_replaced_rows(staged, staged_version, base, moved_version, changed, removed_ids)
        shrunk = self.remove(moved, removals)
        return (
            self.index(shrunk, [IndexSpec(*index_args) for index_args in staged.indexes]) if staged.indexes else shrunk
        )

    def _open_old_base(self, staged: StagedTable) -> PinnedTable | None:
        try:
            return self._store.open(staged.table, staged.base_version)
        except ObjectMissing:
            return None

    def _repeat_removals_of_new_rows(
        self, staged: StagedTable, staged_version: PinnedTable, moved_version: PinnedTable
    ) -> Iterator[Removal]:
        """Remove the rows of the change itself that were removed on the old base.

        Their deletion files do not fit: a deletion file is bound to the id of its fragment, which differs here.
        """
        before = {_path(fragment): fragment for fragment in staged_version.metadata}
        after = {_path(fragment): fragment for fragment in moved_version.metadata}
        for path in map(_path, map(load_fragment, staged.fragments)):
            new, old = after[path], before.get(path)
            if old is None:
                yield Removal(new.id, None)
            elif old.deletion_file is not None:
                all_offsets = np.arange(new.physical_rows, dtype=np.uint64)
                removed_offsets = np.setdiff1d(all_offsets, staged_version.offsets_of(old.id), assume_unique=True)
                yield delete_offsets(moved_version, new.id, removed_offsets)

    def _remove_replaced_rows(
        self,
        staged: StagedTable,
        staged_version: PinnedTable,
        base: PinnedTable,
        moved_version: PinnedTable,
        changed_fragment_ids: Sequence[int],
        removed_ids: pa.Array | None,
    ) -> Iterator[Removal]:
        """Remove the rows in changed fragments of the base that the change replaces or deletes."""
        new_fragment_ids = self.ids_of_new_fragments(staged)
        deleted_ids = removed_ids if removed_ids is not None else pa.array(staged.delete_ids, pa.utf8())
        if not changed_fragment_ids or not (new_fragment_ids or len(deleted_ids)):
            return
        replaced_addresses: list[npt.NDArray[np.uint64]] = []
        for ids, addresses in _id_portions(base.id_batches(changed_fragment_ids)):
            parts = [
                batch.column("id").filter(pc.is_in(batch.column("id"), ids))
                for batch in staged_version.id_batches(new_fragment_ids)
            ]
            hits = pa.chunked_array([*parts, deleted_ids.filter(pc.is_in(deleted_ids, ids))], pa.utf8())
            if len(hits):
                is_replaced = pc.is_in(ids, hits.combine_chunks())
                replaced_addresses.append(addresses.filter(is_replaced).to_numpy())
        for fragment_id, offsets in group_by_fragment(np.concatenate(replaced_addresses)) if replaced_addresses else ():
            yield delete_offsets(moved_version, fragment_id, offsets)

    def _find_removed_ids(
        self, staged: StagedTable, staged_version: PinnedTable, old_base: PinnedTable, unchanged: set[int]
    ) -> pa.Array:
        """Ids that the change removed from changed fragments of the old base: the new base may have them elsewhere.

        Only a merge removes rows that it does not write again; a fold or compaction may have moved them since.
        """
        id_groups = [staged.delete_ids]
        remaining_fragment_ids = {fragment.id for fragment in staged_version.metadata}
        for fragment in old_base.metadata:
            if fragment.id in unchanged:
                continue
            removed_offsets = old_base.offsets_of(fragment.id)
            if fragment.id in remaining_fragment_ids:
                removed_offsets = np.setdiff1d(
                    removed_offsets, staged_version.offsets_of(fragment.id), assume_unique=True
                )
            if len(removed_offsets):
                id_groups.append(tuple(old_base.ids_at(fragment.id, removed_offsets)))
        return pa.array([row_id for ids in id_groups for row_id in ids], pa.utf8())

    def _count_rows(self, staged: StagedTable, base: PinnedTable, version: PinnedTable) -> StagedTable:
        new_paths = {_path(load_fragment(text)) for text in staged.fragments}
        rows_written = sum(fragment.num_rows for fragment in version.metadata if _path(fragment) in new_paths)
        return replace(
            staged,
            version=version.version,
            rows_written=rows_written,
            rows_removed=base.rows - (version.rows - rows_written),
        )


def _carry_over_removals(
    old_base: PinnedTable, staged_version: PinnedTable, moved_version: PinnedTable, unchanged: set[int]
) -> Iterator[Removal]:
    """Repeat the removals in fragments that are the same on both bases, whose deletion files fit as they are."""
    before = {fragment.id: deletion_path(fragment) for fragment in old_base.metadata}
    staged_fragments = {fragment.id: fragment for fragment in staged_version.metadata}
    moved_fragments = {fragment.id: fragment for fragment in moved_version.metadata}
    for fragment_id in sorted(unchanged):
        staged_fragment = staged_fragments.get(fragment_id)
        if staged_fragment is None:
            yield Removal(fragment_id, None)
        elif deletion_path(staged_fragment) != before[fragment_id]:
            with_deletions = load_fragment(dump_fragment(moved_fragments[fragment_id]))
            with_deletions.deletion_file = staged_fragment.deletion_file
            yield Removal(fragment_id, dump_fragment(with_deletions))


def _with_indexes(staged: StagedTable, version: PinnedTable, specs: Sequence[IndexSpec]) -> StagedTable:
    index_args = tuple((spec.name, spec.column, spec.kind, spec.params) for spec in specs)
    return replace(staged, version=version.version, indexes=index_args)


def _id_portions(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Ids and addresses of rows, in portions of at least `_IDS_AT_ONCE` but for the last."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(pending.num_rows for pending in waiting) >= _IDS_AT_ONCE:
            yield _concat_ids(waiting)
            waiting = []
    if waiting:
        yield _concat_ids(waiting)


def _concat_ids(batches: Sequence[pa.RecordBatch]) -> tuple[pa.Array, pa.Array]:
    rows = pa.Table.from_batches(batches).combine_chunks()
    return rows["id"].combine_chunks(), rows[ROW_ADDRESS].combine_chunks()


def _path(fragment: FragmentMetadata) -> str:
    return str(fragment.files[0].path)
