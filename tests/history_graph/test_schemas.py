"""Branches with different schemas: additions and renames merge by identity, the rest is refused, naming both. S109."""

from __future__ import annotations

import pytest

from omnigraph.errors import ConstraintViolation, Unsupported
from omnigraph.lang.statements import InsertEdge, InsertNode
from tests.history_graph.bed import PEOPLE, Bed, change, conflicts_of, content, kinds_of, people, person, remove, rows

NICKED = PEOPLE.replace("age: I32?", "age: I32?  born: I32?")
MORE = PEOPLE + "node City { name: String @key }\nedge LivesIn: Person -> City\n"
RENAMED = (
    PEOPLE.replace("node Person {", 'node Human @rename_from("Person") {')
    .replace("Person ->", "Human ->")
    .replace("-> Person", "-> Human")
)
OTHER_NAME = PEOPLE.replace("age: I32?", 'years: I32? @rename_from("age")')


def test_a_nullable_property_added_on_the_source(bed: Bed) -> None:
    work = bed.fork("work")
    work.schema.apply(NICKED)
    work.apply([change("Alice", born=1990), person("Eve", born=2000)])
    bed.main.apply([change("Bob", age=1), *people("Zoe")])
    bed.merge("work")
    born = {name: row["born"] for name, row in rows(bed.main, "Person").items()}
    assert born == {"Alice": 1990, "Bob": None, "Carol": None, "Dan": None, "Eve": 2000, "Zoe": None}
    assert bed.main.schema.source == NICKED
    bed.main.apply([change("Zoe", born=3)])
    assert rows(bed.main, "Person")["Zoe"]["born"] == 3


def test_a_nullable_property_added_on_the_target(bed: Bed) -> None:
    work = bed.fork("work")
    work.apply([change("Alice", age=1), person("Eve")])
    bed.main.schema.apply(NICKED)
    bed.main.apply([change("Bob", born=1980)])
    bed.merge("work")
    born = {name: row["born"] for name, row in rows(bed.main, "Person").items()}
    assert born == {"Alice": None, "Bob": 1980, "Carol": None, "Dan": None, "Eve": None}


def test_a_value_of_the_added_property_is_not_lost(bed: Bed) -> None:
    bed.fork("work").apply([change("Alice", age=1)])
    bed.main.schema.apply(NICKED)
    bed.main.apply([change("Alice", born=1980)])
    assert kinds_of(conflicts_of(lambda: bed.merge("work"))) == [("divergent_update", "Alice")]
    bed.merge("work", cell_level=True)
    alice = rows(bed.main, "Person")["Alice"]
    assert (alice["age"], alice["born"]) == (1, 1980)


def test_types_added_on_the_source(bed: Bed) -> None:
    work = bed.fork("work")
    work.schema.apply(MORE)
    work.apply([InsertNode("City", {"name": "Ulm"}), InsertEdge("LivesIn", "Alice", "Ulm", {"id": "l"})])
    bed.main.apply([change("Bob", age=1)])
    bed.merge("work")
    assert content(bed.main)["LivesIn"] == {"l": {"id": "l", "from": "Alice", "to": "Ulm"}}
    assert rows(bed.main, "Person")["Bob"]["age"] == 1


def test_an_edge_of_an_added_type_to_a_node_that_the_target_deleted(bed: Bed) -> None:
    work = bed.fork("work")
    work.schema.apply(MORE)
    work.apply([InsertNode("City", {"name": "Ulm"}), InsertEdge("LivesIn", "Alice", "Ulm", {"id": "l"})])
    bed.main.apply([remove("Alice")])
    before = content(bed.main)
    assert kinds_of(conflicts_of(lambda: bed.merge("work"))) == [("orphan_edge", "l")]
    assert content(bed.main) == before


def test_an_added_property_brings_its_rules(bed: Bed) -> None:
    work = bed.fork("work")
    work.schema.apply(PEOPLE.replace("age: I32?", "age: I32?  mail: String? @unique  level: I32? @range(0..9)"))
    work.apply([change("Alice", mail="a@", level=1)])
    bed.main.apply([*people("Zoe")])
    bed.merge("work")
    with pytest.raises(ConstraintViolation):
        bed.main.apply([change("Zoe", mail="a@")])
    with pytest.raises(ConstraintViolation):
        bed.main.apply([change("Zoe", level=10)])


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_type_renamed_on_one_side(bed: Bed, side: str) -> None:
    bed.fork("work")
    renamed, other = ("work", "main") if side == "source" else ("main", "work")
    bed.on(renamed).schema.apply(RENAMED)
    bed.on(renamed).apply([InsertNode("Human", {"name": "Eve"})])
    bed.on(other).apply([change("Bob", age=1)])
    bed.merge("work")
    assert set(rows(bed.main, "Human")) == {"Alice", "Bob", "Carol", "Dan", "Eve"}
    assert rows(bed.main, "Human")["Bob"]["age"] == 1


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_property_renamed_on_one_side(bed: Bed, side: str) -> None:
    bed.fork("work")
    renamed, other = ("work", "main") if side == "source" else ("main", "work")
    bed.on(renamed).schema.apply(OTHER_NAME)
    bed.on(renamed).apply([change("Alice", years=3)])
    bed.on(other).apply([change("Bob", age=4)])
    bed.merge("work")
    years = {name: row["years"] for name, row in rows(bed.main, "Person").items()}
    assert years == {"Alice": 3, "Bob": 4, "Carol": None, "Dan": None}


REFUSED = {
    "dropped property": (PEOPLE.replace("age: I32?", ""), "drop_property on node:Person"),
    "dropped type": (PEOPLE.replace("edge WorksAt: Person -> Firm", ""), "drop_type on edge:WorksAt"),
    "required property": (
        PEOPLE.replace("age: I32?", "age: I32?  level: I32 @default(1)"),
        "add_required_property on node:Person",
    ),
    "wider type": (PEOPLE.replace("age: I32?", "age: I64?"), "widen on node:Person"),
    "tighter rule": (PEOPLE.replace("age: I32?", "age: I32? @range(0..9)"), "tighten on node:Person"),
}


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("what", REFUSED)
def test_other_changes_are_refused_by_name(bed: Bed, what: str, side: str) -> None:
    text, told = REFUSED[what]
    work = bed.fork("work")
    work.apply([change("Bob", nick="b")])
    bed.on("work" if side == "source" else "main").schema.apply(text)
    before, head = content(bed.main), bed.main.refresh()
    with pytest.raises(Unsupported) as caught:
        bed.merge("work")
    assert caught.value.code == "schema_merge"
    source, target = (told, "nothing") if side == "source" else ("nothing", told)
    assert f"the source by {source}" in caught.value.message
    assert f"the target by {target}" in caught.value.message
    assert (content(bed.main), bed.main.refresh()) == (before, head)


def test_both_changed_the_schema(bed: Bed) -> None:
    bed.fork("work").schema.apply(NICKED)
    bed.main.schema.apply(MORE)
    with pytest.raises(Unsupported, match=r"add_property on node:Person.*add_type on node:City"):
        bed.merge("work")


@pytest.mark.parametrize("what", ["dropped property", "wider type", "tighter rule"])
def test_the_same_change_on_both_sides_merges(bed: Bed, what: str) -> None:
    text, _ = REFUSED[what]
    bed.main.apply([change(name, age=2) for name in ("Alice", "Bob", "Carol")])
    bed.fork("work").schema.apply(text)
    bed.on("work").apply([change("Alice", nick="a")])
    bed.main.schema.apply(text)
    bed.main.apply([change("Bob", nick="b")])
    assert bed.merge("work").counts == {"inserted": 0, "updated": 1, "deleted": 0}
    assert {name: row["nick"] for name, row in rows(bed.main, "Person").items() if row["nick"]} == {
        "Alice": "a",
        "Bob": "b",
    }


def test_dropped_and_added_again_on_one_side(bed: Bed) -> None:
    bed.main.apply([change("Alice", age=5)])
    work = bed.fork("work")
    work.schema.apply(PEOPLE.replace("age: I32?", ""))
    work.schema.apply(PEOPLE)
    work.apply([change("Bob", age=6)])
    bed.main.apply([change("Carol", age=7)])
    with pytest.raises(Unsupported, match="drop_property on node:Person"):
        bed.merge("work")
    with pytest.raises(Unsupported, match="drop_property on node:Person"):
        bed.merge("main", "work")


def test_schemas_of_criss_cross_bases(bed: Bed) -> None:
    bed.fork("work").apply([change("Alice", age=1)])
    bed.main.schema.apply(NICKED)
    bed.fork("old", "main")
    bed.merge("work")
    bed.merge("old", "work")
    bed.on("work").apply([change("Bob", born=2)])
    bed.main.apply([change("Carol", born=3)])
    bed.merge("work")
    assert {name: row["born"] for name, row in rows(bed.main, "Person").items() if row["born"]} == {
        "Bob": 2,
        "Carol": 3,
    }
    bed.main.schema.apply(NICKED.replace("nick: String?", "nick: String?  x: I32?"))
    bed.on("work").apply([change("Dan", born=4)])
    bed.merge("work")
    assert rows(bed.main, "Person")["Dan"]["born"] == 4
