"""The formatter: one layout, comments kept, meaning never changed."""

from __future__ import annotations

import re

import pytest

from omnigraph.schema.format import format_schema
from omnigraph.schema.problems import SchemaError

UGLY = """// head
/* two
   lines */
node   Person@description("x") implements Named,Other{ // behind the brace

  // about name
  name:String@key // trailing
  age : I32 ?@range( 0 .. 10 )  @default( [1,2 , "x"] )


  @unique(name ,age) v:Vector( 3 )@index( metric = "l2")
  e: enum( a-b,c ) /* inline */ ? // why
     @description("z") // tail
  // before the brace
}
edge A:B->C@card( ..5 )
edge D:B->C @card(1..*) {}
// apart
edge E: B /* mid */ -> C { since: Date /* last */ }
node F { @key(a) @unique(b, // cut
  c) a: String }   // end
node G {
}
"""

NEAT = """// head
/* two
   lines */
node Person @description("x") implements Named, Other {  // behind the brace

    // about name
    name: String @key  // trailing
    age: I32? @range(0..10) @default([1, 2, "x"])

    @unique(name, age)
    v: Vector(3) @index(metric="l2")
    e: enum(a-b, c) /* inline */?  // why
        @description("z")  // tail
    // before the brace
}

edge A: B -> C @card(..5)
edge D: B -> C @card(1..*) {}
// apart
edge E: B /* mid */ -> C {
    since: Date /* last */
}

node F {
    @key(a)
    @unique(b,  // cut
        c)
    a: String
}  // end

node G {}
"""


def test_layout() -> None:
    assert format_schema(UGLY) == NEAT


def test_formatting_twice_changes_nothing() -> None:
    assert format_schema(NEAT) == NEAT


def test_no_comment_is_lost() -> None:
    pattern = r"//[^\n]*|/\*.*?\*/"
    assert re.findall(pattern, format_schema(UGLY), re.DOTALL) == re.findall(pattern, UGLY, re.DOTALL)


@pytest.mark.parametrize("source", ["", "\n\n", "\ufeff"])
def test_nothing(source: str) -> None:
    assert format_schema(source) == ""


def test_only_a_comment() -> None:
    assert format_schema("\n\n  // hello  \n") == "// hello\n"


def test_windows_line_ends_become_plain_ones() -> None:
    assert format_schema("node A {\r\n/* a\r\n b */\r\np: String // x\r\n}\r\n") == (
        "node A {\n    /* a\n b */\n    p: String  // x\n}\n"
    )


def test_a_schema_that_parses_but_does_not_compile_is_formatted() -> None:
    assert format_schema("node A{p:Foo}") == "node A {\n    p: Foo\n}\n"


def test_a_schema_that_does_not_parse_is_refused() -> None:
    with pytest.raises(SchemaError, match="OG-S-001"):
        format_schema("node A { p String }")
