"""Overlay entries: one per id, stamped by the record attempt that placed them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.log.overlay import OverlayTable, overlay_size
from tests.log.records import COLUMNS, ages_of, entries, rows


def test_a_change_holds_images_and_tombstones() -> None:
    one = entries("r1", {"a": 1, "b": None}, ["c"])
    assert ages_of(one) == {"a": 1, "b": None}
    assert one.tombstones == {"c"}
    assert set(one.hidden_ids) == {"a", "b", "c"}
    assert one.stamps == {("a", "r1"), ("b", "r1"), ("c", "r1")}
    assert one.entries == 3


def test_a_change_of_nothing_is_empty() -> None:
    one = OverlayTable.of_change(COLUMNS, None, [], "r1")
    assert (one.entries, one.tombstones, ages_of(one)) == (0, frozenset(), {})


@pytest.mark.parametrize(
    ("newer", "ages", "tombstones"),
    [
        (entries("r2", {"a": 9}), {"a": 9, "b": 2}, {"c"}),
        (entries("r2", {}, ["a"]), {"b": 2}, {"a", "c"}),
        (entries("r2", {"c": 3}), {"a": 1, "b": 2, "c": 3}, set()),
        (entries("r2", {"d": 4}, ["b", "e"]), {"a": 1, "d": 4}, {"b", "c", "e"}),
        (entries("r2", {}), {"a": 1, "b": 2}, {"c"}),
    ],
    ids=["replaces", "deletes", "revives", "mixed", "nothing"],
)
def test_newer_entries_replace_older_ones(newer: OverlayTable, ages: dict[str, int], tombstones: set[str]) -> None:
    older = entries("r1", {"a": 1, "b": 2}, ["c"])
    made = older.with_entries(newer)
    assert ages_of(made) == ages
    assert made.tombstones == tombstones
    assert len(made.index) == made.entries, "one entry per id"
    assert ages_of(older) == {"a": 1, "b": 2}, "the older one is untouched"


def test_a_fold_removes_only_the_very_entries_it_took() -> None:
    """H1: an entry replaced since has another stamp and stays."""
    taken = entries("r1", {"a": 1, "b": 2}, ["c"])
    now = taken.with_entries(entries("r2", {"a": 9}))
    left = now.without_stamps(taken.stamps)
    assert ages_of(left) == {"a": 9}
    assert left.tombstones == frozenset()


def test_a_tombstone_placed_since_stays() -> None:
    """H2: the row was taken by a fold, then deleted."""
    taken = entries("r1", {"a": 1})
    left = taken.with_entries(entries("r2", {}, ["a"])).without_stamps(taken.stamps)
    assert left.tombstones == {"a"}


def test_the_same_stamp_of_another_record_is_not_touched() -> None:
    now = entries("r1", {"a": 1}).with_entries(entries("r2", {"b": 2}))
    assert ages_of(now.without_stamps({("b", "r1"), ("a", "r2"), ("z", "r1")})) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("ids", "left"), [(["a"], {"b"}), (["a", "b", "c"], set()), (["x"], {"a", "b"}), ([], {"a", "b"})]
)
def test_ids_can_be_removed(ids: list[str], left: set[str]) -> None:
    assert ages_of(entries("r1", {"a": 1, "b": 2}, ["c"]).without_ids(ids)).keys() == left


def test_own_entries_are_the_logical_change_of_a_record() -> None:
    one = entries("r1", {"a": 1, "b": 2}).with_entries(entries("r2", {"b": 3}, ["z"]))
    assert ages_of(one.own("r2")) == {"b": 3}
    assert one.own("r2").tombstones == {"z"}
    assert ages_of(one.own("r1")) == {"a": 1}
    assert one.own("r3").entries == 0


def test_lookup_by_id_skips_tombstones() -> None:
    one = entries("r1", {"a": 1, "b": 2}, ["c"])
    assert one.rows_of(["b", "c", "x"]).to_pylist() == [{"id": "b", "age": 2}]
    assert one.rows_of([]).num_rows == 0


def test_encoding_is_stable_and_complete() -> None:
    one = entries("r1", {"a": 1}, ["c"]).with_entries(entries("r2", {"d": None}))
    again = OverlayTable.decode(one.as_bytes)
    assert again.table.equals(one.table.combine_chunks())
    assert again.as_bytes == one.as_bytes
    assert again.stamps == one.stamps


def test_entries_of_an_older_shape_read_as_null() -> None:
    """A column that only newer entries have."""
    wider = pa.schema([*COLUMNS, pa.field("city", pa.utf8())])
    newer = OverlayTable.of_change(
        wider, pa.table({"id": ["b"], "age": pa.array([2], pa.int32()), "city": ["Rome"]}, schema=wider), [], "r2"
    )
    made = entries("r1", {"a": 1}).with_entries(newer)
    assert made.rows.sort_by("id").to_pylist() == [
        {"id": "a", "age": 1, "city": None},
        {"id": "b", "age": 2, "city": "Rome"},
    ]


def test_size_counts_all_tables() -> None:
    one, other = entries("r1", {"a": 1}), entries("r1", {"b": 1, "c": 2}, ["d"])
    assert overlay_size({}) == (0, 0)
    assert overlay_size({"t": one, "u": other}) == (len(one.as_bytes) + len(other.as_bytes), 4)


def test_rows_need_not_come_in_the_order_of_the_columns() -> None:
    turned = rows({"a": 1}).select(["age", "id"])
    assert ages_of(OverlayTable.of_change(COLUMNS, turned, [], "r1")) == {"a": 1}
