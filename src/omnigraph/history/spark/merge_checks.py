"""The rules of the schema on what a merge has staged: the same queries as for a load, over other images.

After staging, a table of the merged graph is a version: fragments that the merge wrote, and what it left of the
target's. So every image is read from where it is, and none needs a join: what the merge replaced is what the pinned
version has and the staged one has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.constraints.compile import ChangedImages, Constraint, compile_constraints, describe_violation
from omnigraph.constraints.relations import ImageKind
from omnigraph.history.decide_row import as_conflict
from omnigraph.history.spark.merge_rows import DECIDED, conflict_batch
from omnigraph.log.overlay import OverlayTable
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.spark.base_table import BaseTable
from omnigraph.spark.constraint_selection import Asking
from omnigraph.spark.constraints_by_shuffle import Validation
from omnigraph.spark.constraints_in_one_task import PROBLEMS_MAX, OneTask, TaskImages, duckdb_scratch
from omnigraph.spark.problem_rows import plain
from omnigraph.spark.table_frames import TableRows
from omnigraph.spark.tasks import run_tasks
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import Piece, StagedTable, TablePlace, piece_batches, pieces_of
from omnigraph.storage.lance.arrow_fit import fit_batch
from omnigraph.storage.lance.row_address import ROW_ADDRESS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ImageRows = Mapping[tuple[ImageKind, str], TableRows]


@dataclass(frozen=True)
class MergedTable:
    """One table with the merge applied. `staged` is None if only entries of the overlay go.

    `superseded` are ids with an entry in the target's overlay that the merge writes or removes.
    """

    type: TypeDef
    base: BaseTable
    staged: StagedTable | None
    own: tuple[int, ...]
    superseded: frozenset[str]
    bare: tuple[str, ...]
    inserted: int
    updated: int
    removed: int


@dataclass(frozen=True)
class MergeAsking(Asking):
    """Which rules a merge can break: by table, the images that hold rows."""

    touched: Mapping[str, ChangedImages] = field(default_factory=dict)

    @property
    def changed(self) -> dict[str, ChangedImages]:
        untouched = {one.id: ChangedImages(has_kept=self.there[one.id]) for one in self.catalog.types}
        return {**untouched, **self.touched}

    def rules(self, suspected: frozenset[str]) -> Iterator[Constraint]:
        for rule in compile_constraints(self.catalog, self.changed, screened=bool(suspected)):
            if suspected or rule.code not in ("endpoint", "cardinality"):
                yield rule


@dataclass(frozen=True, slots=True)
class ReplacedRows(TableRows):
    """Rows of a version that another does not have any more, and the overlay's own of some ids."""

    after: str | None = None
    pieces: tuple[Piece, ...] = ()
    entries: tuple[str, ...] = ()

    def _rows(self, number: int, names: Any) -> Iterator[pa.RecordBatch]:
        if number == len(self.groups):
            wanted = pa.array(self.entries, pa.utf8())
            for batch in self._entries().rows.combine_chunks().to_batches():
                shown = batch.filter(pc.is_in(batch.column("id"), wanted))
                yield self.fit_overlay(shown, names)
            return
        assert self.version is not None
        assert self.after is not None
        store = self.place.open()
        here, there = store.open(self.table, self.version), store.open(self.table, self.after)
        hidden = pa.array(self._entries().hidden_ids, pa.utf8()) if self.overlay is not None else None
        read = [name for name in names if name in here.schema.names]
        asked = read if hidden is None or "id" in read else ["id", *read]
        piece = self.pieces[number]
        for batch in piece_batches(here, there, piece, asked):
            shown = batch if hidden is None else batch.filter(pc.invert(pc.is_in(batch.column("id"), hidden)))
            yield fit_batch(shown, self.schema_of(names))


@dataclass(frozen=True)
class MergeChecks:
    """Asks the rules about the merged state; what they return are conflicts."""

    backend: Backend
    session: SparkSession
    catalog: Catalog
    bases: Mapping[str, BaseTable]
    merged: Mapping[str, MergedTable]

    def conflicts(self) -> list[dict[str, Any]] | DataFrame:
        """A list if one task could look at everything, else a frame of `DECIDED`."""
        asking, images = self._asking(), self._images()
        if not self.merged:
            return []
        if self._rows() <= self.backend.config.load_check_rows:
            task = _CheckTask(self.backend.tables.place, asking, {}, {}, images)
            (answer,) = run_tasks(self.session, 1, lambda _: task.violations())
            if "conflicts" in answer:
                found: list[dict[str, Any]] = answer["conflicts"]
                return found
        return self._by_spark(asking, images)

    def _by_spark(self, asking: MergeAsking, images: ImageRows) -> DataFrame:
        validation = _MergeValidation(self.session, asking, images, self.backend.ids.token(8))
        with validation.views():
            frames = [_told(self.catalog, rule, rows) for rule, rows in validation.broken(validation.screen())]
            whole = self.session.createDataFrame([], DECIDED)
            for one in frames:
                whole = whole.unionAll(one)
            # The views end with the block: what they showed must be known by then.
            kept = whole.persist()
            kept.count()
        return kept

    def _rows(self) -> int:
        written = sum(one.staged.rows_written for one in self.merged.values() if one.staged is not None)
        tables = self.backend.tables
        there = (
            tables.open(table, base.version).rows for table, base in self.bases.items() if base.version is not None
        )
        return written + sum(there)

    def _asking(self) -> MergeAsking:
        there = {table: not base.is_empty for table, base in self.bases.items()}
        touched = {
            table: ChangedImages(
                has_new=bool(one.own),
                has_old=bool(one.updated or one.removed),
                has_gone=bool(one.removed),
                has_kept=there[table],
            )
            for table, one in self.merged.items()
        }
        return MergeAsking(self.catalog, {}, there, touched=touched)

    def _images(self) -> dict[tuple[ImageKind, str], TableRows]:
        found: dict[tuple[ImageKind, str], TableRows] = {}
        for one in self.catalog.types:
            merged = self.merged.get(one.id)
            images = self._untouched(one) if merged is None else self._touched(merged)
            found.update({(image, one.id): rows for image, rows in images})
        return found

    def _untouched(self, one: TypeDef) -> Iterator[tuple[ImageKind, TableRows]]:
        base, place = self.bases[one.id], self.backend.tables.place
        if not base.is_empty:
            yield "kept", self._of_version(place, one, base.version, (), base.overlay)

    def _touched(self, merged: MergedTable) -> Iterator[tuple[ImageKind, TableRows]]:
        place, one, base = self.backend.tables.place, merged.type, merged.base
        version = merged.staged.version if merged.staged is not None else base.version
        entries = OverlayTable.decode(base.overlay) if base.overlay is not None else None
        left = entries.without_ids(merged.superseded | set(merged.bare)) if entries is not None else None
        overlay = left.encoded if left is not None and left.entries else None
        if version is not None or overlay is not None:
            yield "kept", self._of_version(place, one, version, merged.own, overlay)
        if merged.own:
            assert merged.staged is not None
            held = self.backend.tables.bulk.version_of(merged.staged)
            yield "new", TableRows.of_fragments(place, arrow_schema(one), held, merged.own)
        if not base.is_empty:
            yield "old", self._replaced(merged, version)

    def _of_version(
        self, place: TablePlace, one: TypeDef, version: str | None, without: tuple[int, ...], overlay: bytes | None
    ) -> TableRows:
        schema = arrow_schema(one)
        if version is None:
            return TableRows(place, one.id, schema, None, (), overlay)
        pinned = self.backend.tables.open(one.id, version)
        fragments = [part.id for part in pinned.metadata if part.id not in set(without)]
        return replace(TableRows.of_fragments(place, schema, pinned, fragments), overlay=overlay)

    def _replaced(self, merged: MergedTable, version: str | None) -> TableRows:
        tables, one, base = self.backend.tables, merged.type, merged.base
        before = tables.open(one.id, base.version) if base.version is not None else None
        after = tables.open(one.id, version) if version is not None else None
        pieces = tuple(pieces_of(before, after))
        entries = (*merged.superseded, *merged.bare)
        groups = tuple((piece.fragment,) for piece in pieces)
        schema, place = arrow_schema(one), tables.place
        return ReplacedRows(
            place, one.id, schema, base.version, groups, base.overlay, version, pieces, tuple(sorted(set(entries)))
        )


@dataclass(frozen=True)
class _CheckTask(OneTask):
    """The rules as DuckDB SQL, in one worker."""

    asking: MergeAsking
    rows: ImageRows = field(default_factory=dict)

    def violations(self) -> Iterator[dict[str, Any]]:
        """All conflicts, or only that they are too many."""
        with duckdb_scratch() as connection:
            images = _MergeImages(self, connection)
            found: list[dict[str, Any]] = []
            for rule in self.asking.rules(images.screened()):
                rows = images.fetched(rule.query, PROBLEMS_MAX + 1 - len(found)).to_pylist()
                found += [_conflict(self.asking.catalog, rule, row) for row in rows]
                if len(found) > PROBLEMS_MAX:
                    yield {"too_many": True}
                    return
            yield {"conflicts": found}


class _MergeImages(TaskImages):
    """Images of a merge as tables of DuckDB."""

    task: _CheckTask

    def _image(self, image: ImageKind, table: str, columns: list[str]) -> None:
        if image == "gone":
            self._gone(table)
            return
        rows = self.task.rows.get((image, table))
        if rows is None:
            self._empty(self.name(image, table), table, columns)
        else:
            self._fill(self.name(image, table), rows, columns)

    def _gone(self, table: str) -> None:
        """What was there and does not come again."""
        self._make("old", table, ("id",))
        self._make("new", table, ("id",))
        old, new, gone = (self.quoted(image, table) for image in ("old", "new", "gone"))
        self.connection.execute(f"CREATE TEMP TABLE {gone} AS SELECT * FROM {old} ANTI JOIN {new} USING (id)")  # noqa: S608


class _MergeValidation(Validation):
    """Images of a merge as views of Spark."""

    def __init__(self, session: SparkSession, asking: MergeAsking, images: ImageRows, token: str) -> None:
        super().__init__(session, asking, {}, lambda _: _no_rows(), lambda _: None, token)
        self._merge_asking = asking
        self._images = images

    def broken(self, suspected: frozenset[str]) -> Iterator[tuple[Constraint, DataFrame]]:
        for rule in self._merge_asking.rules(suspected):
            yield rule, self._sql(rule.query)

    def _frame(self, image: ImageKind, table: str, columns: list[str]) -> DataFrame:
        if image == "suspect":
            return super()._frame(image, table, columns)
        if image == "gone":
            new = self._frame("new", table, ["id"]).select("id")
            return self._frame("old", table, ["id"]).join(new, "id", "left_anti").select("id", ROW_ADDRESS)
        rows = self._images.get((image, table))
        return rows.frame(self._session, columns) if rows is not None else self._nothing(columns, table)


def _no_rows() -> TableRows:
    raise AssertionError("a merge has images of its own")


def _told(catalog: Catalog, rule: Constraint, rows: DataFrame) -> DataFrame:
    def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield conflict_batch(_conflict(catalog, rule, row) for row in batch.to_pylist())

    return rows.mapInArrow(tell, DECIDED)


def _conflict(catalog: Catalog, rule: Constraint, row: Mapping[str, Any]) -> dict[str, Any]:
    violation = describe_violation(catalog, rule, {name: plain(value) for name, value in row.items()})
    return as_conflict(violation.to_json())
