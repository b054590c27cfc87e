"""How an index is cut for several workers, and what old lists of a collector still have to say: pure decisions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.storage.keys import is_temporary
from omnigraph.storage.lance import IndexPlan, IndexSpec, split_index_plan
from omnigraph.storage.store import ObjectInfo
from omnigraph.upkeep.cleanup.trash import SweepProgress, TrashList, latest_progress

SORTED = IndexSpec("by_id", "id", "BTREE")


@given(
    rows=st.dictionaries(st.integers(0, 40), st.integers(1, 1000), min_size=1),
    most_rows=st.integers(1, 2000),
    most_parts=st.integers(1, 6),
)
def test_every_fragment_is_in_one_part(rows: dict[int, int], most_rows: int, most_parts: int) -> None:
    parts = split_index_plan(IndexPlan(SORTED, tuple(rows), ()), rows, most_rows=most_rows, most_parts=most_parts)
    assert sorted(fragment for part in parts for fragment in part.fragments) == sorted(rows)
    assert all(part.fragments for part in parts)
    assert len(parts) <= most_parts
    if sum(rows.values()) <= most_rows:
        assert len(parts) == 1


def test_parts_are_even() -> None:
    rows = dict.fromkeys(range(12), 100)
    parts = split_index_plan(IndexPlan(SORTED, tuple(rows), ()), rows, most_rows=300, most_parts=8)
    assert [sum(rows[fragment] for fragment in part.fragments) for part in parts] == [300] * 4


@pytest.mark.parametrize("kind", ["INVERTED", "IVF_FLAT"])
def test_text_and_vector_indexes_are_not_split(kind: str) -> None:
    plan = IndexPlan(IndexSpec("one", "column", kind), (1, 2, 3), ())
    assert split_index_plan(plan, {1: 9, 2: 9, 3: 9}, most_rows=1, most_parts=8) == [plan]


@pytest.mark.parametrize("key", [".tmp-x", "__manifest/s/.tmp-0a", "tables/t/data/.tmp-1"])
def test_temporary(key: str) -> None:
    assert is_temporary(key)


@pytest.mark.parametrize(
    "key", ["x", "a/tmp-x", ".tmp-", ".tmp-a/b", "../.tmp-x", "a/../.tmp-x", "/.tmp-x", ".tmp-x\n"]
)
def test_not_temporary(key: str) -> None:
    assert not is_temporary(key)


def _list(name: str, second: int, **progress: SweepProgress) -> tuple[TrashList, ObjectInfo]:
    trash_list = TrashList(name, (), progress)
    return trash_list, ObjectInfo(trash_list.key, 0, datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC))


def test_full_records_of_any_trash_list_are_read_again() -> None:
    lists = [
        _list("one", 1, s=SweepProgress(9, (2, 8)), gone=SweepProgress(3, (1,))),
        _list("two", 2, s=SweepProgress(7, (4,))),
    ]
    assert latest_progress(lists) == {"s": SweepProgress(7, (2, 4))}  # 8 is read anyway: it is not below 7
    assert latest_progress([]) == {}
