"""What reading relies on: which filters reach Lance, what they mean there, and how errors look."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance import LanceDataset
from lance.dataset import ScannerBuilder

from omnigraph.storage.lance.filters import to_substrait
from tests.guards.lance_cases import SCHEMA, append_ids, create_table, ids


@pytest.fixture
def mixed_table(tmp_path: Path) -> LanceDataset:
    table = pa.table(
        {
            "id": ["a", "b", "c"],
            "n": pa.array([1, 2, None], pa.int64()),
            "u": pa.array([1, (1 << 63) + 5, None], pa.uint64()),
            "doc": pa.array([b"x", None, None], pa.large_binary()),
            "v": pa.array([[1, 2], None, None], pa.list_(pa.float32(), 2)),
        }
    )
    return lance.write_dataset(table, str(tmp_path / "t"))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (pc.field("n") == 1, ["a"]),
        (pc.field("n").isin([1, 2]), ["a", "b"]),
        ((pc.field("n") == 1) | (pc.field("id") == "c"), ["a", "c"]),
        (~pc.field("id").isin(["a"]), ["b", "c"]),
        (pc.starts_with(pc.field("id"), "a"), ["a"]),
        (pc.match_substring(pc.field("id"), "b"), ["b"]),
        (pc.field("n").is_null(), ["c"]),
    ],
)
def test_filters_that_lance_evaluates(mixed_table: LanceDataset, where: pc.Expression, expected: list[str]) -> None:
    assert ids(mixed_table, where) == expected


@pytest.mark.parametrize(
    "where",
    [
        pc.field("u") == pa.scalar(1, pa.uint64()),
        pc.field("doc").is_null(),
        pc.field("v").is_null(),
        pc.match_substring_regex(pc.field("id"), "^a"),
    ],
)
def test_filters_that_arrow_has_to_evaluate(mixed_table: LanceDataset, where: pc.Expression) -> None:
    """One of these passing means that `filters.py` can hand over more."""
    with pytest.raises((ValueError, NotImplementedError), match=r"Substrait|FieldRef"):
        mixed_table.to_table(filter=where)


def test_unsigned_numbers_can_be_asked_for_in_words(mixed_table: LanceDataset) -> None:
    assert ids(mixed_table, f"`u` IN ({(1 << 63) + 5})") == ["b"]


def test_a_null_is_neither_in_nor_out(mixed_table: LanceDataset) -> None:
    """Unlike in Arrow."""
    assert ids(mixed_table, ~pc.field("n").isin([1])) == ["b"]
    assert mixed_table.to_table().filter(~pc.field("n").isin([1]))["id"].to_pylist() == ["b", "c"]


def test_a_limit_counts_what_the_filter_leaves(mixed_table: LanceDataset) -> None:
    assert (
        mixed_table.scanner(columns=["id"], filter=~pc.field("id").isin(["a", "b"]), limit=1).to_table().num_rows == 1
    )


def test_counters_are_shared_by_a_session_and_count_effects(tmp_path: Path) -> None:
    base = create_table(tmp_path)
    base.io_stats_incremental()
    version = append_ids(base, "a")
    assert base.io_stats_snapshot().write_iops == 3
    version.to_table()
    assert base.io_stats_snapshot().read_iops == version.io_stats_snapshot().read_iops >= 1


def test_a_missing_version_a_missing_table_and_a_missing_file(tmp_path: Path) -> None:
    base = append_ids(create_table(tmp_path), "a")
    for uri, version in [(base.uri, (1 << 63) + 1), (base.uri, 7), (str(tmp_path / "no"), 1)]:
        with pytest.raises(ValueError, match="was not found"):
            LanceDataset(uri, version)
    next((tmp_path / "t" / "data").glob("*.lance")).unlink()
    with pytest.raises(ValueError, match="Not found: "):
        LanceDataset(base.uri, base.version).to_table()


def test_an_unreadable_manifest(tmp_path: Path) -> None:
    base = append_ids(create_table(tmp_path), "a")
    (tmp_path / "t" / "_versions" / f"d{base.version}.manifest").write_bytes(b"no manifest, surely" * 3)
    with pytest.raises(ValueError, match=r"magic|file size is too small|decode|sufficient data"):
        LanceDataset(base.uri, base.version)


def test_an_unknown_column(tmp_path: Path) -> None:
    base = append_ids(create_table(tmp_path), "a")
    with pytest.raises(ValueError, match="No field named"):
        base.to_table(columns=["nope"])
    with pytest.raises(ValueError, match=r"No match for FieldRef.Name\(nope\)"):
        base.to_table(filter=pc.field("nope") == 1)
    assert base.schema.equals(SCHEMA)


def test_a_list_of_unsigned_numbers_spoils_every_filter(tmp_path: Path) -> None:
    """Why filters are serialised by `to_substrait`: Lance replaces fewer columns than Substrait needs."""
    table = pa.table({"id": ["a", "b"], "ns": pa.array([[1], None], pa.list_(pa.uint64()))})
    dataset = lance.write_dataset(table, str(tmp_path / "t"))
    with pytest.raises(ValueError, match="Unsupported Substrait user defined type"):
        dataset.scanner(filter=pc.field("id") == "b").to_table()
    builder = ScannerBuilder(dataset)
    builder._substrait_filter = to_substrait(pc.field("id") == "b", dataset.schema)
    assert builder.to_scanner().to_table()["id"].to_pylist() == ["b"]
