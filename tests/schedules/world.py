"""`World` and `Actor`: the helpers of every test in which several processes work on one graph.

A world is one graph at one address. An actor stands for one process: it has its own runtime, caches, publisher queue,
clock, faults and pauses, and shares nothing with other actors but the stored objects. A test holds an actor at a named
pause point, lets others run, releases it, and then asserts what must be true:

    actor, other = world.actor(), world.actor()
    with actor.hold_at("write.before-record", lambda: actor.apply(person("a", 1))) as late:
        other.apply(person("a", 2))
    assert late.result(WAIT_S).attempts == 2
    world.assert_sound()
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from omnigraph.api import Graph, init, make_backend
from omnigraph.clock import Clock, IdSource
from omnigraph.commit.graph_runtime import Branch, GraphRuntime
from omnigraph.commit.publish_plan import PublishPlan, Receipt, TableAction
from omnigraph.commit.publisher import Publisher, PublishOutcome
from omnigraph.config import Config
from omnigraph.log.commit_record import CommitRecord
from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language.statements import Compare, Condition, Delete, InsertEdge, InsertNode, Statement, Update
from omnigraph.storage.store import Store
from tests.oracle.structure import structure_violations
from tests.support.pauses import ControlledPauses

A = TypeVar("A")

SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique }
node Note { text: String? }
edge Knows: Person -> Person { since: I32? }
edge Owns: Person -> Note @card(0..2)
node Task { title: String @key }
edge Needs: Task -> Person @card(1..)
"""
WAIT_S = 20.0
_CONFIG: dict[str, Any] = {"fsync": False, "fold": "never", "publish_deadline_s": 8.0}


class Actor:
    """One simulated process with a handle on one branch. `World.actor` makes it."""

    def __init__(self, world: World, runtime: GraphRuntime, pauses: ControlledPauses, branch: str) -> None:
        self._world = world
        self.runtime = runtime
        self.pauses = pauses
        self.graph = Graph(runtime, runtime.branch(branch))

    @property
    def branch(self) -> Branch:
        return self.graph._branch

    @property
    def publisher(self) -> Publisher:
        return self.branch.publisher

    @property
    def head(self) -> CommitRecord:
        return self.publisher.refresh()

    def apply(self, *statements: Statement, **options: Any) -> Receipt:
        return self.graph.apply(statements, **options)

    def publish(self, plan: PublishPlan) -> PublishOutcome:
        """Hand a plan straight to the publisher."""
        clock = self.runtime.backend.clock
        return self.publisher.publish(plan, clock.monotonic() + self.runtime.backend.config.publish_deadline_s)

    def plan(self, kind: Any, *actions: TableAction, **fields: Any) -> PublishPlan:
        return PublishPlan(
            kind, self.runtime.backend.ids.ulid(), fields.pop("base", None) or self.head, actions=actions, **fields
        )

    def gc_record(self, *honours: str) -> PublishOutcome:
        """The fence that cleanup puts before it marks."""
        return self.publish(self.plan("gc", gc={"id": "gc-1", "honours": list(honours)}))

    @contextmanager
    def hold_at(self, point: str, work: Callable[[], A], nth: int = 1) -> Iterator[Future[A]]:
        """Start `work` in a thread and hold it at the `nth` time it reaches `point`, until the block ends.

        Yields the future of `work`.
        """
        with self.pauses.hold(point, nth) as hold:
            running = self._world.start(work)
            hold.wait_reached(WAIT_S)
            yield running

    def wait_queued(self, count: int) -> None:
        """Block until `count` plans of this process are in the publisher's queue, those in flight included."""
        deadline = time.monotonic() + WAIT_S
        while len(self.publisher._queue) < count:
            assert time.monotonic() < deadline, f"{len(self.publisher._queue)} plans are queued, not {count}"
            threading.Event().wait(0.002)

    def snapshot(self) -> Snapshot:
        head = self.head
        return Snapshot(self.runtime.backend, head, self.runtime.catalogs.get(head.schema))


class World:
    """One graph, in a directory or (with storage `options`) at any other address, and the actors that work on it."""

    def __init__(self, path: Path | str, schema: str = SCHEMA, *, options: Mapping[str, str] | None = None) -> None:
        self.path = str(path / "graph") if isinstance(path, Path) else path
        self._options = options
        self._pool = ThreadPoolExecutor(8)
        self._actors: list[Actor] = []
        self._pauses: list[ControlledPauses] = []
        init(self.path, schema, storage_options=options, config=Config(**_CONFIG))

    def actor(
        self,
        *,
        branch: str = "main",
        wrap: Callable[[Store], Store] | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        **config: Any,
    ) -> Actor:
        pauses = ControlledPauses(give_up_after_s=WAIT_S)
        backend = make_backend(
            self.path, self._options, Config(**{**_CONFIG, **config}), wrap=wrap, pauses=pauses, clock=clock, ids=ids
        )
        self._pauses.append(pauses)
        actor = Actor(self, GraphRuntime.open(backend, read_only=False), pauses, branch)
        self._actors.append(actor)
        return actor

    def start(self, work: Callable[[], A]) -> Future[A]:
        return self._pool.submit(work)

    def reader(self, branch: str = "main") -> Actor:
        """A new actor, which has no record in memory yet."""
        return self.actor(branch=branch)

    def rows(self, type_name: str, branch: str = "main") -> dict[str, dict[str, Any]]:
        """The rows that a new process sees, by id. Fails if an id occurs twice."""
        rows = self.reader(branch).graph.table(type_name).to_arrow().to_pylist()
        by_id = {row["id"]: row for row in rows}
        assert len(by_id) == len(rows), f"an id of {type_name} is there twice: {sorted(row['id'] for row in rows)}"
        return by_id

    def ages(self, branch: str = "main") -> dict[str, int | None]:
        return {name: row["age"] for name, row in self.rows("Person", branch).items()}

    def edges(self, type_name: str = "Knows", branch: str = "main") -> set[tuple[str, str]]:
        return {(row["from"], row["to"]) for row in self.rows(type_name, branch).values()}

    def assert_sound(self) -> None:
        """Check every record of every stream: linear chain, pins built on each other, right ids and counts."""
        violations = structure_violations(self.reader().runtime)
        assert not violations, "\n".join(violations)

    def close(self) -> None:
        for pause in self._pauses:
            pause.release_all()
        self._pool.shutdown(wait=True)
        for actor in self._actors:
            actor.runtime.backend.close()


def person(name: str, age: int | None = None, *, strict: bool = False, **values: Any) -> InsertNode:
    optional_age = {"age": age} if age is not None else {}
    return InsertNode("Person", {"name": name, **optional_age, **values}, strict=strict)


def knows(source: str, target: str, **values: Any) -> InsertEdge:
    return InsertEdge("Knows", source, target, values)


def by_name(name: str) -> Condition:
    return Compare("name", "=", name)


def without(name: str) -> Delete:
    return Delete("Person", by_name(name))


def set_age(name: str, age: int) -> Update:
    return Update("Person", {"age": age}, by_name(name))


def results(futures: Sequence[Future[A]]) -> list[A]:
    return [future.result(WAIT_S) for future in futures]
