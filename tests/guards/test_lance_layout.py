"""What is read out of, or put into, Lance's own messages: field ids, manifests, names of files."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.fragment import FragmentMetadata, write_fragments
from lance.schema import LanceSchema

from omnigraph.storage.lance.field_ids import extend_schema, field_ids, read_proto
from tests.guards.lance_cases import SCHEMA, append_ids, commit_detached, create_table, ids, rows, write_rows

NESTED = pa.schema([*SCHEMA, pa.field("tags", pa.list_(pa.utf8())), pa.field("v", pa.list_(pa.float32(), 2))])


def test_files_staged_as_overwrite_are_numbered_by_their_own_schema(tmp_path: Path) -> None:
    table = pa.table({"v": [[1.0, 2.0]], "tags": [["x"]], "id": ["a"], "n": [1]})
    table = table.cast(pa.schema([NESTED.field(name) for name in table.column_names]))
    (fragment,) = write_rows(create_table(tmp_path), table)
    numbers = field_ids(LanceSchema.from_pyarrow(table.schema))
    leaves = [numbers[path] for path in (("v",), ("tags", "item"), ("id",), ("n",))]
    assert list(fragment.files[0].fields) == leaves


def test_the_manifest_decides_which_column_of_a_file_is_which(tmp_path: Path) -> None:
    """The file was written with ids 0 and 1; named under the ids of the table, it reads right."""
    base = append_ids(create_table(tmp_path), "a")
    (fragment,) = write_rows(
        base, pa.table({"n": [9], "id": ["b"]}).cast(pa.schema([SCHEMA.field("n"), SCHEMA.field("id")]))
    )
    assert list(fragment.files[0].fields) == [0, 1]
    fragment.files[0].fields = [1, 0]
    dataset = commit_detached(base, LanceOperation.Append([fragment]))
    assert sorted(dataset.to_table().to_pylist(), key=lambda row: row["id"]) == [
        {"id": "a", "n": 0},
        {"id": "b", "n": 9},
    ]


def test_a_schema_is_made_of_messages_whose_ids_can_be_shifted(tmp_path: Path) -> None:
    base = append_ids(create_table(tmp_path), "a")
    wider = extend_schema(base.lance_schema, base.max_field_id, [NESTED.field("tags"), NESTED.field("v")])
    assert field_ids(wider) == {("id",): 0, ("n",): 1, ("tags",): 2, ("tags", "item"): 3, ("v",): 4}
    dataset = commit_detached(base, LanceOperation.Merge([base.get_fragment(0).metadata], wider, True))
    assert dataset.schema.equals(NESTED)
    assert dataset.max_field_id == 4
    assert dataset.to_table().to_pylist() == [{"id": "a", "n": 0, "tags": None, "v": None}]


def test_the_manifest_tells_the_greatest_fragment_id_ever_and_its_transaction(tmp_path: Path) -> None:
    base = append_ids(append_ids(create_table(tmp_path), "a"), "b")
    shorter = commit_detached(base, LanceOperation.Update(removed_fragment_ids=[1]))
    assert [get_fragment.fragment_id for get_fragment in shorter.get_fragments()] == [0]
    assert shorter._ds.count_fragments() == 1
    parts = {tag: value for tag, _, value in read_proto(bytes(shorter._ds.serialized_manifest()))}
    assert parts[11] == 1
    assert (tmp_path / "t" / "_transactions" / bytes(parts[12]).decode()).exists()
    assert [get_fragment.fragment_id for get_fragment in append_ids(shorter, "c").get_fragments()] == [0, 2]


def test_fragments_survive_json(tmp_path: Path) -> None:
    base = append_ids(create_table(tmp_path), "a", "b")
    shrunk = base.get_fragment(0).delete_rows([0])
    again = FragmentMetadata.from_json(json.dumps(shrunk.to_json()))
    assert ids(commit_detached(base, LanceOperation.Update(updated_fragments=[again]))) == ["b"]
    assert again.num_rows == shrunk.num_rows == 1


def test_a_serialized_manifest_opens_without_a_request(tmp_path: Path) -> None:
    dataset = append_ids(create_table(tmp_path), "a")
    session = lance.Session()
    manifest = bytes(dataset._ds.serialized_manifest())
    opened = LanceDataset(dataset.uri, dataset.version, serialized_manifest=manifest, session=session)
    assert opened.io_stats_snapshot().read_iops == 0
    assert (opened.version, ids(opened)) == (dataset.version, ["a"])
    assert ids(append_ids(opened, "b")) == ["a", "b"]


def test_file_format_and_file_sizes_are_known(tmp_path: Path) -> None:
    (fragment,) = write_fragments(rows("a"), create_table(tmp_path), mode="overwrite", data_storage_version="2.2")
    file = fragment.files[0]
    assert (file.file_major_version, file.file_minor_version) == (2, 2)
    assert file.file_size_bytes == (tmp_path / "t" / "data" / file.path).stat().st_size


def test_binary_columns_are_read_by_the_value(tmp_path: Path) -> None:
    """Why blobs are plain large_binary: one value costs its own bytes, and nothing else has to know about them."""
    schema = pa.schema([SCHEMA.field("id"), pa.field("doc", pa.large_binary())])
    size = 200_000
    table = pa.table({"id": [f"k{n}" for n in range(20)], "doc": [bytes([n]) * size for n in range(20)]}, schema=schema)
    base = create_table(tmp_path)
    dataset = commit_detached(base, LanceOperation.Overwrite(schema, write_rows(base, table)))
    dataset.to_table(columns=["id"])
    dataset.io_stats_incremental()
    (row,) = dataset._take_rows([7], columns=["doc"]).to_pylist()
    assert row["doc"] == bytes([7]) * size
    assert dataset.io_stats_incremental().read_bytes < 2 * size


def test_rows_are_known_by_their_address(tmp_path: Path) -> None:
    dataset = append_ids(append_ids(create_table(tmp_path), "a"), "b", "c")
    rows = dataset.scanner(columns=["id"], with_row_address=True).to_table()
    addresses = dict(zip(rows["id"].to_pylist(), rows["_rowaddr"].to_pylist(), strict=True))
    assert addresses == {"a": 0, "b": 1 << 32, "c": (1 << 32) + 1}
    assert dataset._take_rows([addresses["c"]], columns=["id"])["id"].to_pylist() == ["c"]
