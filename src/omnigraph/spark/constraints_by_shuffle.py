"""The rules that need other rows, asked of everything that a load has staged: joins and aggregations on Spark.

The queries are those of `constraints/compile.py`; this module gives them their images as temporary views over table
versions. One screening shuffle looks at all keys first: where it finds nothing, no join is made for ends, numbers of
edges and repeated nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.constraints.compile import input_rows_replaced_later, required_images
from omnigraph.constraints.relations import ImageKind, Relation
from omnigraph.constraints.screen_sql import compile_screen
from omnigraph.constraints.sql import relation_sql
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.spark.base_table import BaseTable
from omnigraph.spark.constraint_selection import Asking, Known, Question
from omnigraph.spark.table_frames import TableRows
from omnigraph.storage.lance import StagedTable
from omnigraph.storage.lance.row_address import NO_ADDRESS, ROW_ADDRESS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Up to so many rows on one side are sent to every task instead of being shuffled.
_BROADCAST_ROWS = 300_000


@dataclass(frozen=True)
class LoadedTable:
    """One table of a load. `own` are the fragments of the staged version that hold the input's rows."""

    type: TypeDef
    base: BaseTable
    staged: StagedTable
    own: tuple[int, ...]
    overwrite: bool
    replaces: bool
    repeats: bool

    @property
    def has_rows(self) -> bool:
        return bool(self.own)

    @property
    def known(self) -> Known:
        there = not self.base.is_empty
        return Known(self.type.kind, self.has_rows, there, self.overwrite, self.replaces, self.repeats)


class Validation:
    """Asks the rules about one state of a load; `new_rows` and `base_rows` give the rows that it is about."""

    def __init__(
        self,
        session: SparkSession,
        asking: Asking,
        loaded: Mapping[str, LoadedTable],
        new_rows: Callable[[LoadedTable], TableRows],
        base_rows: Callable[[str], TableRows | None],
        token: str,
    ) -> None:
        self._session = session
        self._asking = asking
        self._catalog = catalog = asking.catalog
        self._loaded = loaded
        self._new_rows = new_rows
        self._base_rows = base_rows
        self._token = token
        self._places = {one.id: at for at, one in enumerate(catalog.types)}
        self._views: set[str] = set()
        self._queries = 0
        self._suspects: dict[str, DataFrame] = {}
        self._persisted: DataFrame | None = None

    @contextmanager
    def views(self) -> Iterator[None]:
        """Inside it views are made as they are needed, and forgotten at its end."""
        try:
            yield
        finally:
            if self._persisted is not None:
                self._persisted.unpersist()  # before the views go: Spark Connect looks them up once more for it
            for name in self._views:
                self._session.catalog.dropTempView(name)
            self._views.clear()
            self._suspects.clear()

    def screen(self) -> frozenset[str]:
        """Look at all keys at once; the node types with ids that are worth a rule."""
        asking = self._asking
        if not asking.needs_screen:
            return frozenset()
        asked = compile_screen(self._catalog, asking.changed, duplicates=asking.may_repeat_nodes, name_of=self.name_of)
        if asked is None:
            return frozenset()
        for (image, table), columns in required_images(asked.images).items():
            self._make(image, table, columns)
        found = self._session.sql(asked.sql("spark")).persist()
        suspected = {asked.tables[row["place"]] for row in found.select("place").distinct().collect()}
        for place, table in enumerate(asked.tables):
            self._suspects[table] = found.filter(found["place"] == place).select("id")
        self._persisted = found
        return frozenset(suspected)

    def superseded(self, suspected: frozenset[str]) -> dict[str, DataFrame]:
        """By table, input rows that a later one of the same id replaces: `_rowaddr`."""
        return {
            table: self._sql(input_rows_replaced_later(table, ROW_ADDRESS)).selectExpr(f"at AS {ROW_ADDRESS}")
            for table in self._asking.repeating(suspected)
        }

    def violations(self, suspected: frozenset[str]) -> Iterator[tuple[Question, DataFrame]]:
        """The rules that can be broken, each with its frame. Nothing runs before a frame is asked."""
        from pyspark.sql.functions import lit

        for question in self._asking.questions(suspected):
            frame = self._sql(question.relation)
            yield (
                question,
                frame.withColumn(ROW_ADDRESS, lit(NO_ADDRESS).cast("bigint")) if question.is_nobodys else frame,
            )

    def replaced(self, table: str) -> DataFrame | None:
        """Addresses of rows of the pinned version, hidden ones too, whose id the input has."""
        one = self._loaded[table]
        if one.overwrite or one.base.version is None or not one.has_rows or not one.replaces:
            return None
        rows = self._base_rows(table)
        assert rows is not None
        pinned = TableRows(rows.place, rows.table, rows.schema, rows.version, rows.groups)
        return self._matching(pinned.frame(self._session, ["id"]), one, "left_semi").select(ROW_ADDRESS)

    def kept_ids(self, table: str) -> int:
        """How many rows of the graph an overwrite brings again."""
        rows = self._base_rows(table)
        one = self._loaded[table]
        if rows is None or not one.has_rows:
            return 0
        return self._matching(rows.frame(self._session, ["id"]), one, "left_semi").count()

    # --- images ------------------------------------------------------------------------------------------------

    def name_of(self, image: ImageKind, table: str) -> str:
        """Names of their own for every query: Spark Connect looks a view up when a frame runs, not when it is made."""
        return f"og_{self._token}_{self._queries}_{image}_{self._places[table]}"

    def _sql(self, relation: Relation) -> DataFrame:
        self._queries += 1
        for (image, table), columns in required_images([relation]).items():
            self._make(image, table, columns)
        return self._session.sql(relation_sql(relation, "spark", self.name_of))

    def _make(self, image: ImageKind, table: str, columns: Sequence[str]) -> None:
        name = self.name_of(image, table)
        self._frame(image, table, [one for one in columns if one != ROW_ADDRESS]).createOrReplaceTempView(name)
        self._views.add(name)

    def _frame(self, image: ImageKind, table: str, columns: list[str]) -> DataFrame:
        if image == "suspect":
            return self._suspects[table] if table in self._suspects else self._nothing(["id"], table)
        one = self._loaded.get(table)
        if image == "new":
            if one is None or not one.has_rows:
                return self._nothing(columns, table)
            return self._new_rows(one).frame(self._session, columns)
        rows = self._base_rows(table)
        if rows is None:
            return self._nothing(columns, table)
        if one is None or (image == "kept" and not one.replaces) or (image == "old" and one.overwrite):
            return rows.frame(self._session, columns)
        names = columns if "id" in columns else ["id", *columns]
        how = "left_semi" if image == "old" else "left_anti"  # kept rows, and those that are gone, are not in the input
        return self._matching(rows.frame(self._session, names), one, how).select(*columns, ROW_ADDRESS)

    def _matching(self, frame: DataFrame, one: LoadedTable, how: str) -> DataFrame:
        from pyspark.sql.functions import broadcast

        if not one.has_rows:
            return frame if how == "left_anti" else frame.limit(0)
        ids = self._new_rows(one).frame(self._session, ["id"]).select("id")
        return frame.join(broadcast(ids) if one.staged.rows_written <= _BROADCAST_ROWS else ids, "id", how)

    def _nothing(self, columns: Iterable[str], table: str) -> DataFrame:
        schema: pa.Schema = arrow_schema(self._catalog.by_id[table])
        return TableRows(None, table, schema, None, ()).frame(self._session, list(columns))  # type: ignore[arg-type]
