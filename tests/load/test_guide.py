"""docs/guides/loading.md tells the truth: its examples run, and its codes are those that rejects have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.load.bad_records import CASES

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "loading.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)


def _python(word: str) -> str:
    return next(text for kind, text in BLOCKS if kind == "python" and word in text)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "off")
    records = next(text for kind, text in BLOCKS if text.startswith('{"type"'))
    Path("people.jsonl").write_text(records)
    names: dict[str, Any] = {}
    exec(_python("og.init"), names)
    assert "'node:Person': {'inserted': 2" in capsys.readouterr().out
    Path("people.jsonl").write_text(records + '{"type": "Person", "data": {"name": 5}}\n')
    exec(_python("LoadRejected"), names)
    assert "people.jsonl 4 29 OG-V-002 property 'name': expected String" in capsys.readouterr().out
    Path("people.parquet").unlink(missing_ok=True)
    from pyarrow import Table, parquet

    parquet.write_table(Table.from_pylist([{"name": "Eve"}]), "people.parquet")
    Path("knows-1.csv").write_text("from,to\nEve,Ada\n")
    Path("knows-2.csv").write_text("from,to,since\nAda,Eve,3\n")
    exec(_python("people.parquet"), names)
    assert names["g"].table("Knows").to_arrow().num_rows == 3


def test_every_code_of_a_bad_record_is_explained() -> None:
    all = set(re.findall(r"`([A-Za-z0-9_-]+)`", PAGE)) | {f"OG-V-{number:03}" for number in range(1, 11)}
    assert {code for case in CASES for code in case.codes if code is not None} <= all


def test_records_of_the_page_are_json() -> None:
    for kind, text in BLOCKS:
        if not kind and text.startswith("{"):
            assert all(json.loads(line) for line in text.splitlines())
