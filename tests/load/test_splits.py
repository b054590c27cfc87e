"""Splits: every record in exactly one of them, with its own line number, wherever the cuts fall."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from omnigraph.load import inputs as inputs_module
from omnigraph.load.inputs import LoadSources, discover, plan_splits
from omnigraph.load.records.batches import ReadLimits
from omnigraph.load.records.read_split import read_split
from omnigraph.storage.input_files import InputFiles
from tests.schema.helpers import compile_text

CATALOG = compile_text("node Person { name: String @key  age: I32? }")
CHECKS = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(path: Path, split_bytes: int, limits: ReadLimits, type_name: str | None = None) -> list[tuple[int, Any]]:
    """(line, record) of all splits, in their order."""
    load_sources = LoadSources.of({type_name: path} if type_name else path)
    inputs = discover(load_sources, CATALOG, InputFiles())
    records: list[tuple[int, Any]] = []
    for split in plan_splits(inputs, split_bytes):
        opened = pickle.loads(pickle.dumps(inputs.files)).open
        for raw in read_split(pickle.loads(pickle.dumps(split)), opened, limits):
            if split.format == "ndjson":
                texts = raw.data.split(b"\n")  # type: ignore[union-attr]
                first = raw.first_line  # type: ignore[union-attr]
                records += [(first + at, text) for at, text in enumerate(texts) if text]
            elif split.format == "csv":
                records += list(zip(raw.lines, raw.items, strict=True))  # type: ignore[union-attr]
            else:
                rows = raw.table.to_pylist()  # type: ignore[union-attr]
                records += [(raw.first_line + at, row) for at, row in enumerate(rows)]  # type: ignore[union-attr]
    return records


@pytest.fixture(autouse=True)
def _small_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs_module, "_SCAN_BYTES", 5)


@CHECKS
@given(
    st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"")), max_size=12),
    st.booleans(),
    st.integers(1, 40),
    st.integers(1, 20),
)
def test_lines(tmp_path: Path, lines: list[bytes], ends: bool, split_bytes: int, batch_bytes: int) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(lines) + (b"\n" if ends else b""))
    expected = [(at, line.removeprefix(b"\xef\xbb\xbf") if at == 1 else line) for at, line in enumerate(lines, 1)]
    assert read(path, split_bytes, ReadLimits(batch_bytes=batch_bytes)) == [batch for batch in expected if batch[1]]


@CHECKS
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b c", 'q"q', "x\ny", "", "é,"]), st.integers(0, 99)), max_size=10),
    st.integers(1, 40),
    st.integers(1, 20),
    st.sampled_from(["\n", "\r\n"]),
)
def test_csv(tmp_path: Path, rows: list[tuple[str, int]], split_bytes: int, batch_bytes: int, end: str) -> None:
    path = tmp_path / "p.csv"
    text, line, expected = f"name,age{end}", 2, []
    for name, age in rows:
        quoted = name.replace('"', '""')
        text += f'"{quoted}",{age}{end}'
        expected.append((line, (name, str(age))))
        line += 1 + name.count("\n")
    path.write_bytes(text.encode())
    assert read(path, split_bytes, ReadLimits(batch_bytes=batch_bytes), "Person") == expected


@CHECKS
@given(st.integers(0, 30), st.integers(1, 9), st.integers(1, 400), st.integers(1, 7))
def test_row_groups(tmp_path: Path, rows: int, group: int, split_bytes: int, batch_rows: int) -> None:
    path = tmp_path / "p.parquet"
    table = pa.table({"name": pa.array([f"n{at}" for at in range(rows)], pa.utf8())})
    parquet.write_table(table, path, row_group_size=group)
    content = read(path, split_bytes, ReadLimits(batch_rows=batch_rows), "Person")
    assert content == [(at + 1, {"name": f"n{at}"}) for at in range(rows)]


def test_large_files_are_cut_and_small_ones_are_not(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * 9 + b"\n" + b"y" * 9 + b"\n")
    inputs = discover(LoadSources.of(path), CATALOG, InputFiles())
    assert len(plan_splits(inputs, 20)) == 1
    cut = plan_splits(inputs, 10)
    assert [(split.start, split.end, split.first_line) for split in cut] == [(0, 10, 1), (10, 20, 2)]
