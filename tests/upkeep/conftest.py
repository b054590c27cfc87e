"""A world with every kind of index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.schedules.world import World

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
    made = World(tmp_path, SCHEMA)
    yield made
    made.close()
