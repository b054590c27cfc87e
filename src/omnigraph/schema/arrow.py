"""Physical columns of a type: the Arrow schema that tables, overlays and Spark share."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.schema.catalog import SYSTEM_COLUMNS, EntityKind, PropType, Scalar, TypeDef

_SCALARS = {
    Scalar.STRING: pa.utf8(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.timestamp("ms", "UTC"),
    Scalar.BLOB: pa.large_binary(),
}


_BY_ARROW = {stored: scalar for scalar, stored in _SCALARS.items()}


def arrow_type(kind: PropType) -> pa.DataType:
    if kind.vector_size is not None:
        return pa.list_(pa.float32(), kind.vector_size)
    scalar = _SCALARS[kind.scalar]
    return pa.list_(scalar) if kind.is_list else scalar


def prop_type(kind: pa.DataType) -> PropType:
    """The property type that is stored as this Arrow type; an enum comes back as String."""
    if pa.types.is_fixed_size_list(kind):
        return PropType(Scalar.F32, vector_size=kind.list_size)
    if pa.types.is_list(kind):
        return PropType(_BY_ARROW[kind.value_type], is_list=True)
    return PropType(_BY_ARROW[kind])


def system_fields(kind: EntityKind) -> list[pa.Field]:
    return [pa.field(name, pa.utf8(), nullable=False) for name in SYSTEM_COLUMNS[kind]]


def kind_of(schema: pa.Schema) -> EntityKind:
    """Whether a table with these columns holds nodes or edges: only edges have endpoints."""
    return "edge" if "src" in schema.names else "node"


def arrow_schema(type_def: TypeDef) -> pa.Schema:
    """The columns of a table: `id` (and `src`, `dst`), then one per property, named by the property's identity.

    Property columns are always nullable in storage: "required" is a constraint of the schema, and a column added later
    has no value in older rows until they are rewritten.
    """
    columns = [pa.field(prop.id, arrow_type(prop.type), nullable=True) for prop in type_def.properties]
    return pa.schema([*system_fields(type_def.kind), *columns])
