"""What one small mutation costs in a graph of a given size: for the tests, and for `make bench`."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass

from tests.cost.budget import Budget, Cost
from tests.cost.ground import MeteredActor
from tests.mutate.big_graph import person

#: A new person with an email that must be unique, and an edge to them from somebody whose edges are counted.
JOIN = """query join($n: String, $e: String, $by: String) {
    insert Person { name: $n, email: $e }
    insert Follows { from: $by, to: $n }
}"""
TAG = "query tag($n: String) { insert Tag { name: $n } }"

WARM = Budget(puts=1, table_reads=7, total=8, hops=4)
PLAIN = Budget(puts=1, table_reads=1, total=2, hops=2)

_fresh = itertools.count()


@dataclass(frozen=True, slots=True)
class Profile:
    """Costs of the join in a process that has read nothing, and later; and of a keyed node without further rules."""

    cold: Cost
    other_pages: Cost  # warm, but for the index pages and data pages of the source
    warm: Cost
    plain: Cost

    def __str__(self) -> str:
        return "\n".join(f"  {name}: {getattr(self, name)}" for name in asdict(self))


def join(actor: MeteredActor, by: int) -> Cost:
    """One mutation, measured and proven to have landed."""
    name = f"new{next(_fresh)}"
    with actor.measure() as gauge:
        receipt = actor.graph.mutate(JOIN, {"n": name, "e": f"{name}@x", "by": person(by)})
    assert receipt.counts == {"inserted": 2, "updated": 0, "deleted": 0}
    assert actor.ground.has_record(receipt.commit_id)
    return gauge.cost


def warm_join(actor: MeteredActor, by: int) -> Cost:
    """The least of a few, each within the budget: Lance joins neighbouring reads only if they come close together."""
    costs = [join(actor, by) for _ in range(4)][1:]
    for cost in costs:
        WARM.hold(cost, "warm")
    return min(costs, key=lambda cost: (cost.requests, cost.hops))


def tag(actor: MeteredActor) -> Cost:
    with actor.measure() as gauge:
        receipt = actor.graph.mutate(TAG, {"n": f"new{next(_fresh)}"})
    assert actor.ground.has_record(receipt.commit_id)
    return gauge.cost


def profile(actor: MeteredActor) -> Profile:
    """All of it, on an actor that has done nothing yet. What is warm is held to its budget."""
    cold = join(actor, 3)
    warm = warm_join(actor, 4)
    other_pages = join(actor, 9007)
    tag(actor)
    plain = tag(actor)
    PLAIN.hold(plain, "plain keyed node")
    return Profile(cold, other_pages, warm, plain)
