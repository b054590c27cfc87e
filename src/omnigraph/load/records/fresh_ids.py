"""Generates ids for records that have none: one ULID per record, the same whenever its line is read again.

The ULID of the load gives the time, file and line give the other bits. So a task that is retried, or a second attempt
of the whole load, generates the same ids, and no task needs a source of randomness.
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
    """Returns the ids of these lines of input file number `file`, for the load whose ULID is `seed`.

    The 80 bits after the time are a hash of seed and file plus the line. The ids of two files with n lines overlap
    with a probability of about n in 2^80.
    """
    digest = hashlib.sha256(f"{seed}/{file}".encode()).digest()
    start = int.from_bytes(digest[:10], "big")
    low = np.asarray(lines, np.uint64) + np.uint64(start % _HALF)
    high = np.uint64(start // _HALF) + (low >> np.uint64(_HALF_BITS))
    chars = np.empty((len(low), ULID_CHARS), np.uint8)
    chars[:, :_TIME_CHARS] = np.frombuffer(seed[:_TIME_CHARS].upper().ljust(_TIME_CHARS, "0").encode(), np.uint8)
    for char_index in range(8):
        shift = np.uint64(5 * (7 - char_index))
        chars[:, _TIME_CHARS + char_index] = _CROCKFORD[((high >> shift) & np.uint64(31)).astype(np.intp)]
        chars[:, _TIME_CHARS + 8 + char_index] = _CROCKFORD[((low >> shift) & np.uint64(31)).astype(np.intp)]
    offsets = np.arange(0, (len(low) + 1) * ULID_CHARS, ULID_CHARS, dtype=np.int32)
    return pa.Array.from_buffers(pa.utf8(), len(low), [None, pa.py_buffer(offsets), pa.py_buffer(chars.tobytes())])
