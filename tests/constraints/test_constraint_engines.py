"""Evaluates every constraint in-process, as SQL on DuckDB, and by an oracle over the whole graph. S95, S96, S97

Ids, tuples and ends come from tiny sets, so that most changes violate a constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date
from functools import cache
from typing import Any, TypeVar, cast

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.constraints.compile import (
    ChangedImages,
    Constraint,
    compile_constraints,
    images_read_by,
    input_rows_replaced_later,
    input_rows_to_reject,
)
from omnigraph.constraints.relations import Relation, columns_of
from omnigraph.constraints.screen_sql import compile_screen
from omnigraph.constraints.sql import relation_sql, view_name
from omnigraph.log.overlay import OverlayTable
from omnigraph.log.table_view import TableView
from omnigraph.mutate.check_changes import ChangeChecker
from omnigraph.mutate.pending_table import PendingTable
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.storage.backend import Backend
from tests.constraints.graphs import (
    CATALOG,
    NAMES,
    Graph,
    GraphChange,
    Violations,
    changes,
    is_valid,
    oracle,
    row_of,
    tables,
)

A = TypeVar("A")
B = TypeVar("B")

PERSON = next(type_def for type_def in CATALOG.types if type_def.name == "Person")
SOME = settings(deadline=None, max_examples=25)
SCREENED = ("endpoint", "cardinality", "duplicate_key")


class SequentialBackend:
    """The part of a backend that a check needs: runs tasks one after the other."""

    def in_parallel(self, work: Callable[[A], B], items: Iterable[A]) -> list[B]:
        return [work(item) for item in items]


def images_of(change: GraphChange) -> dict[str, ChangedImages]:
    return {
        table: ChangedImages(
            has_new=bool(change.new(table)),
            has_old=bool(change.old(table)),
            has_gone=bool(change.ids_removed(table)),
            has_kept=table not in change.overwritten,
        )
        for table in change.base
    }


# --- the three evaluations -------------------------------------------------------------------------------------------


def in_process(change: GraphChange, *, strict: bool = False) -> Violations:
    checker = check_change(change, strict=strict)
    checker.read_committed_rows()
    return {comparable_row(constraint, row) for constraint, rows in checker.evaluate_constraints() for row in rows}


def check_change(change: GraphChange, *, strict: bool = False) -> ChangeChecker:
    pending_tables = {type_def.id: pending_table(type_def, change) for type_def in CATALOG.types}
    changes = {table: list(pending.changes()) for table, pending in pending_tables.items()}
    changes = {table: rows for table, rows in changes.items() if rows}
    backend = cast(Backend, SequentialBackend())
    return ChangeChecker(backend, CATALOG, lambda type_def: pending_tables[type_def.id], changes, strict=strict)


def pending_table(type_def: TypeDef, change: GraphChange) -> PendingTable:
    schema = arrow_schema(type_def)
    rows = pa.Table.from_pylist(list(change.base[type_def.id].values()), schema)
    pending = PendingTable(type_def, TableView(schema, None, OverlayTable.of_change(schema, rows, (), "")))
    if type_def.id in change.overwritten:
        pending.remove_all()
    pending.must_leave_no_edges = True
    for row_id, row in change.changes[type_def.id].items():
        if row is None:
            pending.remove(row_id)
        else:
            pending.put(row)
    return pending


@cache
def statement(relation: Relation) -> str:
    return relation_sql(relation, "duckdb")


@cache
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


class DuckDbViews:
    """The views of a change in DuckDB. `_at` is a column of the new rows: the position of a row in the input."""

    def __init__(self, change: GraphChange, repeated: Mapping[str, list[dict[str, Any]]] | None = None) -> None:
        self._connection = connection()
        for type_def in CATALOG.types:
            new = list(change.new(type_def.id).values()) if repeated is None else repeated.get(type_def.id, [])
            self.add("new", type_def, [{**row, "_at": position} for position, row in enumerate(new)])
            self.add("old", type_def, list(change.old(type_def.id).values()))
            self.add("kept", type_def, list(change.rows_unchanged(type_def.id).values()))
            self.add_ids("gone", type_def.id, change.ids_removed(type_def.id))

    def add(self, image: Any, type_def: TypeDef, rows: list[dict[str, Any]]) -> None:
        schema = arrow_schema(type_def).append(pa.field("_at", pa.int64()))
        loose = pa.schema([column.with_nullable(True) for column in schema])
        self._connection.register(view_name(image, type_def.id), pa.Table.from_pylist(rows, loose))

    def add_ids(self, image: Any, table: str, ids: Iterable[str]) -> None:
        self._connection.register(view_name(image, table), pa.table({"id": pa.array(sorted(ids), pa.utf8())}))

    def rows(self, relation: Relation) -> list[tuple[Any, ...]]:
        return self.fetch(statement(relation), columns_of(relation))

    def fetch(self, text: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
        result = self._connection.execute(text)
        assert tuple(column[0] for column in result.description or ()) == columns
        return result.fetchall()

    def find_violations(self, constraints: Iterable[Constraint]) -> Violations:
        violations: Violations = set()
        for constraint in constraints:
            rows = [comparable_row(constraint, row) for row in self.rows(constraint.query)]
            assert len(rows) == len(set(rows)), f"{constraint} returned a row twice"
            violations |= set(rows)
        return violations


def comparable_row(constraint: Constraint, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of a constraint's query, without the unique tuple, whose form depends on the engine."""
    values = dict(zip(columns_of(constraint.query), row, strict=True))
    other_values = {name: value for name, value in values.items() if name not in constraint.columns}
    return (constraint.code, NAMES[constraint.type_id], *other_values.values())


# --- tests ---------------------------------------------------------------------------------------------------------


@SOME
@given(changes(), st.booleans())
def test_in_process_sql_and_the_whole_graph_agree(change: GraphChange, strict: bool) -> None:
    agree(change, strict)


@pytest.mark.slow
@settings(deadline=None, max_examples=1000)
@given(changes(), st.booleans())
def test_in_process_sql_and_the_whole_graph_agree_on_many_graphs(change: GraphChange, strict: bool) -> None:
    agree(change, strict)


def agree(change: GraphChange, strict: bool) -> None:
    expected = oracle(change, strict=strict)
    assert in_process(change, strict=strict) == expected
    assert (
        DuckDbViews(change).find_violations(compile_constraints(CATALOG, images_of(change), strict=strict)) == expected
    )


@pytest.mark.parametrize(("stored", "written"), [(0.1, 0.1), (0.0, -0.0), (-0.0, 0.0)])
def test_a_number_is_the_same_before_and_after_it_was_stored(stored: float, written: float) -> None:
    """The column has single precision; a value before it is stored has double precision."""
    kept_row = row_of(PERSON, {"id": "a", "weight": stored, "born": date(2000, 2, 29)})
    new = row_of(PERSON, {"id": "b", "weight": written, "born": date(2000, 2, 29)})
    nothing: Graph = {type_def.id: {} for type_def in CATALOG.types}
    change = GraphChange(nothing | {PERSON.id: {"a": kept_row}}, {**nothing, PERSON.id: {"b": new}}, frozenset())
    assert in_process(change) == {("unique", "Person", "b", "a")}
    assert DuckDbViews(change).find_violations(compile_constraints(CATALOG, images_of(change))) == {
        ("unique", "Person", "b", "a")
    }


@SOME
@given(changes())
def test_constraints_report_violations_exactly_if_the_graph_is_invalid(change: GraphChange) -> None:
    after: Graph = {table: change.after(table) for table in change.base}
    assert (in_process(change) == set()) is is_valid(after)


@SOME
@given(changes())
def test_without_old_images_only_sources_that_lose_an_edge_are_missed(change: GraphChange) -> None:
    blind = {
        table: ChangedImages(images.has_new, False, images.has_gone, images.has_kept)
        for table, images in images_of(change).items()
    }
    violations, expected = DuckDbViews(change).find_violations(compile_constraints(CATALOG, blind)), oracle(change)
    missed = {violation for violation in expected - violations if violation[0] != "cardinality" or violation[3] >= 1}
    assert missed == set()
    # An edge that keeps its ends is checked again, and its removed end is found once more.
    assert {violation[0] for violation in violations - expected} <= {"endpoint"}


@SOME
@given(changes(), st.booleans())
def test_screened_constraints_find_all_violations(change: GraphChange, duplicates: bool) -> None:
    images, sql = images_of(change), DuckDbViews(change)
    suspects: dict[str, set[str]] = {type_def.id: set() for type_def in CATALOG.types if type_def.kind == "node"}
    screen = compile_screen(CATALOG, images, duplicates=duplicates)
    if screen is not None:
        for position, row_id in sql.fetch(screen.sql("duckdb"), ("place", "id")):
            suspects[screen.tables[position]].add(row_id)
    for table, ids in suspects.items():
        sql.add_ids("suspect", table, ids)
    expected = oracle(change)
    assert sql.find_violations(compile_constraints(CATALOG, images, screened=True)) == expected
    if not any(suspects.values()):
        assert not [violation for violation in expected if violation[0] in SCREENED]


@SOME
@given(changes())
def test_in_process_and_sql_evaluation_blame_the_same_rows(change: GraphChange) -> None:
    checker, sql = check_change(change), DuckDbViews(change)
    checker.read_committed_rows()
    blamed = {
        (violation.rule, violation.type, violation.id, table, row_id)
        for violation, rows in checker.violations_with_rows()
        for table, row_id in rows
    }
    expected = set()
    for constraint in compile_constraints(CATALOG, images_of(change)):
        for table, relation in input_rows_to_reject(constraint, CATALOG, "_at").items():
            ids = list(change.new(table))
            key = CATALOG.by_id[constraint.type_id].table_key
            expected |= {(constraint.code, key, row[0], table, ids[row[-1]]) for row in sql.rows(relation)}
    assert blamed == expected


@SOME
@given(changes())
def test_removing_blamed_rows_leaves_only_violations_by_committed_rows(change: GraphChange) -> None:
    while True:
        checker = check_change(change)
        checker.read_committed_rows()
        blame = list(checker.violations_with_rows())
        blamed = {row for _, rows in blame for row in rows}
        if not blamed:
            break
        remaining = {
            table: {key: row for key, row in rows.items() if (table, key) not in blamed}
            for table, rows in change.changes.items()
        }
        assert sum(map(len, remaining.values())) < sum(map(len, change.changes.values()))
        change = GraphChange(change.base, remaining, change.overwritten)
    assert (blame == []) is is_valid({table: change.after(table) for table in change.base})
    for violation, _ in blame:
        table = next(type_def for type_def in CATALOG.types if type_def.table_key == violation.type)
        if violation.rule == "orphan_edge":
            assert violation.id in change.rows_unchanged(table.id)
        else:
            assert (violation.rule, table.source) != ("cardinality", None)
            assert violation.value < table.cardinality.low
            assert violation.id in change.rows_unchanged(table.source or "")


@SOME
@given(tables(PERSON), st.lists(st.sampled_from("abc"), max_size=6))
def test_repeated_ids_in_the_input_are_duplicates_except_the_first(
    base: dict[str, dict[str, Any]], ids: list[str]
) -> None:
    """The first row of an id is no duplicate; a merge keeps the last row of an id."""
    change = GraphChange({type_def.id: {} for type_def in CATALOG.types} | {PERSON.id: base}, {}, frozenset())
    given_rows = [row_of(PERSON, {"id": row_id}) for row_id in ids]
    sql = DuckDbViews(change, {PERSON.id: given_rows})
    images = {PERSON.id: ChangedImages(has_new=bool(ids))}
    constraints = [
        constraint
        for constraint in compile_constraints(CATALOG, images, ordinal="_at")
        if constraint.code == "duplicate_key"
    ]
    repetitions = {row for constraint in constraints for row in sql.rows(constraint.query)}
    assert repetitions == {(row_id, at, ids.index(row_id)) for at, row_id in enumerate(ids) if ids.index(row_id) != at}
    last = {row_id: at for at, row_id in enumerate(ids)}
    assert set(sql.rows(input_rows_replaced_later(PERSON.id, "_at"))) == {
        (row_id, at, last[row_id]) for at, row_id in enumerate(ids) if last[row_id] != at
    }
    screen = compile_screen(CATALOG, images, duplicates=True)
    suspects = sql.fetch(screen.sql("duckdb"), ("place", "id")) if screen is not None else []
    assert {row_id for _, row_id in suspects} >= {row[0] for row in repetitions}


def test_images_read_by_lists_exactly_the_images_in_the_sql() -> None:
    images = {type_def.id: ChangedImages(has_new=True, has_old=True, has_gone=True) for type_def in CATALOG.types}
    constraints = compile_constraints(CATALOG, images, strict=True, ordinal="_at", screened=True)
    needed = images_read_by(constraint.query for constraint in constraints)
    text = "".join(relation_sql(constraint.query, "duckdb") for constraint in constraints)
    for image in ("new", "old", "gone", "kept", "suspect"):
        for type_def in CATALOG.types:
            assert ((image, type_def.id) in needed) is (f'"{view_name(image, type_def.id)}"' in text)
    assert needed["new", PERSON.id][:1] == ("id",)
    assert "_at" in needed["new", PERSON.id]
