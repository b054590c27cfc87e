"""`TableView`: pin plus overlay, seen as one table, whatever is where."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.log.overlay import OverlayTable
from omnigraph.log.table_view import TableView
from omnigraph.storage.lance import PinnedTable, TableDelta, TableStore
from tests.log.records import COLUMNS, entries, rows

WIDER = pa.schema([*COLUMNS, pa.field("city", pa.utf8())])


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[TableStore]:
    store = TableStore(str(tmp_path), fsync=False)
    yield store
    store.close()


@pytest.fixture
def pinned(tables: TableStore) -> PinnedTable:
    """Rows p0 … p9 of age 0 … 9; p5 has none."""
    base = tables.birth("node.person-1", "node")
    ages = {f"p{number}": None if number == 5 else number for number in range(10)}
    return tables.commit(base, tables.stage(base, TableDelta(schema=COLUMNS, rows=rows(ages))))


OVERLAY = entries("r1", {"p1": 100, "p2": None, "new": 7}, ["p3", "never"])
SEEN = {"p0": 0, "p1": 100, "p2": None, "p4": 4, "p5": None, "p6": 6, "p7": 7, "p8": 8, "p9": 9, "new": 7}


def _ages(table: pa.Table) -> dict[str, int | None]:
    rows = table.to_pylist()
    by_id = {row["id"]: row["age"] for row in rows}
    assert len(by_id) == len(rows)
    return by_id


def test_nothing_at_all() -> None:
    view = TableView(COLUMNS, None)
    assert view.count() == 0
    assert view.scan().num_rows == 0
    assert view.find(["a"]).num_rows == 0
    assert view.find_by("age", [1]).num_rows == 0
    assert view.scan().schema.names == ["id", "age"]


def test_overlay_only() -> None:
    view = TableView(COLUMNS, None, OVERLAY)
    assert _ages(view.scan()) == {"p1": 100, "p2": None, "new": 7}
    assert view.count() == 3


def test_both_seen_as_one(pinned: PinnedTable) -> None:
    view = TableView(COLUMNS, pinned, OVERLAY)
    assert _ages(view.scan()) == SEEN
    assert view.count() == len(SEEN)
    assert _ages(pa.Table.from_batches(list(view.batches()), view.scan().schema)) == SEEN


@pytest.mark.parametrize(
    "where",
    [
        pc.field("age") > 6,
        pc.field("age") == 7,
        pc.field("age").is_null(),
        ~pc.field("age").is_null(),
        pc.field("id") == "p1",
        pc.field("id").isin(["p3", "p4", "new"]),
        (pc.field("age") < 3) | (pc.field("age") > 50),
    ],
    ids=str,
)
@pytest.mark.parametrize("with_overlay", [False, True])
def test_filters_mean_the_same_on_both_sides(pinned: PinnedTable, where: pc.Expression, with_overlay: bool) -> None:
    view = TableView(COLUMNS, pinned, OVERLAY if with_overlay else None)
    everything = view.scan()
    expected = _ages(everything.filter(where))
    assert _ages(view.scan(where=where)) == expected
    assert view.count(where) == len(expected)
    batches = list(view.batches(where=where))
    assert _ages(pa.Table.from_batches(batches, everything.schema)) == expected


@pytest.mark.parametrize("limit", [0, 1, 3, 9, 10, 100])
def test_a_limit_is_applied_after_hiding(pinned: PinnedTable, limit: int) -> None:
    """H10: hidden rows do not make an answer short."""
    view = TableView(COLUMNS, pinned, entries("r1", {}, [f"p{number}" for number in range(5)]))
    assert view.scan(limit=limit).num_rows == min(limit, 5)
    assert not set(_ages(view.scan(limit=limit))) & {f"p{number}" for number in range(5)}
    assert view.scan(limit=limit, where=pc.field("age") >= 0).num_rows == min(limit, 4)


@pytest.mark.parametrize(
    ("ids", "ages"),
    [
        (["p0"], {"p0": 0}),
        (["p1", "p3", "p4"], {"p1": 100, "p4": 4}),
        (["new", "new"], {"new": 7}),
        (["zz", "never"], {}),
        ([], {}),
    ],
)
def test_lookup_by_id(pinned: PinnedTable, ids: list[str], ages: dict[str, int]) -> None:
    assert _ages(TableView(COLUMNS, pinned, OVERLAY).find(ids)) == ages


@pytest.mark.parametrize(
    ("values", "expected_ids"),
    [([7], {"p7", "new"}), ([1], set()), ([100, 0], {"p1", "p0"}), ([3], set()), ([], set())],
)
def test_lookup_by_a_column(pinned: PinnedTable, values: list[int], expected_ids: set[str]) -> None:
    assert set(_ages(TableView(COLUMNS, pinned, OVERLAY).find_by("age", values))) == expected_ids


def test_a_column_that_the_pin_never_had_reads_as_null(pinned: PinnedTable) -> None:
    change = pa.table({"id": ["p1"], "age": pa.array([1], pa.int32()), "city": ["Rome"]}, schema=WIDER)
    view = TableView(WIDER, pinned, OverlayTable.of_change(WIDER, change, [], "r2"))
    cities = {row["id"]: row["city"] for row in view.scan().to_pylist()}
    assert cities == {**dict.fromkeys((f"p{number}" for number in range(10)), None), "p1": "Rome"}
    assert view.count(pc.field("city") == "Rome") == 1
    assert view.count(pc.field("city").is_null()) == 9
    assert view.scan(where=pc.field("city").is_null(), limit=4).num_rows == 4
    assert view.find_by("city", ["Rome"]).num_rows == 1
    assert view.find(["p2"], ["city"]).to_pylist() == [{"city": None}]


@pytest.mark.parametrize("columns", [["age"], ["id"], ["age", "id"]])
def test_projections(pinned: PinnedTable, columns: list[str]) -> None:
    view = TableView(COLUMNS, pinned, OVERLAY)
    assert view.scan(columns).column_names == columns
    assert view.scan(columns).num_rows == len(SEEN)
    assert view.find(["p1", "p0"], columns).column_names == columns


def test_pending_rows_lie_on_top_of_the_overlay(pinned: PinnedTable) -> None:
    """How a mutation sees what it did so far."""
    view = TableView(COLUMNS, pinned, OVERLAY)
    pending = view.with_overlay(entries("", {"p3": 33, "p0": 1}, ["p1", "new"]))
    expected: dict[str, int | None] = {**SEEN, "p3": 33, "p0": 1}
    del expected["p1"], expected["new"]
    assert _ages(pending.scan()) == expected
    assert _ages(view.scan()) == SEEN


def test_every_split_between_pin_and_overlay_reads_alike(tables: TableStore) -> None:
    """The same four operations, each either folded or not: one answer."""
    steps: list[tuple[dict[str, int | None], list[str]]] = [
        ({"a": 1, "b": 2}, []),
        ({"a": 3}, ["b"]),
        ({"b": 4, "c": 5}, []),
        ({}, ["a"]),
    ]
    for folds in itertools.product([False, True], repeat=len(steps)):
        base: PinnedTable | None = None
        overlay: OverlayTable | None = None
        for number, ((ages, deleted), fold) in enumerate(zip(steps, folds, strict=True)):
            newer = entries(f"r{number}", ages, deleted)
            overlay = overlay.with_entries(newer) if overlay else newer
            if fold:
                base = base or tables.birth("node.thing-1", "node")
                delta = TableDelta(COLUMNS, overlay.rows, tuple(overlay.tombstones))
                base = tables.commit(base, tables.stage(base, delta))
                overlay = None
        assert _ages(TableView(COLUMNS, base, overlay).scan()) == {"b": 4, "c": 5}, folds
