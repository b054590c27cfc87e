"""G: rename, drop and add again, on main and on branches; then every commit is read again. S103, S104, S109"""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.api import Graph
from omnigraph.api.view import GraphView
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.query.language.statements import Compare, InsertNode, NullTest, Update
from tests.mutate.schema_change.base_schema import rows
from tests.mutate.schema_change.conftest import MakeWorld
from tests.schedules.world import Actor

BEFORE = "node Person { name: String @key  nick: String? }\nnode Tag { name: String @key }\n"
RENAMED = """
node Human @rename_from("Person") { name: String @key  alias: String? @rename_from("nick") }
node Tag { name: String @key }
"""
DROPPED = "node Human { name: String @key }\n"
AGAIN = """
node Human { name: String @key  nick: I32?  alias: String? }
node Person { name: String @key  nick: String? }
node Tag { name: String @key }
"""
Expected = dict[str, dict[str, dict[str, Any]]]


class SchemaLife:
    """The same schemas in a row, each with writes of its own, names used again twice; remembers each commit."""

    def __init__(self, graph: Graph, *, fold: bool) -> None:
        self.graph = graph
        self._fold = fold
        self.commits: list[tuple[str, Expected]] = []

    def live(self) -> None:
        self._write(
            InsertNode("Person", {"name": "Ada", "nick": "a"}),
            InsertNode("Tag", {"name": "old"}),
            then={"Person": {"Ada": {"name": "Ada", "nick": "a"}}, "Tag": {"old": {"name": "old"}}},
        )
        self.graph.schema.apply(RENAMED)
        people = {"Ada": {"name": "Ada", "alias": "a"}, "Bob": {"name": "Bob", "alias": "b"}}
        self._write(
            InsertNode("Human", {"name": "Bob", "alias": "b"}),
            then={"Human": people, "Tag": {"old": {"name": "old"}}},
        )
        self.graph.schema.apply(DROPPED)
        rows_by_id = {row_id: {"name": row_id} for row_id in ("Ada", "Bob", "Cy")}
        self._write(InsertNode("Human", {"name": "Cy"}), then={"Human": rows_by_id})
        self.graph.schema.apply(AGAIN)
        fresh: dict[str, dict[str, Any]] = {
            row_id: {"name": row_id, "nick": None, "alias": None} for row_id in rows_by_id
        }
        self._check(self.graph.view(), {"Human": fresh, "Person": {}, "Tag": {}})
        fresh["Ada"]["nick"] = 7
        self._write(
            Update("Human", {"nick": 7}, Compare("name", "=", "Ada")),
            InsertNode("Person", {"name": "Ada"}),
            then={"Human": fresh, "Person": {"Ada": {"name": "Ada", "nick": None}}, "Tag": {}},
        )
        self.graph.schema.apply(DROPPED)
        self.graph.schema.apply(AGAIN)
        fresh = {row_id: {"name": row_id, "nick": None, "alias": None} for row_id in rows_by_id}
        self._check(self.graph.view(), {"Human": fresh, "Person": {}, "Tag": {}})

    def _write(self, *statements: Any, then: Expected) -> None:
        receipt = self.graph.apply(statements)
        assert receipt.commit_id is not None
        self.commits.append((receipt.commit_id, then))
        if self._fold:
            folded = self.graph.fold()
            assert folded is not None
            self.commits.append((folded, then))

    def check_all(self, graph: Graph) -> None:
        for commit_id, expected in self.commits:
            self._check(graph.at(commit_id), expected)

    @staticmethod
    def _check(view: GraphView, expected: Expected) -> None:
        assert {type_def.name for type_def in view.catalog.types} == set(expected)
        for name, expected_rows in expected.items():
            assert rows(view, name) == expected_rows, f"{view.commit_id} {name}"


@pytest.fixture(params=[False, True], ids=["overlay", "folded"])
def fold(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_s104_old_rows_never_come_back(make_world: MakeWorld, fold: bool) -> None:
    """Not under a name used again, not in the overlay, not in tables, not after a fold."""
    world = make_world(BEFORE)
    life = SchemaLife(world.actor().graph, fold=fold)
    life.live()
    life.check_all(life.graph)
    life.check_all(world.reader().graph)
    world.assert_sound()


def test_s104_s109_main_and_a_branch_go_different_ways(make_world: MakeWorld, fold: bool) -> None:
    """The branch lives the whole life while main keeps its schema, then main does the same."""
    world = make_world(BEFORE)
    main = world.actor().graph
    main.apply([InsertNode("Person", {"name": "Ada"})])
    main.branch.create("dev")
    dev = SchemaLife(world.actor(branch="dev").graph, fold=fold)
    dev.live()
    main.apply([InsertNode("Person", {"name": "Zoe", "nick": "z"})])
    assert main.schema.source == BEFORE
    assert rows(main, "Person") == {"Ada": {"name": "Ada", "nick": None}, "Zoe": {"name": "Zoe", "nick": "z"}}
    life = SchemaLife(main, fold=fold)
    main.apply([Update("Person", {"nick": "m"}, NullTest("nick"))])
    assert rows(dev.graph, "Human")["Ada"]["alias"] is None
    life.graph.schema.apply(RENAMED)
    assert rows(main, "Human") == {"Ada": {"name": "Ada", "alias": "m"}, "Zoe": {"name": "Zoe", "alias": "z"}}
    dev.check_all(world.reader().graph)
    dev.check_all(world.reader("dev").graph)
    world.assert_sound()


def test_s103_history_answers_to_the_names_of_now(make_world: MakeWorld, fold: bool) -> None:
    world = make_world(BEFORE)
    life = SchemaLife(world.actor().graph, fold=fold)
    life.live()
    view = life.graph.at(life.commits[0][0])
    assert rows(view, "Human") == rows(view, "Person") == {"Ada": {"name": "Ada", "nick": "a"}}
    with pytest.raises(InvalidInput, match="alias"):
        # `alias` of now is a property added after the one of that name had gone: another identity.
        view.table("Human").to_arrow(["alias"])
    assert view.table("Human").to_arrow(["nick"]).to_pylist() == [{"nick": "a"}]  # the name of then comes first
    with pytest.raises(NotFound):
        life.graph.at(life.commits[0][0]).table("Toy")


def test_s103_a_branch_reads_the_history_of_another_by_its_own_names(make_world: MakeWorld) -> None:
    world = make_world(BEFORE)
    main = world.actor()
    main.apply(InsertNode("Person", {"name": "Ada", "nick": "a"}))
    main.graph.branch.create("dev")
    dev = world.actor(branch="dev")
    dev.graph.schema.apply(RENAMED)
    newer = main.apply(InsertNode("Person", {"name": "Bob", "nick": "b"})).commit_id
    assert newer is not None
    view = dev.graph.at(newer)
    assert view.table("Human").to_arrow(["alias"], Compare("name", "=", "Bob")).to_pylist() == [{"alias": "b"}]


def test_s109_a_change_per_branch_of_one_table(make_world: MakeWorld) -> None:
    """Both rewrite the same table, each its own line of versions, with rows before and after the fork."""
    world = make_world("node Person { name: String @key  age: I32? }\n")
    main = world.actor()
    main.apply(InsertNode("Person", {"name": "Ada", "age": 1}))
    main.graph.fold()
    main.apply(InsertNode("Person", {"name": "Bob", "age": 2}))
    main.graph.branch.create("dev")
    dev = world.actor(branch="dev")
    dev.graph.schema.apply("node Person { name: String @key  age: I64?  rank: I32 @default(5) }\n")
    dev.apply(InsertNode("Person", {"name": "Cy", "age": 2**40}))
    main.graph.schema.apply('node Person { name: String @key  mail: String @default("-")  age: I32? }\n')
    main.apply(InsertNode("Person", {"name": "Di", "age": 3}))
    for actor in (main, dev):
        actor.graph.fold()
    assert rows(main.graph, "Person") == {
        row_id: {"name": row_id, "mail": "-", "age": age} for row_id, age in (("Ada", 1), ("Bob", 2), ("Di", 3))
    }
    assert rows(dev.graph, "Person") == {
        row_id: {"name": row_id, "age": age, "rank": 5} for row_id, age in (("Ada", 1), ("Bob", 2), ("Cy", 2**40))
    }
    _same_after_reopening(main, dev)
    world.assert_sound()


def _same_after_reopening(*actors: Actor) -> None:
    for actor in actors:
        fresh = actor._world.reader(actor.graph.branch_name)
        assert rows(fresh.graph, "Person") == rows(actor.graph, "Person")
