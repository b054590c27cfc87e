"""Reading a pinned version: lookups, scans, filters, and columns that a schema has and a version lacks."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.errors import InvalidInput
from omnigraph.storage.lance import IndexSpec, PinnedTable, TableStore
from tests.storage.lance.table_cases import AGE, DOC, ID, NOTE, PERSON, SIZE, TAGS, VECTOR, people, rows_of, write

TABLE = "person_ab12cd34-1"
ODD = pa.schema([ID, AGE, NOTE, TAGS, VECTOR, SIZE, DOC])
BIG = (1 << 63) + 7


@pytest.fixture
def tables(tmp_path: Path) -> TableStore:
    return TableStore(str(tmp_path), fsync=False)


@pytest.fixture
def hundred_rows(tables: TableStore) -> PinnedTable:
    """Ids n0 … n99 with ages 0 … 99, in four fragments, the odd ones of the last removed."""
    base = tables.birth(TABLE, "node")
    for start in range(0, 100, 25):
        base = write(tables, base, people({f"n{number}": number for number in range(start, start + 25)}))
    return write(tables, base, delete=[f"n{number}" for number in range(75, 100) if number % 2])


@pytest.fixture
def odd(tables: TableStore) -> PinnedTable:
    rows = rows_of(
        ODD,
        {
            "id": "a",
            AGE.name: 1,
            NOTE.name: "x",
            TAGS.name: ["t"],
            VECTOR.name: [1, 2, 3, 4],
            SIZE.name: 1,
            DOC.name: b"1",
        },
        {"id": "b", AGE.name: 2, SIZE.name: BIG, DOC.name: b"\x00" * 1000},
        {"id": "c"},
    )
    return write(tables, tables.birth(TABLE, "node"), rows)


def _ids(rows: pa.Table) -> list[str]:
    return sorted(rows["id"].to_pylist())


class TestFind:
    def test_by_id(self, hundred_rows: PinnedTable) -> None:
        rows = hundred_rows.find(["n3", "n77", "nobody", "n80", "n3"], ["id", AGE.name])
        assert rows.column_names == ["id", AGE.name]
        assert {row["id"]: row[AGE.name] for row in rows.to_pylist()} == {"n3": 3, "n80": 80}

    def test_find_of_no_ids_reads_nothing(self, tables: TableStore, hundred_rows: PinnedTable) -> None:
        before = tables.io_stats()
        assert hundred_rows.find([]).num_rows == 0
        assert tables.io_stats() == before

    @pytest.mark.parametrize("count", [10, 199, 201, 5000])
    def test_long_lists_by_index_and_by_scan(self, hundred_rows: PinnedTable, count: int) -> None:
        ids = [f"n{number}" for number in range(40, 40 + count)]
        present_ids = {f"n{number}" for number in range(40, 100) if number < 75 or number % 2 == 0} & set(ids)
        assert set(hundred_rows.find(ids)["id"].to_pylist()) == present_ids
        assert hundred_rows.find(ids, [AGE.name])[AGE.name].null_count == 0

    @pytest.mark.parametrize(
        ("column", "values", "expected"),
        [
            (AGE.name, [1, 2, 99], ["a", "b"]),
            (NOTE.name, ["x", None], ["a"]),
            (SIZE.name, [BIG], ["b"]),
            (SIZE.name, [1, BIG, 3], ["a", "b"]),
            (DOC.name, [b"1"], ["a"]),
            ("gone_1", [1], []),
        ],
    )
    def test_by_any_column(self, odd: PinnedTable, column: str, values: list[object], expected: list[str]) -> None:
        schema = ODD.append(pa.field("gone_1", pa.int64()))
        assert _ids(odd.find_by(column, values, ["id"], schema=schema)) == expected

    def test_quotes_and_other_oddities_are_only_text(self, tables: TableStore) -> None:
        names = ["it's", 'say "hi"', "a\\b", "`x`", "x' OR '1'='1", "", "ünï\u0000code", "%_*"]
        written_table = write(tables, tables.birth(TABLE, "node"), people(dict.fromkeys(names, 1)))
        for name in names:
            assert _ids(written_table.find([name])) == [name]
        assert _ids(written_table.scan(hidden_ids=names[:3])) == sorted(names[3:])


class TestScan:
    def test_filter_projection_and_limit(self, hundred_rows: PinnedTable) -> None:
        rows = hundred_rows.scan([AGE.name], pc.field(AGE.name) >= 90)
        assert rows.column_names == [AGE.name]
        assert sorted(rows[AGE.name].to_pylist()) == [90, 92, 94, 96, 98]
        assert hundred_rows.scan(limit=7).num_rows == 7
        assert hundred_rows.count(pc.field(AGE.name) < 10) == 10

    def test_hidden_ids_do_not_use_up_the_limit(self, hundred_rows: PinnedTable) -> None:  # H10
        hidden = [f"n{number}" for number in range(95)]
        assert _ids(hundred_rows.scan(["id"], limit=2, hidden_ids=hidden)) == ["n96", "n98"]
        young = pc.field(AGE.name) < 5
        assert _ids(hundred_rows.scan(["id"], young, limit=3, hidden_ids=["n0", "n1"])) == ["n2", "n3", "n4"]

    def test_in_batches(self, hundred_rows: PinnedTable) -> None:
        batches = list(hundred_rows.batches([AGE.name], pc.field(AGE.name) < 30, ["n0"]))
        assert sorted(age for batch in batches for age in batch[AGE.name].to_pylist()) == list(range(1, 30))

    def test_unknown_columns_are_an_error(self, hundred_rows: PinnedTable) -> None:
        with pytest.raises(InvalidInput):
            hundred_rows.scan(["nope"])
        with pytest.raises(InvalidInput):
            hundred_rows.scan(where=pc.field("nope") == 1)

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            (pc.field(SIZE.name) == pa.scalar(BIG, pa.uint64()), ["b"]),
            (pc.field(SIZE.name).is_null(), ["c"]),
            (pc.field(DOC.name).is_valid(), ["a", "b"]),
            (pc.field(VECTOR.name).is_null(), ["b", "c"]),
            (pc.field(TAGS.name).is_valid(), ["a"]),
            (pc.match_substring_regex(pc.field(NOTE.name), "^x$"), ["a"]),
            (pc.field(AGE.name) < pa.scalar(1.5), ["a"]),
            ((pc.field(SIZE.name).is_valid()) & (pc.field(AGE.name) == 2), ["b"]),
            (pc.starts_with(pc.field("id"), "a") | pc.field(AGE.name).isin([2]), ["a", "b"]),
        ],
    )
    def test_filters_that_lance_can_and_cannot_evaluate(
        self, odd: PinnedTable, where: pc.Expression, expected: list[str]
    ) -> None:
        assert _ids(odd.scan(["id"], where)) == expected
        assert odd.count(where) == len(expected)
        assert odd.scan(["id"], where, limit=1).num_rows == 1
        assert _ids(odd.scan(["id"], where, hidden_ids=expected)) == []

    def test_every_scalar_type_comes_back_as_it_went_in(self, tables: TableStore) -> None:
        when = dt.datetime(2024, 2, 29, 12, 30, 1, 5000, tzinfo=dt.UTC)
        kinds: list[tuple[pa.DataType, object]] = [
            (pa.utf8(), "text"),
            (pa.bool_(), True),
            (pa.int32(), -5),
            (pa.uint32(), (1 << 32) - 1),
            (pa.uint64(), (1 << 64) - 1),
            (pa.float32(), 0.5),
            (pa.float64(), -1e300),
            (pa.date32(), dt.date(1969, 12, 31)),
            (pa.timestamp("ms", "UTC"), when),
            (pa.large_binary(), b"\x00\xff"),
            (pa.list_(pa.timestamp("ms", "UTC")), [when, None]),
            (pa.list_(pa.float32(), 2), [1.0, 2.0]),
        ]
        schema = pa.schema([ID, *(pa.field(f"c{number}", kind) for number, (kind, _) in enumerate(kinds))])
        full = {f"c{number}": value for number, (_, value) in enumerate(kinds)}
        written_table = write(tables, tables.birth(TABLE, "node"), rows_of(schema, {"id": "a", **full}, {"id": "b"}))
        assert written_table.schema.equals(schema)
        assert written_table.scan().sort_by("id").to_pylist() == [
            {"id": "a", **full},
            {"id": "b", **dict.fromkeys(full)},
        ]


class TestSchemas:
    def test_newer_than_the_version(self, hundred_rows: PinnedTable) -> None:
        wider = PERSON.append(NOTE).append(TAGS)
        rows = hundred_rows.find(["n1"], schema=wider).to_pylist()
        assert rows == [{"id": "n1", AGE.name: 1, NOTE.name: None, TAGS.name: None}]
        assert hundred_rows.scan([NOTE.name], schema=wider, limit=3).to_pylist() == [{NOTE.name: None}] * 3

    def test_a_filter_on_a_column_that_is_not_there_yet(self, hundred_rows: PinnedTable) -> None:
        wider = PERSON.append(NOTE)
        assert hundred_rows.count(pc.field(NOTE.name).is_null(), schema=wider) == hundred_rows.rows
        assert hundred_rows.scan(["id"], pc.field(NOTE.name) == "x", schema=wider).num_rows == 0
        either = pc.field(NOTE.name).is_null() & (pc.field(AGE.name) < 3)
        assert _ids(hundred_rows.scan(["id"], either, hidden_ids=["n0"], schema=wider)) == ["n1", "n2"]

    def test_without_a_column_does_not_read_it(self, odd: PinnedTable) -> None:
        assert odd.scan(schema=PERSON).column_names == PERSON.names

    def test_with_a_wider_type(self, tables: TableStore) -> None:
        narrow = pa.schema([ID, pa.field(AGE.name, pa.int32())])
        written_table = write(tables, tables.birth(TABLE, "node"), rows_of(narrow, {"id": "a", AGE.name: 5}))
        assert written_table.find(["a"], schema=PERSON).schema.equals(PERSON)


class TestFiles:
    def test_files_are_exactly_those_on_disk(self, tables: TableStore, tmp_path: Path) -> None:
        version = tables.birth(TABLE, "node")
        named_files: set[str] = version.files()
        for ages in ({"a": 1, "b": 2}, {"a": 3}, {"c": 4}):
            version = write(tables, version, people(ages))
            named_files |= version.files()
        version = tables.commit(version, tables.stage_index(version, [IndexSpec("by_id", "id", "BTREE")]))
        named_files |= version.files()
        files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "latest_version_hint.json"]
        existing_files = {str(file.relative_to(tmp_path)) for file in files}
        folders = tuple(name for name in named_files if name.endswith("/"))
        assert {name for name in existing_files if not name.startswith(folders)} == named_files - set(folders)
        assert any("/_indices/" in name for name in folders)

    def test_files_are_all_that_a_reader_needs(self, tables: TableStore, tmp_path: Path) -> None:
        base = write(tables, tables.birth(TABLE, "node"), people({"a": 1, "b": 2}))
        written_table = write(tables, base, people({"a": 3}))
        named_files = written_table.files()
        folders = tuple(name for name in named_files if name.endswith("/"))
        for path in [path for path in (tmp_path / "tables").rglob("*") if path.is_file()]:
            key = str(path.relative_to(tmp_path))
            if key not in named_files and not key.startswith(folders):
                path.unlink()
        fresh = TableStore(str(tmp_path), fsync=False)
        pinned = fresh.open(TABLE, written_table.version)
        assert {row["id"]: row[AGE.name] for row in pinned.scan().to_pylist()} == {"a": 3, "b": 2}
        assert write(fresh, pinned, people({"c": 1})).rows == 3
