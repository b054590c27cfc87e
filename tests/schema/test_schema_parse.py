"""Positions, recovery and the error that carries all findings."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from omnigraph.errors import InvalidInput
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.parse import parse_schema
from omnigraph.schema.problems import Problems, SchemaError
from omnigraph.schema.syntax import SchemaTree
from tests.schema.helpers import compile_text, counter


def tree(source: str) -> SchemaTree:
    problems = Problems(source, "t.pg")
    schema = parse_schema(source, problems)
    problems.check()
    return schema


def codes(source: str) -> list[str]:
    with pytest.raises(SchemaError) as caught:
        compile_text(source)
    return [diagnostic.code for diagnostic in caught.value.diagnostics]


def test_positions_are_those_of_the_whole_text() -> None:
    source = "node A {}\n\n  edge Knows: A -> A {\n    since: Date\n  }\n"
    edge = tree(source).declarations[1]
    since = edge.properties[0].name
    assert (edge.name.at.line, edge.name.at.column) == (3, 8)
    assert (since.at.line, since.at.column, since.at.width) == (4, 5, 5)
    assert source[since.at.offset :].startswith("since")


def test_one_slip_per_declaration_is_reported_and_the_others_are_checked() -> None:
    assert codes("node A { a String }\nnode B { b: I32, }\nnode C { c: Foo }") == ["OG-S-001", "OG-S-001", "OG-S-020"]


def test_a_forgotten_brace_spoils_one_declaration() -> None:
    assert codes("node A {\n  a: I32\nnode B { b: Foo }\nedge E: A -> B") == ["OG-S-005", "OG-S-020"]


def test_keywords_in_comments_and_texts_open_nothing() -> None:
    schema_tree = tree('node A @description("node B { edge C") { /* node D {} */ p: String // edge E: A -> A\n }')
    assert [declaration.name.text for declaration in schema_tree.declarations] == ["A"]


def test_a_property_may_be_called_like_a_keyword() -> None:
    schema_tree = tree("node A { node: String edge: I32 interface: Bool } edge E: A -> A { node: I32 }")
    assert [prop.name.text for declaration in schema_tree.declarations for prop in declaration.properties] == [
        "node",
        "edge",
        "interface",
        "node",
    ]


def test_a_keyword_as_the_name_of_an_annotation_opens_nothing() -> None:
    (type_def,) = compile_text("interface I {} node A @node implements I { p: I32 @ edge q: I32 }").types
    assert list(type_def.by_name) == ["p", "q"]


def test_a_keyword_as_a_type_is_an_unknown_type() -> None:
    assert codes("node A { p: node q: I32 }") == ["OG-S-020"]


def test_the_error_carries_every_finding_for_people_and_for_programs() -> None:
    with pytest.raises(SchemaError) as caught:
        compile_schema("node a {\n  b: Foo\n}", file="people.pg", mint=counter())
    error = caught.value
    assert isinstance(error, InvalidInput)
    assert error.code == "OG-S-010"
    assert [(diagnostic.line, diagnostic.column, diagnostic.code) for diagnostic in error.diagnostics] == [
        (1, 6, "OG-S-010"),
        (2, 6, "OG-S-020"),
    ]
    assert str(error).startswith("the schema has 2 errors\npeople.pg:1:6: OG-S-010: ")
    document = json.loads(json.dumps(error.to_json()))
    assert document["diagnostics"][1]["line"] == 2
    assert document["file"] == "people.pg"


def test_parsing_many_comments_takes_linear_time() -> None:
    assert codes("node " + "/**/" * 60 + "+ {}") == ["OG-S-007"]
    assert compile_text("node " + "/**/" * 60 + " A {}").types[0].name == "A"


def test_text_that_utf8_cannot_store() -> None:
    assert codes("node A {}\n// \ud800") == ["OG-S-002"]


def test_the_source_is_kept_exactly() -> None:
    source = "\ufeff// x\r\nnode  A{ p:String }\t\n\n"
    assert compile_text(source).source == source


def test_the_parser_is_loaded_only_when_a_schema_is_parsed() -> None:
    program = "import sys, omnigraph.schema.compile, omnigraph.schema.format; sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
