"""Which properties a record mentions, one bit each: merge keeps the stored value of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from omnigraph.load.records.model import GIVEN_COLUMN
from omnigraph.schema.catalog import TypeDef


def given_width(one: TypeDef) -> int:
    """Bytes of a bitmap of this type."""
    return max(1, (len(one.properties) + 7) // 8)


def bitmap(one: TypeDef, mentioned: Iterable[str]) -> bytes:
    """The bitmap of a record that mentions these property ids."""
    bits = bytearray(given_width(one))
    place = {prop.id: at for at, prop in enumerate(one.properties)}
    for name in mentioned:
        bits[place[name] // 8] |= 1 << (place[name] % 8)
    return bytes(bits)


def bitmaps(one: TypeDef, masks: Mapping[str, np.ndarray | bool], rows: int) -> pa.Array:
    """The bitmaps of many records; `masks` says of each property id which records mention it."""
    width = given_width(one)
    bits = np.zeros((rows, width), np.uint8)
    for at, prop in enumerate(one.properties):
        mask = masks.get(prop.id, False)
        if mask is True:
            bits[:, at // 8] |= 1 << (at % 8)
        elif mask is not False:
            bits[:, at // 8] |= np.asarray(mask, np.uint8) << (at % 8)
    return pa.Array.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(bits.tobytes())])


def given_mask(one: TypeDef, column: pa.ChunkedArray | pa.Array, prop_id: str) -> np.ndarray:
    """Which rows mention the property, from the `_given` column of a parsed table."""
    chunks: Sequence[pa.Array] = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    at = next(place for place, prop in enumerate(one.properties) if prop.id == prop_id)
    width = given_width(one)
    parts = [_bits(chunk, width)[:, at // 8] >> (at % 8) & 1 for chunk in chunks if len(chunk)]
    return np.concatenate(parts).astype(bool) if parts else np.zeros(0, bool)


def given_masks(one: TypeDef, table: pa.Table) -> dict[str, np.ndarray]:
    return {prop.id: given_mask(one, table.column(GIVEN_COLUMN), prop.id) for prop in one.properties}


def _bits(chunk: pa.Array, width: int) -> np.ndarray:
    whole = np.frombuffer(chunk.buffers()[1], np.uint8)
    return whole[chunk.offset * width : (chunk.offset + len(chunk)) * width].reshape(len(chunk), width)
