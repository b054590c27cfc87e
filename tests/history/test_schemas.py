"""Branches with different schemas: additions and renames merge by identity, the rest is refused, naming both. S109."""

from __future__ import annotations

import pytest

from omnigraph.errors import ConstraintViolation, Unsupported
from omnigraph.query.language.statements import InsertEdge, InsertNode
from omnigraph.schema.catalog import Catalog
from tests.history.bed import (
    PEOPLE,
    Content,
    MergeBed,
    change,
    conflicts_of,
    content,
    kinds_of,
    people,
    person,
    remove,
    rows,
)

NICKED = PEOPLE.replace("age: I32?", "age: I32?  born: I32?")
MORE = PEOPLE + "node City { name: String @key }\nedge LivesIn: Person -> City\n"
RENAMED = (
    PEOPLE.replace("node Person {", 'node Human @rename_from("Person") {')
    .replace("Person ->", "Human ->")
    .replace("-> Person", "-> Human")
)
OTHER_NAME = PEOPLE.replace("age: I32?", 'years: I32? @rename_from("age")')


def test_a_nullable_property_added_on_the_source(bed: MergeBed) -> None:
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


def test_a_nullable_property_added_on_the_target(bed: MergeBed) -> None:
    work = bed.fork("work")
    work.apply([change("Alice", age=1), person("Eve")])
    bed.main.schema.apply(NICKED)
    bed.main.apply([change("Bob", born=1980)])
    bed.merge("work")
    born = {name: row["born"] for name, row in rows(bed.main, "Person").items()}
    assert born == {"Alice": None, "Bob": 1980, "Carol": None, "Dan": None, "Eve": None}


def test_a_value_of_the_added_property_is_not_lost(bed: MergeBed) -> None:
    bed.fork("work").apply([change("Alice", age=1)])
    bed.main.schema.apply(NICKED)
    bed.main.apply([change("Alice", born=1980)])
    assert kinds_of(conflicts_of(lambda: bed.merge("work"))) == [("divergent_update", "Alice")]
    bed.merge("work", cell_level=True)
    alice = rows(bed.main, "Person")["Alice"]
    assert (alice["age"], alice["born"]) == (1, 1980)


def test_types_added_on_the_source(bed: MergeBed) -> None:
    work = bed.fork("work")
    work.schema.apply(MORE)
    work.apply([InsertNode("City", {"name": "Ulm"}), InsertEdge("LivesIn", "Alice", "Ulm", {"id": "l"})])
    bed.main.apply([change("Bob", age=1)])
    bed.merge("work")
    assert content(bed.main)["LivesIn"] == {"l": {"id": "l", "from": "Alice", "to": "Ulm"}}
    assert rows(bed.main, "Person")["Bob"]["age"] == 1


def test_an_edge_of_an_added_type_to_a_node_that_the_target_deleted(bed: MergeBed) -> None:
    work = bed.fork("work")
    work.schema.apply(MORE)
    work.apply([InsertNode("City", {"name": "Ulm"}), InsertEdge("LivesIn", "Alice", "Ulm", {"id": "l"})])
    bed.main.apply([remove("Alice")])
    before = content(bed.main)
    assert kinds_of(conflicts_of(lambda: bed.merge("work"))) == [("orphan_edge", "l")]
    assert content(bed.main) == before


def test_an_added_property_brings_its_rules(bed: MergeBed) -> None:
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
def test_a_type_renamed_on_one_side(bed: MergeBed, side: str) -> None:
    bed.fork("work")
    renamed, other = ("work", "main") if side == "source" else ("main", "work")
    bed.on(renamed).schema.apply(RENAMED)
    bed.on(renamed).apply([InsertNode("Human", {"name": "Eve"})])
    bed.on(other).apply([change("Bob", age=1)])
    bed.merge("work")
    assert set(rows(bed.main, "Human")) == {"Alice", "Bob", "Carol", "Dan", "Eve"}
    assert rows(bed.main, "Human")["Bob"]["age"] == 1


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_property_renamed_on_one_side(bed: MergeBed, side: str) -> None:
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
def test_other_changes_are_refused_by_name(bed: MergeBed, what: str, side: str) -> None:
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


def both(bed: MergeBed, theirs: str, ours: str) -> None:
    bed.fork("work").schema.apply(theirs)
    bed.main.schema.apply(ours)


def ids_of(content: Content) -> list[str]:
    return sorted(row_id for kind in content.values() for row_id in kind)


def assert_identities_of_both(bed: MergeBed, catalog: Catalog) -> None:
    merged = bed.main.view().catalog
    for side in (bed.on("work").view().catalog, catalog):
        for type_def in side.types:
            assert type_def.by_id.keys() <= merged.by_id[type_def.id].by_id.keys()
    assert not bed.main.schema.plan(bed.main.schema.source).steps


def test_both_added_something(bed: MergeBed) -> None:
    both(bed, NICKED, MORE)
    bed.on("work").apply([change("Alice", born=1990), person("Eve", born=2000)])
    bed.main.apply([InsertNode("City", {"name": "Ulm"}), InsertEdge("LivesIn", "Bob", "Ulm", {"id": "l"})])
    ids = {type_def.name: type_def.id for type_def in bed.on("work").view().catalog.types}
    ours_then = bed.main.view().catalog
    assert bed.merge("work").outcome == "merged"
    assert {name: row["born"] for name, row in rows(bed.main, "Person").items() if row["born"]} == {
        "Alice": 1990,
        "Eve": 2000,
    }
    assert set(rows(bed.main, "LivesIn")) == {"l"}
    assert ids.items() <= {type_def.name: type_def.id for type_def in bed.main.view().catalog.types}.items()
    assert_identities_of_both(bed, ours_then)
    bed.merge("main", "work")
    assert content(bed.on("work")) == content(bed.main)
    assert bed.main.verify(deep=True).ok


LONG = """
// people
node Person {
    name: String @key
    nick: String?
    age: I32?   // years
    tags: [String]?
    @range(age, 0..150)   // human
}
node Firm { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Firm
"""
BOTH_ADD = {
    "properties of one type": (
        PEOPLE.replace("age: I32?", "age: I32?  born: I32? @range(0..9)"),
        PEOPLE.replace("tags:", "mail: String? @unique  tags:"),
        {"Person": {"name", "nick", "age", "tags", "born", "mail"}},
    ),
    "properties of an edge without a body": (
        PEOPLE.replace("Person -> Firm", "Person -> Firm { role: String? }"),
        PEOPLE.replace("Person -> Firm", "Person -> Firm { pay: I32? @index }"),
        {"WorksAt": {"role", "pay"}},
    ),
    "into a type over several lines": (
        LONG.replace("    age:", "    born: I32?  // first\n    age:"),
        LONG.replace("    age:", '    mail: String? @check("@")\n    age:'),
        {"Person": {"name", "nick", "age", "tags", "born", "mail"}},
    ),
    "a type and a type": (
        PEOPLE + "node Dog { name: String @key  owner: String? }\n",
        PEOPLE + "// towns\nnode City { name: String @key }\n",
        {"Dog": {"name", "owner"}, "City": {"name"}},
    ),
    "an edge at a type that was renamed": (
        PEOPLE + "edge Owns: Person -> Firm { since: I32? }\n",
        RENAMED,
        {"Human": {"name", "nick", "age", "tags"}, "Owns": {"since"}},
    ),
    "a property of a type that was renamed": (NICKED, RENAMED, {"Human": {"name", "nick", "age", "tags", "born"}}),
    "additions against other properties' new names": (
        NICKED,
        PEOPLE.replace("nick: String?", 'alias: String? @rename_from("nick")'),
        {"Person": {"name", "alias", "age", "tags", "born"}},
    ),
    "additions against an index": (NICKED, PEOPLE.replace("age: I32?", "age: I32? @index"), {"Person": {"born"}}),
    "additions against another layout of the text": (
        NICKED,
        "// all of them\n" + PEOPLE,
        {"Person": {"name", "nick", "age", "tags", "born"}},
    ),
}


@pytest.mark.parametrize("direction", ["as told", "the other way round"])
@pytest.mark.parametrize("what", BOTH_ADD)
def test_additions_of_one_side_join_the_schema_of_the_other(bed: MergeBed, what: str, direction: str) -> None:
    theirs, ours, wanted = BOTH_ADD[what]
    if LONG.splitlines()[1] in theirs and "several lines" in what:
        bed.main.schema.apply(LONG)
    if direction != "as told":
        theirs, ours = ours, theirs
    both(bed, theirs, ours)
    before, ours_then = content(bed.main), bed.main.view().catalog
    bed.merge("work")
    types = {type_def.name: set(type_def.by_name) for type_def in bed.main.view().catalog.types}
    assert all(names <= types[name] for name, names in wanted.items())
    assert_identities_of_both(bed, ours_then)
    assert ids_of(content(bed.main)) == ids_of(before)
    bed.merge("main", "work")
    assert content(bed.on("work")) == content(bed.main)
    assert bed.on("work").schema.source == bed.main.schema.source


DO_NOT_FIT = {
    "the same name for two things": (NICKED, NICKED.replace("born: I32?", "born: String?")),
    "the same type twice": (MORE, MORE),
    "two renames": (RENAMED, OTHER_NAME),
    "a drop against an addition": (PEOPLE.replace("age: I32?", ""), NICKED),
    "a tighter rule against an addition": (PEOPLE.replace("age: I32?", "age: I32? @range(0..9)"), MORE),
}


@pytest.mark.parametrize("direction", ["as told", "the other way round"])
@pytest.mark.parametrize("what", DO_NOT_FIT)
def test_changes_that_do_not_fit_are_refused_naming_both(bed: MergeBed, what: str, direction: str) -> None:
    theirs, ours = DO_NOT_FIT[what] if direction == "as told" else DO_NOT_FIT[what][::-1]
    both(bed, theirs, ours)
    before, head = content(bed.main), bed.main.refresh()
    with pytest.raises(Unsupported, match=r"the source by \w+ on .*the target by \w+ on ") as caught:
        bed.merge("work")
    assert caught.value.code == "schema_merge"
    assert (content(bed.main), bed.main.refresh()) == (before, head)


@pytest.mark.parametrize("what", ["dropped property", "wider type", "tighter rule"])
def test_the_same_change_on_both_sides_merges(bed: MergeBed, what: str) -> None:
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


def test_dropped_and_added_again_on_one_side(bed: MergeBed) -> None:
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


def test_schemas_of_criss_cross_bases(bed: MergeBed) -> None:
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
