"""Changes put together from parts that other processes wrote."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.storage.lance import (
    IndexSpec,
    PinnedTable,
    Removal,
    StagedTable,
    TableLocation,
    TableStore,
    build_segment,
    delete_offsets,
)
from omnigraph.storage.lance import bulk_tables as bulk_module
from omnigraph.storage.lance.arrow_fit import align_decimals
from omnigraph.storage.lance.row_address import ROW_ADDRESS, group_by_fragment, pack_address
from tests.storage.lance.table_cases import AGE, ID, NOTE, PERSON, ages, contents, people, write

TABLE = "person_ab12cd34-1"
BY_ID = IndexSpec("by_id", "id", "BTREE")


@pytest.fixture
def tables(tmp_path: Path) -> TableStore:
    return TableStore(str(tmp_path), fsync=False)


def _write_elsewhere(table_location: TableLocation, rows: Mapping[str, int | None]) -> list[str]:
    return table_location.open().write_rows(TABLE, people(rows), max_rows_per_file=2)


def _delete_in_another_process(table_location: TableLocation, version: str, ids: list[str]) -> list[Removal]:
    pinned = table_location.open().open(TABLE, version)
    addresses = pinned.addresses(ids)[ROW_ADDRESS].to_numpy()
    return [delete_offsets(pinned, number, offsets) for number, offsets in group_by_fragment(addresses)]


def _without(tables: TableStore, staged: StagedTable, ids: list[str], of_new_rows: bool) -> StagedTable:
    """Remove ids from the base part, or from the own part, of a staged version."""
    pinned = tables.bulk.open_staged(staged)
    new_fragments = set(tables.bulk.ids_of_new_fragments(staged))
    fragment_ids = [fragment.id for fragment in pinned.metadata if (fragment.id in new_fragments) == of_new_rows]
    addresses = pinned.addresses(ids, fragment_ids)[ROW_ADDRESS].to_numpy()
    return tables.bulk.remove(staged, [delete_offsets(pinned, *part) for part in group_by_fragment(addresses)])


def _upsert(tables: TableStore, base: PinnedTable, rows: Mapping[str, int | None]) -> StagedTable:
    staged = tables.bulk.stage(base, PERSON, tables.write_rows(TABLE, people(rows)))
    return _without(tables, staged, list(rows), of_new_rows=False)


class TestOtherProcesses:
    def test_rows_and_removals_of_other_processes(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2, "c": 3}))
        with get_context("spawn").Pool(2) as pool:
            parts = pool.starmap(_write_elsewhere, [(tables.location, {"a": 10, "x": 7}), (tables.location, {"y": 8})])
            staged = tables.bulk.stage(base, PERSON, [text for part in parts for text in part])
            assert tables.bulk.open_staged(staged).rows == 6  # provisional: an id is there twice
            assert ages(base) == {"a": 1, "b": 2, "c": 3}
            assert staged.version is not None
            (removals,) = pool.starmap(_delete_in_another_process, [(tables.location, base.version, ["a"])])
        shrunk = tables.bulk.remove(staged, removals)
        assert (shrunk.rows_written, shrunk.rows_removed) == (3, 1)
        committed_table = tables.commit(base, shrunk)
        assert committed_table.base_version() == base.version
        assert ages(committed_table) == {"a": 10, "b": 2, "c": 3, "x": 7, "y": 8}

    def test_files_are_bounded(self, tables: TableStore) -> None:
        tables.birth(TABLE, "node")
        written = tables.write_rows(TABLE, people({f"n{number}": number for number in range(7)}), max_rows_per_file=3)
        assert [json.loads(fragment)["physical_rows"] for fragment in written] == [3, 3, 1]

    def test_a_location_travels_and_is_opened_once(self, tmp_path: Path) -> None:
        location = TableStore(str(tmp_path), {"some": "option"}, local_root=tmp_path).location
        again = pickle.loads(pickle.dumps(location))
        assert again == location == TableLocation(str(tmp_path), (("some", "option"),), str(tmp_path))
        assert again.open() is location.open()

    def test_everything_is_synced(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # H41
        synced: set[str] = set()
        real = os.fsync

        def watch(handle: int) -> None:
            synced.add(os.readlink(f"/proc/self/fd/{handle}"))
            real(handle)

        tables = TableStore(str(tmp_path), local_root=tmp_path)
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2}))
        before = {str(path) for path in (tmp_path / "tables").rglob("*")}
        parts = TableStore(str(tmp_path), fsync=False).write_rows(TABLE, people({"a": 5, "c": 6}))
        monkeypatch.setattr(os, "fsync", watch)
        staged = _without(tables, tables.bulk.stage(base, PERSON, parts), ["a"], of_new_rows=False)
        assert ages(tables.bulk.open_staged(tables.bulk.index(staged, [BY_ID]))) == {"a": 5, "b": 2, "c": 6}
        assert {str(path) for path in (tmp_path / "tables").rglob("*")} - before <= synced

    def test_decimals_of_any_alignment_are_written(self, tables: TableStore) -> None:
        """Lance refuses a decimal column whose buffer is aligned to 8 bytes only, as the JVM makes them."""
        tables.birth(TABLE, "node")
        column = pa.array([Decimal("1.25"), Decimal("2.50"), Decimal("3.75")], pa.decimal128(10, 2))
        shifted = bytearray(8) + bytearray(column.buffers()[1].to_pybytes())
        buffer = pa.py_buffer(shifted).slice(8)
        if buffer.address % 16 == 0:
            buffer = pa.py_buffer(bytearray(8) + shifted).slice(16)
        odd = pa.Array.from_buffers(column.type, 3, [None, buffer])
        rows = pa.table({"id": ["a", "b", "c"], "amount": odd}, schema=pa.schema([ID, pa.field("amount", odd.type)]))
        assert align_decimals(rows).column("amount").chunk(0).buffers()[1].address % 16 == 0
        assert len(tables.write_rows(TABLE, rows)) == 1
        assert align_decimals(rows).equals(rows)


class TestStaged:
    def test_own_rows_can_be_removed_again_and_again(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        parts = tables.write_rows(TABLE, people({"p": 1, "q": 2, "r": 3, "s": 4}), max_rows_per_file=2)
        staged = tables.bulk.stage(base, PERSON, parts)
        staged = _without(tables, staged, ["p"], of_new_rows=True)
        staged = _without(tables, staged, ["q", "r"], of_new_rows=True)  # the first fragment is empty now
        assert (staged.rows_written, staged.rows_removed) == (1, 0)
        assert ages(tables.commit(base, staged)) == {"a": 1, "s": 4}
        assert len(tables.bulk.ids_of_new_fragments(staged)) == 1

    def test_an_overwrite_and_an_empty_one(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2}))
        staged = tables.bulk.stage(base, PERSON, tables.write_rows(TABLE, people({"b": 5})), overwrite=True)
        assert (staged.rows_written, staged.rows_removed) == (1, 2)
        assert ages(tables.commit(base, staged)) == {"b": 5}
        nothing = tables.bulk.stage(base, PERSON, [], overwrite=True)
        assert ages(tables.commit(base, nothing)) == {}

    def test_new_columns(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        wider = pa.schema([ID, AGE, NOTE])
        staged = tables.bulk.stage(base, wider, tables.write_rows(TABLE, people({"b": 2}, wider)))
        assert contents(tables.commit(base, staged))["a"] == {AGE.name: 1, NOTE.name: None}

    def test_indexed_in_the_same_change(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        staged = tables.bulk.index(_upsert(tables, base, {"a": 2, "b": 3}), [BY_ID])
        committed_table = tables.commit(base, staged)
        assert committed_table.base_version() == base.version
        (index,) = committed_table.indices()
        assert index.covered_fragments == {fragment.id for fragment in committed_table.metadata}
        assert ages(committed_table) == {"a": 2, "b": 3}

    def test_survives_json(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        staged = _upsert(tables, base, {"a": 2, "b": 3})
        again = StagedTable.from_json(json.loads(json.dumps(staged.to_json())))
        assert again.version == staged.version
        assert ages(tables.commit(base, again)) == {"a": 2, "b": 3}


class TestRestageBulk:
    def test_over_an_append_writes_no_data(self, tables: TableStore, tmp_path: Path) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2}))
        staged = _upsert(tables, base, {"a": 10, "x": 7})
        moved = write(tables, base, people({"y": 2}))
        files = sorted((tmp_path / "tables" / TABLE / "data").iterdir())
        again = tables.restage(staged, moved)
        assert sorted((tmp_path / "tables" / TABLE / "data").iterdir()) == files
        assert (again.rows_written, again.rows_removed) == (2, 1)
        committed_table = tables.commit(moved, again)
        assert ages(committed_table) == {"a": 10, "b": 2, "x": 7, "y": 2}
        assert committed_table.base_version() == moved.version

    def test_over_a_fold_of_the_same_id_has_it_once(self, tables: TableStore) -> None:  # H4
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        staged = _upsert(tables, base, {"x": 7, "y": 8})
        folded = write(tables, base, people({"x": 1, "z": 2}))
        assert ages(tables.commit(folded, tables.restage(staged, folded))) == {"a": 1, "x": 7, "y": 8, "z": 2}

    def test_keeps_the_other_writers_removals(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2, "c": 3}))
        staged = _upsert(tables, base, {"a": 10})
        moved = write(tables, base, people({"b": 20}), delete=["c"])
        assert ages(tables.commit(moved, tables.restage(staged, moved))) == {"a": 10, "b": 20}

    def test_a_rejected_row_replaces_nothing(self, tables: TableStore) -> None:
        """The id of a row that was taken back is not among the ids of the change."""
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        staged = tables.bulk.stage(base, PERSON, tables.write_rows(TABLE, people({"a": 10, "x": 7, "v": 9})))
        staged = _without(tables, staged, ["a", "v"], of_new_rows=True)
        rewritten = tables.commit(base, tables.stage_rewrite(base))
        moved = write(tables, rewritten, people({"a": 2}))
        assert ages(tables.commit(moved, tables.restage(staged, moved))) == {"a": 2, "x": 7}

    def test_over_an_overwrite_an_empty_table_and_a_lost_base(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2}))
        staged = _upsert(tables, base, {"a": 5})
        emptied = write(tables, base, delete=["a", "b"])
        assert ages(tables.commit(emptied, tables.restage(staged, emptied))) == {"a": 5}
        written_table = write(tables, base, people({"a": 8, "z": 9}), overwrite=True)
        assert ages(tables.commit(written_table, tables.restage(staged, written_table))) == {"a": 5, "z": 9}

    def test_an_overwrite_stays_an_overwrite(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        staged = tables.bulk.stage(base, PERSON, tables.write_rows(TABLE, people({"b": 5, "c": 6})), overwrite=True)
        staged = _without(tables, staged, ["c"], of_new_rows=True)
        moved = write(tables, base, people({"z": 1}))
        assert ages(tables.commit(moved, tables.restage(staged, moved))) == {"b": 5}

    @settings(max_examples=25, deadline=None)
    @given(
        before=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 9), max_size=6),
        change=st.dictionaries(st.sampled_from("abcdefghij"), st.integers(10, 19), min_size=1, max_size=8),
        taken_back=st.sets(st.sampled_from("abcdefghij"), max_size=3),
        steps=st.lists(
            st.tuples(
                st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(20, 29), max_size=4),
                st.sets(st.sampled_from("abcdefghijkl"), max_size=3),
                st.booleans(),
            ),
            max_size=3,
        ),
    )
    def test_equals_the_change_made_afterwards(  # S138
        self,
        tmp_path_factory: pytest.TempPathFactory,
        before: dict[str, int | None],
        change: dict[str, int | None],
        taken_back: set[str],
        steps: list[tuple[dict[str, int | None], set[str], bool]],
    ) -> None:
        tables = TableStore(str(tmp_path_factory.mktemp("bulk")), fsync=False)
        base = tables.birth(TABLE, "node")
        base = write(tables, base, people(before)) if before else base
        staged = tables.bulk.stage(base, PERSON, tables.write_rows(TABLE, people(change), max_rows_per_file=3))
        staged = _without(tables, staged, sorted(taken_back & change.keys()), of_new_rows=True)
        remaining = {row_id: age for row_id, age in change.items() if row_id not in taken_back}
        staged = _without(tables, staged, sorted(remaining), of_new_rows=False)
        expected = dict(before)
        for rows, deleted, compact in steps:
            removed = sorted(deleted - rows.keys())
            base = write(tables, base, people(rows) if rows else None, schema=PERSON, delete=removed)
            base = tables.commit(base, tables.stage_rewrite(base)) if compact else base
            expected = {row_id: age for row_id, age in {**expected, **rows}.items() if row_id not in removed}
        moved = tables.restage(staged, base) if staged.base_version != base.version else staged
        assert ages(tables.commit(base, moved)) == {**expected, **remaining}

    def test_ids_are_compared_in_portions(self, tables: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bulk_module, "_IDS_AT_ONCE", 1)
        base = tables.birth(TABLE, "node")
        staged = _upsert(tables, base, {f"n{number}": number for number in range(20)})
        moved = base
        for part in range(4):
            moved = write(tables, moved, people({f"n{number}": 99 for number in range(part * 8, part * 8 + 8)}))
        committed = ages(tables.commit(moved, tables.restage(staged, moved)))
        assert committed == {f"n{number}": number if number < 20 else 99 for number in range(32)}


def test_addresses_are_grouped_by_fragment() -> None:
    parts = dict(group_by_fragment(np.array([pack_address(3, 7), 5, pack_address(3, 9)], np.uint64)))
    assert {number: offsets.tolist() for number, offsets in parts.items()} == {0: [5], 3: [7, 9]}


def test_indexes_built_by_another_process(tables: TableStore) -> None:
    specs = [BY_ID, IndexSpec("text", NOTE.name, "INVERTED", (("with_position", True),))]
    schema = pa.schema([ID, AGE, NOTE])
    base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}, schema))
    staged = tables.bulk.stage(base, schema, tables.write_rows(TABLE, people({"b": 2, "c": 3}, schema)))
    assert staged.version is not None
    plans = tables.bulk.index_plans(staged, specs)
    with get_context("spawn").Pool(1) as pool:
        arguments = [(tables.location, TABLE, staged.version, plan) for plan in plans]
        built = [json.loads(json.dumps(segment)) for segment in pool.starmap(build_segment, arguments)]
    indexed = tables.bulk.put_indexes(staged, specs, built)
    committed_table = tables.commit(base, indexed)
    assert {index.name: len(index.covered_fragments) for index in committed_table.indices()} == {"by_id": 2, "text": 2}
    assert committed_table.base_version() == base.version
    assert committed_table.find(["c"])[AGE.name].to_pylist() == [3]
    assert committed_table.lance().to_table(full_text_query={"query": "x", "columns": [NOTE.name]}).num_rows == 0
    moved = write(tables, base, people({"d": 4}, schema))
    again = tables.commit(moved, tables.restage(indexed, moved))
    assert {index.name: len(index.covered_fragments) for index in again.indices()} == {"by_id": 3, "text": 3}
