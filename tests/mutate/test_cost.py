"""What one small mutation costs in a large graph whose keys are indexed: the same as in a small one.

The probes of a mutation (key, unique value, ends, cardinality) run side by side; then comes the one PUT. "Warm" means
that the index pages and file footers concerned were read before by the same process.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cost.ground import CostGround, MeteredActor
from tests.mutate.big_graph import Size, build, person
from tests.mutate.costs import JOIN, WARM, join, profile, warm_join
from tests.support.proxy import Proxy
from tests.support.s3 import S3Place

SMALL, LARGE, FULL = Size(10_000), Size(50_000), Size(1_000_000)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> CostGround:
    ground = CostGround(str(tmp_path_factory.mktemp("small") / "graph"))
    build(ground.uri, SMALL)
    return ground


@pytest.fixture
def actor(small: CostGround) -> Iterator[MeteredActor]:
    graph = MeteredActor(small).open()
    yield graph
    graph.close()


def _flat(small: MeteredActor, tmp_path_factory: pytest.TempPathFactory, size: Size) -> None:
    """The same when warm, whatever the size."""
    ground = CostGround(str(tmp_path_factory.mktemp("large") / "graph"))
    build(ground.uri, size)
    graph = MeteredActor(ground).open()
    costs, few = profile(graph), profile(small)
    graph.close()
    print(f"\n{size}\n{costs}\n{SMALL}\n{few}")
    assert (costs.warm, costs.plain) == (few.warm, few.plain)


def test_a_node_with_a_unique_rule_and_a_counted_edge(
    actor: MeteredActor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _flat(actor, tmp_path_factory, LARGE)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_costs_the_same_in_the_full_graph(actor: MeteredActor, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A million nodes, five million edges."""
    _flat(actor, tmp_path_factory, FULL)


def test_it_costs_the_same_after_many_commits(actor: MeteredActor) -> None:
    before = warm_join(actor, 7)
    for _ in range(100):
        actor.graph.mutate('query q() { insert Tag { name: "busy" } }')
    assert warm_join(actor, 7) == before


def test_a_refused_mutation_writes_nothing_and_looks_once_more(actor: MeteredActor) -> None:
    """The unique value is taken: the same probes, and instead of the PUT one GET that says it is still so. H18"""
    join(actor, 9)
    join(actor, 9)
    with actor.measure() as gauge, pytest.raises(Exception, match="not unique"):
        actor.graph.mutate(JOIN, {"n": "another", "e": "p77@example.org", "by": person(9)})
    assert gauge.cost.own("PUT") == 0
    assert gauge.cost.own("GET") == 1
    assert gauge.cost.table_writes == 0


def test_the_budget_can_be_broken(actor: MeteredActor) -> None:
    """A source that nobody asked for yet, in a process that has read nothing: more than a warm one may cost."""
    with pytest.raises(AssertionError, match="requests instead of at most 8"):
        WARM.hold(join(actor, 5003), "cold")


@pytest.mark.s3
def test_hops_on_the_wire(s3_place: S3Place, s3_proxy: Proxy, proxied_place: S3Place) -> None:
    """Requests and hops as an object store sees them, Lance's own included."""
    build(s3_place.uri, SMALL, s3_place.storage_options)
    ground = CostGround.on_s3(proxied_place, s3_proxy)
    graph = MeteredActor(ground).open()
    print(f"\n{SMALL}, on the wire\n{profile(graph)}")
    graph.close()
