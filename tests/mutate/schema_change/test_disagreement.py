"""Schema and tables that disagree are loud, whatever is asked of them. S112"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.commit.birth import create_object
from omnigraph.commit.publisher import PlanPublished
from omnigraph.errors import Corruption
from omnigraph.log.snapshot import schema_key
from omnigraph.query.language.statements import Compare, Delete, InsertNode, Update
from omnigraph.schema.compile import compile_schema
from tests.mutate.schema_change.base_schema import SCHEMA, edit_schema, with_person
from tests.mutate.schema_change.conftest import MakeWorld
from tests.schedules.world import Actor, World

ASKED: dict[str, Callable[[Actor], object]] = {
    "read": lambda one: one.graph.table("Person").to_arrow(),
    "count": lambda one: one.graph.table("Person").count(),
    "insert": lambda one: one.apply(InsertNode("Person", {"name": "Ada"})),
    "update": lambda one: one.apply(Update("Person", {"age": 1}, Compare("age", ">", 0))),
    "delete": lambda one: one.apply(Delete("Person", Compare("name", "=", "Ada"))),
    "tighten": lambda one: one.graph.schema.apply(edit_schema(("age: I32?", "age: I64? @range(0..5)"))),
}


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    world = make_world(SCHEMA)
    actor = world.actor()
    actor.apply(InsertNode("Person", {"name": "Ada", "age": 1}))
    actor.graph.fold()
    return world


@pytest.mark.parametrize("asked", ASKED)
def test_s112_a_table_of_another_type_than_the_schema_says(world: World, asked: str) -> None:
    """As a defective writer would leave it: the schema says I64, the column is I32."""
    writer, witness = world.actor(), world.actor()
    backend = writer.runtime.backend
    text = edit_schema(("age: I32?", "age: I64?"))
    catalog = compile_schema(text, previous=writer.graph.schema.catalog, mint=lambda: backend.ids.token(8))
    create_object(backend, schema_key(catalog.hash), catalog.encode())
    assert isinstance(writer.publish(writer.plan("schema", catalog=catalog)), PlanPublished)
    for reader in (witness, world.reader()):
        with pytest.raises(Corruption, match="verify"):
            ASKED[asked](reader)


@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_s112_a_schema_that_cannot_be_read(world: World, damage: str) -> None:
    """A handle that knows the schema goes on; whoever has to read it is told, for reading and for writing."""
    knowing = world.actor()
    knowing.graph.schema.apply(with_person("nick: String?"))
    path = Path(world.path) / schema_key(knowing.graph.schema.catalog.hash)
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(data[: len(data) // 2] if damage == "cut" else data.replace(b"nick", b"nack"))
    knowing.apply(InsertNode("Person", {"name": "Bob", "nick": "b"}))
    fresh = world.actor()
    for call in (
        fresh.graph.view,
        fresh.graph.refresh,
        lambda: fresh.graph.schema.source,
        lambda: fresh.apply(InsertNode("Person", {"name": "Cy"})),
        lambda: fresh.graph.schema.apply(SCHEMA),
    ):
        with pytest.raises(Corruption):
            call()
