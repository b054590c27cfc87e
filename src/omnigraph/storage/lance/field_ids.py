"""Field ids: which column of a data file is which column of the table.

A property's column has the same name for ever but any number of field ids: two branches may add the same columns in
different orders. So data files are written with ids counted from zero over their own schema, and the commit replaces
those by the ids of the table. A staged file therefore fits any base and is never written again because of its ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata
    from lance.lance.schema import LanceField
    from lance.schema import LanceSchema

FieldPath = tuple[str, ...]

_PROTO_ID = 3
_PROTO_PARENT = 4
_SIGN = 1 << 63
_WRAP = 1 << 64


def field_ids(schema: LanceSchema) -> dict[FieldPath, int]:
    """The id of every field, nested ones too, by the names on its path."""
    ids_by_path: dict[FieldPath, int] = {}

    def walk(field: LanceField, parent_path: FieldPath) -> None:
        path = (*parent_path, field.name())
        ids_by_path[path] = field.id()
        for child in field.children():
            walk(child, path)

    for top in schema.fields():
        walk(top, ())
    return ids_by_path


def fresh_schema(schema: pa.Schema) -> LanceSchema:
    """The schema with the ids that a data file is written with: counted from zero."""
    from lance.schema import LanceSchema

    return LanceSchema.from_pyarrow(schema)


def extend_schema(schema: LanceSchema, max_field_id: int, added: Sequence[pa.Field]) -> LanceSchema:
    """`schema` plus nullable columns, with ids that were never used in this line of versions."""
    make, (metadata, *protos) = schema.__reduce__()
    _, (_, *fresh) = fresh_schema(pa.schema(added)).__reduce__()
    return make(metadata, *protos, *(_shift_field_ids(proto, max_field_id + 1) for proto in fresh))


def renumber(fragments: Iterable[FragmentMetadata], written: pa.Schema, target: LanceSchema) -> None:
    """Replace the field ids of data files written with `fresh_schema(written)` by those of `target`, in place."""
    target_ids = field_ids(target)
    new_id_by_old = {old: target_ids[path] for path, old in field_ids(fresh_schema(written)).items()}
    for fragment in fragments:
        for file in fragment.files:
            file.fields = [new_id_by_old[field_id] for field_id in file.fields]


def _shift_field_ids(proto: bytes, by: int) -> bytes:
    parts = list(read_proto(proto))
    values = {tag: value for tag, _, value in parts}
    parent = values.get(_PROTO_PARENT, 0)
    parent = parent - _WRAP if parent >= _SIGN else parent
    unshifted_parts = b"".join(_part(*part) for part in parts if part[0] not in (_PROTO_ID, _PROTO_PARENT))
    number = _part(_PROTO_ID, 0, values.get(_PROTO_ID, 0) + by)
    return unshifted_parts + number + _part(_PROTO_PARENT, 0, parent if parent < 0 else parent + by)


def read_proto(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """(field number, wire type, value) of one protobuf message: as much of the format as Lance's messages use."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        wire = tag & 7
        if wire == 0:
            value: Any
            value, at = _read_varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(wire)
            if size is None:
                size, at = _read_varint(data, at)
            value, at = data[at : at + size], at + size
        yield tag >> 3, wire, value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _varint(value: int) -> bytes:
    value %= _WRAP
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _part(tag: int, wire: int, value: int | bytes) -> bytes:
    head = _varint(tag << 3 | wire)
    if isinstance(value, int):
        return head + _varint(value)
    return head + (_varint(len(value)) if wire == 2 else b"") + value
