"""Evaluates the constraints that need other rows on what a bulk operation has staged, for loads and for merges.

The queries are those of `constraints/compile.py`. They read *images* of tables: `new` rows of the change, `old` and
`gone` rows that it replaces or removes, `kept` rows of the graph. An engine makes the images: DuckDB in one task
(`duckdb_images.py`), or Spark by shuffles (`spark_images.py`). One screening query looks at all keys first: where it
finds nothing, no join is made for endpoints, cardinalities and repeated nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, Literal, Protocol, TypeVar

from omnigraph.constraints.compile import Constraint, describe_violation, input_rows_replaced_later
from omnigraph.constraints.relations import ColumnProjection, ImageKind, Relation
from omnigraph.constraints.screen_sql import ScreeningQuery, compile_screen
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.row_constraints import Violation
from omnigraph.spark.constraint_selection import ConstraintQuery, ConstraintSelection
from omnigraph.spark.table_rows import TableRows
from omnigraph.storage.lance.row_address import ROW_ADDRESS

Rows = TypeVar("Rows", covariant=True)


@dataclass(frozen=True, slots=True)
class ImageContent:
    """Which rows one image of a table holds.

    `source` is where they are read: rows of a table version, or another image of the same table. `keep` restricts
    them by the ids of the image `new`, which must not be empty then.
    """

    source: TableRows | ImageKind
    keep: Literal["all", "ids_in_new", "ids_not_in_new"] = "all"
    has_few_new_ids: bool = False  # so few that Spark sends them to every task instead of shuffling


ImageSource = Callable[[ImageKind, str], ImageContent | None]
"""What an image of a table holds; None if it is empty. Picklable, since it is sent to a task."""


class EngineImages(Protocol[Rows]):
    """The images of all tables in one engine, each made when a query first reads it."""

    def name_of(self, kind: ImageKind, table: str) -> str:
        """The name under which the next query reads the image."""

    def run_screening(self, screening: ScreeningQuery) -> frozenset[str]:
        """Keep the returned ids as the images `suspect`; the node types that have any."""

    def run(self, relation: Relation, limit: int | None = None) -> Rows:
        """The rows of a relation over the images."""

    def read(self, content: ImageContent, table: str, columns: Sequence[str]) -> Rows:
        """Rows of a table with these columns and their addresses."""


@dataclass(frozen=True)
class ConstraintRunner(Generic[Rows]):
    """Runs the queries of a selection in one engine, whose form of rows is `Rows`."""

    selection: ConstraintSelection
    images: EngineImages[Rows]

    def queries(self) -> Iterator[ConstraintQuery]:
        """The constraints that could be violated, after one look at all keys."""
        return self.selection.queries(self._screen())

    def violations(self) -> Iterator[tuple[ConstraintQuery, Rows]]:
        for query in self.queries():
            yield query, self.images.run(query.relation)

    def repeated_rows(self) -> Iterator[tuple[str, Rows]]:
        """By table, the addresses of input rows that a later row with the same id replaces."""
        for table in self.selection.tables_with_repeated_ids(self._screen()):
            replaced = input_rows_replaced_later(table, ROW_ADDRESS)
            yield table, self.images.run(ColumnProjection(replaced, ((ROW_ADDRESS, "at"),)))

    def _screen(self) -> frozenset[str]:
        """Look at all keys at once; the node types with ids that may violate a constraint."""
        selection = self.selection
        if not selection.needs_screening:
            return frozenset()
        screening = compile_screen(
            selection.catalog,
            selection.changed_images,
            duplicates=selection.may_repeat_nodes,
            name_of=self.images.name_of,
        )
        return self.images.run_screening(screening) if screening is not None else frozenset()


def read_violation(catalog: Catalog, constraint: Constraint, row: Mapping[str, Any]) -> Violation:
    """The violation that one row of a constraint's query stands for."""
    return describe_violation(catalog, constraint, {name: _to_plain(value) for name, value in row.items()})


def _to_plain(value: Any) -> Any:
    """Spark has decimals where the graph has large unsigned numbers."""
    return int(value) if isinstance(value, Decimal) else value
