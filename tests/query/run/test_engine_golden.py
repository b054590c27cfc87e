"""The golden corpus: a query, its plan, its SQL, its rows. OMNIGRAPH_GOLDEN=update rewrites the files.

Every case runs on rows in the overlay, under indexes, and spread over both, with either coding of keys, and must agree
with the reference interpreter. S94, S126: where the rows are and what is indexed makes no difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from omnigraph.embed.providers import HashEmbedder
from omnigraph.query.language.bind import bind_params
from omnigraph.query.language.parse import parser
from omnigraph.query.plan.build_plan import build_plan
from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.rules import rewrite_plan
from omnigraph.query.plan.show import show_plan
from omnigraph.query.plan.sql import to_sql
from omnigraph.query.run.run_query import Coding
from tests.query.run.bed import QueryBed, make_bed, place_all, spread
from tests.query.run.graphs import GOLDEN, GRAPHS

UPDATING = os.environ.get("OMNIGRAPH_GOLDEN") == "update"
_SEPARATOR = "\n=====\n"
_PART = "\n-----\n"
CODINGS: tuple[Coding, ...] = ("ids", "codes", "arrays")


class Embedder(HashEmbedder):
    """Runs under the name of the model that the schema records."""

    model = "m1"


@dataclass(frozen=True)
class EngineCase:
    path: Path

    @property
    def id(self) -> str:
        return self.path.stem

    @cached_property
    def _text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def source(self) -> str:
        return self._text.split(_SEPARATOR)[0] + "\n"

    @property
    def expected(self) -> str:
        return self._text.split(_SEPARATOR)[1]

    def _header(self, word: str) -> str | None:
        start = f"// {word}: "
        return next((line.removeprefix(start) for line in self.source.splitlines() if line.startswith(start)), None)

    @property
    def graph(self) -> str:
        return self._header("graph") or ""

    @property
    def values(self) -> dict[str, Any]:
        return dict(json.loads(self._header("values") or "{}"))


CASES = [EngineCase(path) for path in sorted((GOLDEN / "cases").glob("*.gq"))]


@pytest.fixture(scope="module")
def beds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], QueryBed]]:
    bed_by_graph = {}
    for name, (schema, content) in GRAPHS.items():
        text = (GOLDEN / schema).read_text(encoding="utf-8")
        for layout, rows in (
            ("overlay", content),
            ("indexed", place_all(content, "indexed")),
            ("spread", spread(content)),
        ):
            bed_by_graph[name, layout] = make_bed(tmp_path_factory.mktemp(f"{name}-{layout}"), text, rows)
    yield bed_by_graph
    for bed in bed_by_graph.values():
        bed.backend.close()


def _actual(bed: QueryBed, case: EngineCase) -> str:
    checked = bed.check(case.source)
    facts = Facts(bed.catalog, {table: pin.rows for table, pin in bed.snapshot.record.pins.items()})
    plan = rewrite_plan(build_plan(checked.body), facts)  # type: ignore[arg-type]
    statement = to_sql(plan, bed.catalog)
    return _PART.join([show_plan(plan).rstrip("\n"), statement.text(pretty=True), _rows(bed, case)])


def _rows(bed: QueryBed, case: EngineCase) -> str:
    result = bed.run(case.source, case.values, embedder=Embedder())
    lines = [json.dumps(_round_floats(row), ensure_ascii=False) for row in result.json_rows]
    ordered = "order {" in case.source
    columns = ", ".join(f"{column.name}: {column.type}" for column in result.columns)
    notes = [f"warning: {warning}" for warning in result.warnings]
    return "\n".join([columns, *(lines if ordered else sorted(lines)), *notes]) + "\n"


def _round_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _round_floats(item) for key, item in value.items()}
    return float(f"{value:.12g}") if isinstance(value, float) else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_golden(case: EngineCase, beds: dict[tuple[str, str], QueryBed]) -> None:
    first = beds[case.graph, "overlay"]
    first.coding = "ids"
    actual = _actual(first, case)
    if UPDATING:
        case.path.write_text(case.source.rstrip("\n") + _SEPARATOR + actual, encoding="utf-8")
        case.__dict__.pop("_text", None)
    assert actual == case.expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_same_rows_spread(case: EngineCase, beds: dict[tuple[str, str], QueryBed]) -> None:
    _agree_on(case, beds[case.graph, "spread"])


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_same_rows_everywhere(case: EngineCase, beds: dict[tuple[str, str], QueryBed]) -> None:
    for layout in ("overlay", "indexed"):
        _agree_on(case, beds[case.graph, layout])


def _agree_on(case: EngineCase, bed: QueryBed) -> None:
    expected_rows = case.expected.split(_PART)[2]
    unordered_window = "order {" not in case.source and ("limit" in case.source or "offset" in case.source)
    for coding in CODINGS:
        bed.coding = coding
        bed.agree(case.source, case.values, embedder=Embedder())
        if not unordered_window:
            assert _rows(bed, case) == expected_rows, coding


def test_corpus_is_large_enough() -> None:
    assert len(CASES) >= 250


def test_corpus_reaches_every_production_of_reading() -> None:
    """Rules by the name they leave in the tree; those of mutations belong to the corpus of the language."""
    rules = {str(rule.alias or rule.origin.name) for rule in parser().rules}
    productions = {name for name in rules if not name.startswith("_")}
    reached = {str(node.data) for case in CASES for node in parser().parse(case.source).iter_subtrees()}
    conditions = {"column_compare", "column_null", "conjunction", "disjunction"}
    assert productions - reached == {"mutation", "insert", "update", "delete", "type_name", *conditions}


def test_spark_reads_the_same_statement(beds: dict[tuple[str, str], QueryBed]) -> None:
    """The plan prints for the other engine too, with the same placeholders."""
    for case in CASES:
        bed = beds[case.graph, "overlay"]
        checked = bed.check(case.source)
        statement = to_sql(rewrite_plan(build_plan(checked.body), Facts(bed.catalog)), bed.catalog)  # type: ignore[arg-type]
        text = statement.text("spark")
        assert all(f":{name}" in text for name in statement.parameters), text
        assert bind_params(checked, case.values) is not None
