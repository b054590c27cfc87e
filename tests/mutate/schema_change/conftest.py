"""Worlds with a schema of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.schedules.world import World

MakeWorld = Callable[[str], World]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    worlds: list[World] = []

    def make(schema: str) -> World:
        worlds.append(World(tmp_path / str(len(worlds)), schema))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()
