"""Images of tables as temporary views of Spark, for the constraints of a change of any size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.constraints.compile import images_read_by
from omnigraph.constraints.relations import ImageKind, Relation
from omnigraph.constraints.screen_sql import ScreeningQuery
from omnigraph.constraints.sql import relation_sql
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import Catalog
from omnigraph.spark.constraint_runner import ConstraintRunner, ImageContent, ImageSource
from omnigraph.spark.constraint_selection import ConstraintSelection
from omnigraph.spark.table_rows import TableRows, empty_frame
from omnigraph.storage.lance.row_address import ROW_ADDRESS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def run_in_spark(
    session: SparkSession, selection: ConstraintSelection, source: ImageSource, token: str
) -> Iterator[ConstraintRunner[DataFrame]]:
    """Evaluates constraints in Spark. Its frames run when they are collected, which must happen inside the block."""
    images = SparkImages(session, selection.catalog, source, token)
    try:
        yield ConstraintRunner(selection, images)
    finally:
        images.drop()


class SparkImages:
    """Images as temporary views, which are made as queries need them. `token` keeps the names of two checks apart."""

    def __init__(self, session: SparkSession, catalog: Catalog, source: ImageSource, token: str) -> None:
        self._session = session
        self._catalog = catalog
        self._source = source
        self._token = token
        self._positions = {type_def.id: position for position, type_def in enumerate(catalog.types)}
        self._views: set[str] = set()
        self._queries = 0
        self._suspects: dict[str, DataFrame] = {}
        self._screened: DataFrame | None = None

    def name_of(self, kind: ImageKind, table: str) -> str:
        """The view of an image, under another name in every query: Spark Connect resolves views when a frame runs."""
        return f"og_{self._token}_{self._queries}_{kind}_{self._positions[table]}"

    def run_screening(self, screening: ScreeningQuery) -> frozenset[str]:
        for (kind, table), columns in images_read_by(screening.images).items():
            self._make(kind, table, columns)
        self._screened = screened = self._session.sql(screening.sql("spark")).persist()
        suspected = {screening.tables[row["place"]] for row in screened.select("place").distinct().collect()}
        for position, table in enumerate(screening.tables):
            self._suspects[table] = screened.filter(screened["place"] == position).select("id")
        return frozenset(suspected)

    def run(self, relation: Relation, limit: int | None = None) -> DataFrame:
        self._queries += 1
        for (kind, table), columns in images_read_by([relation]).items():
            self._make(kind, table, columns)
        frame = self._session.sql(relation_sql(relation, "spark", self.name_of))
        return frame if limit is None else frame.limit(limit)

    def read(self, content: ImageContent, table: str, columns: Sequence[str]) -> DataFrame:
        if content.keep == "all":
            return self._read_source(content.source, table, columns)
        names = columns if "id" in columns else ["id", *columns]
        frame = self._read_source(content.source, table, names)
        new_ids = self._frame("new", table, ["id"]).select("id")
        if content.has_few_new_ids:
            from pyspark.sql.functions import broadcast

            new_ids = broadcast(new_ids)
        join = "left_semi" if content.keep == "ids_in_new" else "left_anti"
        return frame.join(new_ids, "id", join).select(*columns, ROW_ADDRESS)

    def drop(self) -> None:
        """Forget the views and what was cached for them."""
        if self._screened is not None:
            self._screened.unpersist()  # before the views are dropped: Spark Connect looks them up to unpersist
        for name in self._views:
            self._session.catalog.dropTempView(name)

    def _make(self, kind: ImageKind, table: str, columns: Sequence[str]) -> None:
        name = self.name_of(kind, table)
        frame = self._frame(kind, table, [column for column in columns if column != ROW_ADDRESS])
        frame.createOrReplaceTempView(name)
        self._views.add(name)

    def _frame(self, kind: ImageKind, table: str, columns: Sequence[str]) -> DataFrame:
        if kind == "suspect" and table in self._suspects:
            return self._suspects[table]
        content = self._source(kind, table) if kind != "suspect" else None
        if content is None:
            return empty_frame(self._session, arrow_schema(self._catalog.by_id[table]), columns)
        return self.read(content, table, columns)

    def _read_source(self, source: TableRows | ImageKind, table: str, columns: Sequence[str]) -> DataFrame:
        if isinstance(source, TableRows):
            return source.frame(self._session, columns)
        return self._frame(source, table, columns)
