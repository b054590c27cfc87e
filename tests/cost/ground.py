"""Where costs are measured: a graph of a given shape, and actors whose every request is counted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from omnigraph.api import Graph, make_backend
from omnigraph.api.open_graph import open_branch
from omnigraph.commit.birth import init_graph
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.config import Config
from omnigraph.log.commit_record import CommitRecord, decode_record, parse_commit_id
from omnigraph.log.stream import record_key
from omnigraph.query.language.statements import InsertEdge, InsertNode, Statement
from omnigraph.schema.compile import compile_schema
from omnigraph.storage.address import open_store
from omnigraph.storage.metering import MeteredStore
from omnigraph.storage.store import ObjectMissing, Store
from tests.cost.budget import Cost
from tests.support.proxy import Proxy
from tests.support.s3 import S3Place
from tests.support.throttled_store import ThrottledStore
from tests.support.traffic import Traffic

INLINE = Config(fsync=False, fold="never")
STAGED = Config(fsync=False, fold="never", inline_share=0)

#: Long enough that requests which start together overlap on a busy machine, see `Measurement.hops`.
LOCAL_LATENCY_S = 0.02
WIRE_LATENCY_S = 0.15  # sixteen parallel requests must overlap on a busy machine too

_BASE_SCHEMA = """
node Note { text: String }
node Person { name: String @key  email: String? @unique  age: I32? }
edge Knows: Person -> Person { since: I32? }
"""
_BASE_TABLES = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """How much there is already: commits on main, types, branches (main included)."""

    depth: int = 1
    tables: int = _BASE_TABLES
    branches: int = 1

    def __str__(self) -> str:
        return f"depth {self.depth}, {self.tables} tables, {self.branches} branches"


def schema_of(tables: int) -> str:
    """A schema of so many types: three that operations use, the rest to fill."""
    return _BASE_SCHEMA + "".join(f"node Filler{n:03d} {{ text: String }}\n" for n in range(tables - _BASE_TABLES))


@dataclass
class CostGround:
    """A place for one graph: a directory, or an S3 server that is reached through a measuring proxy."""

    uri: str
    options: dict[str, str] | None = None
    proxy: Proxy | None = None
    _tags: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def on_s3(cls, s3_place: S3Place, proxy: Proxy) -> CostGround:
        return cls(s3_place.uri, s3_place.storage_options, proxy)

    def tag(self, what: str = "x") -> str:
        """A name that was not used here before."""
        return f"{what}{next(self._tags)}"

    def record(self, commit_id: str) -> CommitRecord:
        """The commit as the bare store has it."""
        stream, seq = parse_commit_id(commit_id)
        key = record_key(stream, seq)
        record = decode_record(self._store().get(key), key)
        assert isinstance(record, CommitRecord)
        return record

    def has_record(self, commit_id: str | None) -> bool:
        """Whether a commit landed, asked of the bare store: a refused write is cheap."""
        try:
            return commit_id is not None and self.record(commit_id).commit_id == commit_id
        except ObjectMissing:
            return False

    def count_registry_entries(self, branch: str) -> int:
        """How many registry entries a branch name has: odd while it lives."""
        return len(self._store().list(f"__branches/{branch}/"))

    def keys(self, prefix: str = "") -> list[str]:
        return [entry.key for entry in self._store().list(prefix)]

    def _store(self) -> Store:
        return open_store(self.uri, self.options, fsync=False)


class Gauge:
    """The result of one measured stretch; complete once its `with` block has ended."""

    cost: Cost  # on the wire where there is one, else as metered
    metered: Cost

    def check_agreement(self) -> None:
        """What we count ourselves, and show in production, is what goes over the wire."""
        assert self.metered.without_tables == self.cost.without_tables
        assert (self.metered.table_reads, self.metered.table_writes) == (self.cost.table_reads, self.cost.table_writes)


class MeteredActor:
    """What one process would hold: its own runtime, publisher, caches, and a meter around its store.

    `layer` is put on top of the meter: a place for requests that should not be there.
    """

    def __init__(
        self,
        ground: CostGround,
        config: Config = INLINE,
        *,
        layer: Callable[[Store], Store] | None = None,
        read_only: bool = False,
    ) -> None:
        self.ground = ground
        self._layer = layer
        self._read_only = read_only
        self.backend = make_backend(ground.uri, ground.options, config, wrap=self._wrap)
        self.runtime: GraphRuntime
        self.graph: Graph

    def open(self, branch: str = "main") -> MeteredActor:
        """Cold: nothing was read before."""
        self.runtime = GraphRuntime.open(self.backend, read_only=self._read_only)
        self.graph = open_branch(self.runtime, branch)
        return self

    def init(self, tables: int) -> None:
        init_graph(self.backend, compile_schema(schema_of(tables), mint=lambda: self.backend.ids.token(8)))

    @contextmanager
    def measure(self) -> Iterator[Gauge]:
        """Count everything this actor asks of the store in the block, at a latency that shows what is parallel."""
        with self._slowly(), self.measure_at_full_speed() as gauge:
            yield gauge

    @contextmanager
    def measure_at_full_speed(self) -> Iterator[Gauge]:
        """Count the same without latency: the hops then say little."""
        gauge = Gauge()
        before = self.backend.tables.io_stats()
        with self._meter.measure() as metered, self._on_the_wire() as wire:
            yield gauge
        gauge.metered = Cost.from_meters(metered, self.backend.tables.io_stats() - before)
        gauge.cost = gauge.metered if wire is None else Cost.on_the_wire(wire)

    def close(self) -> None:
        self.backend.close()

    @contextmanager
    def _on_the_wire(self) -> Iterator[Traffic | None]:
        if self.ground.proxy is None:
            yield None
            return
        with self.ground.proxy.measure() as traffic:
            yield traffic

    @contextmanager
    def _slowly(self) -> Iterator[None]:
        slow: ThrottledStore | Proxy = self._throttle
        latency_s = LOCAL_LATENCY_S
        if self.ground.proxy is not None:
            slow, latency_s = self.ground.proxy, WIRE_LATENCY_S
        slow.latency_s = latency_s
        try:
            yield
        finally:
            slow.latency_s = 0.0

    def _wrap(self, store: Store) -> Store:
        self._throttle = ThrottledStore(store, 0.0)
        self._meter = MeteredStore(self._throttle)
        return self._layer(self._meter) if self._layer else self._meter


@contextmanager
def acting(ground: CostGround, config: Config = INLINE, *, branch: str = "main") -> Iterator[MeteredActor]:
    """An actor that has opened a branch, for the time of the block."""
    actor = MeteredActor(ground, config).open(branch)
    try:
        yield actor
    finally:
        actor.close()


def build(ground: CostGround, shape: Shape) -> None:
    """A graph of that shape. Every type has a row in a table of its own, so that every record names every pin."""
    birth = MeteredActor(ground)
    birth.init(shape.tables)
    birth.close()
    fillers: list[Statement] = [
        InsertNode(f"Filler{n:03d}", {"text": "here"}) for n in range(shape.tables - _BASE_TABLES)
    ]
    people: list[Statement] = [InsertNode("Person", {"name": name}) for name in ("ada", "bob", "busy")]
    with acting(ground, STAGED) as builder:
        first = builder.graph.apply([*people, InsertNode("Note", {"text": "here"}), *fillers])
        builder.graph.apply([InsertEdge("Knows", "ada", "bob")])
        assert ground.has_record(first.commit_id)
    deepen(ground, shape.depth)
    with acting(ground) as builder:
        for number in range(shape.branches - 1):
            builder.graph.branch.create(f"branch{number}").apply([InsertNode("Note", {"text": "there"})])


def deepen(ground: CostGround, depth: int) -> None:
    """Commits on main until its newest has the number `depth`: always of the same row, so that nothing else grows."""
    with acting(ground) as builder:
        for _ in range(builder.graph._branch.publisher.head.seq, depth):
            builder.graph.apply([InsertNode("Person", {"name": "busy"})])
