"""Ids for records that have none: a ULID per record, the same however often its line is read again.

The load's own ULID gives the time; file and line give the rest. So a task that is retried, or a second attempt of the
whole load, makes the same ids, and no worker needs a source of randomness.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

_CROCKFORD = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)
_HALF_BITS = 40
_HALF = 1 << _HALF_BITS
_TIME_CHARS = 10
ULID_CHARS = 26


def fresh_ids(seed: str, file: int, lines: np.ndarray) -> pa.Array:
    """The ids of these lines of input file number `file`, for the load whose ULID is `seed`.

    80 bits start at a place that seed and file choose, and count lines from there: two files overlap with a chance of
    lines in 2^80.
    """
    digest = hashlib.sha256(f"{seed}/{file}".encode()).digest()
    start = int.from_bytes(digest[:10], "big")
    low = np.asarray(lines, np.uint64) + np.uint64(start % _HALF)
    high = np.uint64(start // _HALF) + (low >> np.uint64(_HALF_BITS))
    chars = np.empty((len(low), ULID_CHARS), np.uint8)
    chars[:, :_TIME_CHARS] = np.frombuffer(seed[:_TIME_CHARS].upper().ljust(_TIME_CHARS, "0").encode(), np.uint8)
    for place in range(8):
        shift = np.uint64(5 * (7 - place))
        chars[:, _TIME_CHARS + place] = _CROCKFORD[((high >> shift) & np.uint64(31)).astype(np.intp)]
        chars[:, _TIME_CHARS + 8 + place] = _CROCKFORD[((low >> shift) & np.uint64(31)).astype(np.intp)]
    offsets = np.arange(0, (len(low) + 1) * ULID_CHARS, ULID_CHARS, dtype=np.int32)
    return pa.Array.from_buffers(pa.utf8(), len(low), [None, pa.py_buffer(offsets), pa.py_buffer(chars.tobytes())])
