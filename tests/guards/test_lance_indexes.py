"""What index builds and compaction rely on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance import LanceDataset, LanceOperation
from lance.dataset import Index
from lance.optimize import Compaction

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


def _fragments_of_index(dataset: LanceDataset) -> set[int]:
    fragment_ids = {get_fragment.fragment_id for get_fragment in dataset.get_fragments()}
    parts = [part for index in dataset.describe_indices() for part in index.segments]
    return {fragment for part in parts for fragment in part.fragment_ids} & fragment_ids


def _compact(base: LanceDataset, first_id: int) -> LanceDataset:
    groups = []
    for task in Compaction.plan(base, {"target_rows_per_fragment": 1 << 20}).tasks:
        result = task.execute(base)
        new = list(result.new_fragments)
        for number, fragment in enumerate(new, first_id):
            fragment.id = number
        groups.append(LanceOperation.RewriteGroup(result.original_fragments, new))
    return commit_detached(base, LanceOperation.Rewrite(groups, []))


def test_lookups_use_the_index_whatever_way_they_ask(tmp_path: Path) -> None:
    index = build_index(append_ids(create_table(tmp_path), "a", "b", "c"))
    for where in (pc.field("id") == "a", pc.field("id").isin(["a"]), pc.field("id").isin(pa.array(["a", "b"]))):
        assert "ScalarIndexQuery" in index.scanner(filter=where).explain_plan()
    only = index.scanner(filter=pc.field("id") == "a", fragments=index.get_fragments())
    assert "ScalarIndexQuery" in only.explain_plan()


def test_answers_are_complete_where_the_index_lags(tmp_path: Path) -> None:
    dataset = append_ids(build_index(append_ids(create_table(tmp_path), "a")), "b")
    assert _fragments_of_index(dataset) == {0}
    assert ids(dataset, pc.field("id").isin(["a", "b"])) == ["a", "b"]


def test_a_further_segment_needs_replace_and_removes_nothing(tmp_path: Path) -> None:
    base = append_ids(build_index(append_ids(create_table(tmp_path), "a")), "b")
    with pytest.raises(RuntimeError, match="already exists"):
        base.create_index_uncommitted("id", "BTREE", name="by_id", fragment_ids=[1])
    more = base.create_index_uncommitted("id", "BTREE", name="by_id", fragment_ids=[1], replace=True)
    dataset = commit_detached(base, LanceOperation.CreateIndex([more], []))
    assert [len(describe_indice.segments) for describe_indice in dataset.describe_indices()] == [2]
    assert _fragments_of_index(dataset) == {0, 1}
    assert ids(dataset, pc.field("id").isin(["a", "b"])) == ["a", "b"]


def test_a_segment_is_forgotten_by_its_uuid(tmp_path: Path) -> None:
    dataset = build_index(append_ids(create_table(tmp_path), "a"))
    (segment,) = dataset.describe_indices()[0].segments
    index = Index(str(segment.uuid), "by_id", [0], dataset_version=1, fragment_ids=set(), index_version=0)
    assert commit_detached(dataset, LanceOperation.CreateIndex([], [index])).describe_indices() == []


def test_an_inverted_segment_must_be_finished(tmp_path: Path) -> None:
    schema = pa.schema([SCHEMA.field("id"), pa.field("text", pa.utf8())])
    base = create_table(tmp_path)
    rows_with_text = pa.table({"id": ["a", "b"], "text": ["one word", "two words"]}, schema=schema)
    base = commit_detached(base, LanceOperation.Overwrite(schema, write_rows(base, rows_with_text)))
    raw = base.create_index_uncommitted("text", "INVERTED", name="words", fragment_ids=[0])
    query = {"query": "two", "columns": ["text"]}
    broken = commit_detached(base, LanceOperation.CreateIndex([raw], []))
    with pytest.raises((OSError, ValueError), match=r"(?i)not found"):
        broken.to_table(full_text_query=query)
    finished = commit_detached(base, LanceOperation.CreateIndex([base.merge_existing_index_segments([raw])], []))
    assert finished.to_table(full_text_query=query)["id"].to_pylist() == ["b"]


def test_building_an_index_locks_the_handle(tmp_path: Path) -> None:
    """Why every build gets a handle of its own."""
    base = create_table(tmp_path)
    table = rows(*(f"n{number}" for number in range(100_000)))
    base = commit_detached(base, LanceOperation.Append(write_rows(base, table)))
    refused: list[str] = []

    def attempt(action: Callable[[], object]) -> None:
        try:
            action()
        except RuntimeError as error:
            refused.append(str(error))

    def build() -> None:
        while not refused:
            attempt(lambda: base.create_index_uncommitted("id", "BTREE", name="by_id", fragment_ids=[0]))

    building = threading.Thread(target=build)
    building.start()
    while building.is_alive() and not refused:
        attempt(base.count_rows)
    building.join()
    assert "orrowed" in refused[0]  # the reader or the builder, whoever came second


def test_compaction_loses_all_coverage_but_no_row_and_moves_no_head(tmp_path: Path) -> None:
    """Without stable row ids; the new fragments are indexed by the next commit (docs/decisions/0005)."""
    base = create_table(tmp_path)
    for name in "abc":
        base = append_ids(base, name)
    compact = _compact(build_index(base), first_id=3)
    assert [get_fragment.fragment_id for get_fragment in compact.get_fragments()] == [3]
    assert _fragments_of_index(compact) == set()
    assert ids(compact, pc.field("id").isin(["a", "b", "c"])) == ["a", "b", "c"]
    manifests = (tmp_path / "t" / "_versions").glob("*.manifest")
    assert [manifest.name for manifest in manifests if not manifest.name.startswith("d")] == [
        "18446744073709551614.manifest"
    ]


def test_a_fragment_id_used_twice_hides_rows(tmp_path: Path) -> None:
    """Why fresh ids count from the greatest ever used, not from the greatest still there."""
    base = create_table(tmp_path)
    for name in "abc":
        base = append_ids(base, name)
    shorter = commit_detached(build_index(base), LanceOperation.Update(removed_fragment_ids=[2]))
    wrong = _compact(shorter, first_id=2)
    assert ids(wrong) == ["a", "b"]
    assert ids(wrong, pc.field("id").isin(["a", "b"])) != ["a", "b"]
    assert ids(_compact(shorter, first_id=3), pc.field("id").isin(["a", "b"])) == ["a", "b"]


def test_a_commit_on_an_indexed_base_reads_its_list_of_indexes_once(tmp_path: Path) -> None:
    """Why staging asks for the list while the data file is on its way."""
    base = append_ids(build_index(append_ids(create_table(tmp_path), "a")), "b")
    new = write_rows(base, rows("c"))
    base.io_stats_incremental()
    base.describe_indices()
    assert base.io_stats_incremental().read_iops == 1
    commit_detached(base, LanceOperation.Append(new))
    assert base.io_stats_incremental().read_iops == 0


@pytest.mark.parametrize("stable", [False, True])
def test_what_stable_row_ids_would_give_and_cost(tmp_path: Path, stable: bool) -> None:
    """docs/decisions/0005-stable-row-ids.md: coverage over a compaction against bytes in every later manifest."""
    count = 20_000
    table = rows(*(f"n{number:05d}" for number in range(count)))
    base = lance.write_dataset(SCHEMA.empty_table(), str(tmp_path / "t"), enable_stable_row_ids=stable)
    base = commit_detached(base, LanceOperation.Append(write_rows(base, table)))
    base = build_index(base, "n", "BITMAP")
    removed = [number for number in range(count) if number * 7919 % 5 == number % 3]
    base = commit_detached(base, LanceOperation.Update(updated_fragments=[base.get_fragment(0).delete_rows(removed)]))
    assert len(bytes(base._ds.serialized_manifest())) < 1_000
    compact = _compact(base, first_id=1)
    assert _fragments_of_index(compact) == ({1} if stable else set())
    size = len(bytes(compact._ds.serialized_manifest()))
    assert size > 2_000 if stable else size < 1_000
