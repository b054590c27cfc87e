"""S116: a reader that still holds a commit that was collected is told so; never that it is damage, never other data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.adjacency.column_cache import column_cache_of
from omnigraph.errors import Corruption, SnapshotExpired
from omnigraph.upkeep.cleanup.cleanup import Cleanup
from omnigraph.upkeep.cleanup.retention import Policy
from tests.schedules.world import World, knows, person

QUERIES = {
    "scan": "query q() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }",
    "lookup": 'query q() { match { $p: Person { name: "p1" } } return { $p.name } }',
    "hop": "query q() { match { $p knows $q } return { $q.name, count($p) as n } }",
    "window": "query q() { match { $p: Person } return { $p.name } limit 2 }",
}
AT_ONCE = Policy(keep=1, margin_s=0, horizon_s=0, newest_records=1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_view_of_a_collected_commit_raises_snapshot_expired(world: World) -> None:
    actor = world.actor(inline_share=0)
    actor.apply(*(person(f"p{number}", number) for number in range(5)), knows("p0", "p1"), knows("p2", "p1"))
    actor.apply(*(person(f"p{number}", number + 1) for number in range(5)), knows("p3", "p1"))
    reader = world.reader()
    view = reader.graph.at(actor.head.commit_id)
    before = {name: view.query(text).rows for name, text in QUERIES.items()}
    assert [len(rows) for rows in before.values()] == [5, 1, 1, 2]
    actor.graph.optimize()
    actor.apply(*(person(f"p{number}", 90) for number in range(5)))
    actor.graph.optimize()
    actor.apply(person("last", 1))
    while Cleanup(actor.runtime, AT_ONCE).run().has_work:
        pass
    column_cache_of(reader.graph._runtime.backend.tables).byte_cache.clear()
    for name, text in QUERIES.items():
        with pytest.raises(SnapshotExpired) as raised:
            view.query(text)
        assert raised.value.details["commit_id"] == view.commit_id, name
    with pytest.raises(SnapshotExpired):
        view.table("Person").to_arrow()
    with pytest.raises(SnapshotExpired):
        view.explain(QUERIES["scan"])


def test_missing_files_of_a_live_commit_raise_corruption(world: World) -> None:
    actor = world.actor(inline_share=0)
    actor.apply(*(person(f"p{number}", number) for number in range(5)))
    view = world.reader().graph.view()
    for file in Path(world.path).glob("tables/*/data/*"):
        file.unlink()
    with pytest.raises(Corruption):
        view.query(QUERIES["scan"])
