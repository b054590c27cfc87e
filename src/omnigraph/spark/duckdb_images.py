"""Images of tables as DuckDB tables, for the constraints of a change of moderate size: everything runs in one task.

A shuffle of Spark pays from tens of millions of rows on. Below that, one process with an engine that spills to disk is
several times faster. It runs on a worker, so the memory of the driver does not grow with the input.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.constraints.compile import images_read_by
from omnigraph.constraints.relations import ImageKind, Relation
from omnigraph.constraints.screen_sql import ScreeningQuery
from omnigraph.constraints.sql import relation_sql
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import Catalog
from omnigraph.spark.constraint_runner import ConstraintRunner, ImageContent, ImageSource
from omnigraph.spark.constraint_selection import ConstraintQuery, ConstraintSelection
from omnigraph.spark.table_rows import TableRows
from omnigraph.storage.lance.row_address import ROW_ADDRESS

if TYPE_CHECKING:
    import duckdb

#: More violations than this are not sent through the driver: Spark evaluates the constraints again instead.
VIOLATIONS_MAX = 50_000
_MEMORY = "2GB"
_SCRATCH_TABLE = "unfiltered"


@contextmanager
def run_in_duckdb(selection: ConstraintSelection, source: ImageSource) -> Iterator[ConstraintRunner[pa.Table]]:
    """Evaluates constraints in this process, in bounded memory."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="omnigraph-check-") as scratch:
        config = {"memory_limit": _MEMORY, "temp_directory": scratch, "threads": str(os.cpu_count() or 1)}
        connection = duckdb.connect(":memory:", config={**config, "preserve_insertion_order": "false"})
        try:
            yield ConstraintRunner(selection, DuckDbImages(connection, selection.catalog, source))
        finally:
            connection.close()


def collect_violations(
    runner: ConstraintRunner[pa.Table], describe: Callable[[ConstraintQuery, list[dict[str, Any]]], Sequence[Any]]
) -> list[Any] | None:
    """All violations, each as `describe` returns it; None if there are more than `VIOLATIONS_MAX`."""
    violations: list[Any] = []
    for query in runner.queries():
        rows = runner.images.run(query.relation, VIOLATIONS_MAX + 1 - len(violations))
        violations += describe(query, rows.to_pylist())
        if len(violations) > VIOLATIONS_MAX:
            return None
    return violations


@dataclass
class DuckDbImages:
    """Images as temporary tables of one connection, each with the columns that queries have asked for so far."""

    connection: duckdb.DuckDBPyConnection
    catalog: Catalog
    source: ImageSource
    _columns: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of the images that exist

    def name_of(self, kind: ImageKind, table: str) -> str:
        return f"{kind}_{table}"

    def run_screening(self, screening: ScreeningQuery) -> frozenset[str]:
        self._make_all(images_read_by(screening.images))
        self.connection.execute(f"CREATE TEMP TABLE suspects AS {screening.sql('duckdb')}")
        suspected = set()
        for position, table in enumerate(screening.tables):
            name = self._quote_image("suspect", table)
            self.connection.execute(f"CREATE TEMP VIEW {name} AS SELECT id FROM suspects WHERE place = {position}")  # noqa: S608
            self._columns[self.name_of("suspect", table)] = ("id",)
            if self.connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchall():  # noqa: S608
                suspected.add(table)
        return frozenset(suspected)

    def run(self, relation: Relation, limit: int | None = None) -> pa.Table:
        self._make_all(images_read_by([relation]))
        query = relation_sql(relation, "duckdb", self.name_of)
        return self.connection.sql(query if limit is None else f"{query} LIMIT {limit}").to_arrow_table()

    def read(self, content: ImageContent, table: str, columns: Sequence[str]) -> pa.Table:
        self._create("requested", content, table, columns)
        rows = self.connection.sql("SELECT * FROM requested").to_arrow_table()
        self.connection.execute("DROP TABLE requested")
        return rows

    def _make_all(self, required: Mapping[tuple[ImageKind, str], tuple[str, ...]]) -> None:
        for (kind, table), columns in required.items():
            self._make(kind, table, columns)

    def _make(self, kind: ImageKind, table: str, columns: Sequence[str]) -> None:
        """Make the image, or make it again if it lacks a column."""
        name = self.name_of(kind, table)
        existing = self._columns.get(name)
        if existing is not None:
            if set(columns) <= {*existing, ROW_ADDRESS}:
                return
            self.connection.execute(f"DROP TABLE {_quote(name)}")
        self._columns[name] = all_columns = tuple(
            dict.fromkeys([*(existing or ()), *(column for column in columns if column != ROW_ADDRESS)])
        )
        self._create(name, self.source(kind, table), table, all_columns)

    def _create(self, name: str, content: ImageContent | None, table: str, columns: Sequence[str]) -> None:
        if content is None:
            self._copy(name, self._empty_rows(table, columns))
            return
        if content.keep == "all" and isinstance(content.source, TableRows):
            self._fill(name, content.source, columns)
            return
        names = ", ".join(_quote(column) for column in [*columns, ROW_ADDRESS])
        source = self._make_source(content.source, table, columns if "id" in columns else ["id", *columns])
        condition = ""
        if content.keep != "all":
            self._make("new", table, ("id",))
            join = "SEMI" if content.keep == "ids_in_new" else "ANTI"
            condition = f"{join} JOIN (SELECT id FROM {self._quote_image('new', table)}) USING (id)"  # noqa: S608
        self.connection.execute(f"CREATE TEMP TABLE {_quote(name)} AS SELECT {names} FROM {source} {condition}")  # noqa: S608
        self.connection.execute(f"DROP TABLE IF EXISTS {_SCRATCH_TABLE}")

    def _make_source(self, source: TableRows | ImageKind, table: str, columns: Sequence[str]) -> str:
        if isinstance(source, TableRows):
            self._fill(_SCRATCH_TABLE, source, columns)
            return _SCRATCH_TABLE
        self._make(source, table, columns)
        return self._quote_image(source, table)

    def _fill(self, name: str, rows: TableRows, columns: Sequence[str]) -> None:
        self._copy(name, pa.RecordBatchReader.from_batches(rows.schema_of(columns), rows.batches(columns)))

    def _copy(self, name: str, rows: pa.Table | pa.RecordBatchReader) -> None:
        self.connection.register("arriving", rows)
        self.connection.execute(f"CREATE TEMP TABLE {_quote(name)} AS SELECT * FROM arriving")  # noqa: S608
        self.connection.unregister("arriving")

    def _empty_rows(self, table: str, columns: Sequence[str]) -> pa.Table:
        schema = arrow_schema(self.catalog.by_id[table])
        fields = [schema.field(column) for column in columns]
        return pa.schema([*fields, pa.field(ROW_ADDRESS, pa.int64())]).empty_table()

    def _quote_image(self, kind: ImageKind, table: str) -> str:
        return _quote(self.name_of(kind, table))


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
