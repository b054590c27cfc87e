"""What one small mutation costs in a large graph whose keys are indexed: the same as in a small one.

The probes of a mutation (key, unique value, ends, cardinality) run side by side; then comes the one PUT. "Warm" means
that the index pages and file footers concerned were read before by the same process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.cost.budget import Budget, Cost
from tests.cost.ground import Actor, Ground
from tests.mutations.big_graph import Size, build, person
from tests.support.proxy import Proxy
from tests.support.s3 import S3Place

#: A new person with an email that must be unique, and an edge to them from somebody whose edges are counted.
JOIN = """query join($n: String, $e: String, $by: String) {
    insert Person { name: $n, email: $e }
    insert Follows { from: $by, to: $n }
}"""
TAG = "query tag($n: String) { insert Tag { name: $n } }"

SMALL, LARGE, FULL = Size(10_000), Size(50_000), Size(1_000_000)
WARM = Budget(puts=1, table_reads=7, total=8, hops=4)
PLAIN = Budget(puts=1, table_reads=1, total=2, hops=2)

_fresh = itertools.count()


def join(actor: Actor, by: int) -> Cost:
    """One mutation, measured and proven to have landed."""
    name = f"new{next(_fresh)}"
    with actor.measure() as gauge:
        done = actor.graph.mutate(JOIN, {"n": name, "e": f"{name}@x", "by": person(by)})
    assert done.counts == {"inserted": 2, "updated": 0, "deleted": 0}
    assert actor.ground.has_record(done.commit_id)
    return gauge.cost


def warm_join(actor: Actor, by: int) -> Cost:
    """The least of a few, each within the budget: Lance joins neighbouring reads only if they come close together."""
    costs = [join(actor, by) for _ in range(4)][1:]
    for cost in costs:
        WARM.hold(cost, "warm")
    return min(costs, key=lambda cost: cost.requests)


def tag(actor: Actor) -> Cost:
    with actor.measure() as gauge:
        done = actor.graph.mutate(TAG, {"n": f"new{next(_fresh)}"})
    assert actor.ground.has_record(done.commit_id)
    return gauge.cost


def hold_all(actor: Actor, what: str) -> tuple[Cost, Cost]:
    """Cold, warm, and warm but for the source's own pages. Warm is held to the budget, the others are printed."""
    cold = join(actor, 3)
    warm = warm_join(actor, 4)
    near = join(actor, 9007)
    print(f"\n{what}: cold {cold}\n  pages of the source not read before: {near}\n  warm: {warm}")
    tag(actor)
    plain = tag(actor)
    print(f"  plain keyed node: {plain}")
    PLAIN.hold(plain, f"{what}, plain keyed node")
    return warm, plain


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    ground = Ground(str(tmp_path_factory.mktemp("small") / "graph"))
    build(ground.uri, SMALL)
    return ground


@pytest.fixture
def actor(small: Ground) -> Iterator[Actor]:
    made = Actor(small).open()
    yield made
    made.close()


def test_a_node_with_a_unique_rule_and_a_counted_edge(actor: Actor) -> None:
    hold_all(actor, str(SMALL))


def test_it_costs_the_same_in_a_larger_graph(actor: Actor, tmp_path_factory: pytest.TempPathFactory) -> None:
    ground = Ground(str(tmp_path_factory.mktemp("large") / "graph"))
    build(ground.uri, LARGE)
    other = Actor(ground).open()
    found = hold_all(other, str(LARGE))
    other.close()
    assert found == hold_all(actor, str(SMALL))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_costs_the_same_in_the_full_graph(actor: Actor, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A million nodes, five million edges."""
    ground = Ground(str(tmp_path_factory.mktemp("full") / "graph"))
    build(ground.uri, FULL)
    other = Actor(ground).open()
    warm, plain = hold_all(other, str(FULL))
    other.close()
    assert (warm, plain) == hold_all(actor, str(SMALL))


def test_it_costs_the_same_after_many_commits(actor: Actor) -> None:
    before = warm_join(actor, 7)
    for _ in range(100):
        actor.graph.mutate('query q() { insert Tag { name: "busy" } }')
    assert warm_join(actor, 7) == before


def test_a_refused_mutation_writes_nothing_and_looks_once_more(actor: Actor) -> None:
    """The unique value is taken: the same probes, and instead of the PUT one GET that says it is still so. H18"""
    join(actor, 9)
    join(actor, 9)
    with actor.measure() as gauge, pytest.raises(Exception, match="not unique"):
        actor.graph.mutate(JOIN, {"n": "another", "e": "p77@example.org", "by": person(9)})
    assert gauge.cost.own("PUT") == 0
    assert gauge.cost.own("GET") == 1
    assert gauge.cost.table_writes == 0


def test_the_budget_can_be_broken(actor: Actor) -> None:
    """A source that nobody asked for yet, in a process that has read nothing: more than a warm one may cost."""
    with pytest.raises(AssertionError, match="requests instead of at most 8"):
        WARM.hold(join(actor, 5003), "cold")


@pytest.mark.s3
def test_hops_on_the_wire(s3_place: S3Place, s3_proxy: Proxy, proxied_place: S3Place) -> None:
    """Requests and hops as an object store sees them, Lance's own included."""
    build(s3_place.uri, SMALL, s3_place.storage_options)
    ground = Ground.on_s3(proxied_place, s3_proxy)
    made = Actor(ground).open()
    hold_all(made, f"{SMALL}, on the wire")
    made.close()
