"""Helpers of the upkeep tests: graphs of people with values in every column, and access to their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omnigraph.query.language.statements import Compare, Delete
from tests.schedules.world import Actor, World, knows, person

#: For writers that a test pauses while cleanup runs: their publish deadline must not pass meanwhile.
PATIENT: dict[str, Any] = {"publish_deadline_s": 60.0}


def fill(actor: Actor, count: int, start: int = 0) -> None:
    """Inserts `count` people in one commit."""
    people = [
        person(
            f"p{number:04d}",
            number % 50,
            email=f"p{number}@x",
            bio=f"likes number{number % 7} and the sea",
            mood="glad" if number % 2 else "sad",
            size=number,
            look=[float(number % 11), 1.0, 0.5, float(number % 3)],
        )
        for number in range(start, start + count)
    ]
    actor.apply(*people)


def make_scattered(world: World, **config: Any) -> Actor:
    """Makes a graph with many small fragments, deleted rows, edges, and entries in the overlay."""
    stager = world.actor(inline_share=0, **config)
    for start in range(0, 300, 60):
        fill(stager, 60, start)
    stager.apply(Delete("Person", Compare("age", "=", 7)))
    stager.apply(*(knows(f"p{number:04d}", "p0001") for number in range(20, 30)))
    stager.apply(knows("p0100", "p0101"))
    world.actor().apply(person("late", 3), person("p0000", 99))
    stager.publisher.refresh()
    return stager


def contents(actor: Actor, commit_id: str | None = None) -> dict[str, list[Any]]:
    """Returns all rows of the newest commit, or of `commit_id`."""
    view = actor.graph.at(commit_id) if commit_id else actor.graph.view(fresh=True)
    return {
        type_def.name: sorted(map(str, view.table(type_def.name).to_arrow().to_pylist()))
        for type_def in view.catalog.types
    }


def open_pin(actor: Actor, name: str) -> Any:
    snapshot = actor.snapshot()
    pinned = snapshot.view(snapshot.type(name)).pinned
    assert pinned is not None
    return pinned


def file_of(world: World, key: str) -> Path:
    return Path(world.path) / key
