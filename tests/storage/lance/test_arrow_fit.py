"""Rows fit a schema: missing columns are filled, other types are cast, unknown columns are left out."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.errors import InvalidInput
from omnigraph.storage.lance.arrow_fit import (
    ReadShape,
    cast_by_position,
    fit_batch,
    fit_column,
    fit_table,
    make_nullable,
    select_and_cast,
    with_columns,
)

ROWS = pa.table({"id": ["a", "b"], "age": pa.array([1, None], pa.int32()), "old": [True, False]})
SCHEMA = pa.schema([pa.field("id", pa.utf8(), nullable=False), ("age", pa.int64()), ("note", pa.utf8())])


def test_fit_table_casts_fills_with_nulls_and_leaves_out_unknown_columns() -> None:
    fitted = fit_table(ROWS, SCHEMA)
    assert fitted.schema == SCHEMA
    assert fitted.to_pydict() == {"id": ["a", "b"], "age": [1, None], "note": [None, None]}


def test_fit_batch_takes_missing_columns_from_fills() -> None:
    fitted = fit_batch(ROWS.to_batches()[0], SCHEMA, {"note": pa.array(["x", "y"]), "age": pa.array([7, 7])})
    assert fitted.to_pydict() == {"id": ["a", "b"], "age": [1, None], "note": ["x", "y"]}


def test_fit_column_casts_a_list_whose_item_has_another_name() -> None:
    column = pa.array([[1], None], pa.list_(pa.field("element", pa.int32())))
    fitted = fit_column(column, pa.list_(pa.int32()))
    assert fitted.type.value_field.name == "item"
    assert fit_column(fitted, pa.list_(pa.int32())) is fitted


def test_select_and_cast_refuses_a_missing_column_and_a_null_where_none_may_be() -> None:
    assert select_and_cast(ROWS, pa.schema([("age", pa.int64())])).column("age").type == pa.int64()
    with pytest.raises(KeyError):
        select_and_cast(ROWS, SCHEMA)
    with pytest.raises(ValueError, match="non-nullable"):
        select_and_cast(ROWS, pa.schema([pa.field("age", pa.int64(), nullable=False)]))


def test_cast_by_position_renames_and_casts() -> None:
    batch = ROWS.select(["id", "age"]).to_batches()[0]
    renamed = cast_by_position(batch, pa.schema([("name", pa.utf8()), ("years", pa.int64())]))
    assert renamed.to_pydict() == {"name": ["a", "b"], "years": [1, None]}


def test_make_nullable_lets_every_field_be_null() -> None:
    assert [field.nullable for field in make_nullable(SCHEMA)] == [True, True, True]


def test_a_read_shape_reads_what_is_stored_and_returns_what_is_known() -> None:
    shape = ReadShape.of(["note", "age"], SCHEMA, ROWS.schema)
    assert shape.physical == ["age"]
    assert shape.fit(ROWS.select(["age"])).to_pydict() == {"note": [None, None], "age": [1, None]}
    assert ReadShape.of(["note"], SCHEMA, ROWS.schema).physical == ["id"]
    with pytest.raises(InvalidInput, match="old"):
        ReadShape.of(["old"], SCHEMA, ROWS.schema)


def test_with_columns_adds_what_is_needed_once() -> None:
    assert with_columns(["age"], "id", "age", "id") == ["id", "age"]
    assert with_columns(None, "id") is None
