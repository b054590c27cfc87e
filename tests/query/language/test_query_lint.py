"""The report of lint: one documented JSON shape, never an exception for what a text holds."""

from __future__ import annotations

import json

from omnigraph.query.language.lint import lint
from tests.query.language.support import catalog


def test_the_shape_of_a_report() -> None:
    source = 'query find($t: String, $x: I64) @description("d") { match { $p: Person { name: $t } } return { $p.age } }'
    report = lint(source, catalog(), "find.gq")
    assert report.ok
    assert json.loads(json.dumps(report.to_json())) == {
        "file": "find.gq",
        "ok": True,
        "queries": [
            {
                "name": "find",
                "kind": "read",
                "params": [{"name": "t", "type": "String"}, {"name": "x", "type": "I64"}],
                "columns": [{"name": "p.age", "type": "I32?"}],
                "reads": {"node:Person": ["age", "id", "name"]},
                "writes": [],
                "description": "d",
            }
        ],
        "errors": [],
        "warnings": [
            {
                "code": "L1",
                "message": "the parameter `$x` is not used",
                "file": "find.gq",
                "line": 1,
                "column": 24,
                "end_column": 31,
                "advice": "Remove it",
            }
        ],
    }


def test_errors_of_all_queries_come_at_once() -> None:
    queries = ("a() { match { $p: Persn } return { $p } }", "b() { delete Person }", "c() { delete X where a = 1 }")
    report = lint("\n".join(f"query {query}" for query in queries), catalog())
    assert not report.ok
    assert [(error.code, error.line) for error in report.errors] == [("T1", 1), ("Q000", 2), ("T1", 3)]
    assert report.queries == ()


def test_a_mutation_writes_what_it_cascades_to() -> None:
    report = lint("query q() { delete Company where id is not null }", catalog())
    assert report.queries[0].writes == ("edge:Partners", "edge:WorksAt", "node:Company")
