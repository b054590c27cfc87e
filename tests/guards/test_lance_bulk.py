"""What the bulk plane relies on: fragments and deletions made by other processes than the one that commits."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from lance import LanceDataset, Transaction
from lance import LanceOperation as Op
from lance.fragment import FragmentMetadata, write_fragments

ROWS = pa.table({"id": [f"k{one}" for one in range(10)]}, schema=pa.schema([pa.field("id", pa.utf8(), False)]))


def _table(root: Path) -> LanceDataset:
    return lance.write_dataset(ROWS, str(root / "t"))


def _commit(on: LanceDataset, operation: Op.BaseOperation) -> LanceDataset:
    return LanceDataset.commit(on, Transaction(on.version, operation), detached=True)


def test_fragments_written_by_address_are_committed_from_their_json(tmp_path: Path) -> None:
    base = _table(tmp_path)
    written = write_fragments(ROWS, base.uri, mode="overwrite", max_rows_per_file=4)
    assert [fragment.physical_rows for fragment in written] == [4, 4, 2]
    assert {fragment.id for fragment in written} == {0}  # numbers are given by the commit
    again = [FragmentMetadata.from_json(json.dumps(fragment.to_json())) for fragment in written]
    commit = _commit(base, Op.Append(again))
    assert [get_fragment.fragment_id for get_fragment in commit.get_fragments()] == [0, 1, 2, 3]
    assert commit.count_rows() == 20
    assert lance.dataset(base.uri).version == base.version


def test_rows_of_new_and_old_fragments_are_removed_in_one_more_commit(tmp_path: Path) -> None:
    base = _table(tmp_path)
    commit = _commit(base, Op.Append(write_fragments(ROWS, base.uri, mode="overwrite")))
    elsewhere = lance.dataset(base.uri, version=commit.version)
    shrunk_fragments = [elsewhere.get_fragment(0).delete_rows(np.array([0, 1], np.uint32))]
    assert elsewhere.get_fragment(1).delete_rows(np.arange(10, dtype=np.uint32)) is None  # nothing is left of it
    shrunk = _commit(commit, Op.Update(removed_fragment_ids=[1], updated_fragments=shrunk_fragments, new_fragments=[]))
    assert shrunk.count_rows() == 8
    assert commit.count_rows() == 20


def test_a_deletion_file_is_bound_to_the_number_of_its_fragment(tmp_path: Path) -> None:
    base = _table(tmp_path)
    shrunk_fragment = base.get_fragment(0).delete_rows([3])
    assert shrunk_fragment.deletion_file.path(0).startswith("_deletions/0-")
    assert shrunk_fragment.deletion_file.path(7).startswith("_deletions/7-")


def test_a_deletion_file_can_be_put_under_another_description_of_its_fragment(tmp_path: Path) -> None:
    base = _table(tmp_path)
    shrunk_fragment = base.get_fragment(0).delete_rows([3, 4])
    moved = _commit(base, Op.Append(write_fragments(ROWS, base.uri, mode="overwrite")))
    fragment = moved.get_fragment(0).metadata
    fragment.deletion_file = shrunk_fragment.deletion_file
    commit = _commit(moved, Op.Update(removed_fragment_ids=[], updated_fragments=[fragment], new_fragments=[]))
    assert commit.count_rows() == 18
