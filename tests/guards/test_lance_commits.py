"""What the commit function relies on: detached versions, and operations that Lance takes as given."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.schema import LanceSchema

from tests.guards.lance_cases import (
    SCHEMA,
    append_ids,
    build_index,
    commit_detached,
    create_table,
    ids,
    rows,
    write_rows,
)


def test_detached_versions_move_no_head_and_are_found_by_id(tmp_path: Path) -> None:
    base = create_table(tmp_path)
    first = append_ids(base, "a")
    second = append_ids(first, "b")
    assert first.version >= 1 << 63
    assert lance.dataset(base.uri).version == 1
    assert ids(LanceDataset(base.uri, first.version)) == ["a"]
    assert ids(LanceDataset(base.uri, second.version)) == ["a", "b"]
    assert (tmp_path / "t" / "_versions" / f"d{first.version}.manifest").exists()


def test_lance_detects_no_conflict(tmp_path: Path) -> None:
    """Why restaging looks for its own ids and for grown deletion files (LANCE 2e, H4)."""
    base = append_ids(create_table(tmp_path), "a", "b")
    shrunk = base.get_fragment(0).delete_rows([0])
    update = LanceOperation.Update(updated_fragments=[shrunk], new_fragments=write_rows(base, rows("a", start=7)))
    moved = commit_detached(base, LanceOperation.Update(updated_fragments=[base.get_fragment(0).delete_rows([1])]))
    assert ids(moved) == ["a"]
    assert ids(commit_detached(moved, update)) == ["a", "b"]  # the removal of b is lost
    assert ids(commit_detached(append_ids(base, "a"), LanceOperation.Append(write_rows(base, rows("a"))))) == [
        "a",
        "a",
        "a",
        "b",
    ]


def test_the_handle_decides_not_the_transaction(tmp_path: Path) -> None:
    """Why the commit function compares the two itself."""
    base = append_ids(create_table(tmp_path), "a")
    newer = append_ids(base, "b")
    stale = Transaction(base.version, LanceOperation.Append(write_rows(base, rows("c"))))
    assert ids(LanceDataset.commit(newer, stale, detached=True)) == ["a", "b", "c"]


def test_a_second_creation_is_refused_when_it_may_not_retry(tmp_path: Path) -> None:
    base = create_table(tmp_path)
    again = LanceOperation.Overwrite(SCHEMA, [])
    with pytest.raises(OSError, match=r"Dataset already exists|/_versions/0\.manifest was not found"):
        LanceDataset.commit(base.uri, Transaction(0, again), max_retries=0)
    assert lance.dataset(base.uri).version == 1
    # With retries, or by write_dataset(mode="create") in a race, it becomes a version 2.


def test_a_detached_commit_needs_a_retry_left(tmp_path: Path) -> None:
    base = create_table(tmp_path)
    transaction = Transaction(1, LanceOperation.Append(write_rows(base, rows("a"))))
    with pytest.raises(OSError, match="random"):
        LanceDataset.commit(base, transaction, detached=True, max_retries=0)


def test_tables_cannot_be_born_detached(tmp_path: Path) -> None:
    with pytest.raises((OSError, ValueError), match="detached"):
        LanceDataset.commit(str(tmp_path / "t"), LanceOperation.Overwrite(SCHEMA, []), detached=True)


def test_one_update_removes_shrinks_and_adds(tmp_path: Path) -> None:
    base = append_ids(append_ids(create_table(tmp_path), "a", "b"), "c")
    assert base.get_fragment(1).delete_rows([0]) is None
    update = LanceOperation.Update(
        removed_fragment_ids=[1],
        updated_fragments=[base.get_fragment(0).delete_rows([1])],
        new_fragments=write_rows(base, rows("d")),
    )
    assert ids(commit_detached(base, update)) == ["a", "d"]
    assert ids(base) == ["a", "b", "c"]


def test_deletion_files_of_siblings_do_not_collide(tmp_path: Path) -> None:
    base = append_ids(create_table(tmp_path), "a", "b")
    first, second = (base.get_fragment(0).delete_rows([offset]) for offset in (0, 1))
    assert first.deletion_file.path(0) != second.deletion_file.path(0)
    assert first.deletion_file.path(0).startswith(f"_deletions/0-{base.version}-")
    assert ids(commit_detached(base, LanceOperation.Update(updated_fragments=[first]))) == ["b"]
    assert ids(commit_detached(base, LanceOperation.Update(updated_fragments=[second]))) == ["a"]


def test_siblings_with_the_same_fragment_id_do_not_mix_in_one_session(tmp_path: Path) -> None:
    base = append_ids(create_table(tmp_path), "a")
    first, second = append_ids(base, "b", "c"), append_ids(base, "d")
    assert [fork.get_fragments()[-1].fragment_id for fork in (first, second)] == [1, 1]
    for fork, expected in [(first, ["a", "b", "c"]), (second, ["a", "d"]), (first, ["a", "b", "c"])]:
        assert ids(build_index(fork), pc.field("id").isin(["a", "b", "c", "d"])) == expected


def test_one_merge_adds_columns_rows_and_removals(tmp_path: Path) -> None:
    base = append_ids(create_table(tmp_path), "a", "b")
    new = write_rows(base, rows("c"))
    new[0].id = 1
    merge = LanceOperation.Merge([base.get_fragment(0).delete_rows([0]), *new], base.lance_schema, True)
    assert ids(commit_detached(base, merge)) == ["b", "c"]


def test_a_merge_may_not_lose_a_fragment(tmp_path: Path) -> None:
    """Why adding columns while a fragment vanishes takes two commits."""
    base = append_ids(append_ids(create_table(tmp_path), "a"), "b")
    merge = LanceOperation.Merge([base.get_fragment(0).metadata], base.lance_schema, True)
    with pytest.raises(OSError, match="reduced fragment count"):
        commit_detached(base, merge)


def test_an_overwrite_forgets_indexes_and_goes_on_counting_fragments(tmp_path: Path) -> None:
    base = build_index(append_ids(create_table(tmp_path), "a"))
    schema = pa.schema([*SCHEMA, pa.field("x", pa.float64())])
    overwritten = commit_detached(
        base, LanceOperation.Overwrite(LanceSchema.from_pyarrow(schema), write_rows(base, rows("z")))
    )
    assert overwritten.describe_indices() == []
    assert [get_fragment.fragment_id for get_fragment in overwritten.get_fragments()] == [1]
    assert overwritten.to_table().to_pylist() == [{"id": "z", "n": 0, "x": None}]


def test_the_transaction_is_a_file_of_known_name_with_properties(tmp_path: Path) -> None:
    base = create_table(tmp_path)
    append = LanceOperation.Append(write_rows(base, rows("a")))
    transaction = Transaction(1, append, transaction_properties={"base": "1"})
    dataset = LanceDataset.commit(base, transaction, detached=True)
    assert (tmp_path / "t" / "_transactions" / f"1-{transaction.uuid}.txn").exists()
    assert dataset.read_transaction(dataset.version).transaction_properties == {"base": "1"}


@pytest.mark.parametrize("verb", ["delete", "insert", "create_scalar_index"])
def test_apis_that_commit_by_themselves_refuse_a_detached_handle(tmp_path: Path, verb: str) -> None:
    base = append_ids(create_table(tmp_path), "a")
    arguments = {"delete": ["true"], "insert": [rows("b")], "create_scalar_index": ["id", "BTREE"]}[verb]
    with pytest.raises((OSError, RuntimeError)):
        getattr(base, verb)(*arguments)
    assert lance.dataset(base.uri).version == 1


def test_lances_own_cleanup_destroys_detached_versions(tmp_path: Path) -> None:
    """Why nothing may ever call it."""
    base = create_table(tmp_path)
    version = append_ids(base, "a")
    lance.dataset(base.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    with pytest.raises((OSError, ValueError), match=r"(?i)not found"):
        LanceDataset(base.uri, version.version).to_table()


def test_there_is_no_automatic_cleanup(tmp_path: Path) -> None:
    assert append_ids(create_table(tmp_path), "a").config() == {}
