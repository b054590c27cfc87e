"""The checks of a load of moderate size, in one task: the compiled rules as DuckDB SQL over the staged versions.

A shuffle of Spark pays from tens of millions of rows on; below that one process with an engine that spills to disk is
several times faster. It runs on a worker, so the driver's memory does not grow with the input. The rules are the same,
in another dialect.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.constraints.compile import input_rows_replaced_later, required_images
from omnigraph.constraints.relations import ImageKind, Relation
from omnigraph.constraints.screen_sql import compile_screen
from omnigraph.constraints.sql import relation_sql
from omnigraph.schema.arrow import arrow_schema
from omnigraph.spark.constraint_selection import Asking
from omnigraph.spark.problem_rows import problem_rows
from omnigraph.spark.table_frames import TableRows
from omnigraph.storage.lance import TablePlace, delete_at
from omnigraph.storage.lance.row_address import ROW_ADDRESS, group_by_fragment, no_addresses

if TYPE_CHECKING:
    import duckdb

#: More violations than this are not sent through the driver: then Spark's own way is taken.
PROBLEMS_MAX = 50_000
_MEMORY = "2GB"


@dataclass(frozen=True)
class OneTask:
    """What one task is asked about. `new` and `base` are the rows of the input and of the graph, by table."""

    place: TablePlace
    asking: Asking
    new: Mapping[str, TableRows]
    base: Mapping[str, TableRows]

    def violations(self) -> Iterator[dict[str, Any]]:
        """All rows that break a rule, as lists of `rejecting.PROBLEMS`; or only that they are too many."""
        with _images(self) as images:
            suspected = images.screened() if self.asking.needs_screen else frozenset()
            rows: list[Sequence[Any]] = []
            for one in self.asking.questions(suspected):
                found = images.fetched(one.relation, PROBLEMS_MAX + 1 - len(rows))
                if one.is_nobodys:
                    found = found.append_column(ROW_ADDRESS, no_addresses(found.num_rows))
                rows += problem_rows(self.asking.catalog, one.rule, one.table, found.to_pylist())
                if len(rows) > PROBLEMS_MAX:
                    yield {"too_many": True}
                    return
            yield {"problems": rows}

    def without_repeated(self) -> Iterator[dict[str, Any]]:
        """Remove rows of the input that a later one of the same id replaces; one result per fragment."""
        with _images(self) as images:
            for table in self.asking.repeating(images.screened()):
                addresses = images.addresses(input_rows_replaced_later(table, ROW_ADDRESS), "at")
                yield from self._removed(table, self.new[table].version, addresses)

    def without_replaced(self, versions: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Remove rows of the graph, hidden ones too, whose id the input has; count what an overwrite brings again."""
        with _images(self) as images:
            for table, one in self.asking.known.items():
                rows = self.base.get(table)
                if rows is None or not one.has_rows or not one.replaces:
                    continue
                if one.overwrite:
                    yield {"type": table, "again": images.count_again(table)}
                elif rows.version is not None:
                    yield from self._removed(table, versions[table], images.again_at(table))

    def _removed(self, table: str, version: str | None, addresses: np.ndarray) -> Iterator[dict[str, Any]]:
        assert version is not None
        pinned = self.place.open().open(table, version)
        for number, offsets in group_by_fragment(addresses.astype(np.uint64)):
            removal = delete_at(pinned, number, offsets)
            yield {"type": table, "removal": [removal.fragment_id, removal.left], "rows": len(offsets)}


@contextmanager
def _images(task: OneTask) -> Iterator[TaskImages]:
    with duckdb_scratch() as connection:
        yield TaskImages(task, connection)


@contextmanager
def duckdb_scratch() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with a bounded memory, which spills to a folder of its own."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="omnigraph-check-") as scratch:
        config = {"memory_limit": _MEMORY, "temp_directory": scratch, "threads": str(os.cpu_count() or 1)}
        connection = duckdb.connect(":memory:", config={**config, "preserve_insertion_order": "false"})
        try:
            yield connection
        finally:
            connection.close()


@dataclass
class TaskImages:
    """Images of tables as tables of DuckDB, made when they are first asked for."""

    task: OneTask
    connection: duckdb.DuckDBPyConnection
    _made: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def name(self, image: ImageKind, table: str) -> str:
        return _name(image, table)

    def quoted(self, image: ImageKind, table: str) -> str:
        return _quoted(_name(image, table))

    def screened(self) -> frozenset[str]:
        """Look at all keys at once; the node types with ids that are worth a rule."""
        asking = self.task.asking
        asked = compile_screen(asking.catalog, asking.changed, duplicates=asking.may_repeat_nodes, name_of=_name)
        if asked is None:
            return frozenset()
        self._make_all(required_images(asked.images))
        self.connection.execute(f"CREATE TEMP TABLE suspects AS {asked.sql('duckdb')}")
        found = set()
        for place, table in enumerate(asked.tables):
            name = _quoted(_name("suspect", table))
            self.connection.execute(f"CREATE TEMP VIEW {name} AS SELECT id FROM suspects WHERE place = {place}")  # noqa: S608
            self._made[_name("suspect", table)] = ("id",)
            if self.connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchall():  # noqa: S608
                found.add(table)
        return frozenset(found)

    def fetched(self, relation: Relation, limit: int) -> pa.Table:
        """Rows of the relation, at most so many."""
        self._make_all(required_images([relation]))
        return self.connection.sql(f"{relation_sql(relation, 'duckdb', _name)} LIMIT {limit}").to_arrow_table()

    def addresses(self, relation: Relation, column: str) -> np.ndarray:
        self._make_all(required_images([relation]))
        query = f"SELECT {_quoted(column)} AS at FROM ({relation_sql(relation, 'duckdb', _name)})"  # noqa: S608
        return self._column(query)

    def count_again(self, table: str) -> int:
        return len(self._again(table, self.task.base[table]))

    def again_at(self, table: str) -> np.ndarray:
        """Addresses in the pinned version alone, whatever the overlay hides there."""
        rows = self.task.base[table]
        return self._again(table, TableRows(rows.place, rows.table, rows.schema, rows.version, rows.groups))

    def _again(self, table: str, rows: TableRows) -> np.ndarray:
        self._make("new", table, ("id",))
        self._fill("pinned", rows, ["id"])
        new = _quoted(_name("new", table))
        found = self._column(f"SELECT {ROW_ADDRESS} AS at FROM pinned WHERE id IN (SELECT id FROM {new})")  # noqa: S608
        self.connection.execute("DROP TABLE pinned")
        return found

    def _column(self, query: str) -> np.ndarray:
        found: np.ndarray = self.connection.sql(query).to_arrow_table()["at"].to_numpy()
        return found

    def _make_all(self, needed: Mapping[tuple[ImageKind, str], tuple[str, ...]]) -> None:
        for (image, table), columns in needed.items():
            self._make(image, table, columns)

    def _make(self, image: ImageKind, table: str, columns: Sequence[str]) -> None:
        name = _name(image, table)
        known = self._made.get(name, ())
        if set(columns) <= {*known, ROW_ADDRESS} and name in self._made:
            return
        wanted = tuple(dict.fromkeys([*known, *(one for one in columns if one != ROW_ADDRESS)]))
        if name in self._made:
            self.connection.execute(f"DROP TABLE {_quoted(name)}")
        self._made[name] = wanted
        self._image(image, table, list(wanted))

    def _image(self, image: ImageKind, table: str, columns: list[str]) -> None:
        one = self.task.asking.known.get(table)
        rows = self.task.new.get(table) if image == "new" else self.task.base.get(table)
        name = _name(image, table)
        if rows is None:
            self._empty(name, table, columns)
            return
        whole = image == "new" or one is None or (image == "kept" and not one.replaces)
        if whole or (image == "old" and one is not None and one.overwrite):
            self._fill(name, rows, columns)
            return
        self._fill("whole", rows, columns if "id" in columns else ["id", *columns])
        names = ", ".join(_quoted(one) for one in [*columns, ROW_ADDRESS])
        if table in self.task.new:
            self._make("new", table, ("id",))
            new = _quoted(_name("new", table))
            matching = f"{'SEMI' if image == 'old' else 'ANTI'} JOIN (SELECT id FROM {new}) USING (id)"  # noqa: S608
        else:
            matching = "WHERE false" if image == "old" else ""
        self.connection.execute(f"CREATE TEMP TABLE {_quoted(name)} AS SELECT {names} FROM whole {matching}")  # noqa: S608
        self.connection.execute("DROP TABLE whole")

    def _fill(self, name: str, rows: TableRows, columns: list[str]) -> None:
        reader = pa.RecordBatchReader.from_batches(rows.schema_of(columns), rows.batches(columns))
        self.connection.register("arriving", reader)
        self.connection.execute(f"CREATE TEMP TABLE {_quoted(name)} AS SELECT * FROM arriving")  # noqa: S608
        self.connection.unregister("arriving")

    def _empty(self, name: str, table: str, columns: list[str]) -> None:
        schema = arrow_schema(self.task.asking.catalog.by_id[table])
        nothing = pa.schema([*(schema.field(one) for one in columns), pa.field(ROW_ADDRESS, pa.int64())]).empty_table()
        self.connection.register("arriving", nothing)
        self.connection.execute(f"CREATE TEMP TABLE {_quoted(name)} AS SELECT * FROM arriving")  # noqa: S608
        self.connection.unregister("arriving")


def _name(image: ImageKind, table: str) -> str:
    return f"{image}_{table}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
