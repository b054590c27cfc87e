"""Columns as Spark knows them. What Spark has no type for is given in the next wider one, exactly.

| language | Spark |
|---|---|
| `U32` | BIGINT |
| `U64` | DECIMAL(20, 0) |
| `Vector(n)` | ARRAY<FLOAT> |
| `DateTime` | TIMESTAMP, in UTC |
| `Blob` | BINARY |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.storage.lance.arrow_fit import cast_by_position

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_U64 = pa.decimal128(20, 0)
_MOMENT = pa.timestamp("us", "UTC")


def spark_arrow_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type that carries `kind` to Spark."""
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        return pa.list_(pa.field("element", spark_arrow_type(kind.value_type), nullable=False))
    if pa.types.is_uint32(kind):
        return pa.int64()
    if pa.types.is_uint64(kind):
        return _U64
    if pa.types.is_timestamp(kind):
        return _MOMENT
    return pa.binary() if pa.types.is_large_binary(kind) else kind


def spark_arrow_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, spark_arrow_type(field.type), field.nullable) for field in schema])


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark type of rows with this Arrow schema."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(spark_arrow_schema(schema))


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows in the types of `wanted`, a schema of `spark_arrow_schema`."""
    return cast_by_position(batch, schema)
