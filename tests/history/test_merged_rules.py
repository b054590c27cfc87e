"""The merged change obeys the rules of the schema: unique, cardinality, ranges, endpoints. S81–S83, S85, S94."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode, Statement, Update
from tests.history.bed import MergeBed, conflicts_of, content, kinds_of, names, remove, rows

SCHEMA = """
node Person { name: String @key  mail: String? @unique  first: String?  last: String?  age: I32? @range(0..150)
  @unique(first, last) }
node Team { name: String @key }
edge Leads: Person -> Team @card(0..1)
edge Member: Person -> Team @card(1..2)
edge Likes: Person -> Person { @unique(src, dst) }
"""


def insert(name: str, **values: object) -> list[Statement]:
    """A person with the membership that everybody needs."""
    return [
        InsertNode("Person", {"name": name, **values}),
        InsertEdge("Member", name, "T", {"id": f"{name}-T"}),
    ]


def update(name: str, **values: object) -> Statement:
    return Update("Person", values, Compare("name", "=", name))


def make(path: Path, source_statements: Sequence[Statement], target_statements: Sequence[Statement]) -> MergeBed:
    bed = MergeBed.make(path, SCHEMA)
    start = [InsertNode("Team", {"name": name}) for name in ("T", "U", "V")]
    bed.main.apply([*start, *insert("a", mail="a@", first="x", last="y"), *insert("b", mail="b@"), *insert("c")])
    bed.fork("work").apply(list(source_statements))
    bed.main.apply(list(target_statements))
    return bed


def assert_refused(bed: MergeBed, *expected: tuple[str, str]) -> None:
    before = content(bed.main)
    assert kinds_of(conflicts_of(lambda: bed.merge("work"))) == list(expected)
    assert content(bed.main) == before


def test_the_same_unique_value_on_two_rows(tmp_path: Path) -> None:
    bed = make(tmp_path / "g", insert("d", mail="new@"), insert("e", mail="new@"))
    assert_refused(bed, ("unique_violation", "d"))


def test_unique_values_swapped_on_the_source(tmp_path: Path) -> None:
    bed = make(tmp_path / "g", [update("a", mail="tmp"), update("b", mail="a@"), update("a", mail="b@")], insert("e"))
    bed.merge("work")
    assert [rows(bed.main, "Person")[name]["mail"] for name in "ab"] == ["b@", "a@"]


def test_unique_values_swapped_across_branches(tmp_path: Path) -> None:
    # Each branch alone is right, and so are both together; then both move the value of one row.
    bed = make(tmp_path / "g", [update("a", mail=None), update("c", mail="a@")], [update("b", mail="tmp")])
    bed.merge("work")
    assert {name: row["mail"] for name, row in rows(bed.main, "Person").items()} == {"a": None, "b": "tmp", "c": "a@"}
    bed.fork("second").apply([update("b", mail=None), update("a", mail="tmp")])
    bed.main.apply([update("c", mail=None), update("b", mail="a@")])
    conflicts = conflicts_of(lambda: bed.merge("second"))
    assert kinds_of(conflicts) == [("divergent_update", "b")]


def test_a_freed_value_may_be_taken(tmp_path: Path) -> None:
    bed = make(tmp_path / "g", [remove("a"), *insert("d", mail="a@")], insert("e"))
    bed.merge("work")
    assert rows(bed.main, "Person")["d"]["mail"] == "a@"


def test_composite_unique_across_branches(tmp_path: Path) -> None:
    bed = make(tmp_path / "1", [update("b", first="p", last="q")], [update("c", first="p", last="q")])
    assert_refused(bed, ("unique_violation", "b"))
    bed = make(tmp_path / "2", [update("b", first="p", last="q")], [update("c", first="p", last="z")])
    assert bed.merge("work").outcome == "merged"
    bed = make(tmp_path / "3", [update("b", first="p|", last="q")], [update("c", first="p", last="|q")])
    assert bed.merge("work").outcome == "merged"
    bed = make(tmp_path / "4", [update("b", first="p")], [update("c", first="p")])
    assert bed.merge("work").outcome == "merged"


def test_composite_unique_made_by_cells_of_both_sides(tmp_path: Path) -> None:
    bed = make(tmp_path / "g", [update("b", first="x")], [update("b", last="y")])
    conflicts = conflicts_of(lambda: bed.merge("work", cell_level=True))
    assert kinds_of(conflicts) == [("unique_violation", "b")]


def test_unique_ends_of_edges(tmp_path: Path) -> None:
    bed = make(
        tmp_path / "g", [InsertEdge("Likes", "a", "b", {"id": "1"})], [InsertEdge("Likes", "a", "b", {"id": "2"})]
    )
    assert_refused(bed, ("unique_violation", "1"))


def test_too_many_edges_together(tmp_path: Path) -> None:
    bed = make(tmp_path / "g", [InsertEdge("Leads", "a", "T")], [InsertEdge("Leads", "a", "U")])
    assert_refused(bed, ("cardinality_violation", "a"))


def test_too_few_edges_together(tmp_path: Path) -> None:
    second = InsertEdge("Member", "a", "U", {"id": "a-U"})
    bed = MergeBed.make(tmp_path / "g", SCHEMA)
    bed.main.apply([*(InsertNode("Team", {"name": name}) for name in "TUV"), *insert("a"), second])
    bed.fork("work").apply([Delete("Member", Compare("id", "=", "a-T"))])
    bed.main.apply([Delete("Member", Compare("id", "=", "a-U"))])
    assert_refused(bed, ("cardinality_violation", "a"))


def test_the_last_membership_goes_with_a_team(tmp_path: Path) -> None:
    # The source drops T, to which its own d never belonged; the target made e, who needs T.
    bed = MergeBed.make(tmp_path / "g", SCHEMA)
    bed.main.apply([InsertNode("Team", {"name": name}) for name in "TU"])
    bed.fork("work").apply([remove("T", "Team")])
    bed.main.apply(insert("e"))
    assert_refused(bed, ("orphan_edge", "e-T"))


def test_main_into_a_branch_that_deleted_an_end(tmp_path: Path) -> None:
    bed = make(tmp_path / "g", [remove("b")], [InsertEdge("Likes", "a", "b", {"id": "l"})])
    conflicts = conflicts_of(lambda: bed.merge("main", "work"))
    assert kinds_of(conflicts) == [("orphan_edge", "l")]
    assert names(bed.on("work")) == {"a", "c"}


def test_row_conflicts_and_broken_rules_are_told_together(tmp_path: Path) -> None:
    bed = make(
        tmp_path / "g",
        [update("a", age=1), *insert("d", mail="new@"), InsertEdge("Leads", "c", "T")],
        [update("a", age=2), *insert("e", mail="new@"), InsertEdge("Leads", "c", "U")],
    )
    assert_refused(bed, ("cardinality_violation", "c"), ("divergent_update", "a"), ("unique_violation", "d"))


DOCS = 'node Doc { name: String @key  text: String @index  place: Vector(2)? @index(metric="l2") }\n'


@pytest.mark.parametrize("layout", ["inline", "staged", "folded"])
@pytest.mark.parametrize("both", [False, True])
def test_a_merged_table_is_searched_at_once(tmp_path: Path, layout: str, both: bool) -> None:
    # S94: the indexes of main do not know the merged rows yet.
    bed = MergeBed.make(tmp_path / "graph", DOCS)

    def doc(name: str, text: str, x: float) -> Statement:
        return InsertNode("Doc", {"name": name, "text": text, "place": [x, 0.0]})

    bed.on("main", "staged").apply([doc(f"d{n}", "old words", float(n)) for n in range(20)])
    bed.main.optimize()
    bed.fork("work")
    bed.on("work", layout).apply([doc("new", "fresh words", 100.0), doc("d3", "fresh again", 3.0)])
    if both:
        bed.main.apply([doc("own", "old words", -5.0)])
    bed.merge("work")
    conflicts = bed.main.query('query q() { match { $d: Doc search($d.text, "fresh") } return { $d.name } }').rows
    assert sorted(row["d.name"] for row in conflicts) == ["d3", "new"]
    near = "query q() { match { $d: Doc } return { $d.name } order { nearest($d.place, [99.0, 0.0]) } limit 1 }"
    assert [row["d.name"] for row in bed.main.query(near).rows] == ["new"]
    by_key = 'query q() { match { $d: Doc { name: "d3" } } return { $d.text } }'
    assert [row["d.text"] for row in bed.main.query(by_key).rows] == ["fresh again"]
