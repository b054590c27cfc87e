"""One bucket of a merge on Spark, worked out here: rows are removed where the target has them, not the base."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.history.decide_row import MergeOptions
from omnigraph.history.spark.decide_bucket import BASE, BASE_OF_TARGET, REMOVAL, TARGET, Bucket, TableMerge
from omnigraph.schema.compile import compile_schema
from omnigraph.storage.lance import TableLocation

_TYPE = compile_schema("node Thing { title: String? }", mint=lambda: "t1").types[0]
_NOWHERE = TableLocation("memory:///", (), None)


def _rows(places: Mapping[str, tuple[int, int]]) -> pa.Table:
    """A row per id, at this fragment and offset."""
    (title,) = (prop.id for prop in _TYPE.properties)
    rows = [
        {"id": row_id, title: "t", "_rowaddr": (address[0] << 32) | address[1]} for row_id, address in places.items()
    ]
    return pa.Table.from_pylist(rows, pa.schema([("id", pa.utf8()), (title, pa.utf8()), ("_rowaddr", pa.int64())]))


def _positions_to_remove(
    sides: Mapping[int, Mapping[str, tuple[int, int]]], twins: Mapping[int, int]
) -> dict[int, list[int]]:
    table = TableMerge(_TYPE, True, twins, frozenset(), frozenset(), MergeOptions())
    rows = Bucket(table, {side: _rows(places) for side, places in sides.items()}).decide(_NOWHERE, 0).to_pylist()
    return {
        row["fragment"]: sorted(np.frombuffer(row["data"], "<u4").tolist()) for row in rows if row["what"] == REMOVAL
    }


@pytest.mark.parametrize("twins", [{3: 3}, {3: 5}, {3: 1, 5: 3}], ids=["as it was", "moved", "numbers changed places"])
def test_a_row_that_the_target_did_not_touch_goes_where_its_file_is_now(twins: dict[int, int]) -> None:
    assert _positions_to_remove({BASE: {"a": (3, 7), "b": (3, 2)}}, twins) == {twins[3]: [2, 7]}


def test_a_row_that_the_target_moved_goes_where_the_target_has_it() -> None:
    moved = {BASE: {"a": (3, 7)}, BASE_OF_TARGET: {"a": (3, 7)}, TARGET: {"a": (9, 1)}}
    assert _positions_to_remove(moved, {3: 5}) == {9: [1]}
