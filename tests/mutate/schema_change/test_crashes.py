"""A process that dies in the middle of a schema change leaves the old schema or the new one, never both. S110"""

from __future__ import annotations

import pytest

from omnigraph.query.language.statements import InsertNode
from tests.mutate.schema_change.base_schema import SCHEMA, edit_schema, rows, with_person
from tests.mutate.schema_change.conftest import MakeWorld
from tests.mutate.schema_change.workers import change_and_die
from tests.schedules.world import World
from tests.support.processes import Workers

NEW = edit_schema(
    ("age: I32?", "age: I64?  rank: I32 @default(7)"),
    ("node Pet {", 'node Animal @rename_from("Pet") {'),
    ("Person -> Pet", "Person -> Animal"),
    ("since: I32?", ""),
)
POINTS = ("write.captured", "write.validated", "write.staged", "write.before-record", "write.after-record")
OLD_ROWS = {
    "Ada": {"name": "Ada", "age": 1, "weight": None},
    "Bob": {"name": "Bob", "age": 2, "weight": None},
}
NEW_ROWS = {one: {**row, "rank": 7} for one, row in OLD_ROWS.items()}


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A row in a table and one in the overlay."""
    world = make_world(SCHEMA)
    actor = world.actor()
    actor.apply(InsertNode("Person", {"name": "Ada", "age": 1}), InsertNode("Pet", {"name": "Kit"}))
    actor.graph.fold()
    actor.apply(InsertNode("Person", {"name": "Bob", "age": 2}))
    return world


def _dies(world: World, *, point: str | None = None, put: int | None = None, fault: str = "kill_after") -> bool:
    """Whether a child that applies the new schema was killed on its way."""
    arguments = {"uri": world.path, "schema": NEW, "point": point, "put": put, "fault": fault}
    with Workers(change_and_die, 1, arguments) as workers:
        workers.start()
        [result] = workers.wait(check=False)
    assert result.error is None, result.error
    return result.exit_code != 0


def _check(world: World) -> bool:
    """Old or new as a whole, for a new process; and the change can be made, or made again. True if it was new."""
    actor = world.reader()
    is_new = actor.graph.schema.source == NEW
    assert is_new or actor.graph.schema.source == SCHEMA
    assert rows(actor.graph, "Person") == (NEW_ROWS if is_new else OLD_ROWS)
    assert set(rows(actor.graph, "Animal" if is_new else "Pet")) == {"Kit"}
    world.assert_sound()
    assert (actor.graph.schema.apply(NEW).commit_id is None) == is_new
    actor.apply(InsertNode("Person", {"name": "Cy", "age": 2**40}))
    actor.graph.fold()
    assert rows(world.reader().graph, "Person") == {
        **NEW_ROWS,
        "Cy": {"name": "Cy", "age": 2**40, "weight": None, "rank": 7},
    }
    world.assert_sound()
    return is_new


@pytest.mark.parametrize("point", POINTS)
def test_s110_killed_at_every_point(world: World, point: str) -> None:
    assert _dies(world, point=point)
    assert _check(world) == (point == "write.after-record")


@pytest.mark.parametrize("fault", ["kill_before", "kill_after"])
@pytest.mark.parametrize("put", [1, 2])
def test_s110_killed_at_every_put(world: World, put: int, fault: str) -> None:
    """The schema's object comes first, the record last: only the last PUT changes anything."""
    assert _dies(world, put=put, fault=fault)
    assert _check(world) == ((put, fault) == (2, "kill_after"))


def test_s110_there_is_no_third_put(world: World) -> None:
    """So the two tests above have seen them all."""
    assert not _dies(world, put=3)
    assert _check(world)


def test_s110_a_branch_is_not_touched_by_a_crash_on_another(world: World) -> None:
    world.actor().graph.branch.create("dev")
    assert _dies(world, point="write.before-record")
    dev = world.actor(branch="dev")
    dev.graph.schema.apply(with_person("nick: String?"))
    assert rows(dev.graph, "Person") == {row_id: {**row, "nick": None} for row_id, row in OLD_ROWS.items()}
    _check(world)
