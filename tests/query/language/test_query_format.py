"""The formatter: one layout, comments kept, meaning kept, twice is once."""

from __future__ import annotations

import re

import pytest

from omnigraph.errors import ParseError
from omnigraph.query.language.check import check_query
from omnigraph.query.language.format import format_queries
from omnigraph.query.language.parse import parse_queries
from tests.query.language import support
from tests.query.language.show_checked import show

MESSY = """/* about
   people */ query find($t:String?,$v:Vector(3))@description("x")@tool{ // head
match{$p:Person{name:$t,age:3,} // bound


 // the hop
 $p $e:knows $q  $p < knows > $z  $p knows{1 , } $w $p.age<3 search($p.bio,"x") // last
  ( $p.age=1 or $p.age is not null )
  not{$p.bio contains "b" /* inner */}}
 return{distinct $p.name as n $q.name}order{n desc,$q.name}limit 5 offset 2/* tail */}
query add() { // why
 insert Person { name:"a"tags:[ "x" ,"y" ] } insert Company { // one
   name: "n" // two
   city: "c" }
 update Person set {age:3, // three
 } where (age=1 or in is not null) and limit in [1,2] // four
}
// end
"""

TIDY = """/* about
   people */
query find($t: String?, $v: Vector(3))
  @description("x")
  @tool {  // head
  match {
    $p: Person { name: $t, age: 3 }  // bound

    // the hop
    $p $e: knows $q
    $p <knows> $z
    $p knows{1,} $w
    $p.age < 3
    search($p.bio, "x")  // last
    ($p.age = 1 or $p.age is not null)
    not {
      $p.bio contains "b"  /* inner */
    }
  }
  return { distinct $p.name as n, $q.name }
  order { n desc, $q.name }
  limit 5
  offset 2  /* tail */
}

query add() {  // why
  insert Person { name: "a", tags: ["x", "y"] }
  insert Company {  // one
    name: "n",  // two
    city: "c"
  }
  update Person set {
    age: 3  // three
  } where (age = 1 or in is not null) and limit in [1, 2]  // four
}
// end
"""


def _comments(text: str) -> list[str]:
    all = re.findall(r'"(?:\\.|[^"\\\n])*"|(//[^\n]*|/\*(?:.|\n)*?\*/)', text)
    return [comment.rstrip() for comment in all if comment]


def test_one_layout() -> None:
    assert format_queries(MESSY) == TIDY


def test_long_rows_are_broken() -> None:
    columns = ", ".join(f"$p.name as name_number_{number}" for number in range(6))
    text = format_queries(f"query q() {{ match {{ $p: Person }} return {{ {columns} }} }}")
    assert "  return {\n    $p.name as name_number_0,\n" in text
    assert "    $p.name as name_number_5\n  }\n" in text


@pytest.mark.parametrize("case", support.cases("accepted"), ids=lambda case: case.id)
def test_meaning_comments_and_idempotence(case: support.LanguageCase) -> None:
    once = format_queries(case.source)
    assert format_queries(once) == once
    assert _comments(once) == _comments(case.source)

    def render(source: str) -> list[str]:
        return [show(check_query(query, support.catalog())) for query in parse_queries(source)]

    assert render(once) == render(case.source)


@pytest.mark.parametrize("place", range(60))
def test_a_comment_between_any_two_words_survives(place: int) -> None:
    """A comment wherever one can stand: kept, in order, and the second pass changes nothing."""
    words = re.findall(r'"[^"]*"|[$@]?\w+|[{}()\[\]:,.<>=]', re.sub(r"//.*|/\*(?:.|\n)*?\*/", "", MESSY))
    glued = re.sub(r"\$(\w+) \. ", r"$\1.", " ".join(words)).replace("< knows >", "<knows>")
    parts = glued.split(" ")
    at = place * len(parts) // 60
    text = " ".join([*parts[:at], "/* c1 */ // c2\n", *parts[at:]])
    once = format_queries(text)
    assert _comments(once) == ["/* c1 */", "// c2"]
    assert format_queries(once) == once


def test_a_text_with_errors_is_refused() -> None:
    with pytest.raises(ParseError):
        format_queries("query q() { match { } }")


def test_an_empty_text_stays_empty() -> None:
    assert format_queries("\n\n") == ""
