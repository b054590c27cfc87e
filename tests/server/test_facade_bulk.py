"""The facade's own tests of loads and exports, on both graphs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import Conflict, InvalidInput, LoadRejected, NotFound, OmnigraphError, PreconditionFailed
from tests.server.bed import ADD, ALL, Facade


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "people.jsonl"


def _write(file: Path, *people: dict[str, Any]) -> Path:
    file.write_text("".join(json.dumps({"type": "Person", "data": person}) + "\n" for person in people))
    return file


def _ages(g: Facade) -> dict[str, int | None]:
    return {row["name"]: row["age"] for row in g.query(ALL).rows}


def test_modes(g: Facade, file: Path) -> None:
    g.mutate(ADD, {"n": "Ada", "a": 1})
    g.mutate(ADD, {"n": "Bo", "a": 1})
    with pytest.raises((LoadRejected, Conflict)):
        g.load(_write(file, {"name": "Ada"}), mode="append")
    report = g.load(_write(file, {"name": "Ada", "age": 2}, {"name": "Cy", "age": 3}), mode="merge")
    assert report.counts["node:Person"] == {"inserted": 1, "updated": 1, "deleted": 0}
    assert _ages(g) == {"Ada": 2, "Bo": 1, "Cy": 3}
    g.load(_write(file, {"name": "Di", "age": 4}), mode="overwrite")
    assert _ages(g) == {"Di": 4}


def test_a_load_is_repeated_safely(g: Facade, file: Path) -> None:
    _write(file, {"name": "Ada"})
    first = g.load(file, client_key="k", message="people")
    again = g.load(file, client_key="k")
    assert (again.commit_id, again.replayed, first.replayed) == (first.commit_id, True, False)
    assert [(commit.kind, commit.message) for commit in g.commits(1)] == [("load", "people")]


def test_a_load_on_a_condition(g: Facade, file: Path) -> None:
    _write(file, {"name": "Ada"})
    newest = g.refresh()
    g.mutate(ADD, {"n": "Bo"})
    with pytest.raises(PreconditionFailed):
        g.load(file, if_commit=newest)
    assert g.load(file, if_commit=g.refresh(), on_conflict="fail").loaded == 1


def test_bad_records_are_skipped_if_that_is_wanted(g: Facade, file: Path, tmp_path: Path) -> None:
    _write(file, {"name": "Ada"}, {"name": "Old", "age": 200}, {"name": "Bo"})
    # A server keeps no files of its callers: they have the sample.
    rejects_option = {} if isinstance(g, og.RemoteGraph) else {"rejects": tmp_path / "rejects"}
    report = g.load(file, on_error="skip", **rejects_option)
    assert (report.loaded, report.rejects, sum(report.rejects_by_code.values())) == (2, 1, 1)
    assert [reject["line"] for reject in report.sample] == [2]
    assert _ages(g) == {"Ada": None, "Bo": None}


def test_two_records_of_one_id(g: Facade, file: Path) -> None:
    _write(file, {"name": "Ada", "age": 1}, {"name": "Ada", "age": 2})
    with pytest.raises(LoadRejected):
        g.load(file, on_duplicate="fail")
    assert g.load(file).duplicates == 1
    assert _ages(g) == {"Ada": 2}


def test_several_files_on_a_branch(g: Facade, tmp_path: Path) -> None:
    files = [_write(tmp_path / f"{name}.jsonl", {"name": name}) for name in ("Ada", "Bo")]
    x = g.branch.create("x")
    assert x.load(files).loaded == 2
    assert (list(_ages(x)), list(_ages(g))) == (["Ada", "Bo"], [])


def test_files_that_are_not_there(g: Facade, tmp_path: Path) -> None:
    with pytest.raises(OmnigraphError) as refused:
        g.load(tmp_path / "nothing.jsonl")
    assert isinstance(refused.value, (InvalidInput, NotFound))


def test_an_empty_file_is_no_commit(g: Facade, file: Path) -> None:
    newest = g.refresh()
    file.write_text("")
    assert g.load(file).commit_id is None
    assert g.refresh() == newest


def test_an_export_of_what_was(g: Facade, tmp_path: Path) -> None:
    g.mutate(ADD, {"n": "Ada"})
    then = g.view()
    x = g.branch.create("x")
    x.mutate(ADD, {"n": "Bo"})
    g.mutate(ADD, {"n": "Cy"})
    for position, names in (({}, ["Ada", "Cy"]), ({"branch": "x"}, ["Ada", "Bo"]), ({"at": then.commit_id}, ["Ada"])):
        stream = io.BytesIO()
        report = g.export(stream, **position)
        assert [json.loads(line)["data"]["name"] for line in stream.getvalue().splitlines()] == names
        assert (report.rows, report.path, report.size_bytes) == (len(names), None, len(stream.getvalue()))
    assert then.export(str(tmp_path / "then.ndjson"), types=["Person"]).commit_id == then.commit_id
    with pytest.raises(InvalidInput):
        then.export(str(tmp_path / "then.ndjson"))
    assert then.export(str(tmp_path / "then.ndjson"), overwrite=True).rows == 1
    with pytest.raises(InvalidInput):
        g.export(io.BytesIO(), branch="x", at=then.commit_id)
    with pytest.raises(NotFound):
        g.export(io.BytesIO(), branch="nothing")


def test_what_was_exported_can_be_loaded(g: Facade, tmp_path: Path) -> None:
    g.mutate_many(ADD, [{"n": f"p{n}", "a": n} for n in range(5)])
    g.mutate('query k() { insert Knows { from: "p0", to: "p1" } }')
    g.export(str(tmp_path / "all.ndjson"))
    before = g.refresh()
    g.load(tmp_path / "all.ndjson", mode="overwrite")
    assert list(g.diff(before)) == []
