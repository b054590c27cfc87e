"""A row address packs a fragment's id and an offset, one by one and in arrays alike."""

from __future__ import annotations

import numpy as np
import pytest

from omnigraph.storage.lance.row_address import (
    NO_ADDRESS,
    group_by_fragment,
    no_addresses,
    offsets_of,
    pack_address,
    pack_addresses,
    split_address,
)

LAST = (1 << 32) - 1


@pytest.mark.parametrize(("fragment_id", "offset"), [(0, 0), (0, LAST), (7, 3), ((1 << 31) - 1, LAST)])
def test_pack_and_split_are_inverse_one_by_one_and_in_arrays(fragment_id: int, offset: int) -> None:
    address = pack_address(fragment_id, offset)
    assert split_address(address) == (fragment_id, offset)
    packed = pack_addresses(fragment_id, np.array([offset], np.uint64))
    assert packed.tolist() == [address]
    assert offsets_of(packed).tolist() == offsets_of(packed.astype(np.int64)).tolist() == [offset]


def test_addresses_are_grouped_by_ascending_fragment() -> None:
    addresses = np.array([pack_address(3, 7), 5, pack_address(3, 9)], np.uint64)
    groups = [(fragment_id, offsets.tolist()) for fragment_id, offsets in group_by_fragment(addresses)]
    assert groups == [(0, [5]), (3, [7, 9])]


def test_rows_in_no_fragment_have_no_address() -> None:
    assert no_addresses(2).to_pylist() == [NO_ADDRESS, NO_ADDRESS]
