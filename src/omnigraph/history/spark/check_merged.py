"""Evaluates the constraints of the schema on what a merge has staged, by the queries that a load uses.

After staging, a table of the merged graph is a version: fragments that the merge wrote, and the rows of the target that
it kept. So every image is read from one place and only `gone` needs a join: the rows that the merge replaced are those
that the pinned version has and the staged version lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.constraints.compile import ChangedImages, compile_constraints
from omnigraph.constraints.relations import ImageKind
from omnigraph.history.decide_row import as_conflict
from omnigraph.history.spark.decide_bucket import DECIDED, conflict_batch
from omnigraph.log.overlay import OverlayTable
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.spark.constraint_runner import ImageContent, read_violation
from omnigraph.spark.constraint_selection import ConstraintQuery, ConstraintSelection
from omnigraph.spark.duckdb_images import collect_violations, run_in_duckdb
from omnigraph.spark.spark_images import run_in_spark
from omnigraph.spark.table_rows import BaseTable, TableRows
from omnigraph.spark.tasks import run_tasks
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import StagedTable
from omnigraph.storage.lance.version_difference import FragmentDifference, differing_rows, fragment_differences

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class MergedTable:
    """One table with the merge applied. `staged` is None if the merge only removes overlay entries.

    `superseded` are ids with an overlay entry of the target that the merge writes or removes; `overlay_only` are ids
    that the merge removes and that only the overlay has.
    """

    type_def: TypeDef
    base: BaseTable
    staged: StagedTable | None
    written_fragments: tuple[int, ...]
    superseded: frozenset[str]
    overlay_only: tuple[str, ...]
    inserted: int
    updated: int
    removed: int


@dataclass(frozen=True)
class MergeSelection(ConstraintSelection):
    """Chooses the constraints that a merge could violate. `merged_images` are those of the tables that it changes."""

    merged_images: Mapping[str, ChangedImages] = field(default_factory=dict)

    @property
    def changed_images(self) -> dict[str, ChangedImages]:
        return {**super().changed_images, **self.merged_images}

    def queries(self, suspected_node_types: frozenset[str]) -> Iterator[ConstraintQuery]:
        screened = bool(suspected_node_types)
        for constraint in compile_constraints(self.catalog, self.changed_images, screened=screened):
            if screened or constraint.code not in ("endpoint", "cardinality"):
                yield ConstraintQuery(constraint, constraint.type_id, constraint.query)


@dataclass(frozen=True)
class MergeImages:
    """What the images of a merge hold. Picklable."""

    rows: Mapping[tuple[ImageKind, str], TableRows]

    def content_of(self, kind: ImageKind, table: str) -> ImageContent | None:
        if kind == "gone":
            return ImageContent("old", "ids_not_in_new" if ("new", table) in self.rows else "all")
        rows = self.rows.get((kind, table))
        return ImageContent(rows) if rows is not None else None


@dataclass(frozen=True, slots=True)
class ReplacedRows(TableRows):
    """Rows that version `version` has and version `after` lacks, and the overlay's rows of some ids.

    There is one fragment group for each of `differences`.
    """

    after: str | None = None
    differences: tuple[FragmentDifference, ...] = ()
    overlay_ids: tuple[str, ...] = ()

    def _read_part(self, part: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if part == len(self.fragment_groups):
            ids = pa.array(self.overlay_ids, pa.utf8())
            for batch in self._decode_overlay().rows.combine_chunks().to_batches():
                yield self._fit_overlay(batch.filter(pc.is_in(batch.column("id"), ids)), columns)
            return
        assert self.version is not None
        assert self.after is not None
        store = self.location.open()
        before, after = store.open(self.table, self.version), store.open(self.table, self.after)
        batches = differing_rows(before, after, self.differences[part], self._columns_to_read(before, columns))
        yield from self._fit_visible(batches, columns)


@dataclass(frozen=True)
class MergeChecker:
    """Evaluates the constraints on the merged graph. Violations are conflicts of the merge."""

    backend: Backend
    session: SparkSession
    catalog: Catalog
    bases: Mapping[str, BaseTable]
    merged: Mapping[str, MergedTable]

    def find_conflicts(self) -> list[dict[str, Any]] | DataFrame:
        """A list if the constraints were evaluated in one task, else a frame of `DECIDED`."""
        selection, images = self._select(), MergeImages(self._read_images())
        if not self.merged:
            return []
        if self._count_rows() <= self.backend.config.load_check_rows:
            (answer,) = run_tasks(self.session, 1, lambda _: _find_in_task(selection, images))
            if "conflicts" in answer:
                conflicts: list[dict[str, Any]] = answer["conflicts"]
                return conflicts
        return self._find_in_spark(selection, images)

    def _find_in_spark(self, selection: MergeSelection, images: MergeImages) -> DataFrame:
        token = self.backend.ids.token(8)
        with run_in_spark(self.session, selection, images.content_of, token) as runner:
            conflicts = self.session.createDataFrame([], DECIDED)
            for query, rows in runner.violations():
                conflicts = conflicts.unionAll(_conflict_frame(self.catalog, query, rows))
            # The views are dropped at the end of the block, so the frame must have run by then.
            conflicts = conflicts.persist()
            conflicts.count()
        return conflicts

    def _count_rows(self) -> int:
        written = sum(merged.staged.rows_written for merged in self.merged.values() if merged.staged is not None)
        tables = self.backend.tables
        in_graph = (
            tables.open(table, base.version).rows for table, base in self.bases.items() if base.version is not None
        )
        return written + sum(in_graph)

    def _select(self) -> MergeSelection:
        tables_with_rows = frozenset(table for table, base in self.bases.items() if not base.is_empty)
        merged_images = {
            table: ChangedImages(
                has_new=bool(merged.written_fragments),
                has_old=bool(merged.updated or merged.removed),
                has_gone=bool(merged.removed),
                has_kept=table in tables_with_rows,
            )
            for table, merged in self.merged.items()
        }
        return MergeSelection(self.catalog, {}, tables_with_rows, merged_images=merged_images)

    def _read_images(self) -> dict[tuple[ImageKind, str], TableRows]:
        images: dict[tuple[ImageKind, str], TableRows] = {}
        for type_def in self.catalog.types:
            merged = self.merged.get(type_def.id)
            rows_by_kind = self._images_of_unchanged(type_def) if merged is None else self._images_of_merged(merged)
            images.update({(kind, type_def.id): rows for kind, rows in rows_by_kind})
        return images

    def _images_of_unchanged(self, type_def: TypeDef) -> Iterator[tuple[ImageKind, TableRows]]:
        base = self.bases[type_def.id]
        if not base.is_empty:
            yield "kept", self._rows_of_version(type_def, base.version, (), base.overlay)

    def _images_of_merged(self, merged: MergedTable) -> Iterator[tuple[ImageKind, TableRows]]:
        type_def, base = merged.type_def, merged.base
        version = merged.staged.version if merged.staged is not None else base.version
        overlay = self._overlay_after_merge(merged)
        if version is not None or overlay is not None:
            yield "kept", self._rows_of_version(type_def, version, merged.written_fragments, overlay)
        if merged.written_fragments:
            assert merged.staged is not None
            staged = self.backend.tables.bulk.open_staged(merged.staged)
            location = self.backend.tables.location
            yield "new", TableRows.of_fragments(location, arrow_schema(type_def), staged, merged.written_fragments)
        if not base.is_empty:
            yield "old", self._find_replaced_rows(merged, version)

    def _overlay_after_merge(self, merged: MergedTable) -> bytes | None:
        if merged.base.overlay is None:
            return None
        overlay = OverlayTable.decode(merged.base.overlay).without_ids(merged.superseded | set(merged.overlay_only))
        return overlay.as_bytes if overlay.entries else None

    def _rows_of_version(
        self, type_def: TypeDef, version: str | None, written_fragments: tuple[int, ...], overlay: bytes | None
    ) -> TableRows:
        """The rows of a version but for the fragments that the merge wrote."""
        schema, location = arrow_schema(type_def), self.backend.tables.location
        if version is None:
            return TableRows(location, type_def.id, schema, None, (), overlay)
        pinned = self.backend.tables.open(type_def.id, version)
        fragments = [fragment.id for fragment in pinned.metadata if fragment.id not in set(written_fragments)]
        return TableRows.of_fragments(location, schema, pinned, fragments, overlay)

    def _find_replaced_rows(self, merged: MergedTable, version: str | None) -> ReplacedRows:
        tables, table, base = self.backend.tables, merged.type_def.id, merged.base
        before = tables.open(table, base.version) if base.version is not None else None
        after = tables.open(table, version) if version is not None else None
        differences = tuple(fragment_differences(before, after))
        return ReplacedRows(
            tables.location,
            table,
            arrow_schema(merged.type_def),
            base.version,
            tuple((difference.fragment_id,) for difference in differences),
            base.overlay,
            version,
            differences,
            tuple(sorted({*merged.superseded, *merged.overlay_only})),
        )


def _find_in_task(selection: MergeSelection, images: MergeImages) -> Iterator[dict[str, Any]]:
    """All conflicts; or only that there are too many."""

    def describe(query: ConstraintQuery, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [_describe_conflict(selection.catalog, query, row) for row in rows]

    with run_in_duckdb(selection, images.content_of) as runner:
        conflicts = collect_violations(runner, describe)
    yield {"too_many": True} if conflicts is None else {"conflicts": conflicts}


def _conflict_frame(catalog: Catalog, query: ConstraintQuery, rows: DataFrame) -> DataFrame:
    def describe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield conflict_batch(_describe_conflict(catalog, query, row) for row in batch.to_pylist())

    return rows.mapInArrow(describe, DECIDED)


def _describe_conflict(catalog: Catalog, query: ConstraintQuery, row: Mapping[str, Any]) -> dict[str, Any]:
    return as_conflict(read_violation(catalog, query.constraint, row).to_json())
