"""`init --template`: the files are right, the graph has their schema, and nothing of the user's is replaced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.graph import FILES, Template
from tests.cli.conftest import Cli


@pytest.fixture(params=list(Template))
def template(request: pytest.FixtureRequest) -> Template:
    return Template(request.param)


def test_the_graph_has_the_schema_that_was_written(cli: Cli, tmp_path: Path, template: Template) -> None:
    document = cli("init", tmp_path / "g", "--template", template, "--into", tmp_path / "try", "--json").json()
    assert document["files"] == [str(tmp_path / "try" / name) for name in FILES]
    assert og.open(tmp_path / "g").schema.source == (tmp_path / "try" / "schema.pg").read_text()


def test_schema_and_queries_are_without_faults(cli: Cli, tmp_path: Path, template: Template) -> None:
    cli("init", tmp_path / "g", "--template", template, "--into", tmp_path)
    assert cli("lint", tmp_path / "queries.gq", "--schema", tmp_path / "schema.pg").code == 0
    assert cli("fmt", "--check", tmp_path / "queries.gq", tmp_path / "schema.pg").code == 0


def test_the_records_name_types_and_properties_of_the_schema(cli: Cli, tmp_path: Path, template: Template) -> None:
    cli("init", tmp_path / "g", "--template", template, "--into", tmp_path)
    catalog = og.open(tmp_path / "g").schema.catalog
    for line in (tmp_path / "data.ndjson").read_text().splitlines():
        record = json.loads(line)
        one = catalog.node(record["type"]) if "type" in record else catalog.edge(record["edge"])
        assert one is not None
        assert set(record.get("data", {})) <= set(one.by_name)


def test_files_that_are_there_stay_and_no_graph_is_made(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "queries.gq").write_text("mine")
    outcome = cli("init", tmp_path / "g", "--template", "social", "--into", tmp_path, "--json")
    assert (outcome.code, outcome.error()["code"]) == (5, "file_exists")
    assert (tmp_path / "queries.gq").read_text() == "mine"
    assert not (tmp_path / "schema.pg").exists()
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize(
    "words", [(), ("--template", "social", "--schema", "x.pg"), ("--schema", "x.pg", "--into", "d")]
)
def test_exactly_one_of_schema_and_template_is_wanted(cli: Cli, tmp_path: Path, words: tuple[str, ...]) -> None:
    assert cli("init", tmp_path / "g", *words).code == 2
