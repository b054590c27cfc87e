"""Birth, staging, restaging and committing of table versions."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import Corruption, InvalidInput, Unsupported
from omnigraph.storage.lance import PinnedTable, StagedTable, TableDelta, TableStore
from omnigraph.storage.lance import open_versions as opened_module
from omnigraph.storage.store import ObjectMissing
from tests.storage.lance.table_cases import AGE, ID, NOTE, PERSON, TAGS, ages, contents, people, rows_of, write

TABLE = "person_ab12cd34-1"
HINT = "latest_version_hint.json"
V1_MANIFEST = "18446744073709551614.manifest"


@pytest.fixture
def tables(tmp_path: Path) -> TableStore:
    return TableStore(str(tmp_path), fsync=False)


def _main_versions(root: Path, table: str = TABLE) -> list[str]:
    folder = root / "tables" / table / "_versions"
    return sorted(path.name for path in folder.glob("*.manifest") if not path.name.startswith("d"))


class TestBirth:
    def test_node_and_edge_tables_are_born_empty_with_system_columns(self, tables: TableStore) -> None:
        node, edge = tables.birth(TABLE, "node"), tables.birth("knows_x-1", "edge")
        assert (node.version, node.rows, node.fragments, node.size_bytes) == ("1", 0, 0, 0)
        assert node.schema.names == ["id"]
        assert edge.schema.names == ["id", "src", "dst"]
        assert node.scan().num_rows == 0
        assert node.find(["a"]).num_rows == 0

    def test_many_at_once_make_one_version(self, tmp_path: Path) -> None:  # H14
        stores = [TableStore(str(tmp_path), fsync=False) for _ in range(8)]
        start = threading.Barrier(8)

        def be_born(store: TableStore) -> str:
            start.wait()
            return store.birth(TABLE, "node").version

        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(be_born, stores)) == {"1"}
        assert _main_versions(tmp_path) == [V1_MANIFEST]

    def test_processes_at_once_make_one_version(self, tmp_path: Path) -> None:  # H14
        with multiprocessing.get_context("spawn").Pool(3) as pool:
            assert pool.map(_birth_elsewhere, [str(tmp_path)] * 6) == ["1"] * 6
        assert _main_versions(tmp_path) == [V1_MANIFEST]

    def test_second_birth_is_free_and_another_store_opens_the_same_version(
        self, tables: TableStore, tmp_path: Path
    ) -> None:
        born = tables.birth(TABLE, "node")
        before = tables.io_stats()
        assert tables.birth(TABLE, "node") is born
        assert tables.io_stats() == before
        assert TableStore(str(tmp_path), local_root=tmp_path).birth(TABLE, "node").version == "1"

    def test_after_a_crash_before_its_manifest(self, tables: TableStore, tmp_path: Path) -> None:
        tables.birth(TABLE, "node")
        shutil.rmtree(tmp_path / "tables" / TABLE / "_versions")
        assert TableStore(str(tmp_path), fsync=False).birth(TABLE, "node").version == "1"

    def test_birth_of_another_kind_is_refused(self, tables: TableStore, tmp_path: Path) -> None:
        tables.birth(TABLE, "node")
        with pytest.raises(Corruption):
            TableStore(str(tmp_path), fsync=False).birth(TABLE, "edge")

    @pytest.mark.parametrize("name", ["with space", "per%20cent", "ünïcode", "ha#sh", "quo'te", "a+b"])
    def test_in_any_directory(self, tmp_path: Path, name: str) -> None:
        tables = TableStore(str(tmp_path / name), local_root=tmp_path / name)
        written_table = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        assert ages(TableStore(str(tmp_path / name)).open(TABLE, written_table.version)) == {"a": 1}


def _file_of(root: Path, pinned_table: PinnedTable, part: str) -> Path:
    names = {name for name in pinned_table.files() if f"/{part}/" in name and not name.endswith("/")}
    return root / min(name for name in names if V1_MANIFEST not in name)


def _birth_elsewhere(root: str) -> str:
    return TableStore(root, fsync=False).birth(TABLE, "node").version


class TestStage:
    def test_nothing_is_visible_before_the_commit(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        staged = tables.stage(base, TableDelta(PERSON, people({"a": 2, "b": 3})))
        assert ages(base) == {"a": 1}
        committed_table = tables.commit(base, staged)
        assert ages(committed_table) == {"a": 2, "b": 3}
        assert ages(base) == {"a": 1}

    def test_head_never_moves(self, tables: TableStore, tmp_path: Path) -> None:
        base = tables.birth(TABLE, "node")
        for number in range(3):
            base = write(tables, base, people({f"n{number}": number}))
        assert _main_versions(tmp_path) == [V1_MANIFEST]
        assert int(base.version) >= 1 << 63

    def test_upsert_delete_and_insert_are_one_version(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2, "c": 3}))
        before = tables.io_stats()
        staged = tables.stage(base, TableDelta(PERSON, people({"b": 20, "d": 4}), ["c", "never"]))
        assert (staged.rows_written, staged.rows_removed) == (2, 2)
        committed_table = tables.commit(base, staged)
        assert ages(committed_table) == {"a": 1, "b": 20, "d": 4}
        assert (tables.io_stats() - before).write_iops == 1 + 1 + 2  # data, deletion file, transaction, manifest

    def test_delete_of_every_row_of_a_fragment_and_of_the_table(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2}))
        base = write(tables, base, people({"c": 3}))
        written_table = write(tables, base, delete=["c"])
        assert (ages(written_table), written_table.fragments) == ({"a": 1, "b": 2}, 1)
        none = write(tables, written_table, delete=["a", "b"])
        assert (ages(none), none.fragments) == ({}, 0)
        assert ages(write(tables, none, people({"a": 9}))) == {"a": 9}

    def test_overwrite_replaces_everything(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2}))
        staged = tables.stage(base, TableDelta(PERSON, people({"b": 5}), overwrite=True))
        assert staged.rows_removed == 2
        assert ages(tables.commit(base, staged)) == {"b": 5}
        assert ages(write(tables, base, schema=PERSON, overwrite=True)) == {}

    def test_a_hint_saves_the_reads(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        before = tables.io_stats()
        written_table = write(tables, base, people({"b": 2}), present_ids=())
        spent = tables.io_stats() - before
        assert (spent.read_iops, spent.write_iops) == (0, 3)
        hinted = write(tables, written_table, people({"a": 3, "c": 4}), delete=["b"], present_ids=["a", "b"])
        assert ages(hinted) == {"a": 3, "c": 4}

    def test_a_change_of_nothing_is_the_base(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        staged = tables.stage(base, TableDelta(PERSON, delete_ids=["b"]))
        assert staged.is_empty
        assert tables.commit(base, staged) is base

    @pytest.mark.parametrize("depth", [1, 40])
    def test_cost_does_not_depend_on_depth(self, tables: TableStore, depth: int) -> None:
        base = tables.birth(TABLE, "node")
        for number in range(depth):
            base = write(tables, base, people({f"n{number}": number}), present_ids=())
        before = tables.io_stats()
        written_table = write(tables, base, people({"new": 1}), present_ids=())
        spent = tables.io_stats() - before
        assert written_table.rows == depth + 1
        assert (spent.read_iops, spent.write_iops) == (0, 3)

    @pytest.mark.parametrize(
        ("rows", "error"),
        [
            (pa.table({"id": ["a", "a"], AGE.name: [1, 2]}), InvalidInput),
            (pa.table({"id": pa.array([None], pa.utf8()), AGE.name: [1]}), InvalidInput),
            (pa.table({"id": ["a"], "other": [1]}), InvalidInput),
        ],
    )
    def test_rows_that_cannot_be_written(self, tables: TableStore, rows: pa.Table, error: type[Exception]) -> None:
        with pytest.raises(error):
            tables.stage(tables.birth(TABLE, "node"), TableDelta(PERSON, rows))

    def test_many_tables_from_many_threads(self, tables: TableStore) -> None:
        def fill(number: int) -> int:
            base = tables.birth(f"t{number}-1", "node")
            for step in range(3):
                base = write(tables, base, people({f"a{step}": step, "same": number}))
            return base.rows

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(fill, range(8))) == [4] * 8


class TestCommit:
    def test_on_another_base_is_refused(self, tables: TableStore) -> None:
        birth = tables.birth(TABLE, "node")
        first, second = write(tables, birth, people({"a": 1})), write(tables, birth, people({"b": 1}))
        with pytest.raises(AssertionError):
            tables.commit(second, tables.stage(first, TableDelta(PERSON, people({"c": 1}))))

    def test_the_transaction_names_its_base(self, tables: TableStore, tmp_path: Path) -> None:
        birth = tables.birth(TABLE, "node")
        written_table = write(tables, birth, people({"a": 1}))
        again = TableStore(str(tmp_path)).open(TABLE, written_table.version)
        assert again.base_version() == "1"
        assert birth.base_version() is None
        # Two operations are needed here; the base is still the pin, not the version in between.
        wider = pa.schema([ID, AGE, NOTE])
        chained = write(tables, written_table, people({}, wider), delete=["a"])
        assert chained.base_version() == written_table.version

    def test_a_committed_version_is_warm(self, tables: TableStore) -> None:
        written_table = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        before = tables.io_stats()
        assert tables.open(TABLE, written_table.version) is written_table
        assert tables.io_stats() == before

    def test_open_of_what_is_not_there(self, tables: TableStore) -> None:
        tables.birth(TABLE, "node")
        for table, version in [(TABLE, str((1 << 63) + 5)), (TABLE, "2"), ("other-1", "1")]:
            with pytest.raises(ObjectMissing):
                tables.open(table, version)

    def test_names_of_folders_do_not_mislead(self, tmp_path: Path) -> None:
        for name in ("403", "Forbidden", "corrupt", "not found: x"):
            tables = TableStore(str(tmp_path / name), fsync=False)
            written_table = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
            _file_of(tmp_path / name, written_table, "data").unlink()
            with pytest.raises(Corruption, match="a file is missing"):
                TableStore(str(tmp_path / name)).open(TABLE, written_table.version).scan()

    def test_unreadable_manifest_is_corruption(self, tables: TableStore, tmp_path: Path) -> None:
        written_table = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        (tmp_path / "tables" / TABLE / written_table.manifest_file).write_bytes(b"garbage" * 30)
        with pytest.raises(Corruption):
            TableStore(str(tmp_path)).open(TABLE, written_table.version)

    def test_missing_and_broken_data_files(self, tables: TableStore, tmp_path: Path) -> None:
        written_table = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        data = next((tmp_path / "tables" / TABLE / "data").glob("*.lance"))
        content = data.read_bytes()
        data.unlink()
        with pytest.raises(Corruption, match="a file is missing"):
            TableStore(str(tmp_path)).open(TABLE, written_table.version).scan()
        data.write_bytes(content[: len(content) // 2])
        with pytest.raises(Corruption):
            TableStore(str(tmp_path)).open(TABLE, written_table.version).scan()

    @pytest.mark.parametrize("part", ["data", "_deletions", "_versions"])
    def test_a_cut_file_is_corruption(self, tables: TableStore, tmp_path: Path, part: str, sweep_seed: int) -> None:
        """What a power cut leaves without fsync. (Lance keeps no checksums: other damage may go unseen or crash it.)"""
        choose = random.Random(sweep_seed)
        written_table = write(
            tables, tables.birth(TABLE, "node"), people({f"n{number}": number for number in range(200)})
        )
        written_table = write(tables, written_table, people({"n3": 0}))
        file = _file_of(tmp_path, written_table, part)
        content = file.read_bytes()
        for cut in [0, 1, len(content) - 1, *(choose.randrange(len(content)) for _ in range(9))]:
            file.write_bytes(content[:cut])
            with pytest.raises(Corruption):
                TableStore(str(tmp_path)).open(TABLE, written_table.version).scan()

    def test_opened_versions_are_bounded(self, tables: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(opened_module, "_KEPT_VERSIONS", 3)
        base = tables.birth(TABLE, "node")
        for number in range(6):
            base = write(tables, base, people({f"n{number}": 1}), present_ids=())
        assert len(tables._versions) == 3
        assert tables.open(TABLE, "1").rows == 0

    def test_opened_versions_of_large_tables_are_fewer(
        self, tables: TableStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(opened_module, "_KEPT_FRAGMENTS", 9)
        monkeypatch.setattr(opened_module, "_ALWAYS_KEPT", 2)
        base = tables.birth(TABLE, "node")
        versions = []
        for number in range(6):
            base = write(tables, base, people({f"n{number}": 1}), present_ids=())
            versions.append(base)
        assert [version.fragments for version in versions] == [1, 2, 3, 4, 5, 6]
        assert [tables._versions.get_cached(TABLE, version.version) for version in versions] == [None] * 4 + versions[
            4:
        ]
        assert tables.open(TABLE, versions[0].version).rows == 1
        tables._versions.forget()
        oldest = [tables.open(TABLE, version.version) for version in versions[:3]]
        again = [tables._versions.keep(versions[2]) for _ in range(3)]
        assert all(version is oldest[2] for version in again), "as by threads that opened it at once"
        assert len(tables._versions) == 3, "its fragments count once"

    def test_everything_written_is_synced(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # H41
        synced: set[str] = set()
        real = os.fsync

        def watch(handle: int) -> None:
            synced.add(os.readlink(f"/proc/self/fd/{handle}"))
            real(handle)

        monkeypatch.setattr(os, "fsync", watch)
        tables = TableStore(str(tmp_path), local_root=tmp_path)
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2}))
        base = write(tables, base, people({"a": 3}))
        assert write(tables, base, people({"b": 3, "c": 4}, pa.schema([ID, AGE, NOTE]))).rows == 3
        unsynced = {str(path) for path in (tmp_path / "tables").rglob("*")} - synced
        assert unsynced == {str(tmp_path / "tables" / TABLE / "_versions" / HINT)}  # nothing depends on it
        assert {str(tmp_path / "tables"), str(tmp_path)} <= synced

    def test_without_fsync_nothing_is_synced(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "fsync", lambda handle: pytest.fail("fsync is off"))
        tables = TableStore(str(tmp_path), local_root=tmp_path, fsync=False)
        assert write(tables, tables.birth(TABLE, "node"), people({"a": 1})).rows == 1


class TestRestage:
    def test_over_an_append_rewrites_no_data(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        staged = tables.stage(base, TableDelta(PERSON, people({"x": 1})))
        moved = write(tables, base, people({"y": 2}))
        before = tables.io_stats()
        committed_table = tables.commit(moved, tables.restage(staged, moved))
        assert (tables.io_stats() - before).write_iops == 2
        assert ages(committed_table) == {"a": 1, "x": 1, "y": 2}

    def test_over_a_fold_of_the_same_id_has_it_once(self, tables: TableStore) -> None:  # H4
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        staged = tables.stage(base, TableDelta(PERSON, people({"x": 7}), present_ids=()))
        folded = write(tables, base, people({"x": 1}))
        assert ages(tables.commit(folded, tables.restage(staged, folded))) == {"a": 1, "x": 7}

    def test_keeps_the_other_writers_removals(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2, "c": 3}))
        staged = tables.stage(base, TableDelta(PERSON, people({"a": 10})))
        moved = write(tables, base, people({"b": 20}), delete=["c"])
        assert ages(tables.commit(moved, tables.restage(staged, moved))) == {"a": 10, "b": 20}

    def test_over_an_added_column_and_another_order_of_columns(self, tables: TableStore) -> None:
        birth = tables.birth(TABLE, "node")
        schema = pa.schema([ID, AGE, TAGS, NOTE])
        base = write(tables, birth, rows_of(schema, {"id": "a", AGE.name: 1}))
        sibling = write(
            tables, birth, rows_of(pa.schema([ID, NOTE, TAGS]), {"id": "b", NOTE.name: "n", TAGS.name: ["t"]})
        )
        staged = tables.stage(base, TableDelta(schema, rows_of(schema, {"id": "c", AGE.name: 3, TAGS.name: ["u"]})))
        before = tables.io_stats()
        committed_table = tables.commit(sibling, tables.restage(staged, sibling))
        assert (tables.io_stats() - before).write_iops == 2
        assert contents(committed_table) == {
            "b": {AGE.name: None, NOTE.name: "n", TAGS.name: ["t"]},
            "c": {AGE.name: 3, NOTE.name: None, TAGS.name: ["u"]},
        }

    def test_over_an_emptied_table_and_over_an_overwrite(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2}))
        staged = tables.stage(base, TableDelta(PERSON, people({"a": 5})))
        emptied = write(tables, base, delete=["a", "b"])
        assert ages(tables.commit(emptied, tables.restage(staged, emptied))) == {"a": 5}
        overwritten = write(tables, base, people({"a": 8, "z": 9}), overwrite=True)
        assert ages(tables.commit(overwritten, tables.restage(staged, overwritten))) == {"a": 5, "z": 9}

    def test_of_an_overwrite_removes_what_came_in_between(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        staged = tables.stage(base, TableDelta(PERSON, people({"o": 1}), overwrite=True))
        moved = write(tables, base, people({"b": 1}))
        restaged = tables.restage(staged, moved)
        assert restaged.rows_removed == 2
        assert ages(tables.commit(moved, restaged)) == {"o": 1}

    def test_in_another_process_from_json(self, tables: TableStore, tmp_path: Path) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2, "c": 3}))
        staged = tables.stage(base, TableDelta(PERSON, people({"a": 10, "d": 4}), ["b"]))
        moved = write(tables, base, people({"d": 40, "c": 30}))
        text = json.dumps(staged.to_json())
        elsewhere = TableStore(str(tmp_path), fsync=False)
        copy = StagedTable.from_json(json.loads(text))
        assert copy == staged
        pin = elsewhere.open(TABLE, moved.version)
        assert ages(elsewhere.commit(pin, elsewhere.restage(copy, pin))) == {"a": 10, "c": 30, "d": 4}

    def test_with_a_hint_reads_only_what_it_names(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        staged = tables.stage(base, TableDelta(PERSON, people({"x": 1}), present_ids=()))
        moved = write(tables, base, people({"y": 2}), present_ids=())
        before = tables.io_stats()
        restaged = tables.restage(staged, moved, present_ids=())
        assert (tables.io_stats() - before).read_iops == 0
        assert ages(tables.commit(moved, restaged)) == {"a": 1, "x": 1, "y": 2}


class TestColumns:
    def test_added_with_the_first_rows_that_need_them(self, tables: TableStore) -> None:
        wider = pa.schema([ID, AGE, TAGS, NOTE])
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2}))
        before = tables.io_stats()
        written_table = write(
            tables, base, rows_of(wider, {"id": "a", AGE.name: 3, TAGS.name: ["x", "y"], NOTE.name: "n"})
        )
        assert (tables.io_stats() - before).write_iops == 1 + 1 + 2
        assert contents(written_table) == {
            "a": {AGE.name: 3, TAGS.name: ["x", "y"], NOTE.name: "n"},
            "b": {AGE.name: 2, TAGS.name: None, NOTE.name: None},
        }

    def test_added_without_rows(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        written_table = write(tables, base, schema=pa.schema([ID, AGE, NOTE]))
        assert contents(written_table) == {"a": {AGE.name: 1, NOTE.name: None}}

    def test_added_while_a_fragment_vanishes(self, tables: TableStore) -> None:
        base = write(tables, write(tables, tables.birth(TABLE, "node"), people({"a": 1})), people({"b": 2}))
        wider = pa.schema([ID, AGE, NOTE])
        written_table = write(tables, base, rows_of(wider, {"id": "c", NOTE.name: "n"}), delete=["a", "b"])
        assert contents(written_table) == {"c": {AGE.name: None, NOTE.name: "n"}}
        only_deleted = write(tables, base, schema=wider, delete=["a"])
        assert contents(only_deleted) == {"b": {AGE.name: 2, NOTE.name: None}}

    def test_of_another_type_are_refused_unless_everything_is_replaced(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        texts = pa.schema([ID, pa.field(AGE.name, pa.utf8())])
        rows = rows_of(texts, {"id": "a", AGE.name: "one"})
        with pytest.raises(Unsupported):
            tables.stage(base, TableDelta(texts, rows))
        assert contents(write(tables, base, rows, overwrite=True)) == {"a": {AGE.name: "one"}}
