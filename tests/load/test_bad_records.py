"""Bad records: `fail` loads nothing and names each, `skip` loads exactly the others. S8, S95, S98, S99"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.api import Graph
from omnigraph.errors import LoadRejected
from tests.load.bad_records import CASES, BadRecordCase, Mixture, mixture, prepare

TYPES = ("Person", "Point", "Note", "File", "Task", "Knows", "Lives", "Needs")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return prepare(tmp_path / "graph")


def rows(graph: Graph) -> int:
    return sum(graph.table(name).to_arrow().num_rows for name in TYPES)


def read_rejects(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.rglob("*.ndjson")) for line in file.read_text().splitlines()]


def expect_refusal(graph: Graph, path: Path, **options: Any) -> LoadRejected:
    before = graph.refresh()
    with pytest.raises(LoadRejected) as caught:
        graph.load(path, mode="append", engine="local", progress=False, **options)
    assert graph.refresh() == before
    return caught.value


def test_bad_record_corpus_covers_all_kinds() -> None:
    assert len(CASES) >= 40
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_kind_among_good_records(graph: Graph, tmp_path: Path, case: BadRecordCase) -> None:
    mixed = mixture([case], 40)
    path = tmp_path / "input.jsonl"
    path.write_bytes(mixed.data)
    error = expect_refusal(graph, path)
    assert {reject["line"]: reject["code"] for reject in error.details["rejects"]} == mixed.codes
    for reject in error.details["rejects"]:
        assert reject["file"] == str(path)
        assert reject["reason"]
    report = graph.load(path, mode="append", on_error="skip", rejects=tmp_path / "rejects", progress=False)
    assert (report.rejects, report.loaded, rows(graph)) == (len(mixed.codes), mixed.good, mixed.good + 1)
    assert len(graph.commits(kind="load")) == 1


@pytest.mark.parametrize("good_count", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_all_kinds_in_one_input(graph: Graph, tmp_path: Path, good_count: int) -> None:
    mixed = mixture(CASES, good_count)
    path = tmp_path / "input.jsonl"
    path.write_bytes(mixed.data)
    error = expect_refusal(graph, path, rejects=tmp_path / "failed")
    assert error.details["reject_count"] == len(mixed.codes)
    assert sum(error.details["totals"].values()) == len(mixed.codes)
    assert set(error.details["totals"]) == set(mixed.codes.values())
    assert len(error.details["rejects"]) == 20
    assert_complete(read_rejects(tmp_path / "failed"), mixed)
    report = graph.load(
        path, mode="append", engine="local", on_error="skip", rejects=tmp_path / "skipped", progress=False
    )
    assert_complete(read_rejects(tmp_path / "skipped"), mixed)
    assert report.rejects_by_code == error.details["totals"]
    assert (report.loaded, rows(graph)) == (mixed.good, mixed.good + 1)
    assert len(graph.commits(kind="load")) == 1
    # What is left is whole: the same file, without what was rejected, says so in one go.
    assert graph.verify().ok


def assert_complete(rejects: list[dict[str, Any]], mixed: Mixture) -> None:
    assert {reject["line"]: reject["code"] for reject in rejects} == mixed.codes
    lines = mixed.data.decode("utf-8", errors="replace").splitlines()
    for reject in rejects:
        assert reject["record"] == lines[reject["line"] - 1]
        assert list(reject)[:6] == ["file", "line", "column", "code", "reason", "record"]


def test_reject_column_is_that_of_the_bad_value(graph: Graph, tmp_path: Path) -> None:
    lines = [
        '{"type": "Person", "data": {"name": "a", "age": 200}}',
        '{"type": "Person", "data": {"name": "b", "aeg": 2}}',
        '{"type": "Person", "data": {"name": "c"',
        '{"edge": "Knows", "from": 3, "to": "a"}',
    ]
    path = tmp_path / "input.jsonl"
    path.write_text("\n".join(lines))
    rejects = expect_refusal(graph, path).details["rejects"]
    words = ['"age"', '"aeg"', None, '"from"']
    for reject, line, word in zip(rejects, lines, words, strict=True):
        assert reject["column"] == (line.index(word) + 1 if word else len(line) + 1)


def test_a_record_that_breaks_several_rules_is_rejected_once(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "input.jsonl"
    path.write_text('{"type": "Person", "data": {"name": "a", "age": "x", "rank": -1, "nobody": 1}}')
    error = expect_refusal(graph, path)
    (reject,) = error.details["rejects"]
    assert error.details["reject_count"] == 1
    assert [reject["code"], *(problem["code"] for problem in reject["others"])] == [
        "OG-V-002",
        "OG-V-003",
        "unknown_property",
    ]


def test_load_after_a_refused_load_succeeds(graph: Graph, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(mixture(CASES[:3], 10).data)
    expect_refusal(graph, bad)
    good = tmp_path / "good.jsonl"
    good.write_bytes(mixture([], 10).data)
    assert graph.load(good, mode="append", progress=False).loaded == 10
