"""Row addresses: where a row of a table version lies, as one number.

The address holds the fragment's id in its upper 32 bits and the row's offset in that fragment in the lower 32. Lance
returns it as the unsigned column `_rowaddr`. Spark has no unsigned integers, so frames carry it as int64; a row that
lies in the overlay of a commit record and in no fragment has `NO_ADDRESS` there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Addresses = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.uint64]

ROW_ADDRESS = "_rowaddr"
ROW_ADDRESS_FIELD = pa.field(ROW_ADDRESS, pa.uint64())
SIGNED_ROW_ADDRESS_FIELD = pa.field(ROW_ADDRESS, pa.int64(), nullable=False)
NO_ADDRESS = -1
FRAGMENT_SHIFT = 32
_OFFSET_MASK = (1 << FRAGMENT_SHIFT) - 1


def pack_address(fragment_id: int, offset: int) -> int:
    return (fragment_id << FRAGMENT_SHIFT) | offset


def split_address(address: int) -> tuple[int, int]:
    """(fragment id, offset in that fragment)."""
    return address >> FRAGMENT_SHIFT, address & _OFFSET_MASK


def pack_addresses(fragment_id: int, offsets: Offsets) -> Addresses:
    """The addresses of several rows of one fragment."""
    return (np.uint64(fragment_id) << np.uint64(FRAGMENT_SHIFT)) | offsets.astype(np.uint64)


def offsets_of(addresses: npt.NDArray[np.integer]) -> Offsets:
    """The offset of each address in its fragment; takes signed addresses too."""
    return addresses.astype(np.uint64) & np.uint64(_OFFSET_MASK)


def group_by_fragment(addresses: Addresses) -> Iterator[tuple[int, Offsets]]:
    """(fragment id, offsets of the addressed rows in it), by ascending fragment id."""
    fragment_ids = addresses >> np.uint64(FRAGMENT_SHIFT)
    for fragment_id in np.unique(fragment_ids):
        yield int(fragment_id), offsets_of(addresses[fragment_ids == fragment_id])


def no_addresses(count: int) -> pa.Array:
    """The address column of `count` rows that lie in no fragment."""
    return pa.repeat(pa.scalar(NO_ADDRESS, pa.int64()), count)
