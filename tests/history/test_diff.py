"""`diff`: images, filters, order; folds, compaction and reindexing never appear. S117–S119, H8."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.api import Graph
from omnigraph.errors import NotFound
from omnigraph.history.diff import diff_stat
from omnigraph.query.language.statements import Compare, InsertEdge, InsertNode, Update
from tests.history.bed import (
    PEOPLE,
    MergeBed,
    change,
    content,
    difference,
    forget,
    knows,
    people,
    person,
    remove,
    summarize,
)


def one_change(graph: Graph, old: str, new: str | None = None) -> dict[str, object]:
    (change,) = graph.diff(old, new)
    return change.to_json()


def test_insert_update_and_delete_with_images(bed: MergeBed) -> None:
    main = bed.main
    start = main.refresh()
    alice = {"id": "Alice", "name": "Alice", "nick": None, "age": None, "tags": None}
    main.apply([change("Alice", nick="")])
    assert one_change(main, start) == {
        "op": "update",
        "kind": "node",
        "type": "Person",
        "id": "Alice",
        "before": alice,
        "after": {**alice, "nick": ""},
    }
    second = main.refresh()
    main.apply([change("Alice", nick=None)])
    assert one_change(main, second)["after"] == alice
    assert list(main.diff(start)) == []
    assert one_change(main, main.refresh(), second)["after"] == {**alice, "nick": ""}


def test_a_delete_takes_its_edges_along(bed: MergeBed) -> None:
    start = bed.main.refresh()
    bed.main.apply([remove("Bob")])
    edge, node = bed.main.diff(start)
    assert (edge.op, edge.type, edge.id, edge.before, edge.after) == (
        "delete",
        "Knows",
        "b-c",
        {"id": "b-c", "from": "Bob", "to": "Carol", "since": None},
        None,
    )
    assert (node.op, node.id, node.after) == ("delete", "Bob", None)


def test_a_moved_end_is_an_update(bed: MergeBed) -> None:
    start = bed.main.refresh()
    bed.main.apply([Update("Knows", {"to": "Dan"}, Compare("id", "=", "b-c"))])
    (moved,) = bed.main.diff(start)
    assert (moved.op, (moved.before or {})["to"], (moved.after or {})["to"]) == ("update", "Carol", "Dan")


def test_filters_and_counts(bed: MergeBed) -> None:
    start = bed.main.refresh()
    bed.main.apply([person("Eve"), change("Alice", age=1), remove("Bob"), knows("Dan", "Eve", "d-e")])
    bed.main.apply([InsertNode("Firm", {"name": "Acme"})])

    def ids(**filters: Any) -> list[str]:
        return [change.id for change in bed.main.diff(start, **filters)]

    assert ids() == ["b-c", "d-e", "Acme", "Alice", "Bob", "Eve"]
    assert ids(kinds=["edge"]) == ["b-c", "d-e"]
    assert ids(types=["Person"]) == ["Alice", "Bob", "Eve"]
    assert ids(ops=["delete"]) == ["b-c", "Bob"]
    assert ids(kinds=["node"], ops=["insert"], types=["Firm"]) == ["Acme"]
    assert diff_stat(bed.main.diff(start)) == [
        {"table_key": "edge:Knows", "inserted": 1, "updated": 0, "deleted": 1},
        {"table_key": "node:Firm", "inserted": 1, "updated": 0, "deleted": 0},
        {"table_key": "node:Person", "inserted": 1, "updated": 1, "deleted": 1},
    ]


def test_the_same_row_folded_on_both_branches_is_no_change(bed: MergeBed) -> None:
    # H8: one logical row, two fragments.
    bed.fork("work").fold()
    bed.main.fold()
    assert list(bed.main.diff("work", "main")) == []
    bed.on("work").apply([change("Alice", age=1)])
    bed.main.apply([change("Bob", age=1)])
    bed.on("work").fold()
    bed.main.fold()
    assert summarize(bed.main.diff("work", "main")) == {("Person", "Alice", "update"), ("Person", "Bob", "update")}
    assert bed.merge("work").counts == {"inserted": 0, "updated": 1, "deleted": 0}


def test_folds_compaction_and_indexes_do_not_appear(bed: MergeBed) -> None:
    main = bed.on("main", "staged")
    for number in range(4):
        main.apply(people(f"p{number}"))
    bed.fork("work").apply([change("p0", age=1)])
    start, before = main.refresh(), content(main)
    assert main.optimize().commit_id
    main.fold()
    assert main.refresh() != start
    assert list(main.diff(start)) == []
    assert content(main) == before
    main.apply([change("p1", age=1), remove("p2")])
    main.optimize()
    assert summarize(main.diff(start)) == {("Person", "p1", "update"), ("Person", "p2", "delete")}
    assert bed.merge("work").outcome == "merged"
    assert summarize(main.diff(start)) == {
        ("Person", "p0", "update"),
        ("Person", "p1", "update"),
        ("Person", "p2", "delete"),
    }


def test_between_branches_and_incarnations(bed: MergeBed) -> None:
    first = bed.fork("work")
    first.apply([change("Alice", age=1)])
    old = first.refresh()
    assert summarize(bed.main.diff("main", "work")) == {("Person", "Alice", "update")}
    bed.main.branch.delete("work")
    with pytest.raises(NotFound):
        bed.main.diff("work")
    bed.fork("work").apply([change("Alice", age=2), *people("Eve")])
    assert summarize(bed.main.diff(old, "work")) == {("Person", "Alice", "update"), ("Person", "Eve", "insert")}


def test_across_a_rename_by_the_names_of_each_side(bed: MergeBed) -> None:
    start = bed.main.refresh()
    bed.main.schema.apply(PEOPLE.replace("age: I32?", 'years: I32? @rename_from("age")'))
    assert list(bed.main.diff(start)) == []
    bed.main.apply([change("Alice", years=3)])
    (found,) = bed.main.diff(start)
    assert (found.before, found.after) == (
        {"id": "Alice", "name": "Alice", "nick": None, "age": None, "tags": None},
        {"id": "Alice", "name": "Alice", "nick": None, "years": 3, "tags": None},
    )


@pytest.mark.parametrize("layout", ["inline", "folded"])
def test_a_dropped_property_is_no_change_of_its_rows(bed: MergeBed, layout: str) -> None:
    main = bed.on("main", layout)
    main.apply([change("Alice", age=1)])
    start = main.refresh()
    main.schema.apply(PEOPLE.replace("age: I32?", ""))
    assert list(main.diff(start)) == []
    main.apply([change("Bob", nick="b")])
    assert summarize(main.diff(start)) == {("Person", "Bob", "update")}


def test_a_dropped_type_takes_its_rows(bed: MergeBed) -> None:
    bed.main.apply([InsertNode("Firm", {"name": "Acme"}), InsertEdge("WorksAt", "Bob", "Acme", {"id": "w"})])
    start = bed.main.refresh()
    bed.main.schema.apply(PEOPLE.replace("edge WorksAt: Person -> Firm", ""))
    (deletion,) = bed.main.diff(start)
    assert (deletion.op, deletion.kind, deletion.type, deletion.before) == (
        "delete",
        "edge",
        "WorksAt",
        {"id": "w", "from": "Bob", "to": "Acme"},
    )


def test_every_pair_of_commits(bed: MergeBed) -> None:
    main = bed.main
    steps = [[person("Eve", age=1)], [change("Eve", age=2)], [remove("Eve")], [forget("Bob", "Carol")], people("Eve")]
    states = [(main.refresh(), content(main))]
    for number, step in enumerate(steps):
        bed.on("main", ("inline", "folded", "staged")[number % 3]).apply(step)
        states.append((main.refresh(), content(main)))
    for old, before in states:
        for new, after in states:
            assert summarize(main.diff(old, new)) == difference(before, after)
