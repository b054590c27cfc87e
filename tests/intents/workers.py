"""What runs in child processes: drivers that die at an exact point, and recoverers that start together."""

from __future__ import annotations

from typing import Any

from tests.intents.intent_actor import IntentActor, companies, overwrite, people
from tests.support.faulty_store import EFFECTS, Fault, FaultPlan
from tests.support.processes import Link

CHANGES = {
    "people": people,
    "companies": companies,
    "overwrite": lambda: overwrite(["Only"]),
}


def drive_until_killed(
    link: Link,
    *,
    uri: str,
    point: str | None = None,
    fault: str | None = None,
    n: int = 1,
    change: str = "people",
    branch: str = "main",
    client_key: str | None = None,
) -> str | None:
    """A bulk operation that dies at the n-th visit of a point, or at its n-th effect on the store."""
    actor = IntentActor(uri)
    if point is not None:
        actor.pauses.crash_at(point, n)
    if fault is not None:
        actor.arm(FaultPlan.at(n, Fault(fault), kinds=EFFECTS))
    link.ready()
    return actor.bulk(CHANGES[change](), graph=actor.on(branch), client_key=client_key).commit_id


def recover_together(link: Link, *, uri: str, point: str | None = None) -> list[dict[str, Any]]:
    """One of several that recover at the same moment; it may die at a point of its own."""
    actor = IntentActor(uri, hasty=False)
    if point is not None:
        actor.pauses.crash_at(point)
    link.ready()
    return actor.recover()
