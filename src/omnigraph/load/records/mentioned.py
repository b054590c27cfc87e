"""Which properties a record mentions, one bit per property: merge keeps the stored values of the other properties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from omnigraph.load.records.batches import MENTIONED_COLUMN
from omnigraph.schema.catalog import TypeDef


def bitmap_width(type_def: TypeDef) -> int:
    """Returns the number of bytes of a bitmap for records of this type."""
    return max(1, (len(type_def.properties) + 7) // 8)


def build_bitmap(type_def: TypeDef, mentioned: Iterable[str]) -> bytes:
    """Builds the bitmap of a record that mentions these property ids."""
    bits = bytearray(bitmap_width(type_def))
    bit_positions = {prop.id: position for position, prop in enumerate(type_def.properties)}
    for name in mentioned:
        bits[bit_positions[name] // 8] |= 1 << (bit_positions[name] % 8)
    return bytes(bits)


def build_bitmaps(type_def: TypeDef, masks: Mapping[str, np.ndarray | bool], rows: int) -> pa.Array:
    """Builds the bitmaps of many records; `masks` says for each property id which records mention it."""
    width = bitmap_width(type_def)
    bits = np.zeros((rows, width), np.uint8)
    for position, prop in enumerate(type_def.properties):
        mask = masks.get(prop.id, False)
        if mask is True:
            bits[:, position // 8] |= 1 << (position % 8)
        elif mask is not False:
            bits[:, position // 8] |= np.asarray(mask, np.uint8) << (position % 8)
    return pa.Array.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(bits.tobytes())])


def mentioned_mask(type_def: TypeDef, column: pa.ChunkedArray | pa.Array, prop_id: str) -> np.ndarray:
    """Returns which rows mention the property, from the `MENTIONED_COLUMN` of a parsed table."""
    chunks: Sequence[pa.Array] = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    position = next(index for index, prop in enumerate(type_def.properties) if prop.id == prop_id)
    width = bitmap_width(type_def)
    parts = [_bits(chunk, width)[:, position // 8] >> (position % 8) & 1 for chunk in chunks if len(chunk)]
    return np.concatenate(parts).astype(bool) if parts else np.zeros(0, bool)


def mentioned_masks(type_def: TypeDef, table: pa.Table) -> dict[str, np.ndarray]:
    return {prop.id: mentioned_mask(type_def, table.column(MENTIONED_COLUMN), prop.id) for prop in type_def.properties}


def _bits(chunk: pa.Array, width: int) -> np.ndarray:
    octets = np.frombuffer(chunk.buffers()[1], np.uint8)
    return octets[chunk.offset * width : (chunk.offset + len(chunk)) * width].reshape(len(chunk), width)
