"""Fixtures: an empty graph with every kind of index, and a graph that has been used for a while."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.schedules.world import World, knows, person
from tests.upkeep.upkeep_graphs import make_scattered

SCHEMA = """
node Person {
    name: String @key
    age: I32? @index
    email: String? @unique
    bio: String? @index
    mood: enum(glad, sad)? @index
    size: U64? @index
    look: Vector(4)? @index(metric="l2")
}
node Note { text: String? }
edge Knows: Person -> Person { since: I32? @index }
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, SCHEMA)
    yield world
    world.close()


@pytest.fixture(scope="session")
def _used_world_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Creates a graph with branches, one of them deleted, a tag, indexes, overlay, deleted rows and a client key."""
    world = World(tmp_path_factory.mktemp("lived"), SCHEMA)
    actor = make_scattered(world)
    actor.graph.branch.create("gone")
    actor.graph.branch.delete("gone")
    actor.graph.branch.create("side")
    world.actor(branch="side").apply(person("sidekick", 1), knows("sidekick", "p0001"), client_key="k")
    actor.graph.optimize()
    world.actor().apply(person("fresh", 4), knows("fresh", "p0002"), client_key="k")
    actor.graph.tags.create("v1", actor.head.commit_id)
    world.close()
    return Path(world.path)


@pytest.fixture
def used_world(_used_world_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A copy of the used graph for one test."""
    shutil.copytree(_used_world_path, tmp_path / "graph")
    with monkeypatch.context() as patch:
        patch.setattr("tests.schedules.world.init", lambda *_, **__: None)
        world = World(tmp_path)
    yield world
    world.close()
