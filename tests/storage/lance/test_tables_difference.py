"""What two versions of a table share: files are compared, not the numbers that fragments happen to have."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.storage.lance import (
    PinnedTable,
    TableDelta,
    TableStore,
)
from omnigraph.storage.lance.version_difference import (
    candidate_ids,
    differing_rows,
    fragment_differences,
    map_shared_fragments,
)
from tests.storage.lance.table_cases import PERSON, ages, people, write

TABLE = "person_ab12cd34-1"


@pytest.fixture
def tables(tmp_path: Path) -> TableStore:
    return TableStore(str(tmp_path), fsync=False)


@pytest.fixture
def restaged_versions(tables: TableStore) -> tuple[PinnedTable, PinnedTable]:
    """One staged file in two versions: where it was prepared, and after another writer's file, where it landed."""
    base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
    staged = tables.stage(base, TableDelta(PERSON, people({"x": 1, "y": 2, "z": 3})))
    written_table = write(tables, base, people({"o": 9}))
    return tables.commit(base, staged), tables.commit(written_table, tables.restage(staged, written_table))


def test_a_shared_file_is_known_under_either_number(restaged_versions: tuple[PinnedTable, PinnedTable]) -> None:
    prepared, landed = restaged_versions
    assert ages(prepared) == {"a": 1, "x": 1, "y": 2, "z": 3}
    assert ages(landed) == {"a": 1, "o": 9, "x": 1, "y": 2, "z": 3}
    landed_ids = map_shared_fragments(prepared, landed)
    assert landed_ids == {0: 0, 1: 2}
    assert map_shared_fragments(landed, prepared) == {
        landed_id: fragment_id for fragment_id, landed_id in landed_ids.items()
    }
    assert candidate_ids(prepared, landed) == {"o"}


def test_rows_removed_from_a_file_that_moved(
    tables: TableStore, restaged_versions: tuple[PinnedTable, PinnedTable]
) -> None:
    prepared, landed = restaged_versions
    fewer = write(tables, landed, delete=["y"])
    assert candidate_ids(prepared, fewer) == {"o", "y"}
    (piece,) = fragment_differences(prepared, fewer)
    assert (piece.fragment_id, piece.other_fragment_id, piece.rows) == (1, 2, 1)
    assert [batch["id"].to_pylist() for batch in differing_rows(prepared, fewer, piece, ["id"])] == [["y"]]


def test_a_table_without_a_version_shares_nothing(restaged_versions: tuple[PinnedTable, PinnedTable]) -> None:
    assert map_shared_fragments(None, restaged_versions[0]) == map_shared_fragments(restaged_versions[0], None) == {}
    assert candidate_ids(None, restaged_versions[0]) == {"a", "x", "y", "z"}
