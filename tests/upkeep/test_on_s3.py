"""Upkeep on an S3-protocol server: times are the store's and coarse, nothing of the graph is a local file.

S124, S128–S133, S161, H23, H33, H35, H37
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from omnigraph.errors import Corruption, SnapshotExpired
from omnigraph.intents.objects import store_now
from omnigraph.log.stream import record_key
from omnigraph.query.language.statements import Compare, Delete
from omnigraph.storage.store import Store
from omnigraph.upkeep.cleanup.cleanup import Cleanup
from omnigraph.upkeep.cleanup.leases import end_lease, take_lease
from omnigraph.upkeep.cleanup.report import CleanupReport
from omnigraph.upkeep.cleanup.retention import Policy
from omnigraph.upkeep.optimize import Optimizer
from tests.schedules.world import Actor, World, knows, person
from tests.support.s3 import S3Place
from tests.upkeep.cleanup.test_cleanup import Died, Dying
from tests.upkeep.conftest import SCHEMA
from tests.upkeep.upkeep_graphs import contents, fill

pytestmark = pytest.mark.s3

#: Nothing waits, but for the clock: stamps have whole seconds here, and what was written this second is not old.
AT_ONCE = Policy(margin_s=0, horizon_s=0, newest_records=1, lock_stale_s=0)


@pytest.fixture
def bucket(s3_place: S3Place) -> Iterator[World]:
    world = World(s3_place.uri, SCHEMA, options=s3_place.storage_options)
    yield world
    world.close()


def store_of(world: World) -> Store:
    return world.reader().runtime.backend.store


def keys(world: World, part: str = "tables/") -> set[str]:
    return {info.key for info in store_of(world).list(part)}


def a_second_later(actor: Actor) -> None:
    """Block until the store stamps with another second than before."""
    backend = actor.runtime.backend
    first, deadline = store_now(backend), time.monotonic() + 30
    while store_now(backend) == first:
        assert time.monotonic() < deadline, "the store's clock stands still"
        threading.Event().wait(0.05)


def collect(actor: Actor, **policy: Any) -> CleanupReport:
    a_second_later(actor)
    return Cleanup(actor.runtime, replace(AT_ONCE, **policy)).run()


def to_the_end(actor: Actor, **policy: Any) -> None:
    for _ in range(8):
        if not collect(actor, **policy).has_work:
            return
    raise AssertionError("cleanup does not come to an end")


def make_history(world: World) -> Actor:
    """Some staged commits, removed rows, edges, and something in the overlay."""
    actor = world.actor(inline_share=0)
    for start in (0, 20, 40):
        fill(actor, 20, start)
    actor.apply(Delete("Person", Compare("age", "=", 7)), knows("p0001", "p0002"))
    world.actor().apply(person("late", 3))
    actor.publisher.refresh()
    a_second_later(actor)
    return actor


def garbage(world: World) -> set[str]:
    """What a writer leaves behind that dies before its record."""
    actor, before = world.actor(inline_share=0), keys(world)

    def die(name: str) -> None:
        if name == "write.before-record":
            raise Died

    actor.pauses.reach = die  # type: ignore[method-assign]
    with pytest.raises(Died):
        fill(actor, 5, 7000)
    garbage_keys = keys(world) - before
    assert garbage_keys
    return garbage_keys


def test_optimize_and_cleanup(bucket: World) -> None:
    """The life of a graph in one go: optimize, preview, collect, and what is named stays."""
    actor = make_history(bucket)
    before = contents(actor)
    assert actor.graph.optimize().is_complete
    assert actor.graph.optimize().commit_id is None
    assert contents(bucket.reader()) == before
    commits = [commit.commit_id for commit in actor.graph.commits(None)]
    tagged, expired_id = commits[-3], commits[-2]
    actor.graph.tags.create("v1", tagged)
    at_the_tag = contents(actor, tagged)
    garbage_keys, keys_before = garbage(bucket), keys(bucket, "")
    preview = Cleanup(actor.runtime, replace(AT_ONCE, keep=1)).preview()
    assert (preview.confirmed, keys(bucket, "")) == (False, keys_before)
    assert preview.protected[tagged] == "tag v1"
    assert collect(actor, keep=1).condemns
    assert garbage_keys <= keys(bucket)
    to_the_end(actor, keep=1)
    assert not garbage_keys & keys(bucket)
    assert (contents(bucket.reader()), contents(bucket.reader(), tagged)) == (before, at_the_tag)
    with pytest.raises(SnapshotExpired):
        bucket.reader().graph.at(expired_id)
    report = bucket.reader().graph.verify(deep=True)
    assert (report.ok, [problem.code for problem in report.problems]) == (True, [])


@pytest.mark.slow
def test_young_files_and_horizons(bucket: World) -> None:  # H35, H37
    actor, garbage_keys = make_history(bucket), garbage(bucket)
    assert not collect(actor, margin_s=600).condemns
    assert collect(actor, horizon_s=3600).condemns
    assert not collect(actor, horizon_s=3600).deletes
    assert garbage_keys <= keys(bucket)
    assert collect(actor).deletes
    assert not garbage_keys & keys(bucket)


def _until_death(dying: Actor) -> None:
    """Every run has some effects, so it comes."""
    for _ in range(20):
        Cleanup(dying.runtime, replace(AT_ONCE, keep=1)).run()


@pytest.mark.slow
def test_a_death_at_any_effect_and_a_second_run_converges(bucket: World, sweep_seed: int) -> None:  # S132
    actor = make_history(bucket)
    before = contents(actor)
    draw = random.Random(sweep_seed)
    for number in sorted(draw.sample(range(1, 16), 4)):
        garbage(bucket)
        actor.apply(person("late", number))
        before = contents(actor)
        dying = bucket.actor(wrap=Dying)
        store = dying.runtime.backend.store
        assert isinstance(store, Dying)
        a_second_later(actor)
        store.left = number
        with pytest.raises(Died):
            _until_death(dying)
        assert contents(bucket.reader()) == before
        to_the_end(bucket.actor(), keep=1)
        report = bucket.reader().graph.verify(deep=True)
        assert (report.ok, [problem.code for problem in report.problems]) == (True, [])
        assert contents(bucket.reader()) == before


@pytest.mark.slow
def test_a_paused_writer_and_a_paused_optimize(bucket: World) -> None:  # S131, S161, H35
    actor = make_history(bucket)
    writer = bucket.actor(inline_share=0, publish_deadline_s=60.0)
    second_actor = bucket.actor(publish_deadline_s=60.0)
    with writer.hold_at("write.before-record", lambda: writer.apply(person("paused", 4))) as late:
        for _ in range(3):
            collect(actor, keep=1)
    assert late.result().attempts > 1
    expected = contents(bucket.reader())

    def large() -> Any:
        return Optimizer(second_actor.runtime, second_actor.branch, intent_above_bytes=0).run()

    with second_actor.hold_at("optimize.before-record", large) as running:
        for _ in range(3):
            collect(actor, keep=1)
    assert len(running.result().commits) == 1
    assert contents(bucket.reader()) == expected
    to_the_end(actor, keep=1)
    assert bucket.reader().graph.verify(deep=True).problems == ()


@pytest.mark.slow
def test_leases_and_branches_protect(bucket: World) -> None:  # S129, H33
    actor = make_history(bucket)
    commits = [commit.commit_id for commit in actor.graph.commits(None)]
    leased, forked = commits[-3], commits[-4]
    before = {commit_id: contents(actor, commit_id) for commit_id in (leased, forked)}
    lease = take_lease(actor.runtime, leased, 3600)
    actor.graph.branch.create("side", forked)
    to_the_end(actor, keep=1)
    assert contents(bucket.reader(), leased) == before[leased]
    assert contents(bucket.reader("side")) == before[forked]
    end_lease(actor.runtime, lease)
    to_the_end(actor, keep=1)
    with pytest.raises(SnapshotExpired):
        bucket.reader().graph.at(leased)
    assert contents(bucket.reader("side")) == before[forked]


def _lose_data(world: World, actor: Actor) -> None:
    store_of(world).delete(min(key for key in keys(world) if "/data/" in key))


def _truncate_record(world: World, actor: Actor) -> None:
    key = record_key(actor.head.stream, 2)
    store_of(world).put(key, store_of(world).get(key)[:-5])


def _break_tag(world: World, actor: Actor) -> None:
    actor.graph.tags.create("v1", actor.head.commit_id)
    store_of(world).put(min(keys(world, "__tags/")), b"")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (_lose_data, "file_missing"),
        (_truncate_record, "record_damaged"),
        (_break_tag, "tag_damaged"),
    ],
)
def test_damage_is_found_and_cleanup_refuses(  # S130
    bucket: World, damage: Callable[[World, Actor], None], code: str
) -> None:
    actor = make_history(bucket)
    actor.graph.fold()
    damage(bucket, actor)
    assert code in {error.code for error in bucket.reader().graph.verify().errors}
    before = keys(bucket, "")
    if code != "file_missing":  # cleanup asks what is named; whether all of it is there is for verify
        with pytest.raises(Corruption):
            collect(bucket.actor(), keep=1)
        assert keys(bucket, "") == before
