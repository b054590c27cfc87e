"""Changes written by many processes: fragments and deletions made elsewhere, put together by one.

A worker needs a `TablePlace` only. It writes data files and deletion files and hands back their description; what it
leaves behind when it dies is named by nobody. One process makes detached versions of the descriptions it was given:
first the rows as written, readable for checks, then the same with removals, then with indexes. Each step is a version
on top of the last, all of them stand on one pin, and only the last is ever named.
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

from omnigraph.storage.lance.build_operation import added_fields, operations_of, unchanged_fragments
from omnigraph.storage.lance.errors import lance_call
from omnigraph.storage.lance.indexes import IndexPlan, IndexSpec, build_index, index_from_json, index_to_json
from omnigraph.storage.lance.pinned_table import PinnedTable
from omnigraph.storage.lance.row_address import ROW_ADDRESS, group_by_fragment
from omnigraph.storage.lance.staged_table import StagedTable, dump_fragment, fragment_files, load_fragment
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
        """The tables; one store per process and place, so that tasks share its caches."""
        return _opened(self, os.getpid())


@lru_cache(maxsize=8)
def _opened(place: TableLocation, _process: int) -> TableStore:
    """By process: threads of Lance do not survive a fork."""
    from omnigraph.storage.lance.table_store import TableStore

    return TableStore(
        place.address,
        dict(place.options),
        fsync=place.local_root is not None,
        local_root=Path(place.local_root) if place.local_root is not None else None,
        index_cache_bytes=_WORKER_CACHE_BYTES,
        metadata_cache_bytes=_WORKER_CACHE_BYTES,
    )


@dataclass(frozen=True, slots=True)
class Removal:
    """What is left of one fragment of a version after rows were removed: its description, or None if nothing is."""

    fragment_id: int
    fragment: str | None


def delete_offsets(pinned: PinnedTable, fragment_id: int, offsets: npt.NDArray[np.uint64]) -> Removal:
    """Write the deletion file of one fragment without the rows at `offsets`; runs wherever the version can be read."""
    with lance_call(f"stage deletes in table {pinned.table}"):
        found = pinned.lance().get_fragment(fragment_id)
        left = found.delete_rows(offsets.astype(np.uint32)) if found is not None else None
    return Removal(fragment_id, None if left is None else dump_fragment(left))


def build_segment(place: TableLocation, table: str, version: str, plan: IndexPlan) -> dict[str, Any] | None:
    """One index segment over some fragments of a version, named by nobody; None if there is nothing to learn from."""
    built = build_index(place.open().open(table, version), plan.spec, plan.fragments)
    return index_to_json(built) if built is not None else None


class BulkTables:
    """The side of the one process that puts the parts together."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    def stage(
        self, base: PinnedTable, schema: pa.Schema, fragments: Sequence[str], *, overwrite: bool = False
    ) -> StagedTable:
        """`base` plus these fragments, or with `overwrite` the fragments alone, as a version nobody names.

        Nothing is known about their ids: until `remove` has taken away what they replace, an id may be there twice.
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
            bytes_written=sum(file.file_size_bytes or 0 for one in map(load_fragment, fragments) for file in one.files),
            rows_removed=0,
            adds_columns=not overwrite and bool(added_fields(base, schema)),
        )
        made = base
        for operation in operations_of(base, staged) if not staged.is_empty else ():
            made = self._store._commit(base.table, made, operation, staged.files(), built_on=base.version)
        return self._counted(staged, base, self._store._versions.keep(made))

    def open_staged(self, staged: StagedTable) -> PinnedTable:
        assert staged.version is not None
        return self._store.open(staged.table, staged.version)

    def written_fragments(self, staged: StagedTable) -> list[int]:
        """Fragments of the staged version that hold rows of this change, in the order they were given."""
        return list(self.written_fragments_by_path(staged).values())

    def written_fragments_by_path(self, staged: StagedTable) -> dict[str, int]:
        """The same, by the data file of each."""
        numbers = {_path(one): one.id for one in self.open_staged(staged).metadata}
        return {path: numbers[path] for path in map(_path, map(load_fragment, staged.fragments)) if path in numbers}

    def remove(self, staged: StagedTable, removals: Sequence[Removal]) -> StagedTable:
        """The same without the rows that `removals` took from the staged version, of the base or of its own."""
        if not removals:
            return staged
        from lance import LanceOperation as Op

        held = self.open_staged(staged)
        left = [load_fragment(one.fragment) for one in removals if one.fragment is not None]
        gone = [one.fragment_id for one in removals if one.fragment is None]
        files = [name for one in left for name in fragment_files(one)]
        operation = Op.Update(removed_fragment_ids=gone, updated_fragments=left, new_fragments=[])
        made = self._store._commit(staged.table, held, operation, files, built_on=staged.base_version)
        base = self._store.open(staged.table, staged.base_version)
        return self._counted(staged, base, self._store._versions.keep(made))

    def index(self, staged: StagedTable, wanted: Sequence[IndexSpec]) -> StagedTable:
        """The same with what is missing of these indexes."""
        made = self._store._indexed(self.open_staged(staged), wanted, (), staged.base_version)
        given = tuple((one.name, one.column, one.kind, one.params) for one in wanted)
        return replace(staged, version=made.version, indexes=given)

    def index_plans(self, staged: StagedTable, wanted: Sequence[IndexSpec]) -> list[IndexPlan]:
        """What is missing of these indexes; `build_elsewhere` does it, `put_indexes` takes it over."""
        return self._store._index_plans(self.open_staged(staged), wanted)

    def put_indexes(
        self, staged: StagedTable, wanted: Sequence[IndexSpec], built: Iterable[Mapping[str, Any]]
    ) -> StagedTable:
        """The same with indexes that other processes have built on the staged version."""
        gone = [one for plan in self.index_plans(staged, wanted) for one in plan.dead]
        segments = [index_from_json(one) for one in built]
        made = self._store._put_indexes(self.open_staged(staged), segments, gone, staged.base_version)
        given = tuple((one.name, one.column, one.kind, one.params) for one in wanted)
        return replace(staged, version=made.version, indexes=given)

    def restage(self, staged: StagedTable, base: PinnedTable) -> StagedTable:
        """The same data files on another base. Ids that entered the table since are looked for and removed (H4).

        Only fragments that the old base did not have as they are now are read, and ids are compared in portions, so
        that memory does not grow with the change. Indexes of the new rows are built anew, since they know rows by
        their address.
        """
        held = self.open_staged(staged)
        begun = self.stage(base, staged.schema, staged.fragments, overwrite=staged.overwrite)
        target = self.open_staged(begun)
        removals = list(self._own_removals(staged, held, begun, target))
        if not staged.overwrite:
            old = self._old_base(staged)
            same = unchanged_fragments(old, base) if old is not None else set()
            if old is not None:
                removals += _carried(old, held, target, same)
            changed = [one.id for one in base.metadata if one.id not in same]
            removed = self._removed_ids(staged, held, old, same) if old is not None else None
            removals += self._replaced(staged, held, base, target, changed, removed)
        moved = self.remove(begun, removals)
        return self.index(moved, [IndexSpec(*one) for one in staged.indexes]) if staged.indexes else moved

    def _old_base(self, staged: StagedTable) -> PinnedTable | None:
        try:
            return self._store.open(staged.table, staged.base_version)
        except ObjectMissing:
            return None

    def _own_removals(
        self, staged: StagedTable, held: PinnedTable, begun: StagedTable, target: PinnedTable
    ) -> Iterator[Removal]:
        """Rows of the change itself that were removed already: a deletion file is bound to its fragment's number."""
        before = {_path(one): one for one in held.metadata}
        after = {_path(one): one for one in target.metadata}
        for path in map(_path, map(load_fragment, staged.fragments)):
            new, old = after[path], before.get(path)
            if old is None:
                yield Removal(new.id, None)
            elif old.deletion_file is not None:
                everything = np.arange(new.physical_rows, dtype=np.uint64)
                removed = np.setdiff1d(everything, held.offsets_of(old.id), assume_unique=True)
                yield delete_offsets(target, new.id, removed)

    def _replaced(
        self,
        staged: StagedTable,
        held: PinnedTable,
        base: PinnedTable,
        target: PinnedTable,
        changed: Sequence[int],
        removed: pa.Array | None,
    ) -> Iterator[Removal]:
        """Rows in changed fragments of the base that the change replaces or removes."""
        own = self.written_fragments(staged)
        gone = removed if removed is not None else pa.array(staged.delete_ids, pa.utf8())
        if not changed or not (own or len(gone)):
            return
        found: list[npt.NDArray[np.uint64]] = []
        for ids, addresses in _portions(base.id_batches(changed)):
            parts = [batch.column("id").filter(pc.is_in(batch.column("id"), ids)) for batch in held.id_batches(own)]
            hits = pa.chunked_array([*parts, gone.filter(pc.is_in(gone, ids))], pa.utf8())
            if len(hits):
                kept = pc.is_in(ids, hits.combine_chunks())
                found.append(addresses.filter(kept).to_numpy())
        for number, offsets in group_by_fragment(np.concatenate(found)) if found else ():
            yield delete_offsets(target, number, offsets)

    def _removed_ids(self, staged: StagedTable, held: PinnedTable, old: PinnedTable, same: set[int]) -> pa.Array:
        """Ids that the change took out of the old base, as far as the new one may have them in other files now.

        Only a merge removes rows that it does not write again; a fold or compaction may have moved them since.
        """
        found = [staged.delete_ids]
        left = {one.id for one in held.metadata}
        for one in old.metadata:
            if one.id in same:
                continue
            gone = old.offsets_of(one.id)
            if one.id in left:
                gone = np.setdiff1d(gone, held.offsets_of(one.id), assume_unique=True)
            if len(gone):
                found.append(tuple(old.ids_at(one.id, gone)))
        return pa.array([row_id for ids in found for row_id in ids], pa.utf8())

    def _counted(self, staged: StagedTable, base: PinnedTable, made: PinnedTable) -> StagedTable:
        own = {_path(load_fragment(one)) for one in staged.fragments}
        written = sum(one.num_rows for one in made.metadata if _path(one) in own)
        return replace(
            staged, version=made.version, rows_written=written, rows_removed=base.rows - (made.rows - written)
        )


def _carried(old: PinnedTable, held: PinnedTable, target: PinnedTable, same: set[int]) -> Iterator[Removal]:
    """Removals in fragments that are the same on both bases: their deletion files fit as they are."""
    before = {one.id: _deletions(one) for one in old.metadata}
    shrunk = {one.id: one for one in held.metadata}
    here = {one.id: one for one in target.metadata}
    for number in sorted(same):
        left = shrunk.get(number)
        if left is None:
            yield Removal(number, None)
        elif _deletions(left) != before[number]:
            fragment = load_fragment(dump_fragment(here[number]))
            fragment.deletion_file = left.deletion_file
            yield Removal(number, dump_fragment(fragment))


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Ids and addresses of rows, so many at a time."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= _IDS_AT_ONCE:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(batches: Sequence[pa.RecordBatch]) -> tuple[pa.Array, pa.Array]:
    whole = pa.Table.from_batches(batches).combine_chunks()
    return whole["id"].combine_chunks(), whole[ROW_ADDRESS].combine_chunks()


def _path(fragment: FragmentMetadata) -> str:
    return str(fragment.files[0].path)


def _deletions(fragment: FragmentMetadata) -> str | None:
    return fragment.deletion_file.path(fragment.id) if fragment.deletion_file is not None else None
