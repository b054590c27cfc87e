"""Indexes and compaction: same rows, same answers, other files."""

from __future__ import annotations

import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.storage.lance import (
    IndexSpec,
    PinnedTable,
    RewriteOptions,
    StagedVersion,
    TableDelta,
    TableStore,
    plan_rewrite,
    run_rewrite,
)
from omnigraph.storage.lance import indexes as indexing
from omnigraph.storage.lance.indexes import IndexPlan, plan_index
from omnigraph.storage.lance.pinned_table import Segment
from tests.storage.lance.table_cases import AGE, ID, NOTE, SIZE, TAGS, VECTOR, ages, contents, people, write

TABLE = "person_ab12cd34-1"
SCHEMA = pa.schema([ID, AGE, NOTE, TAGS, VECTOR, SIZE])
BY_ID = IndexSpec("by_id", "id", "BTREE")
ALL = [
    BY_ID,
    IndexSpec("by_age", AGE.name, "BITMAP"),
    IndexSpec("by_size", SIZE.name, "BTREE"),
    IndexSpec("by_tag", TAGS.name, "LABEL_LIST"),
    IndexSpec("by_word", NOTE.name, "INVERTED", (("with_position", True),)),
    IndexSpec("near", VECTOR.name, "IVF_FLAT", (("num_partitions", 2), ("metric", "cosine"))),
]


@pytest.fixture
def tables(tmp_path: Path) -> TableStore:
    return TableStore(str(tmp_path), fsync=False)


def _rows(start: int, count: int) -> pa.Table:
    draw = np.random.default_rng(start)
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": [f"n{number}" for number in numbers],
            AGE.name: [number % 7 for number in numbers],
            NOTE.name: [f"word{number % 5} common" for number in numbers],
            TAGS.name: [[f"t{number % 3}"] for number in numbers],
            VECTOR.name: pa.array(draw.random((count, 4), dtype=np.float32).tolist(), VECTOR.type),
            SIZE.name: pa.array(numbers, pa.uint64()),
        },
        schema=SCHEMA,
    )


def _answers(pinned: PinnedTable) -> dict[str, object]:
    """What a reader would ask; the same however the table is indexed."""
    raw = pinned.lance()
    query = [0.1, 0.9, 0.3, 0.5]
    near = raw.scanner(
        columns=["id", "_distance"],
        nearest={"column": VECTOR.name, "q": query, "k": 5, "nprobes": 8, "metric": "cosine"},
    )
    text = {"query": "word3", "columns": [NOTE.name]}
    return {
        "id": sorted(pinned.find(["n3", "n500", "n2", "none"])["id"].to_pylist()),
        "age": pinned.count(pc.field(AGE.name) == 3),
        "size": sorted(pinned.find_by(SIZE.name, [3, 77, 10**6], ["id"])["id"].to_pylist()),
        "tag": raw.scanner(columns=["id"], filter=f"array_has({TAGS.name}, 't1')").to_table().num_rows,
        "word": sorted(raw.scanner(columns=["id", "_score"], full_text_query=text).to_table()["id"].to_pylist()),
        "near": sorted(near.to_table()["id"].to_pylist()),
        "all": sorted(pinned.scan(["id"])["id"].to_pylist()),
    }


def _count_covered(pinned: PinnedTable) -> dict[str, int]:
    return {index.name: len(index.covered_fragments) for index in pinned.indices()}


class TestIndexes:
    def test_indexes_of_every_kind_in_one_commit(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), _rows(0, 600))
        expected = _answers_without_index(base)
        staged = tables.stage_index(base, ALL)
        assert base.indices() == []
        committed_table = tables.commit(base, staged)
        assert committed_table.base_version() == base.version
        assert {index.name: index.kind for index in committed_table.indices()} == {
            "by_id": "BTREE",
            "by_age": "BITMAP",
            "by_size": "BTREE",
            "by_tag": "LABELLIST",
            "by_word": "INVERTED",
            "near": "IVFFLAT",
        }
        assert _answers(committed_table) == expected

    def test_survive_writes_and_catch_up_by_segments(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), _rows(0, 600))
        base = tables.commit(base, tables.stage_index(base, ALL))
        changed = write(tables, base, _rows(590, 310), delete=["n3", "n4"])
        expected = _answers_without_index(changed)
        assert _answers(changed) == expected
        assert set(_count_covered(changed).values()) == {1}
        caught_up = tables.commit(changed, tables.stage_index(changed, ALL))
        assert set(_count_covered(caught_up).values()) == {2}
        assert {len(index.segments) for index in caught_up.indices()} == {2}
        assert _answers(caught_up) == expected
        assert tables.stage_index(caught_up, ALL).is_empty

    def test_indexes_are_used_by_lookups(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), _rows(0, 600))
        committed_table = tables.commit(base, tables.stage_index(base, ALL))
        for where in (pc.field("id") == "n5", pc.field("id").isin(["n5", "n6"]), f"`{SIZE.name}` IN (5)"):
            assert "ScalarIndexQuery" in committed_table.lance().scanner(columns=["id"], filter=where).explain_plan()

    def test_staged_writes_on_an_indexed_table_cost_one_read_more(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), _rows(0, 300))
        base = tables.commit(base, tables.stage_index(base, [BY_ID]))
        for number in range(3):
            before = tables.io_stats()
            base = write(tables, base, _rows(1000 + number, 1), present_ids=())
            spent = tables.io_stats() - before
            assert spent.write_iops == 3
            assert spent.read_iops <= 1
        assert base.rows == 303

    def test_indexes_do_not_cover_a_new_fragment_that_replaces_a_removed_one(self, tables: TableStore) -> None:
        base = tables.birth(TABLE, "node")
        for name in ("a", "b", "c"):
            base = write(tables, base, people({name: 1}))
        base = tables.commit(base, tables.stage_index(base, [BY_ID]))
        shorter = write(tables, base, delete=["c"])
        wider = write(tables, shorter, people({"d": 4}, pa.schema([ID, AGE, NOTE])))
        assert wider.find(["a", "b", "c", "d"]).num_rows == 3
        packed = tables.commit(shorter, tables.stage_rewrite(shorter))
        assert packed.find(["a", "b", "c"]).num_rows == 2
        assert shorter.max_fragment_id == 2
        assert {fragment.id for fragment in (*wider.metadata, *packed.metadata)} == {0, 1, 3}

    def test_building_disturbs_no_reader(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), _rows(0, 20_000))
        with ThreadPoolExecutor(1) as pool:
            building = pool.submit(tables.stage_index, base, ALL)
            reads = 0
            while not building.done() or not reads:
                assert base.find(["n7"]).num_rows == 1
                reads += 1
            assert tables.commit(base, building.result()).rows == 20_000

    def test_indexes_are_dropped_by_name(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), _rows(0, 300))
        base = tables.commit(base, tables.stage_index(base, ALL[:2]))
        committed_table = tables.commit(base, tables.stage_index(base, [], drop=["by_age"]))
        assert [index.name for index in committed_table.indices()] == ["by_id"]

    def test_many_segments_become_one(self, tables: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(indexing, "MAX_SEGMENTS", 2)
        base = tables.birth(TABLE, "node")
        for start in range(0, 90, 30):
            base = write(tables, base, _rows(start, 30))
            base = tables.commit(base, tables.stage_index(base, [BY_ID]))
        (only,) = base.indices()
        assert (len(only.segments), len(only.covered_fragments)) == (1, 3)
        assert sorted(base.find(["n1", "n31", "n61"])["id"].to_pylist()) == ["n1", "n31", "n61"]

    def test_restage_over_an_index_and_a_compaction(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2}))
        base = write(tables, base, people({"c": 3}))
        staged = tables.stage(base, TableDelta(base.schema, people({"a": 9, "d": 4}), ["c"]))
        indexed = tables.commit(base, tables.stage_index(base, [BY_ID]))
        assert ages(tables.commit(indexed, tables.restage(staged, indexed))) == {"a": 9, "b": 2, "d": 4}
        packed = tables.commit(indexed, tables.stage_rewrite(indexed, [BY_ID]))
        assert packed.fragments == 1
        assert ages(tables.commit(packed, tables.restage(staged, packed))) == {"a": 9, "b": 2, "d": 4}

    def test_on_a_column_that_was_added_later(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1}))
        base = write(tables, base, _rows(0, 20))
        committed_table = tables.commit(base, tables.stage_index(base, ALL[:5]))
        assert set(_count_covered(committed_table).values()) == {2}
        assert committed_table.find_by(SIZE.name, [7], ["id"])["id"].to_pylist() == ["n7"]

    def test_everything_of_an_index_is_synced(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # H41
        tables = TableStore(str(tmp_path), local_root=tmp_path)
        base = write(tables, tables.birth(TABLE, "node"), _rows(0, 300))
        synced: set[str] = set()
        monkeypatch.setattr(os, "fsync", lambda handle: synced.add(os.readlink(f"/proc/self/fd/{handle}")))
        committed_table = tables.commit(base, tables.stage_index(base, ALL))
        for segment in committed_table.segments():
            folder = tmp_path / "tables" / TABLE / "_indices" / segment.uuid
            assert {str(folder), str(folder.parent), str(folder.parent.parent)} <= synced
            assert {str(path) for path in folder.rglob("*") if path.is_file()} <= synced


def _answers_without_index(base: PinnedTable) -> dict[str, object]:
    answers = _answers(base)
    rows = {row["id"]: row for row in base.scan().to_pylist()}
    assert answers["age"] == sum(row[AGE.name] == 3 for row in rows.values())
    assert answers["word"] == sorted(row_id for row_id, row in rows.items() if "word3" in row[NOTE.name])
    return answers


class TestPlan:
    ROWS = {1: 500, 2: 500}  # noqa: RUF012

    @staticmethod
    def _segment(*fragments: int, name: str = "by_id", kind: str = "BTREE") -> Segment:
        return Segment(f"u{fragments}", name, kind, (0,), ("id",), frozenset(fragments))

    def test_nothing_built_yet(self) -> None:
        assert plan_index(BY_ID, [], self.ROWS) == IndexPlan(BY_ID, (1, 2), ())

    def test_no_plan_if_everything_is_covered(self) -> None:
        assert plan_index(BY_ID, [self._segment(1, 2)], self.ROWS) is None

    def test_plan_covers_only_missing_fragments(self) -> None:
        assert plan_index(BY_ID, [self._segment(1)], self.ROWS) == IndexPlan(BY_ID, (2,), ())

    def test_segments_of_gone_fragments_are_dead(self) -> None:
        dead = self._segment(7, 8)
        assert plan_index(BY_ID, [dead, self._segment(1, 2)], self.ROWS) == IndexPlan(BY_ID, (), (dead,))

    def test_another_kind_under_the_name_is_replaced(self) -> None:
        old = self._segment(1, 2, kind="BITMAP")
        assert plan_index(BY_ID, [old], self.ROWS) == IndexPlan(BY_ID, (1, 2), (old,))

    def test_other_names_do_not_count(self) -> None:
        assert plan_index(BY_ID, [self._segment(1, 2, name="x")], self.ROWS) == IndexPlan(BY_ID, (1, 2), ())

    def test_too_many_segments_are_built_anew(self) -> None:
        segments = [self._segment(number) for number in range(indexing.MAX_SEGMENTS)]
        rows = dict.fromkeys(range(indexing.MAX_SEGMENTS + 1), 10)
        assert plan_index(BY_ID, segments, rows) == IndexPlan(BY_ID, tuple(rows), tuple(segments))

    def test_few_vectors_are_left_to_a_scan(self) -> None:
        near = IndexSpec("near", "v", "IVF_FLAT")
        assert plan_index(near, [], {1: 255}) is None
        assert plan_index(near, [], {1: 255, 2: 1}) == IndexPlan(near, (1, 2), ())

    def test_an_empty_table_has_nothing_to_index(self) -> None:
        assert plan_index(BY_ID, [], {}) is None


class TestRewrite:
    def _make_scattered(self, tables: TableStore) -> PinnedTable:
        base = write(tables, tables.birth(TABLE, "node"), _rows(0, 600))
        base = tables.commit(base, tables.stage_index(base, ALL))
        for start in range(600, 1000, 100):
            base = write(tables, base, _rows(start, 100))
        return write(tables, base, _rows(10, 300), delete=["n3"])

    def test_keeps_rows_and_answers_and_covers_all(self, tables: TableStore) -> None:
        base = self._make_scattered(tables)
        expected = _answers(base)
        staged = tables.stage_rewrite(base, ALL)
        assert StagedVersion.from_json(json.loads(json.dumps(staged.to_json()))) == staged
        committed_table = tables.commit(base, staged)
        assert committed_table.base_version() == base.version
        assert committed_table.fragments < base.fragments
        assert {len(index.covered_fragments) for index in committed_table.indices()} == {committed_table.fragments}
        assert _answers(committed_table) == expected
        assert contents(committed_table) == contents(base)

    def test_twice_ends_with_one_fragment_and_then_does_nothing(self, tables: TableStore) -> None:
        scattered = self._make_scattered(tables)
        before = contents(scattered)
        for _ in range(2):
            scattered = tables.commit(scattered, tables.stage_rewrite(scattered, ALL))
        assert scattered.fragments == 1
        assert contents(scattered) == before
        assert tables.stage_rewrite(scattered, ALL).is_empty
        assert {len(index.segments) for index in scattered.indices()} == {1}

    def test_leaves_large_fragments_and_their_coverage_alone(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), _rows(0, 600))
        for start in range(600, 660, 20):
            base = write(tables, base, _rows(start, 20))
        base = tables.commit(base, tables.stage_index(base, [BY_ID]))
        committed_table = tables.commit(base, tables.stage_rewrite(base, options=RewriteOptions(target_rows=100)))
        assert [fragment.num_rows for fragment in committed_table.metadata] == [600, 60]
        (index,) = committed_table.indices()
        assert index.covered_fragments == {0}
        assert contents(committed_table) == contents(base)

    def test_tasks_run_elsewhere(self, tables: TableStore, tmp_path: Path) -> None:
        base = self._make_scattered(tables)
        tasks = pickle.dumps(plan_rewrite(base, RewriteOptions()))
        elsewhere = TableStore(str(tmp_path), fsync=False)
        pin = elsewhere.open(TABLE, base.version)
        results = [pickle.dumps(run_rewrite(pin, task)) for task in pickle.loads(tasks)]
        committed_table = tables.commit(
            base, tables.finish_rewrite(base, [pickle.loads(result) for result in results], ALL)
        )
        assert contents(committed_table) == contents(base)

    def test_of_fragments_with_other_columns(self, tables: TableStore) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2}))
        base = write(tables, base, _rows(0, 5))
        committed_table = tables.commit(base, tables.stage_rewrite(base))
        assert committed_table.fragments == 1
        assert contents(committed_table) == contents(base)

    def test_on_another_base_is_refused(self, tables: TableStore) -> None:  # H5
        base = self._make_scattered(tables)
        staged = tables.stage_rewrite(base)
        moved = write(tables, base, _rows(5000, 1))
        with pytest.raises(AssertionError):
            tables.commit(moved, staged)
