"""Reads, time travel and history: one look for newer commits, the data asked for, and never a listing. S142."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph.query.language.statements import Compare, InsertNode
from tests.cost.budget import Budget
from tests.cost.ground import CostGround, MeteredActor, Shape
from tests.cost.operations import warm

Act = Callable[..., MeteredActor]
GroundOf = Callable[[Shape], CostGround]
DEEP = Shape(depth=1000)


def test_a_warm_read_of_what_is_known_asks_only_for_news(ground: CostGround, act_on: Act) -> None:
    actor = act_on(ground)
    warm(actor)
    with actor.measure() as gauge:
        rows = actor.graph.table("Person").to_arrow(where=Compare("name", "=", "ada"))
    assert rows["name"].to_pylist() == ["ada"]
    Budget(gets=1, table_reads=2, hops=1).hold(gauge.cost, "read")
    assert gauge.cost.own("GET", "record") == 1


def test_many_reads_of_one_view_ask_once(ground: CostGround, act_on: Act) -> None:
    actor = act_on(ground)
    warm(actor)
    with actor.measure() as gauge:
        view = actor.graph.view()
        counts = [view.table(name).count() for name in ("Note", "Person", "Knows")]
    assert min(counts) >= 2
    # A keyed row of the overlay may hide one of the table: that is looked up.
    Budget(gets=1, table_reads=2, hops=1).hold(gauge.cost, "three counts of one view")


def test_a_read_that_may_be_a_little_old_asks_nothing(ground: CostGround, act_on: Act) -> None:
    actor = act_on(ground)
    warm(actor)
    with actor.measure() as gauge:
        count = actor.graph.view(fresh=False).table("Note").count()
    assert count == 2
    Budget(hops=0).hold(gauge.cost, "count without looking for news")


@pytest.mark.parametrize("missed", [1, 15, 40])
def test_a_reader_that_is_behind_catches_up_in_parallel(missed: int, ground: CostGround, act_on: Act) -> None:
    reader, writer = act_on(ground), act_on(ground)
    reader.graph.view()
    for number in range(missed):
        writer.graph.apply([InsertNode("Note", {"text": f"{number}"})])
    with reader.measure() as gauge:
        head = reader.graph.refresh()
    assert head == writer.graph.refresh()
    pages = missed // 16 + 1
    Budget(gets=1 + 16 * pages, hops=1 + pages).hold(gauge.cost, f"refresh, {missed} commits behind")


@pytest.mark.parametrize("seq", [3, 500, 999])
def test_an_old_commit_is_one_get(seq: int, ground_of: GroundOf, act_on: Act) -> None:
    actor = act_on(ground_of(DEEP))
    warm(actor)
    stream = actor.graph._branch.entry.stream
    with actor.measure() as gauge:
        count = actor.graph.at(f"{stream}.{seq}").table("Person").count()
    assert count == 3
    Budget(gets=1, table_reads=2, hops=1).hold(gauge.cost, f"open of commit {seq}")


def test_a_thousand_commits_are_listed_with_one_get_in_32(ground_of: GroundOf, act_on: Act) -> None:
    actor = act_on(ground_of(DEEP))
    with actor.measure() as gauge:
        commits = actor.graph.commits(limit=None)
    assert [commit.seq for commit in commits] == list(range(1000, -1, -1))
    Budget(gets=40).hold(gauge.cost, "list of 1000 commits")


def test_the_newest_commits_do_not_cost_the_whole_history(ground_of: GroundOf, act_on: Act) -> None:
    actor = act_on(ground_of(DEEP))
    actor.graph.view()
    with actor.measure() as gauge:
        commits = actor.graph.commits(limit=20)
    assert len(commits) == 20
    Budget(gets=3).hold(gauge.cost, "list of 20 commits")


def test_a_list_of_branches_is_one_listing_and_one_hop(ground_of: GroundOf, act_on: Act) -> None:
    actor = act_on(ground_of(Shape(branches=50)))
    with actor.measure() as gauge:
        names = actor.graph.branch.list()
    assert len(names) == 50
    Budget(lists=1, gets=49, hops=2).hold(gauge.cost, "list of 50 branches")


def test_a_fork_of_an_old_commit_costs_what_one_of_the_newest_does(ground_of: GroundOf, act_on: Act) -> None:
    actor = act_on(ground_of(DEEP))
    warm(actor)
    stream = actor.graph._branch.entry.stream
    with actor.measure() as gauge:
        created = actor.graph.branch.create("old", f"{stream}.7")
    assert created.view().table("Person").count() == 3
    Budget(puts=2, gets=2, hops=3).hold(gauge.cost, "fork of an old commit")  # the old record, once more, is a hop
