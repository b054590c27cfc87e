"""The row rule beyond the truth table: convergence, equality, resolutions, cell-level merge. S71, S74–S76, S84, S93."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from omnigraph.history.decide_row import Resolution
from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode, Statement, Update
from tests.history.bed import (
    MergeBed,
    change,
    conflicts_of,
    content,
    forget,
    kinds_of,
    knows,
    names,
    people,
    person,
    remove,
    rows,
    tables_touched,
)


def diverge(bed: MergeBed, theirs: list[Statement], ours: list[Statement]) -> None:
    bed.fork("work").apply(theirs)
    bed.main.apply(ours)


@pytest.mark.parametrize(
    "same",
    [[person("Eve", age=3, tags=["x"])], [change("Alice", nick="al")], [remove("Bob")], [forget("Bob", "Carol")]],
    ids=["insert", "update", "delete with its edge", "delete of an edge"],
)
def test_identical_changes_converge(bed: MergeBed, same: list[Statement]) -> None:
    diverge(bed, same, same)
    before = content(bed.main)
    assert bed.merge("work").counts == {"inserted": 0, "updated": 0, "deleted": 0}
    assert content(bed.main) == before


@pytest.mark.parametrize(
    ("start", "theirs", "ours"),
    [
        ({"nick": None}, {"nick": ""}, {"nick": "x"}),
        ({"nick": ""}, {"nick": None}, {"nick": "x"}),
        ({"tags": ["a"]}, {"tags": []}, {"tags": None}),
        ({"tags": ["a,b"]}, {"tags": ["a", "b"]}, {"tags": ["a;b"]}),
        ({"tags": ["a", "b"]}, {"tags": ["b", "a"]}, {"tags": ["a"]}),
        ({"tags": ["a\x1fb"]}, {"tags": ["a", "\x1fb"]}, {"tags": ["a|b"]}),
        ({"nick": "a\x00b"}, {"nick": "a"}, {"nick": "a\x00"}),
        ({"age": 0}, {"age": None}, {"age": 1}),
    ],
)
def test_every_difference_is_seen(
    bed: MergeBed, start: dict[str, Any], theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    bed.main.apply([change("Alice", **start)])
    diverge(bed, [change("Alice", **theirs)], [change("Alice", **ours)])
    (conflict,) = conflicts_of(lambda: bed.merge("work"))
    assert conflict["kind"] == "divergent_update"
    for side, values in (("base", start), ("source", theirs), ("target", ours)):
        assert {name: conflict[side][name] for name in values} == values
    (seen,) = bed.main.diff("main", "work")
    assert (seen.op, {name: (seen.after or {})[name] for name in theirs}) == ("update", theirs)
    bed.merge("work", resolve="theirs")
    assert {name: rows(bed.main, "Person")["Alice"][name] for name in theirs} == theirs


def test_names_that_start_with_an_underscore_and_separators_in_keys(tmp_path: Path) -> None:
    bed = MergeBed.make(tmp_path / "g", "node N { a: String  b: String  _c: String?  @key(a, b) }")
    bed.main.apply([InsertNode("N", {"a": "x|", "b": "y"}), InsertNode("N", {"a": "x", "b": "|y"})])
    assert len(names(bed.main, "N")) == 2
    bed.fork("work").apply([Update("N", {"_c": "s"}, Compare("a", "=", "x|"))])
    bed.main.apply([Update("N", {"_c": "t"}, Compare("a", "=", "x"))])
    assert bed.merge("work").outcome == "merged"
    assert {row["a"]: row["_c"] for row in rows(bed.main, "N").values()} == {"x|": "s", "x": "t"}


def test_all_conflicts_are_told_in_one_order(bed: MergeBed) -> None:
    diverge(
        bed,
        [
            person("Eve", age=1),
            change("Alice", age=1),
            remove("Dan"),
            change("Carol", age=1),
            knows("Alice", "Bob", "e1"),
        ],
        [
            person("Eve", age=2),
            change("Alice", age=2),
            change("Dan", age=2),
            remove("Carol"),
            knows("Dan", "Bob", "e2"),
        ],
    )
    wanted = [
        ("delete_vs_update", "Carol"),
        ("delete_vs_update", "Dan"),
        ("divergent_insert", "Eve"),
        ("divergent_update", "Alice"),
    ]
    before = content(bed.main)
    first = conflicts_of(lambda: bed.merge("work"))
    assert sorted(kinds_of(first)) == wanted
    assert [one["entity_id"] for one in first] == ["Alice", "Carol", "Dan", "Eve"]
    assert first == conflicts_of(lambda: bed.merge("work")) == conflicts_of(lambda: bed.merge("work", dry_run=True))
    assert content(bed.main) == before
    assert {"kind", "entity_kind", "type_name", "entity_id", "base", "source", "target", "message"} == set(first[0])


@pytest.mark.parametrize(("resolve", "age"), [("ours", 2), ("theirs", 1)])
def test_one_way_for_the_whole_merge(bed: MergeBed, resolve: Resolution, age: int) -> None:
    diverge(bed, [change("Alice", age=1), person("Eve", age=1)], [change("Alice", age=2), person("Eve", age=2)])
    assert bed.merge("work", resolve=resolve).outcome == "merged"
    people_now = rows(bed.main, "Person")
    assert (people_now["Alice"]["age"], people_now["Eve"]["age"]) == (age, age)
    assert bed.merge("work").outcome == "already_up_to_date"


@pytest.mark.parametrize(("resolve", "there"), [("ours", False), ("theirs", True)])
def test_resolving_a_delete_against_an_update(bed: MergeBed, resolve: Resolution, there: bool) -> None:
    diverge(bed, [change("Alice", age=1)], [remove("Alice")])
    bed.merge("work", resolve=resolve)
    assert ("Alice" in names(bed.main)) == there


def test_entities_are_settled_one_by_one(bed: MergeBed) -> None:
    diverge(bed, [change("Alice", age=1), change("Bob", age=1)], [change("Alice", age=2), change("Bob", age=2)])
    one = {("node:Person", "Alice"): "theirs"}
    assert kinds_of(conflicts_of(lambda: bed.merge("work", per_entity=one))) == [("divergent_update", "Bob")]
    bed.merge("work", resolve="ours", per_entity=one)
    assert {name: rows(bed.main, "Person")[name]["age"] for name in ("Alice", "Bob")} == {"Alice": 1, "Bob": 2}


def test_a_resolution_does_not_excuse_a_broken_rule(bed: MergeBed) -> None:
    diverge(bed, [remove("Alice")], [knows("Alice", "Dan", "a-d")])
    for resolve in ("ours", "theirs"):
        found = conflicts_of(partial(bed.merge, "work", resolve=resolve))
        assert kinds_of(found) == [("orphan_edge", "a-d")]


def test_cells_that_do_not_meet(bed: MergeBed) -> None:
    diverge(
        bed, [change("Alice", age=1), change("Bob", age=1)], [change("Alice", nick="al"), change("Carol", nick="c")]
    )
    assert kinds_of(conflicts_of(lambda: bed.merge("work"))) == [("divergent_update", "Alice")]
    bed.merge("work", cell_level=True)
    alice = rows(bed.main, "Person")["Alice"]
    assert (alice["age"], alice["nick"]) == (1, "al")


def test_cells_that_meet_stay_a_conflict(bed: MergeBed) -> None:
    diverge(bed, [change("Alice", age=1, nick="a")], [change("Alice", age=2)])
    assert kinds_of(conflicts_of(lambda: bed.merge("work", cell_level=True))) == [("divergent_update", "Alice")]


def test_equal_cells_on_both_sides_still_meet(bed: MergeBed) -> None:
    diverge(bed, [change("Alice", age=1, nick="a")], [change("Alice", age=1)])
    assert kinds_of(conflicts_of(lambda: bed.merge("work", cell_level=True))) == [("divergent_update", "Alice")]


def test_ends_of_an_edge_moved_on_both_sides(bed: MergeBed) -> None:
    def move(**values: str) -> Statement:
        return Update("Knows", values, Compare("id", "=", "b-c"))

    diverge(bed, [move(to="Dan")], [move(to="Alice")])
    assert kinds_of(conflicts_of(lambda: bed.merge("work"))) == [("divergent_update", "b-c")]
    bed.merge("work", resolve="theirs")
    assert rows(bed.main, "Knows")["b-c"]["to"] == "Dan"
    diverge2 = bed.fork("again")
    diverge2.apply([move(to="Carol")])
    bed.main.apply([Update("Knows", {"from": "Alice"}, Compare("id", "=", "b-c"))])
    bed.merge("again", cell_level=True)
    edge = rows(bed.main, "Knows")["b-c"]
    assert (edge["from"], edge["to"]) == ("Alice", "Carol")


def test_a_node_made_again_after_its_deletion(bed: MergeBed) -> None:
    work = bed.fork("work")
    work.apply([remove("Bob")])
    work.apply([person("Bob", age=7)])
    assert bed.merge("work").outcome == "fast_forward"
    assert rows(bed.main, "Person")["Bob"]["age"] == 7
    assert rows(bed.main, "Knows") == {}


def test_made_again_as_it_was_is_no_change(bed: MergeBed) -> None:
    work = bed.fork("work")
    work.apply([remove("Alice")])
    work.apply([person("Alice")])
    bed.main.apply([change("Alice", age=5)])
    assert bed.merge("work").outcome == "merged"
    assert rows(bed.main, "Person")["Alice"]["age"] == 5


def test_a_cascade_against_a_change_of_the_edge(bed: MergeBed) -> None:
    diverge(bed, [remove("Bob")], [Update("Knows", {"since": 1}, Compare("id", "=", "b-c"))])
    found = conflicts_of(lambda: bed.merge("work"))
    assert ("delete_vs_update", "b-c") in kinds_of(found)
    assert {one["kind"] for one in found} <= {"delete_vs_update", "orphan_edge"}
    bed.merge("work", per_entity={("edge:Knows", "b-c"): "theirs"})
    assert (names(bed.main), rows(bed.main, "Knows")) == ({"Alice", "Carol", "Dan"}, {})


def test_blobs_by_content_and_after_the_source_is_gone(tmp_path: Path) -> None:
    bed = MergeBed.make(tmp_path / "g", "node Doc { name: String @key  data: Blob? }")
    bed.main.apply(
        [InsertNode("Doc", {"name": "d", "data": b"aaaa"}), InsertNode("Doc", {"name": "e", "data": b"aaaa"})]
    )
    work = bed.fork("work")
    work.apply([Update("Doc", {"data": b"aaab"}, Compare("name", "=", "d"))])
    bed.main.apply([Update("Doc", {"data": b"aaac"}, Compare("name", "=", "d"))])
    assert kinds_of(conflicts_of(lambda: bed.merge("work"))) == [("divergent_update", "d")]
    bed.merge("work", resolve="theirs", delete_branch=True)
    assert bed.main.branch.list() == ["main"]
    assert {name: row["data"] for name, row in rows(bed.main, "Doc").items()} == {"d": b"aaab", "e": b"aaaa"}


def test_vectors_and_numbers(tmp_path: Path) -> None:
    bed = MergeBed.make(tmp_path / "g", "node P { name: String @key  v: Vector(2)?  x: F64? }")
    bed.main.apply([InsertNode("P", {"name": n, "v": [1.0, 2.0], "x": 0.5}) for n in "ab"])
    bed.fork("work").apply([Update("P", {"v": [1.0, 2.5]}, Compare("name", "=", "a"))])
    bed.main.apply([Update("P", {"x": 0.25}, Compare("name", "=", "a"))])
    assert kinds_of(conflicts_of(lambda: bed.merge("work"))) == [("divergent_update", "a")]
    bed.merge("work", cell_level=True)
    row = rows(bed.main, "P")["a"]
    assert (list(row["v"]), row["x"]) == ([1.0, 2.5], 0.25)


def test_only_changed_rows_are_written(bed: MergeBed) -> None:
    diverge(bed, [change("Alice", age=1), knows("Dan", "Bob", "d-b")], [change("Bob", age=1)])
    bed.merge("work")
    found = tables_touched(bed.main)
    assert set(found) == {"node:Person", "edge:Knows"}
    assert (found["node:Person"]["updated"], found["edge:Knows"]["inserted"]) == (1, 1)


def test_a_dry_run_writes_nothing(bed: MergeBed) -> None:
    diverge(bed, [change("Alice", age=1), remove("Dan")], [change("Bob", age=1)])
    before, head = content(bed.main), bed.main.refresh()
    report = bed.merge("work", dry_run=True)
    assert (report.outcome, report.commit_id, report.dry_run) == ("merged", None, True)
    assert report.counts == {"inserted": 0, "updated": 1, "deleted": 1}
    assert (content(bed.main), bed.main.refresh()) == (before, head)


def test_edges_of_another_type_in_both_directions(bed: MergeBed) -> None:
    bed.main.apply([InsertNode("Firm", {"name": "Acme"}), InsertNode("Firm", {"name": "Bolt"})])
    work = bed.fork("work")
    work.apply([Delete("Firm", Compare("name", "=", "Acme")), InsertEdge("WorksAt", "Dan", "Bolt", {"id": "d-b"})])
    bed.main.apply(
        [InsertEdge("WorksAt", "Alice", "Acme", {"id": "a-a"}), Delete("Firm", Compare("name", "=", "Bolt"))]
    )
    found = conflicts_of(lambda: bed.merge("work"))
    assert kinds_of(found) == [("orphan_edge", "a-a"), ("orphan_edge", "d-b")]
    assert {one["type_name"] for one in found} == {"WorksAt"}


def test_a_branch_into_itself_is_refused(bed: MergeBed) -> None:
    from omnigraph.errors import InvalidInput

    with pytest.raises(InvalidInput, match="itself"):
        bed.merge("main")


def test_merge_is_repeatable_by_client_key(bed: MergeBed) -> None:
    diverge(bed, [change("Alice", age=1)], people("Zoe"))
    first = bed.merge("work", client_key="once")
    bed.on("work").apply([change("Alice", age=2)])
    assert bed.merge("work", client_key="once").commit_id == first.commit_id
    assert rows(bed.main, "Person")["Alice"]["age"] == 1
