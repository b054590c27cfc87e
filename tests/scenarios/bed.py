"""A graph at a place, and several processes on it: what every scenario is played with.

A `Process` holds what one operating-system process would: its own runtime, publisher queue, caches and pauses. Several
of them in one test process share nothing but the stored objects, so that a schedule can be exact. Where a real
process is the point (kills, many writers), scenarios use `tests.scenarios.workers` instead.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import omnigraph
from omnigraph.api import Graph, make_backend
from omnigraph.clock import SystemIds
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import PublishPlan, Receipt
from omnigraph.commit.publisher import Publisher, PublishOutcome
from omnigraph.config import Config
from omnigraph.log.commit_record import CommitRecord
from omnigraph.log.stream import RecordStream, record_key
from omnigraph.query.language.statements import Compare, Condition, Delete, InsertEdge, InsertNode, Statement, Update
from omnigraph.storage.address import open_store
from omnigraph.storage.metering import MeteredStore
from omnigraph.storage.store import Store
from tests.oracle.structure import structure_violations
from tests.support.faulty_store import FaultPlan, FaultyStore
from tests.support.pauses import ControlledPauses

A = TypeVar("A")
B = TypeVar("B")

SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique  city: String? }
node Company { name: String @key  size: I32? }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company @card(0..2) { role: String? }
"""
WAIT_S = 60.0
_QUICK: Mapping[str, Any] = {"fsync": False, "publish_deadline_s": 20.0}


class ScenarioCrash(BaseException):
    """The end of a simulated process: no handler of the engine may turn it into an answer."""


@dataclass(frozen=True)
class GraphLocation:
    """Where a graph may be made."""

    name: str
    uri: str
    options: Mapping[str, str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return self.name == "local"

    def scale(self, local: int, remote: int) -> int:
        """How many of something: heavy scenarios are smaller where every request is slow."""
        return local if self.is_local else remote

    def store(self) -> Store:
        """The bare store, for looking at objects and for damaging them."""
        return open_store(self.uri, self.options, fsync=False)

    def all_keys(self) -> list[str]:
        """Every object, in order."""
        return [info.key for info in self.store().list("")]


class SampledIds(SystemIds):
    """Fresh identifiers, but chances (random folds, pauses between commits) that the printed seed repeats."""

    def __init__(self, seed: str) -> None:
        super().__init__()
        self._chance = random.Random(seed)
        self._chance_lock = threading.Lock()

    def uniform(self, low: float, high: float) -> float:
        with self._chance_lock:
            return self._chance.uniform(low, high)


class ScenarioProcess:
    """One process's handle on one branch, with its meter, its faults and its pauses."""

    def __init__(
        self, bed: ScenarioBed, branch: str, *, read_only: bool, wrap: Callable[[Store], Store] | None, config: Config
    ) -> None:
        self.pauses = ControlledPauses(give_up_after_s=WAIT_S)
        self._bed = bed

        def wrap_store(store: Store) -> Store:
            self.faults = FaultyStore(wrap(store) if wrap else store, FaultPlan.none())
            self.meter = MeteredStore(self.faults)
            return self.meter

        location = bed.place
        self.backend = make_backend(
            location.uri, location.options, config, wrap=wrap_store, pauses=self.pauses, ids=bed.ids(config)
        )
        self.runtime = GraphRuntime.open(self.backend, read_only=read_only)
        self.graph = Graph(self.runtime, self.runtime.branch(branch))

    @property
    def publisher(self) -> Publisher:
        return self.graph._branch.publisher

    @property
    def head(self) -> CommitRecord:
        return self.publisher.refresh()

    def apply(self, *statements: Statement, **options: Any) -> Receipt:
        return self.graph.apply(statements, **options)

    def fail(self, plan: FaultPlan) -> FaultPlan:
        """From now on requests fail as planned."""
        self.faults.plan = plan
        return plan

    def publish(self, kind: Any, **fields: Any) -> PublishOutcome:
        """Hand a plan straight to the publisher: for records whose verbs live elsewhere."""
        clock = self.backend.clock
        plan = PublishPlan(kind, self.backend.ids.ulid(), fields.pop("base", None) or self.head, **fields)
        return self.publisher.publish(plan, clock.monotonic() + self.backend.config.publish_deadline_s)

    @contextmanager
    def hold_at(self, point: str, work: Callable[[], A], nth: int = 1) -> Iterator[Future[A]]:
        """`work` in a thread of its own, standing at `point` for as long as the block runs."""
        with self.pauses.hold(point, nth) as hold:
            running = self._bed.start(work)
            hold.wait_reached(WAIT_S)
            yield running

    def crash_at(self, point: str, work: Callable[[], object], nth: int = 1) -> None:
        """Run `work` until the process 'dies' at `point`; it must get there."""

        def die() -> None:
            raise ScenarioCrash(point)

        self.pauses.call_at(point, die, nth)
        try:
            work()
        except ScenarioCrash:
            return
        raise AssertionError(f"{point} was never reached: {self.pauses.points_reached}")

    def count_calls(self, name: str) -> list[str]:
        """The tables for which `backend.tables.<name>` is called from now on."""
        calls: list[str] = []
        tables = self.backend.tables
        original = getattr(tables, name)

        def count_call(*args: Any, **kwargs: Any) -> Any:
            calls.append(args[0].table if hasattr(args[0], "table") else str(args[0]))
            return original(*args, **kwargs)

        object.__setattr__(tables, name, count_call)
        return calls


class ScenarioBed:
    """One graph at one place."""

    def __init__(self, store_place: GraphLocation, fold: str, seed: str, schema: str = SCHEMA) -> None:
        self.place = store_place
        self.fold = fold
        self._seed = seed
        self._pool = ThreadPoolExecutor(80)
        self._processes: list[ScenarioProcess] = []
        omnigraph.init(store_place.uri, schema, storage_options=store_place.options, config=self.config())

    def config(self, **changes: Any) -> Config:
        return Config(**{**_QUICK, "fold": self.fold, **changes})

    def ids(self, config: Config) -> SystemIds:
        return SampledIds(f"{self._seed}/{len(self._processes)}")

    def process(
        self,
        branch: str = "main",
        *,
        read_only: bool = False,
        staged: bool = False,
        wrap: Callable[[Store], Store] | None = None,
        **config: Any,
    ) -> ScenarioProcess:
        """What a new process has: nothing seen yet, nothing shared. `staged` keeps its changes out of the records."""
        if staged:
            config["inline_share"] = 0
        process = ScenarioProcess(self, branch, read_only=read_only, wrap=wrap, config=self.config(**config))
        self._processes.append(process)
        return process

    def open(self, branch: str = "main", *, read_only: bool = False, **options: Any) -> Graph:
        """By the public door; all such handles of this process share one runtime."""
        return omnigraph.open(
            self.place.uri,
            branch,
            read_only=read_only,
            storage_options=self.place.options,
            config=self.config(),
            **options,
        )

    def start(self, work: Callable[[], A]) -> Future[A]:
        return self._pool.submit(work)

    def spread(self, work: Callable[[B], A], items: Iterable[B]) -> list[A]:
        """`work` of every item, several at once."""
        return [future.result(WAIT_S) for future in [self._pool.submit(work, item) for item in items]]

    def store(self) -> Store:
        return self.place.store()

    def rows(self, type_name: str, branch: str = "main") -> dict[str, dict[str, Any]]:
        """What a new process sees; an id that is there twice is damage."""
        return rows_of(self.process(branch).graph, type_name)

    def ages(self, branch: str = "main") -> dict[str, int | None]:
        return {person_id: row["age"] for person_id, row in self.rows("Person", branch).items()}

    def edges(self, type_name: str = "Knows", branch: str = "main") -> set[tuple[str, str]]:
        return {(row["from"], row["to"]) for row in self.rows(type_name, branch).values()}

    def chain(self, branch: str = "main") -> list[CommitRecord]:
        """Every record of the branch's own stream, oldest first, read from the store; a hole or a fork fails."""
        return chain_of(self.process(branch))

    def logical(self, branch: str = "main") -> list[CommitRecord]:
        """The commits of the branch that changed something: what a test counts, whatever was folded between them."""
        return [record for record in self.chain(branch) if record.is_logical and record.seq > 0]

    def assert_sound(self) -> None:
        """Chain linear, pins built on each other, no id twice, counts right: for every record of every stream."""
        violations = structure_violations(self.process().runtime)
        assert not violations, "\n".join(violations)

    def close(self) -> None:
        for process in self._processes:
            process.pauses.release_all()
        self._pool.shutdown(wait=True)
        for process in self._processes:
            process.backend.close()


def chain_of(process: ScenarioProcess) -> list[CommitRecord]:
    """The records of a process's stream from its birth to its head; each must name the one before as its parent."""
    head = process.head
    records: RecordStream = process.runtime.records(head.stream)
    chain = [records.record(seq) for seq in range(head.seq + 1)]
    for older, newer in itertools.pairwise(chain):
        assert newer.header.parents[0] == older.ref, f"{newer.commit_id} does not follow {older.commit_id}"
    assert records.get(head.seq + 1) is None
    return chain


def rows_of(graph: Any, type_name: str) -> dict[str, dict[str, Any]]:
    """Rows by id, of a graph or of a view."""
    rows = graph.table(type_name).to_arrow().to_pylist()
    by_id = {row["id"]: row for row in rows}
    assert len(by_id) == len(rows), f"an id of {type_name} is there twice: {sorted(row['id'] for row in rows)}"
    return by_id


def person(name: str, age: int | None = None, *, strict: bool = False, **values: Any) -> InsertNode:
    age_values = {"age": age} if age is not None else {}
    return InsertNode("Person", {"name": name, **age_values, **values}, strict=strict)


def company(name: str, size: int | None = None) -> InsertNode:
    return InsertNode("Company", {"name": name, "size": size})


def knows(source: str, target: str, **values: Any) -> InsertEdge:
    return InsertEdge("Knows", source, target, values)


def works_at(source: str, target: str, **values: Any) -> InsertEdge:
    return InsertEdge("WorksAt", source, target, values)


def by_name(name: str) -> Condition:
    return Compare("name", "=", name)


def without(name: str) -> Delete:
    return Delete("Person", by_name(name))


def set_age(name: str, age: int) -> Update:
    return Update("Person", {"age": age}, by_name(name))


def newest_key(process: ScenarioProcess) -> str:
    """The key of the newest record that a process sees."""
    return record_key(process.head.stream, process.head.seq)


def outcomes(futures: Iterable[Future[A]]) -> tuple[list[A], list[BaseException]]:
    """What was returned, and what was raised."""
    successes, failed = [], []
    for future in futures:
        error = future.exception(WAIT_S)
        if error is None:
            successes.append(future.result())
        else:
            failed.append(error)
    return successes, failed


def at_once(bed: ScenarioBed, works: Sequence[Callable[[], A]]) -> list[Future[A]]:
    """All of them, each in a thread of its own, from one common start."""
    barrier = threading.Barrier(len(works), timeout=WAIT_S)

    def run(work: Callable[[], A]) -> A:
        barrier.wait()
        return work()

    return [bed.start(partial(run, work)) for work in works]


def wait_until(condition: Callable[[], bool], description: str) -> None:
    """Return once `condition` holds. For states of the engine that announce themselves to nobody."""
    pause = threading.Event()
    for _ in range(int(WAIT_S * 1000)):
        if condition():
            return
        pause.wait(0.001)
    raise TimeoutError(f"waited in vain for {description}")


def local_path(store_place: GraphLocation, key: str) -> str:
    return os.path.join(store_place.uri, key)
