"""All tables of one graph: birth, opening, staging, and the one function that commits."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from omnigraph.errors import Corruption
from omnigraph.schema.arrow import system_fields
from omnigraph.schema.catalog import EntityKind
from omnigraph.storage.lance.arrow_fit import align_decimals, fit_batch
from omnigraph.storage.lance.build_operation import (
    Deletions,
    birth_operation,
    build_operations,
    delete_from,
    find_new_fields,
    find_unchanged_fragments,
    fit_row_images,
)
from omnigraph.storage.lance.bulk_tables import BulkTables, TableLocation
from omnigraph.storage.lance.compaction import (
    RewriteOptions,
    plan_rewrite,
    rewrite_operation,
    rewrite_results,
    rewrite_tasks,
    run_rewrite,
)
from omnigraph.storage.lance.errors import AlreadyBorn, lance_call
from omnigraph.storage.lance.indexes import (
    IndexPlan,
    IndexSpec,
    build_index,
    index_from_json,
    index_to_remove,
    plan_index,
)
from omnigraph.storage.lance.open_versions import IoStats, OpenVersions
from omnigraph.storage.lance.pinned_table import BASE_PROPERTY, PinnedTable, Segment
from omnigraph.storage.lance.staged_table import (
    StagedTable,
    StagedVersion,
    TableDelta,
    data_bytes,
    dump_fragment,
    fragment_files,
    load_fragment,
)
from omnigraph.storage.local import DirectorySync

if TYPE_CHECKING:
    import lance
    from lance import LanceOperation
    from lance.dataset import Index
    from lance.fragment import FragmentMetadata
    from lance.optimize import RewriteResult

_BIRTH_VERSION = "1"
_FILE_FORMAT = "2.2"
_ROWS_PER_FILE = 1 << 20
_BYTES_PER_FILE = 512 << 20
_THREADS = 16
#: A detached commit is retried only if the random id it drew is taken.
_DETACHED_RETRIES = 20


class RewriteExecutor(Protocol):
    """Runs the long work of a rewrite in other processes; no version names the files that they write."""

    def rewrite(self, base: PinnedTable, tasks: Sequence[str]) -> Sequence[str]:
        """Run `run_rewrite_task` for each task of `rewrite_tasks`, and return the results."""

    def index(self, base: PinnedTable, plans: Sequence[IndexPlan]) -> Sequence[Mapping[str, Any]]:
        """Run `build_segment` for each plan, or for several parts of it, and return the segments."""


class TableStore:
    """All Lance tables of one graph, below `<address>/tables/`. Thread-safe; one shared cache for all tables.

    `local_root` is the address as a path, if the graph is in a directory: Lance's files are then made durable before
    a commit returns, unless `fsync` is off.
    """

    def __init__(
        self,
        address: str,
        storage_options: Mapping[str, str] | None = None,
        *,
        fsync: bool = True,
        local_root: Path | None = None,
        index_cache_bytes: int = 256 << 20,
        metadata_cache_bytes: int = 128 << 20,
    ) -> None:
        self._address = address.rstrip("/")
        self._options = dict(storage_options) if storage_options else None
        self._directory_sync = DirectorySync(local_root) if fsync and local_root is not None else None
        self._versions = OpenVersions(
            self._address,
            self._options,
            index_cache_bytes=index_cache_bytes,
            metadata_cache_bytes=metadata_cache_bytes,
        )
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def birth(self, table: str, kind: EntityKind) -> PinnedTable:
        """Return the empty version 1, and create it if it is missing: its content depends on the kind alone (H14).

        Racing births, and a birth after one that crashed half-way, all end with the same version.
        """
        schema = pa.schema(system_fields(kind))
        born = self._versions.get_cached(table, _BIRTH_VERSION) or self._commit_birth(table, schema)
        if born.version != _BIRTH_VERSION or born.fragments or not born.schema.equals(schema):
            raise Corruption(f"version 1 of table {table} is not the empty table of a {kind} type", table=table)
        return born

    def _commit_birth(self, table: str, schema: pa.Schema) -> PinnedTable:
        try:
            return self._versions.keep(self._commit(table, None, birth_operation(schema), ()))
        except AlreadyBorn:
            born = self.open(table, _BIRTH_VERSION)
        if self._directory_sync is not None:
            # The process that created the table may have died before its fsync; versions built on it here need it.
            self._directory_sync.sync(born.files())
        return born

    def open(self, table: str, version: str) -> PinnedTable:
        """The version, from memory if this process opened or committed it. Raises ObjectMissing if there is none."""
        return self._versions.open(table, version)

    @property
    def location(self) -> TableLocation:
        """What another process needs to work on the same tables."""
        root = str(self._directory_sync.root) if self._directory_sync is not None else None
        return TableLocation(self._address, tuple(sorted((self._options or {}).items())), root)

    @property
    def bulk(self) -> BulkTables:
        """Changes that other processes have written."""
        return BulkTables(self)

    def write_rows(self, table: str, rows: pa.Table, *, max_rows_per_file: int = _ROWS_PER_FILE) -> list[str]:
        """Write durable data files of an existing table, which no version names yet, and return their descriptions."""
        fragments = self._write_fragments(table, self._versions.uri(table), align_decimals(rows), max_rows_per_file)
        if self._directory_sync is not None:
            self._directory_sync.sync(
                f"tables/{table}/{name}" for fragment in fragments for name in fragment_files(fragment)
            )
        return [dump_fragment(fragment) for fragment in fragments]

    def without_cache(self) -> TableStore:
        """The same tables with empty caches, for reads that must see what the object store holds now."""
        return TableStore(self._address, self._options, fsync=False)

    def stage(self, base: PinnedTable, change: TableDelta) -> StagedTable:
        """Write data files and deletion files for `change` on `base`; no version names them yet."""
        rows = fit_row_images(change.rows, change.schema) if change.rows is not None and change.rows.num_rows else None
        added = () if change.overwrite else find_new_fields(base, change.schema)
        written_ids = rows["id"].combine_chunks() if rows is not None else pa.array([], pa.utf8())
        removed_ids: Sequence[str] = ()
        if not change.overwrite:
            removed_ids = _distinct_present([*written_ids.to_pylist(), *change.delete_ids], change.present_ids)
        # Data file, deletion files and the index list that the commit needs travel in parallel: one hop.
        writing = self._pool().submit(self._write, base, rows) if rows is not None and base.metadata else None
        warming = self._pool().submit(base.segments) if base.metadata else None
        deletions = delete_from(base, removed_ids, self._pool().map)
        fragments = writing.result() if writing is not None else self._write(base, rows)
        self._versions.ids.remember_written(fragments, written_ids.to_pylist())
        if warming is not None:
            warming.result()
        return StagedTable(
            table=base.table,
            base_version=base.version,
            schema=change.schema,
            overwrite=change.overwrite,
            fragments=tuple(dump_fragment(fragment) for fragment in fragments),
            touched=deletions.touched,
            emptied=deletions.emptied,
            delete_ids=tuple(change.delete_ids),
            rows_written=len(written_ids),
            bytes_written=data_bytes(fragments),
            rows_removed=base.rows if change.overwrite else deletions.rows(base),
            adds_columns=bool(added),
            written_ids=written_ids,
        )

    def restage(
        self, staged: StagedTable, base: PinnedTable, *, present_ids: Collection[str] | None = None
    ) -> StagedTable:
        """Put the same data files on another base, and remove from that base the rows they replace (H4).

        Writes new deletion files for every fragment that differs from the old base, so that no other writer's
        removals are lost. `present_ids` is the hint of `TableDelta`, about the new base.
        """
        if staged.version is not None:
            return BulkTables(self).restage(staged, base)
        if staged.overwrite:
            return replace(staged, base_version=base.version, rows_removed=base.rows)
        old_base = self._versions.get_cached(staged.table, staged.base_version)
        unchanged = find_unchanged_fragments(old_base, base) if old_base is not None else set()
        changed = {fragment.id for fragment in base.metadata} - unchanged
        ids = _distinct_present([*self._read_written_ids(staged), *staged.delete_ids], present_ids)
        valid_deletions = Deletions(staged.touched, staged.emptied).of_fragments(unchanged)
        deletions = valid_deletions + delete_from(base, ids, self._pool().map, changed)
        return replace(
            staged,
            base_version=base.version,
            touched=deletions.touched,
            emptied=deletions.emptied,
            rows_removed=deletions.rows(base),
            adds_columns=bool(find_new_fields(base, staged.schema)),
        )

    def stage_columns(self, base: PinnedTable, schema: pa.Schema, fills: Mapping[str, Any]) -> StagedTable:
        """The same rows under `schema`: new columns get their value of `fills`, or null; others are cast."""
        fragments = self._write(base, _reshape(base, schema, fills)) if base.rows else []
        return StagedTable(
            table=base.table,
            base_version=base.version,
            schema=schema,
            overwrite=True,
            fragments=tuple(dump_fragment(fragment) for fragment in fragments),
            touched=(),
            emptied=(),
            delete_ids=(),
            rows_written=base.rows,
            bytes_written=data_bytes(fragments),
            rows_removed=base.rows,
            adds_columns=False,
        )

    def stage_index(self, base: PinnedTable, specs: Sequence[IndexSpec], drop: Sequence[str] = ()) -> StagedVersion:
        """Build what the table lacks of these indexes as further segments; remove dropped names and dead segments.

        An index that is in both `specs` and `drop` is built anew.
        """
        version = self._build_indexes(base, specs, drop, base.version)
        return StagedVersion(base.table, base.version, version.version)

    def stage_rewrite(
        self,
        base: PinnedTable,
        indexes: Sequence[IndexSpec] = (),
        options: RewriteOptions | None = None,
        *,
        drop: Sequence[str] = (),
        delete_ids: Sequence[str] = (),
        executor: RewriteExecutor | None = None,
    ) -> StagedVersion:
        """Remove `delete_ids`, compact the table, and bring its indexes up to date, as in `stage_index`.

        Compaction and the building of indexes run in this process, or in the processes of `executor`.
        """
        shrunk = self._delete_ids(base, delete_ids) if delete_ids else base
        rewrite_options = options or RewriteOptions()
        separate_handle = self._versions.reopen(shrunk)
        if executor is not None:
            results = rewrite_results(executor.rewrite(shrunk, rewrite_tasks(separate_handle, rewrite_options)))
        else:
            results = [run_rewrite(separate_handle, task) for task in plan_rewrite(separate_handle, rewrite_options)]
        return self.finish_rewrite(shrunk, results, indexes, drop=drop, built_on=base.version, executor=executor)

    def finish_rewrite(
        self,
        base: PinnedTable,
        results: Sequence[RewriteResult],
        indexes: Sequence[IndexSpec] = (),
        *,
        drop: Sequence[str] = (),
        built_on: str | None = None,
        executor: RewriteExecutor | None = None,
    ) -> StagedVersion:
        """Make the version that holds what the tasks of `plan_rewrite(base)` wrote, wherever they ran.

        No index covers a rewritten fragment, since indexes know rows by their address; so a second commit on top
        indexes the new fragments, and a commit record only ever names the last version. `built_on` is the pin that
        the result replaces, if `base` is itself an intermediate version.
        """
        pin = built_on or base.version
        effective = [result for result in results if result.new_fragments or result.original_fragments]
        version = base
        if effective:
            files = [
                name for result in effective for fragment in result.new_fragments for name in fragment_files(fragment)
            ]
            version = self._commit(base.table, base, rewrite_operation(base, effective), files, built_on=pin)
        version = self._versions.keep(self._build_indexes(version, indexes, drop, pin, executor))
        return StagedVersion(base.table, pin, version.version)

    def _delete_ids(self, base: PinnedTable, ids: Sequence[str]) -> PinnedTable:
        staged = self.stage(base, TableDelta(base.schema, delete_ids=tuple(ids)))
        return self._commit_staged(base, staged)

    def commit(self, base: PinnedTable, staged: StagedTable | StagedVersion) -> PinnedTable:
        """Make the version that `staged` describes: durable, cached in memory, and not yet named by a commit record."""
        if (staged.table, staged.base_version) != (base.table, base.version):
            raise AssertionError(f"staged for {staged.table}@{staged.base_version}, committed on {base}")
        if staged.is_empty:
            return base
        if staged.version is not None:
            return self.open(staged.table, staged.version)
        assert isinstance(staged, StagedTable)
        return self._versions.keep(self._commit_staged(base, staged))

    def io_stats(self) -> IoStats:
        """Requests and bytes of Lance so far, over all tables."""
        return self._versions.io_stats()

    def close(self) -> None:
        """Stop the helper threads and drop every handle."""
        with self._lock:
            threads, self._threads = self._threads, None
        self._versions.forget()
        if threads is not None:
            threads.shutdown()

    def _build_indexes(
        self,
        base: PinnedTable,
        specs: Sequence[IndexSpec],
        drop: Sequence[str],
        built_on: str,
        executor: RewriteExecutor | None = None,
    ) -> PinnedTable:
        plans = self._plan_indexes(base, specs, drop)
        plans_to_build = [plan for plan in plans if plan.fragments]
        built: Iterable[Index | None]
        if executor is not None:
            built = map(index_from_json, executor.index(base, plans_to_build))
        else:
            built = self._pool().map(
                lambda plan: build_index(self._versions.reopen(base), plan.spec, plan.fragments), plans_to_build
            )
        dead_segments = [segment for plan in plans for segment in plan.dead]
        dead_segments += [segment for segment in base.segments() if segment.name in drop]
        return self._commit_indexes(base, [index for index in built if index is not None], dead_segments, built_on)

    def _plan_indexes(self, base: PinnedTable, specs: Sequence[IndexSpec], drop: Sequence[str] = ()) -> list[IndexPlan]:
        remaining_segments = [segment for segment in base.segments() if segment.name not in drop]
        rows = {fragment.id: fragment.num_rows for fragment in base.metadata}
        return [plan for plan in (plan_index(spec, remaining_segments, rows) for spec in specs) if plan is not None]

    def _commit_indexes(
        self, base: PinnedTable, new: Sequence[Index], dead_segments: Sequence[Segment], built_on: str
    ) -> PinnedTable:
        """Commit a version on top of `base` with segments that this or another process built on `base`."""
        if not new and not dead_segments:
            return base
        from lance import LanceOperation as Op

        operation = Op.CreateIndex(list(new), [index_to_remove(segment) for segment in dead_segments])
        files = [f"_indices/{index.uuid}/" for index in new]
        return self._versions.keep(self._commit(base.table, base, operation, files, built_on=built_on))

    def _commit_staged(self, base: PinnedTable, staged: StagedTable) -> PinnedTable:
        version = base
        for operation in build_operations(base, staged) if not staged.is_empty else ():
            version = self._commit(base.table, version, operation, staged.files(), built_on=base.version)
        return version

    def _commit(
        self,
        table: str,
        base: PinnedTable | None,
        operation: LanceOperation.BaseOperation,
        files: Iterable[str],
        built_on: str | None = None,
    ) -> PinnedTable:
        """The only call of Lance's commit in the code base: detached, on a pinned handle; without a base, a birth.

        Lance applies the operation to the version of the handle and checks nothing: no conflict, no key, not even
        that the transaction was prepared on that version. So this function compares the versions of handle,
        transaction and pin. Lance must not retry a birth: its retry would make a version 2. When this returns,
        `files`, which the operation names, and the files of the commit itself are durable.
        """
        from lance import LanceDataset, Transaction

        read_version = int(base.version) if base is not None else 0
        target = base.lance() if base is not None else self._versions.uri(table)
        properties = {BASE_PROPERTY: built_on or str(read_version)}
        transaction = Transaction(read_version, operation, transaction_properties=properties)
        if base is not None and not base.lance().version == transaction.read_version == int(base.version):
            raise AssertionError(f"handle at {base.lance().version}, transaction on {read_version}, pin {base}")
        with lance_call(f"commit table {table}"):
            dataset = LanceDataset.commit(
                target,
                transaction,
                detached=base is not None,
                max_retries=_DETACHED_RETRIES if base is not None else 0,
                storage_options=self._options,
            )
        if base is None:
            dataset = self._versions.adopt(table, dataset)
        pinned = PinnedTable(table, dataset, self._versions.ids)
        if self._directory_sync is not None:
            commit_files = {f"_transactions/{read_version}-{transaction.uuid}.txn", pinned.manifest_file}
            self._directory_sync.sync(f"tables/{table}/{name}" for name in commit_files.union(files))
        return pinned

    def _write(self, base: PinnedTable, rows: pa.Table | pa.RecordBatchReader | None) -> list[FragmentMetadata]:
        return self._write_fragments(base.table, base.lance(), rows) if rows is not None else []

    def _write_fragments(
        self,
        table: str,
        target: lance.LanceDataset | str,
        rows: pa.Table | pa.RecordBatchReader,
        max_rows: int = _ROWS_PER_FILE,
    ) -> list[FragmentMetadata]:
        """Write data files with field ids counted from zero (mode 'overwrite'), so that they fit any base."""
        from lance.fragment import write_fragments

        with lance_call(f"stage rows of table {table}"):
            fragments: list[FragmentMetadata] = write_fragments(
                rows,
                target,
                mode="overwrite",
                max_rows_per_file=max_rows,
                max_bytes_per_file=_BYTES_PER_FILE,
                data_storage_version=_FILE_FORMAT,
                storage_options=self._options,
            )
        return fragments

    def _read_written_ids(self, staged: StagedTable) -> list[str]:
        if staged.written_ids is not None:
            return list(staged.written_ids.to_pylist())
        from lance.file import LanceFileReader

        ids: list[str] = []
        with lance_call(f"read staged rows of table {staged.table}"):
            for file in (file for text in staged.fragments for file in load_fragment(text).files):
                file_uri = f"{self._versions.uri(staged.table)}/data/{file.path}"
                reader = LanceFileReader(file_uri, storage_options=self._options, columns=["id"])
                ids += reader.read_all().to_table()["id"].to_pylist()
        return ids

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="omnigraph-tables")
            return self._threads


def _distinct_present(ids: Sequence[str], hint: Collection[str] | None) -> list[str]:
    """The distinct ids that the base may hold, according to the hint `TableDelta.present_ids`."""
    distinct = dict.fromkeys(ids)
    if hint is None:
        return list(distinct)
    present = hint if isinstance(hint, (set, frozenset, dict)) else set(hint)
    return [row_id for row_id in distinct if row_id in present]


def _reshape(base: PinnedTable, schema: pa.Schema, fills: Mapping[str, Any]) -> pa.RecordBatchReader:
    """Every row of `base` under `schema`, read and converted batch by batch."""
    stored = [name for name in schema.names if name in base.schema.names]
    added = {name: fills[name] for name in schema.names if name in fills and name not in stored}
    values = {name: pa.scalar(value, schema.field(name).type) for name, value in added.items()}

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in base.batches(stored):
            yield fit_batch(batch, schema, {name: pa.repeat(value, batch.num_rows) for name, value in values.items()})

    return pa.RecordBatchReader.from_batches(schema, batches())
