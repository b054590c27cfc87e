"""The graph that mutations are tried on, and the ways to keep what they change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omnigraph.commit.publish_plan import Receipt
from tests.schedules.world import Actor, World

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    email: String? @unique
    city: String?
    firstName: String?
    joinedAt: DateTime?
    mood: enum(happy, sad)?
    tags: [String]?
    place: Vector(3)?
    @range(age, 0..150)
    @check(email, "@")
}
node Company { name: String @key  size: I32 }
node Note { text: String?  day: Date?  @unique(text, day) }
node Point { x: I32  y: I32  label: String?  @key(x, y) }
node Task { title: String @key }
edge Knows: Person -> Person { since: I32? }
edge Likes: Person -> Person { @unique(src, dst) }
edge WorksAt: Person -> Company @card(0..2) { role: String? }
edge Needs: Task -> Person @card(1..)
"""

#: Where changes go: into the record, into tables at once, or into tables right after the record.
MODES: Mapping[str, Mapping[str, Any]] = {
    "inline": {},
    "staged": {"inline_share": 0},
    "folded": {"fold": "always"},
}


class MutationGround:
    """One graph and one process on it; everything is read by another process."""

    def __init__(self, path: Path, mode: str) -> None:
        self.mode = mode
        self.world = World(path, SCHEMA)
        self.actor = self.process()
        self.graph = self.actor.graph
        self._reader = self.world.reader().graph

    def process(self, **config: Any) -> Actor:
        return self.world.actor(**{**MODES[self.mode], **config})

    def run(self, text: str, params: Mapping[str, Any] | None = None, **options: Any) -> Receipt:
        """Statements, as the body of a query without parameters, or with those given as a whole query."""
        source = text if text.lstrip().startswith("query") else f"query q() {{ {text} }}"
        return self.graph.mutate(source, params, **options)

    def rows(self, type_name: str) -> dict[str, dict[str, Any]]:
        """By id; an id that is there twice is damage."""
        rows = self._reader.table(type_name).to_arrow().to_pylist()
        by_id = {row["id"]: row for row in rows}
        assert len(by_id) == len(rows), f"an id of {type_name} is there twice: {sorted(row['id'] for row in rows)}"
        return by_id

    def column(self, type_name: str, name: str) -> dict[str, Any]:
        return {row_id: row[name] for row_id, row in self.rows(type_name).items()}

    def edges(self, type_name: str = "Knows") -> set[tuple[str, str]]:
        return {(row["from"], row["to"]) for row in self.rows(type_name).values()}

    def commits(self) -> list[str]:
        """The commits that changed something, oldest first."""
        commits = self._reader.commits(limit=None)
        return [commit.commit_id for commit in reversed(commits) if commit.kind == "mutate"]

    def close(self) -> None:
        self.world.assert_sound()
        self.world.close()
