"""Two writers, each right by itself on the same state: whoever comes second must notice. H16, H17, S30.

Both stand still between validation and publication, on two sites (as in two processes) or in one queue; then one lands,
then the other goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.api import Graph
from omnigraph.commit.publish_plan import Receipt
from omnigraph.errors import ConstraintViolation, OmnigraphError, ReadSetChanged
from omnigraph.query.language.statements import Overwrite
from tests.schedules.world import WAIT_S, Actor, World

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
node Company { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company
"""
WAYS: Mapping[str, Mapping[str, Any]] = {"inline": {}, "staged": {"inline_share": 0}}
POINTS = ("write.validated", "write.before-record")

Work = Callable[[Graph], Receipt]


@pytest.fixture
def skew_world(tmp_path: Path) -> Iterator[World]:
    """Half of it in tables, half in the overlay, so that both are read."""
    world = World(tmp_path, SCHEMA)
    seeder = world.actor()
    seeder.graph.mutate('query q() { insert Person { name: "n", age: 5 } insert Company { name: "c" } }')
    seeder.graph.fold()
    seeder.graph.mutate('query q() { insert Person { name: "m", age: 60 } }')
    yield world
    world.assert_sound()
    world.close()


@dataclass(frozen=True)
class Landed:
    """How the two ended."""

    first: Receipt
    second: Receipt | None
    error: OmnigraphError | None


def in_order(world: World, first: tuple[Actor, Work], second: tuple[Actor, Work], point: str) -> Landed:
    """Both are validated on the same state and held; the first lands, then the second goes on."""
    holds = [actor.pauses.hold(point) for actor, _ in (first, second)]
    running: list[Future[Receipt]] = []
    for hold, (actor, work) in zip(holds, (first, second), strict=True):
        running.append(world.start(lambda actor=actor, work=work: work(actor.graph)))  # type: ignore[misc]
        hold.wait_reached(WAIT_S)
    holds[0].release()
    landed = running[0].result(WAIT_S)
    holds[1].release()
    error = running[1].exception(WAIT_S)
    assert error is None or isinstance(error, OmnigraphError), error
    return Landed(landed, None if error else running[1].result(), error)


def actors(world: World, first_way: str, second_way: str) -> tuple[Actor, Actor]:
    second_actor = world.actor(**WAYS[first_way]), world.actor(**WAYS[second_way])
    for actor in second_actor:
        actor.graph.refresh()
    return second_actor


def delete_node(graph: Graph) -> Receipt:
    return graph.mutate('query q() { delete Person where name = "n" }')


def overwrite_without_node(graph: Graph) -> Receipt:
    return graph.apply([Overwrite("Person", [{"name": "m", "age": 61}])])


def insert_edge(end: str) -> Work:
    ends = {
        "from": 'insert Knows { from: "n", to: "m" }',
        "to": 'insert Knows { from: "m", to: "n" }',
        "loop": 'insert Knows { from: "n", to: "n" }',
        "other type": 'insert WorksAt { from: "n", to: "c" }',
    }
    return lambda graph: graph.mutate(f"query q() {{ {ends[end]} }}")


REMOVALS: Mapping[str, Work] = {"delete": delete_node, "overwrite": overwrite_without_node}


def no_orphan(world: World) -> tuple[set[str], set[tuple[str, str]]]:
    """Who is there and which edges; every end of every edge must be there."""
    people = set(world.rows("Person"))
    edges = world.edges("Knows") | world.edges("WorksAt")
    ends = people | set(world.rows("Company"))
    assert all(source in ends and target in ends for source, target in edges), (people, edges)
    return people, edges


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("edge_way", WAYS)
@pytest.mark.parametrize("removal_way", WAYS)
@pytest.mark.parametrize("removal", REMOVALS)
class TestRemovalAgainstEdge:
    """The eight pairs, each in both orders of landing. S30, H16"""

    def test_the_removal_lands_first(
        self, skew_world: World, removal: str, removal_way: str, edge_way: str, point: str
    ) -> None:
        remover, linker = actors(skew_world, removal_way, edge_way)
        outcomes = in_order(skew_world, (remover, REMOVALS[removal]), (linker, insert_edge("to")), point)
        assert outcomes.first.commit_id is not None
        assert isinstance(outcomes.error, ConstraintViolation)
        assert [(violation["rule"], violation["value"]) for violation in outcomes.error.violations] == [
            ("endpoint", "n")
        ]
        assert no_orphan(skew_world) == ({"m"}, set())

    def test_the_edge_lands_first(
        self, skew_world: World, removal: str, removal_way: str, edge_way: str, point: str
    ) -> None:
        remover, linker = actors(skew_world, removal_way, edge_way)
        outcomes = in_order(skew_world, (linker, insert_edge("from")), (remover, REMOVALS[removal]), point)
        assert outcomes.first.counts["inserted"] == 1
        if removal == "delete":
            assert outcomes.second is not None
            assert outcomes.second.counts["deleted"] == 2, "the edge goes with its node"
            assert no_orphan(skew_world) == ({"m"}, set())
            return
        # An overwrite is never repeated by itself.
        assert isinstance(outcomes.error, ReadSetChanged)
        assert outcomes.error.manifest_conflict is not None
        assert no_orphan(skew_world) == ({"n", "m"}, {("n", "m")})
        with pytest.raises(ConstraintViolation) as refused:
            overwrite_without_node(remover.graph)
        assert [violation["rule"] for violation in refused.value.violations] == ["orphan_edge"]


@pytest.mark.parametrize("end", ["from", "to", "loop", "other type"])
@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize("removal_first", [True, False])
def test_every_end_of_every_edge_type(skew_world: World, removal: str, end: str, removal_first: bool) -> None:
    remover, linker = actors(skew_world, "inline", "inline")
    pair = [(remover, REMOVALS[removal]), (linker, insert_edge(end))]
    first, second = pair if removal_first else reversed(pair)
    outcomes = in_order(skew_world, first, second, "write.before-record")
    people, edges = no_orphan(skew_world)
    assert ("n" in people) == bool(edges)
    assert (outcomes.error is None) == (removal == "delete" and not removal_first)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize("removal_first", [True, False])
def test_two_threads_of_one_process(skew_world: World, removal: str, removal_first: bool, way: str) -> None:
    """They wait in one queue and might share a record. H20"""
    actor = skew_world.actor(**WAYS[way])
    actor.graph.refresh()
    works = [REMOVALS[removal], insert_edge("to")]
    holds = [actor.pauses.hold("write.validated", nth) for nth in (1, 2)]
    running = []
    for hold, work in zip(holds, works if removal_first else reversed(works), strict=True):
        running.append(skew_world.start(lambda work=work: work(actor.graph)))  # type: ignore[misc]
        hold.wait_reached(WAIT_S)
    for hold in holds:
        hold.release()
    errors = [thread.exception(WAIT_S) for thread in running]
    people, edges = no_orphan(skew_world)
    assert ("n" in people) == bool(edges) or (removal == "delete" and not any(errors))
    assert (
        sum(error is None for error in errors) == len(skew_world.reader().graph.commits(limit=None, kind="mutate")) - 2
    )
    assert sum(error is None for error in errors) >= 1


@pytest.mark.parametrize("edge_way", WAYS)
def test_an_overwrite_that_keeps_the_node_lets_the_edge_land(skew_world: World, edge_way: str) -> None:
    """Not every overlap is a conflict for the user: the edge is prepared again and holds."""
    writer, linker = actors(skew_world, "inline", edge_way)

    def overwrite(graph: Graph) -> Receipt:
        return graph.apply([Overwrite("Person", [{"name": "n"}, {"name": "m"}, {"name": "k"}])])

    outcomes = in_order(skew_world, (writer, overwrite), (linker, insert_edge("to")), "write.before-record")
    assert outcomes.second is not None
    assert no_orphan(skew_world) == ({"n", "m", "k"}, {("m", "n")})


# --- phantoms ------------------------------------------------------------------------------------------------------


def insert_old(graph: Graph) -> Receipt:
    return graph.mutate('query q() { insert Person { name: "new", age: 70 } }')


def grow_old(graph: Graph) -> Receipt:
    return graph.mutate('query q() { update Person set { age: 70 } where name = "n" }')


def update_old(graph: Graph) -> Receipt:
    return graph.mutate('query q() { update Person set { city: "home" } where age > 50 }')


def delete_old(graph: Graph) -> Receipt:
    return graph.mutate("query q() { delete Person where age > 50 }")


def decide(work: Work) -> Work:
    """The same with `on_conflict="fail"`: the caller wants to be told."""

    def failing(graph: Graph) -> Receipt:
        original = graph.mutate
        return work(_With(original))  # type: ignore[arg-type]

    return failing


class _With:
    """A graph whose mutations fail on conflict."""

    def __init__(self, mutate: Callable[..., Receipt]) -> None:
        self._mutate = mutate

    def mutate(self, source: str) -> Receipt:
        return self._mutate(source, on_conflict="fail")


@pytest.mark.parametrize("point", [pytest.param(POINTS[0], marks=pytest.mark.slow), POINTS[1]])
@pytest.mark.parametrize("appears", [insert_old, grow_old])
@pytest.mark.parametrize("selects", [update_old, delete_old])
@pytest.mark.parametrize("own_way", WAYS)
@pytest.mark.parametrize("their_way", WAYS)
class TestPhantom:
    """A row comes to match a condition while the one who selected by it is on the way. H17"""

    def test_the_row_lands_first(
        self, skew_world: World, selects: Work, appears: Work, own_way: str, their_way: str, point: str
    ) -> None:
        selecting, writer = actors(skew_world, own_way, their_way)
        outcomes = in_order(skew_world, (writer, appears), (selecting, selects), point)
        assert outcomes.second is not None
        assert outcomes.second.counts["updated"] + outcomes.second.counts["deleted"] == 2
        assert outcomes.second.attempts == 2
        old = {name: row["city"] for name, row in skew_world.rows("Person").items() if (row["age"] or 0) > 50}
        assert old == ({} if selects is delete_old else dict.fromkeys(old, "home"))

    def test_the_selection_lands_first(
        self, skew_world: World, selects: Work, appears: Work, own_way: str, their_way: str, point: str
    ) -> None:
        """The row was not there when the rows were chosen: the other order."""
        selecting, writer = actors(skew_world, own_way, their_way)
        outcomes = in_order(skew_world, (selecting, selects), (writer, appears), point)
        assert outcomes.second is not None
        name = "new" if appears is insert_old else "n"
        assert skew_world.rows("Person")[name]["city"] is None
        assert skew_world.ages()[name] == 70

    def test_the_caller_may_ask_for_the_conflict(
        self, skew_world: World, selects: Work, appears: Work, own_way: str, their_way: str, point: str
    ) -> None:
        selecting, writer = actors(skew_world, own_way, their_way)
        outcomes = in_order(skew_world, (writer, appears), (selecting, decide(selects)), point)
        assert isinstance(outcomes.error, ReadSetChanged)
        assert outcomes.error.manifest_conflict is not None
        assert outcomes.error.manifest_conflict["table_key"] == "node:Person"
        assert skew_world.rows("Person")["m"]["city"] is None
        assert skew_world.ages()["m"] == 60


@pytest.mark.parametrize("way", WAYS)
def test_two_selections_that_feed_each_other(skew_world: World, way: str) -> None:
    """Each changes rows into the other's condition: the result is that of one order. S30"""
    first, second = actors(skew_world, way, way)

    def young_to_old(graph: Graph) -> Receipt:
        return graph.mutate("query q() { update Person set { age: 60 } where age < 50 }")

    def old_to_young(graph: Graph) -> Receipt:
        return graph.mutate("query q() { update Person set { age: 5 } where age > 50 }")

    outcomes = in_order(skew_world, (first, young_to_old), (second, old_to_young), "write.before-record")
    assert outcomes.second is not None
    assert outcomes.second.counts["updated"] == 2
    assert set(skew_world.ages().values()) == {5}
