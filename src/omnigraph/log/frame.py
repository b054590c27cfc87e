"""The frame of commit records and stored plans: magic, codec, length, checksum, body.

frame = magic u32 | codec u8 | raw_len u32 | crc32c u32 | body        (little endian)
body  = header_len u32 | JSON header | sections, back to back
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import google_crc32c
import pyarrow as pa

from omnigraph.errors import Corruption, Unsupported

MAGIC = 0x4F47_5231  # "OGR1"
_LEAD = struct.Struct("<IBI")
_FRAME = struct.Struct("<IBII")
_LENGTH = struct.Struct("<I")
_RAW, _ZSTD = 0, 1
_COMPRESS_ABOVE_BYTES = 4096


@cache
def _zstd() -> pa.Codec:
    return pa.Codec("zstd", compression_level=1)


def encode_frame(header: dict[str, Any], sections: Sequence[bytes]) -> bytes:
    """The object to store. Large bodies are compressed."""
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    raw = b"".join((_LENGTH.pack(len(text)), text, *sections))
    codec, body = (_ZSTD, _zstd().compress(raw, asbytes=True)) if len(raw) > _COMPRESS_ABOVE_BYTES else (_RAW, raw)
    return _FRAME.pack(MAGIC, codec, len(raw), _checksum(codec, len(raw), body)) + body


def decode_frame(data: bytes, where: str) -> tuple[dict[str, Any], memoryview]:
    """The JSON header, and all sections as one piece. Raises Corruption, naming `where`, if anything does not fit."""
    if len(data) < _FRAME.size:
        raise Corruption(f"{where} is truncated: {len(data)} bytes", advice=_ADVICE, key=where)
    magic, codec, raw_len, crc = _FRAME.unpack_from(data)
    body = memoryview(data)[_FRAME.size :]
    if magic != MAGIC:
        raise Corruption(f"{where} is not a commit record", advice=_ADVICE, key=where)
    if _checksum(codec, raw_len, bytes(body)) != crc:
        raise Corruption(f"{where} is damaged: its checksum does not fit", advice=_ADVICE, key=where)
    if codec not in (_RAW, _ZSTD):
        raise Unsupported(f"{where} uses record codec {codec}", advice="Upgrade omnigraph", key=where)
    raw = memoryview(_zstd().decompress(body, raw_len, asbytes=True)) if codec == _ZSTD else body
    (header_len,) = _LENGTH.unpack_from(raw)
    start = _LENGTH.size + header_len
    header = json.loads(bytes(raw[_LENGTH.size : start]))
    if not isinstance(header, dict):
        raise Corruption(f"{where} has no header", advice=_ADVICE, key=where)
    return header, raw[start:]


def _checksum(codec: int, raw_len: int, body: bytes) -> int:
    return int(google_crc32c.extend(google_crc32c.value(_LEAD.pack(MAGIC, codec, raw_len)), body))


_ADVICE = "Older commits stay readable; restore the object from a backup and run `omnigraph verify`"
