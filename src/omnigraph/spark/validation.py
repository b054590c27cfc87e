"""The rules that need other rows, asked of everything that a load has staged: joins and aggregations on Spark.

The queries are those of `plan/constraints.py`; this module gives them their images as temporary views over table
versions. One screening shuffle looks at all keys first: where it finds nothing, no join is made for ends, numbers of
edges and repeated nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.lang.schema.arrow import arrow_schema
from omnigraph.lang.schema.model import Catalog, TypeDef
from omnigraph.plan.constraint_sql import relation_sql
from omnigraph.plan.constraints import Images, Rule, accused, images_needed, rules_of, superseded
from omnigraph.plan.relations import Anti, Image, Relation
from omnigraph.plan.screen_sql import screen
from omnigraph.spark.scans import ADDRESS, NOWHERE, TableRows
from omnigraph.spark.staging import BaseTable
from omnigraph.storage.tables import StagedTable

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
    replaces: bool  # whether an id of the input may be in the graph already
    repeats: bool  # whether an id may come twice in the input

    @property
    def images(self) -> Images:
        there = not self.base.is_empty
        if self.overwrite:
            return Images(new=self.has_rows, old=there, gone=there, kept=False)
        return Images(new=self.has_rows, old=self.replaces and there, kept=there)

    @property
    def has_rows(self) -> bool:
        return bool(self.own)


@dataclass(frozen=True)
class Checked:
    """A rule with the frame of rows that break it: per violation its columns, and `_rowaddr`, -1 if nobody's."""

    rule: Rule
    table: str
    rows: DataFrame


class Validation:
    """Asks the rules about one state of a load. `rows_of` gives the rows of any table as the load found it."""

    def __init__(
        self,
        session: SparkSession,
        catalog: Catalog,
        loaded: Mapping[str, LoadedTable],
        new_rows: Callable[[LoadedTable], TableRows],
        base_rows: Callable[[str], TableRows | None],
        token: str,
    ) -> None:
        self._session = session
        self._catalog = catalog
        self._loaded = loaded
        self._new_rows = new_rows
        self._base_rows = base_rows
        self._token = token
        self._places = {one.id: at for at, one in enumerate(catalog.types)}
        self._views: set[str] = set()
        self._queries = 0
        self._suspected: set[str] = set()
        self._suspects: dict[str, DataFrame] = {}

    @contextmanager
    def views(self) -> Iterator[None]:
        """Inside it views are made as they are needed, and forgotten at its end."""
        try:
            yield
        finally:
            for name in self._views:
                self._session.catalog.dropTempView(name)
            self._views.clear()
            for one in self._suspects.values():
                one.unpersist()
            self._suspects.clear()

    @property
    def changed(self) -> dict[str, Images]:
        """Every table of the schema: one that no row is in must not be asked for."""
        found = {one.id: Images(kept=self._base_rows(one.id) is not None) for one in self._catalog.types}
        return {**found, **{table: one.images for table, one in self._loaded.items()}}

    def suspects(self) -> bool:
        """Screen all keys at once; whether any id is worth a rule. Duplicates of nodes are among the suspicions."""
        asked = screen(self._catalog, self.changed, duplicates=self._may_repeat("node"), name_of=self.name_of)
        if asked is None:
            return False
        for (image, table), columns in images_needed(asked.images).items():
            self._make(image, table, columns)
        found = self._session.sql(asked.sql("spark")).persist()
        counts = {row["place"]: row["count"] for row in found.groupBy("place").count().collect()}
        for place, table in enumerate(asked.tables):
            self._suspects[table] = found.filter(found["place"] == place).select("id")
        self._suspected = {asked.tables[place] for place in counts}
        if not counts:
            found.unpersist()
            self._suspects.clear()
        return bool(counts)

    def superseded(self) -> dict[str, DataFrame]:
        """By table, input rows that a later one of the same id replaces: `id`, `at`. Only where there may be some."""
        found = {}
        for table, one in self._loaded.items():
            if one.repeats and one.has_rows and (one.type.kind == "edge" or table in self._suspected):
                found[table] = self._sql(superseded(table, ADDRESS)).select("id", "at")
        return found

    def violations(self, *, strict: bool, refuse_twice: bool, screened_clean: bool) -> Iterator[Checked]:
        """The rules that can be broken, each with its frame. Nothing runs before a frame is asked."""
        rules = rules_of(
            self._catalog,
            self.changed,
            strict=strict and any(one.replaces for one in self._loaded.values()),
            ordinal=ADDRESS if refuse_twice else None,
            screened=bool(self._suspects),
        )
        for rule in rules:
            if self._is_settled(rule, screened_clean):
                continue
            yield from self._checked(rule)

    def _is_settled(self, rule: Rule, screened_clean: bool) -> bool:
        """What the screening, or what is known of the input, has answered already."""
        one = self._loaded.get(rule.type_id)
        if rule.code == "duplicate_key":
            assert one is not None
            return not one.repeats or (one.type.kind == "node" and rule.type_id not in self._suspected)
        if rule.code == "key_exists":
            return one is None or not one.replaces
        return screened_clean and rule.code in ("endpoint", "cardinality")

    def _checked(self, rule: Rule) -> Iterator[Checked]:
        blamed = accused(rule, self._catalog, ADDRESS)
        for table, relation in blamed.items():
            if self.changed[table].new:
                yield Checked(rule, table, self._sql(relation))
        if rule.code in ("orphan_edge", "cardinality"):
            yield Checked(rule, rule.type_id, self._nobodys(rule, blamed))

    def _nobodys(self, rule: Rule, blamed: Mapping[str, Relation]) -> DataFrame:
        """Violations that no row of the input is to blame for."""
        from pyspark.sql.functions import lit

        rest: Relation = rule.query
        for table, relation in blamed.items():
            if self.changed[table].new:
                rest = Anti(rest, relation, (("id", "id"),))
        return self._sql(rest).withColumn(ADDRESS, lit(NOWHERE).cast("bigint"))

    def replaced(self, table: str) -> DataFrame | None:
        """Addresses of rows of the pinned version, hidden ones too, whose id the input has."""
        one = self._loaded[table]
        if one.overwrite or one.base.version is None or not one.has_rows or not one.replaces:
            return None
        rows = self._base_rows(table)
        assert rows is not None
        pinned = TableRows(rows.place, rows.table, rows.schema, rows.version, rows.groups)
        return self._matching(pinned.frame(self._session, ["id"]), one, "left_semi").select(ADDRESS)

    def kept_ids(self, table: str) -> int:
        """How many rows of the graph an overwrite brings again."""
        rows = self._base_rows(table)
        one = self._loaded[table]
        if rows is None or not one.has_rows:
            return 0
        return self._matching(rows.frame(self._session, ["id"]), one, "left_semi").count()

    # --- images ------------------------------------------------------------------------------------------------

    def name_of(self, image: Image, table: str) -> str:
        """Names of their own for every query: Spark Connect looks a view up when a frame runs, not when it is made."""
        return f"og_{self._token}_{self._queries}_{image}_{self._places[table]}"

    def _sql(self, relation: Relation) -> DataFrame:
        self._queries += 1
        for (image, table), columns in images_needed([relation]).items():
            self._make(image, table, columns)
        return self._session.sql(relation_sql(relation, "spark", self.name_of))

    def _make(self, image: Image, table: str, columns: Sequence[str]) -> None:
        name = self.name_of(image, table)
        self._frame(image, table, [one for one in columns if one != ADDRESS]).createOrReplaceTempView(name)
        self._views.add(name)

    def _frame(self, image: Image, table: str, columns: list[str]) -> DataFrame:
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
        return self._matching(rows.frame(self._session, names), one, how).select(*columns, ADDRESS)

    def _matching(self, frame: DataFrame, one: LoadedTable, how: str) -> DataFrame:
        from pyspark.sql.functions import broadcast

        if not one.has_rows:
            return frame if how == "left_anti" else frame.limit(0)
        ids = self._new_rows(one).frame(self._session, ["id"]).select("id")
        return frame.join(broadcast(ids) if one.staged.rows_written <= _BROADCAST_ROWS else ids, "id", how)

    def _nothing(self, columns: Iterable[str], table: str) -> DataFrame:
        schema: pa.Schema = arrow_schema(self._catalog.by_id[table])
        return TableRows(None, table, schema, None, ()).frame(self._session, list(columns))  # type: ignore[arg-type]

    def _may_repeat(self, kind: str) -> bool:
        return any(one.repeats for one in self._loaded.values() if one.type.kind == kind)
