"""One rule, three ways: in-process, as SQL on DuckDB, and by looking at the whole graph. S95, S96, S97

Ids, tuples and ends come from tiny sets, so that most changes break something.
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
    Found,
    Graph,
    GraphChange,
    changes,
    is_valid,
    oracle,
    row_of,
    tables,
)

A = TypeVar("A")
B = TypeVar("B")

PERSON = next(one for one in CATALOG.types if one.name == "Person")
SOME = settings(deadline=None, max_examples=25)
SCREENED = ("endpoint", "cardinality", "duplicate_key")


class OneByOne:
    """As much of a backend as a check needs."""

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


# --- the three ways ------------------------------------------------------------------------------------------------


def in_process(change: GraphChange, *, strict: bool = False) -> Found:
    checked = check_change(change, strict=strict)
    checked.read_committed_rows()
    return {comparable_row(rule, row) for rule, rows in checked.evaluate_constraints() for row in rows}


def check_change(change: GraphChange, *, strict: bool = False) -> ChangeChecker:
    states = {type_def.id: state_of(type_def, change) for type_def in CATALOG.types}
    changes = {table: list(state.changes()) for table, state in states.items()}
    changes = {table: rows for table, rows in changes.items() if rows}
    backend = cast(Backend, OneByOne())
    return ChangeChecker(backend, CATALOG, lambda type_def: states[type_def.id], changes, strict=strict)


def state_of(type_def: TypeDef, change: GraphChange) -> PendingTable:
    schema = arrow_schema(type_def)
    rows = pa.Table.from_pylist(list(change.base[type_def.id].values()), schema)
    state = PendingTable(type_def, TableView(schema, None, OverlayTable.of_change(schema, rows, (), "")))
    if type_def.id in change.overwritten:
        state.remove_all()
    state.must_leave_no_edges = True
    for row_id, row in change.changes[type_def.id].items():
        if row is None:
            state.remove(row_id)
        else:
            state.put(row)
    return state


@cache
def statement(relation: Relation) -> str:
    return relation_sql(relation, "duckdb")


@cache
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


class Sql:
    """The views of a change in DuckDB. `address` is a column of the new rows: the place of a row in the input."""

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

    def find_violations(self, rules: Iterable[Constraint]) -> Found:
        violations: Found = set()
        for rule in rules:
            rows = [comparable_row(rule, row) for row in self.rows(rule.query)]
            assert len(rows) == len(set(rows)), f"{rule} returned a row twice"
            violations |= set(rows)
        return violations


def comparable_row(rule: Constraint, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of a rule's query; of a unique rule without the tuple, whose form is the engine's."""
    values = dict(zip(columns_of(rule.query), row, strict=True))
    other_values = {name: value for name, value in values.items() if name not in rule.columns}
    return (rule.code, NAMES[rule.type_id], *other_values.values())


# --- tests ---------------------------------------------------------------------------------------------------------


@SOME
@given(changes(), st.booleans())
def test_in_process_sql_and_the_whole_graph_agree(change: GraphChange, strict: bool) -> None:
    agree(change, strict)


@pytest.mark.slow
@settings(deadline=None, max_examples=1000)
@given(changes(), st.booleans())
def test_they_agree_on_many_more_graphs(change: GraphChange, strict: bool) -> None:
    agree(change, strict)


def agree(change: GraphChange, strict: bool) -> None:
    expected = oracle(change, strict=strict)
    assert in_process(change, strict=strict) == expected
    assert Sql(change).find_violations(compile_constraints(CATALOG, images_of(change), strict=strict)) == expected


@pytest.mark.parametrize(("stored", "written"), [(0.1, 0.1), (0.0, -0.0), (-0.0, 0.0)])
def test_a_number_is_the_same_before_and_after_it_was_stored(stored: float, written: float) -> None:
    """The column is of single precision, a value on its way there is not."""
    kept_row = row_of(PERSON, {"id": "a", "weight": stored, "born": date(2000, 2, 29)})
    new = row_of(PERSON, {"id": "b", "weight": written, "born": date(2000, 2, 29)})
    nothing: Graph = {type_def.id: {} for type_def in CATALOG.types}
    change = GraphChange(nothing | {PERSON.id: {"a": kept_row}}, {**nothing, PERSON.id: {"b": new}}, frozenset())
    assert in_process(change) == {("unique", "Person", "b", "a")}
    assert Sql(change).find_violations(compile_constraints(CATALOG, images_of(change))) == {
        ("unique", "Person", "b", "a")
    }


@SOME
@given(changes())
def test_the_rules_find_something_exactly_if_the_graph_is_broken(change: GraphChange) -> None:
    after: Graph = {table: change.after(table) for table in change.base}
    assert (in_process(change) == set()) is is_valid(after)


@SOME
@given(changes())
def test_without_old_rows_the_same_is_found_but_for_sources_that_lose_an_edge(change: GraphChange) -> None:
    blind = {
        table: ChangedImages(images.has_new, False, images.has_gone, images.has_kept)
        for table, images in images_of(change).items()
    }
    violations, expected = Sql(change).find_violations(compile_constraints(CATALOG, blind)), oracle(change)
    missed = {violation for violation in expected - violations if violation[0] != "cardinality" or violation[3] >= 1}
    assert missed == set()
    # An edge that stays where it was is looked at again, and its removed end is found once more.
    assert {violation[0] for violation in violations - expected} <= {"endpoint"}


@SOME
@given(changes(), st.booleans())
def test_a_screen_leaves_out_nothing_that_matters(change: GraphChange, duplicates: bool) -> None:
    images, sql = images_of(change), Sql(change)
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
def test_blame_names_rows_of_the_change_alike_in_both_planes(change: GraphChange) -> None:
    checked, sql = check_change(change), Sql(change)
    checked.read_committed_rows()
    blamed = {
        (violation.rule, violation.type, violation.id, table, row_id)
        for violation, rows in checked.violations_with_rows()
        for table, row_id in rows
    }
    expected = set()
    for rule in compile_constraints(CATALOG, images_of(change)):
        for table, relation in input_rows_to_reject(rule, CATALOG, "_at").items():
            ids = list(change.new(table))
            key = CATALOG.by_id[rule.type_id].table_key
            expected |= {(rule.code, key, row[0], table, ids[row[-1]]) for row in sql.rows(relation)}
    assert blamed == expected


@SOME
@given(changes())
def test_without_the_blamed_rows_the_graph_holds_together_or_nobody_is_to_blame(change: GraphChange) -> None:
    while True:
        checked = check_change(change)
        checked.read_committed_rows()
        blame = list(checked.violations_with_rows())
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
        table = next(of for of in CATALOG.types if of.table_key == violation.type)
        if violation.rule == "orphan_edge":
            assert violation.id in change.rows_unchanged(table.id)
        else:
            assert (violation.rule, table.source) != ("cardinality", None)
            assert violation.value < table.cardinality.low
            assert violation.id in change.rows_unchanged(table.source or "")


@SOME
@given(tables(PERSON), st.lists(st.sampled_from("abc"), max_size=6))
def test_repeated_ids_of_an_input(base: dict[str, dict[str, Any]], ids: list[str]) -> None:
    """The first of an id is no duplicate, the last of an id is what a merge keeps."""
    change = GraphChange({type_def.id: {} for type_def in CATALOG.types} | {PERSON.id: base}, {}, frozenset())
    given_rows = [row_of(PERSON, {"id": row_id}) for row_id in ids]
    sql = Sql(change, {PERSON.id: given_rows})
    images = {PERSON.id: ChangedImages(has_new=bool(ids))}
    rules = [rule for rule in compile_constraints(CATALOG, images, ordinal="_at") if rule.code == "duplicate_key"]
    repetitions = {row for rule in rules for row in sql.rows(rule.query)}
    assert repetitions == {(row_id, at, ids.index(row_id)) for at, row_id in enumerate(ids) if ids.index(row_id) != at}
    last = {row_id: at for at, row_id in enumerate(ids)}
    assert set(sql.rows(input_rows_replaced_later(PERSON.id, "_at"))) == {
        (row_id, at, last[row_id]) for at, row_id in enumerate(ids) if last[row_id] != at
    }
    screen = compile_screen(CATALOG, images, duplicates=True)
    suspects = sql.fetch(screen.sql("duckdb"), ("place", "id")) if screen is not None else []
    assert {row_id for _, row_id in suspects} >= {row[0] for row in repetitions}


def test_the_images_needed_are_those_that_the_statements_name() -> None:
    images = {type_def.id: ChangedImages(has_new=True, has_old=True, has_gone=True) for type_def in CATALOG.types}
    rules = compile_constraints(CATALOG, images, strict=True, ordinal="_at", screened=True)
    needed = images_read_by(rule.query for rule in rules)
    text = "".join(relation_sql(rule.query, "duckdb") for rule in rules)
    for image in ("new", "old", "gone", "kept", "suspect"):
        for type_def in CATALOG.types:
            assert ((image, type_def.id) in needed) is (f'"{view_name(image, type_def.id)}"' in text)
    assert needed["new", PERSON.id][:1] == ("id",)
    assert "_at" in needed["new", PERSON.id]
