"""The statements of the rules on Spark: names that need quotes, nulls, zeros, dates. S95 to S97"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from omnigraph.constraints.compile import ChangedImages, compile_constraints, images_read_by
from omnigraph.constraints.relations import ImageRows
from omnigraph.constraints.screen_sql import compile_screen
from omnigraph.constraints.sql import relation_sql, view_name
from omnigraph.schema.arrow import arrow_schema
from tests.constraints.graphs import CATALOG, GraphChange, is_valid, oracle, row_of
from tests.constraints.test_constraint_engines import comparable_row, images_of

_BY_NAME = {one.name: one for one in CATALOG.types}


def graph(**rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    return {
        type_def.id: {values["id"]: row_of(type_def, values) for values in rows.get(type_def.name, [])}
        for type_def in CATALOG.types
    }


def people(ids: str, **values: Any) -> list[dict[str, Any]]:
    return [{"id": row_id, **values} for row_id in ids]


def edge(row_id: str, src: str, dst: str) -> dict[str, Any]:
    return {"id": row_id, "src": src, "dst": dst}


BASE = graph(
    Person=[*people("abgz"), {"id": "m", "email": "m@x", "weight": -0.0, "born": date(2000, 1, 1)}],
    Team=people("st"),
    In=[edge("1", "a", "s"), edge("2", "a", "t")],
    Leads=[edge("1", "s", "a"), edge("2", "t", "b")],
    Knows=[edge("1", "a", "b"), edge("2", "g", "a")],
)
#: Something that breaks every rule, and rows beside it that break none.
NEW = graph(
    Person=[
        *people("cd", email="same@x"),
        {"id": "e", "email": "m@x"},
        {"id": "f", "weight": 0.0, "born": date(2000, 1, 1)},
        *people("hi", weight=1.5),
    ],
    Team=people("su"),
    In=[edge("3", "a", "s"), edge("4", "h", "none")],
    Leads=[edge("2", "s", "b"), edge("3", "none", "i")],
    Knows=[edge("3", "a", "b"), edge("4", "h", "i")],
)
REMOVED = {_BY_NAME["Person"].id: {"g": None, "z": None}}


def change(*, overwritten: frozenset[str] = frozenset()) -> GraphChange:
    assert is_valid(BASE)
    return GraphChange(BASE, {table: {**NEW[table], **REMOVED.get(table, {})} for table in BASE}, overwritten)


class Views:
    """The images of a change as temporary views, which are gone afterwards."""

    def __init__(self, spark: SparkSession, graph_change: GraphChange) -> None:
        self._spark = spark
        self._made = graph_change
        self.names: list[str] = []

    def add(self, needed: Mapping[Any, tuple[str, ...]]) -> None:
        for (image, table), columns in needed.items():
            if image != "suspect":
                self._add(view_name(image, table), self._rows(image, table, columns))

    def add_ids(self, image: Any, table: str, ids: set[str]) -> None:
        self._add(view_name(image, table), pa.table({"id": pa.array(sorted(ids), pa.utf8())}))

    def _rows(self, image: str, table: str, columns: tuple[str, ...]) -> pa.Table:
        schema = pa.schema([column.with_nullable(True) for column in arrow_schema(CATALOG.by_id[table])])
        if image == "gone":
            rows = [{"id": row_id} for row_id in sorted(self._made.ids_removed(table))]
        else:
            read = {"new": self._made.new, "old": self._made.old, "kept": self._made.rows_unchanged}[image]
            rows = list(read(table).values())
        return pa.Table.from_pylist(rows, schema).select(list(columns))

    def _add(self, name: str, rows: pa.Table) -> None:
        self._spark.createDataFrame(rows).createOrReplaceTempView(f"`{name}`")
        self.names.append(name)

    def drop(self) -> None:
        for name in self.names:
            self._spark.sql(f"DROP VIEW IF EXISTS `{name}`")


OVERWRITTEN = frozenset({_BY_NAME["Knows"].id, _BY_NAME["Person"].id})


@pytest.fixture(
    params=[
        pytest.param(frozenset(), id="merge"),
        pytest.param(OVERWRITTEN, id="overwrite", marks=pytest.mark.slow),
    ]
)
def graph_change(request: pytest.FixtureRequest) -> GraphChange:
    return change(overwritten=request.param)


@pytest.fixture
def views(spark: SparkSession, graph_change: GraphChange) -> Iterator[Views]:
    views = Views(spark, graph_change)
    yield views
    views.drop()


@pytest.mark.timeout(600)
def test_spark_finds_what_the_whole_graph_shows(spark: SparkSession, graph_change: GraphChange, views: Views) -> None:
    images, expected = images_of(graph_change), oracle(graph_change, strict=True)
    assert {violation[0] for violation in expected} == {
        "unique",
        "endpoint",
        "orphan_edge",
        "cardinality",
        "key_exists",
    }
    screen = compile_screen(CATALOG, images, duplicates=True)
    assert screen is not None
    rules = compile_constraints(CATALOG, images, strict=True, screened=True)
    views.add(images_read_by([*(rule.query for rule in rules), *screen.images]))
    suspects: dict[str, set[str]] = {table: set() for table in screen.tables}
    for position, row_id in spark.sql(screen.sql("spark")).collect():
        suspects[screen.tables[position]].add(row_id)
    assert sum(map(len, suspects.values())) < sum(len(graph_change.after(table)) for table in suspects)
    for table, ids in suspects.items():
        views.add_ids("suspect", table, ids)
    violations = {
        comparable_row(rule, tuple(row))
        for rule in rules
        for row in spark.sql(relation_sql(rule.query, "spark")).collect()
    }
    assert violations == expected


def test_images_are_views_of_one_column_for_a_screen() -> None:
    screen = compile_screen(
        CATALOG, {type_def.id: ChangedImages(has_new=True) for type_def in CATALOG.types}, duplicates=False
    )
    assert screen is not None
    assert all(isinstance(image, ImageRows) and len(image.columns) == 1 for image in screen.images)
