"""Overlay entries: one per id, with the rid of the record attempt that placed them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.log.overlay import OverlayTable, overlay_size
from tests.log.records import COLUMNS, ages_of, entries, rows


def test_a_change_holds_images_and_tombstones() -> None:
    overlay = entries("r1", {"a": 1, "b": None}, ["c"])
    assert ages_of(overlay) == {"a": 1, "b": None}
    assert overlay.tombstones == {"c"}
    assert set(overlay.hidden_ids) == {"a", "b", "c"}
    assert overlay.entry_keys == {("a", "r1"), ("b", "r1"), ("c", "r1")}
    assert overlay.entries == 3


def test_a_change_of_nothing_is_empty() -> None:
    overlay = OverlayTable.of_change(COLUMNS, None, [], "r1")
    assert (overlay.entries, overlay.tombstones, ages_of(overlay)) == (0, frozenset(), {})


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
    merged = older.with_entries(newer)
    assert ages_of(merged) == ages
    assert merged.tombstones == tombstones
    assert len(merged.index) == merged.entries, "one entry per id"
    assert ages_of(older) == {"a": 1, "b": 2}, "the older one is untouched"


def test_a_fold_removes_only_the_very_entries_it_took() -> None:
    """H1: an entry replaced since has another rid and stays."""
    folded = entries("r1", {"a": 1, "b": 2}, ["c"])
    now = folded.with_entries(entries("r2", {"a": 9}))
    remaining = now.without_entry_keys(folded.entry_keys)
    assert ages_of(remaining) == {"a": 9}
    assert remaining.tombstones == frozenset()


def test_a_tombstone_placed_since_stays() -> None:
    """H2: the row was taken by a fold, then deleted."""
    folded = entries("r1", {"a": 1})
    remaining = folded.with_entries(entries("r2", {}, ["a"])).without_entry_keys(folded.entry_keys)
    assert remaining.tombstones == {"a"}


def test_an_entry_of_another_record_is_not_removed() -> None:
    now = entries("r1", {"a": 1}).with_entries(entries("r2", {"b": 2}))
    assert ages_of(now.without_entry_keys({("b", "r1"), ("a", "r2"), ("z", "r1")})) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("ids", "remaining_ids"), [(["a"], {"b"}), (["a", "b", "c"], set()), (["x"], {"a", "b"}), ([], {"a", "b"})]
)
def test_ids_can_be_removed(ids: list[str], remaining_ids: set[str]) -> None:
    assert ages_of(entries("r1", {"a": 1, "b": 2}, ["c"]).without_ids(ids)).keys() == remaining_ids


def test_own_entries_are_the_logical_change_of_a_record() -> None:
    overlay = entries("r1", {"a": 1, "b": 2}).with_entries(entries("r2", {"b": 3}, ["z"]))
    assert ages_of(overlay.own("r2")) == {"b": 3}
    assert overlay.own("r2").tombstones == {"z"}
    assert ages_of(overlay.own("r1")) == {"a": 1}
    assert overlay.own("r3").entries == 0


def test_lookup_by_id_skips_tombstones() -> None:
    overlay = entries("r1", {"a": 1, "b": 2}, ["c"])
    assert overlay.rows_of(["b", "c", "x"]).to_pylist() == [{"id": "b", "age": 2}]
    assert overlay.rows_of([]).num_rows == 0


def test_encoding_is_stable_and_complete() -> None:
    overlay = entries("r1", {"a": 1}, ["c"]).with_entries(entries("r2", {"d": None}))
    again = OverlayTable.decode(overlay.as_bytes)
    assert again.table.equals(overlay.table.combine_chunks())
    assert again.as_bytes == overlay.as_bytes
    assert again.entry_keys == overlay.entry_keys


def test_entries_of_an_older_shape_read_as_null() -> None:
    """A column that only newer entries have."""
    wider = pa.schema([*COLUMNS, pa.field("city", pa.utf8())])
    newer = OverlayTable.of_change(
        wider, pa.table({"id": ["b"], "age": pa.array([2], pa.int32()), "city": ["Rome"]}, schema=wider), [], "r2"
    )
    merged = entries("r1", {"a": 1}).with_entries(newer)
    assert merged.rows.sort_by("id").to_pylist() == [
        {"id": "a", "age": 1, "city": None},
        {"id": "b", "age": 2, "city": "Rome"},
    ]


def test_size_counts_all_tables() -> None:
    first, second = entries("r1", {"a": 1}), entries("r1", {"b": 1, "c": 2}, ["d"])
    assert overlay_size({}) == (0, 0)
    assert overlay_size({"t": first, "u": second}) == (len(first.as_bytes) + len(second.as_bytes), 4)


def test_rows_need_not_come_in_the_order_of_the_columns() -> None:
    turned = rows({"a": 1}).select(["age", "id"])
    assert ages_of(OverlayTable.of_change(COLUMNS, turned, [], "r1")) == {"a": 1}
