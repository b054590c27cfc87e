"""Places, recovery and the shape of parse errors; keywords as names; D₂ before anything else (S163)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from omnigraph.errors import ParseError, TypeCheckError
from omnigraph.query.language.check import check_query
from omnigraph.query.language.parse import parse_queries
from omnigraph.query.language.syntax import BindingSyntax, ReadSyntax
from tests.query.language.support import catalog

READ = "query find($n: String) {\n  match { $p: Person { name: $n } }\n  return { $p.age as years }\n}\n"


def _error(source: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse_queries(source, "people.gq")
    return caught.value


def test_spans_are_the_text_of_each_node() -> None:
    (query,) = parse_queries(READ)
    assert isinstance(query.body, ReadSyntax)
    binding = query.body.clauses[0]
    assert isinstance(binding, BindingSyntax)
    assert READ[binding.span.start : binding.span.end] == "$p: Person { name: $n }"
    assert (binding.span.line, binding.span.column) == (2, 11)
    (projection,) = query.body.projections
    assert READ[projection.span.start : projection.span.end] == "$p.age as years"
    assert READ[query.span.start : query.span.end] == READ.rstrip("\n")


def test_the_error_says_where_and_what_in_plain_json() -> None:
    error = _error("query q() {\n  match { $p: person }\n  return { $p }\n}")
    assert error.code == "Q000"
    assert (error.details["file"], error.details["line"], error.details["column"]) == ("people.gq", 2, 15)
    (finding,) = error.details["diagnostics"]
    assert finding == {
        "code": "Q000",
        "message": "expected a type name, found `person`",
        "file": "people.gq",
        "line": 2,
        "column": 15,
        "end_column": 21,
        "advice": "Type names begin with a capital letter: `Person`",
    }
    assert "    |               ^^^^^^" in str(error)


def test_places_stay_true_when_queries_are_parsed_one_by_one() -> None:
    line = "query a() { } query b() { match { $p: Person } return { $p } } query c() { delete X }"
    error = _error(f"// Ω\n{line}")
    positions = [(diagnostic["line"], diagnostic["column"]) for diagnostic in error.details["diagnostics"]]
    assert positions == [(2, line.index("}") + 1), (2, line.rindex("}") + 1)]


def test_a_missing_brace_spoils_one_query_only() -> None:
    error = _error("query a() {\n  match { $p: Person }\nquery b() {\n  match { $p: Person } return { $p }\n}\n")
    assert len(error.details["diagnostics"]) == 1


def test_a_byte_order_mark_is_no_error() -> None:
    assert parse_queries("\ufeff" + READ)[0].name.text == "find"


def test_windows_line_ends() -> None:
    assert parse_queries(READ.replace("\n", "\r\n"))[0].params[0].name.text == "n"


def test_d2_is_a_parse_error_with_advice() -> None:
    error = _error('query q() { insert Event { title: "a" } delete Event where title = "b" }')
    assert error.code == "D2"
    assert "g.transaction()" in error.details["diagnostics"][0]["advice"]


@pytest.mark.parametrize(
    "body", ["delete Event where id = $x delete File where path = $x", "insert File { } insert File { }"]
)
def test_pure_mutations_are_no_mix(body: str) -> None:
    assert parse_queries(f"query q($x: String) {{ {body} }}")


def test_repeated_texts_are_parsed_once_and_lists_are_not_shared() -> None:
    first, second = parse_queries(READ), parse_queries(READ)
    assert first[0] is second[0]
    first.clear()
    assert len(parse_queries(READ)) == 1


def test_errors_of_one_query_do_not_mention_another() -> None:
    source = "query a() { match { $p: Persn } return { $p } }\nquery b() { match { $p: Person } return { $p.x } }"
    first, second = parse_queries(source)
    with pytest.raises(TypeCheckError, match="Persn") as caught:
        check_query(first, catalog())
    assert len(caught.value.details["diagnostics"]) == 1
    with pytest.raises(TypeCheckError) as caught:
        check_query(second, catalog())
    assert caught.value.code == "T3"
    assert caught.value.details["line"] == 2


def test_lark_is_imported_only_when_a_text_is_read() -> None:
    modules = "omnigraph.query.language.parse, omnigraph.query.language.check, omnigraph.query.language.lint"
    code = f"import sys, {modules}; print('lark' in sys.modules)"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert outcome.stdout.strip() == "False"
