"""Prometheus counters of what the server did and what it cost; always on.

Requests through the object-store seam are counted one by one, under the operation whose context made them. Lance
counts its own requests; those since the last `collect` are added to the operation that collects. So the totals are
exact, and the shares of operations that ran at the same time are approximate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

from opentelemetry import trace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from omnigraph.storage.lance import IoStats, TableStore
from omnigraph.storage.metering import MeteredStore, Request
from omnigraph.storage.store import Store

BACKGROUND = "background"
_STAGES = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

_operation: ContextVar[str] = ContextVar("omnigraph_operation", default=BACKGROUND)
_tracer = trace.get_tracer("omnigraph.server")


class Metrics:
    """All instruments of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.storage_ops = Counter(
            "storage_ops_total",
            "Requests to the object store; LANCE_READ and LANCE_WRITE are those that Lance made by itself.",
            ("operation", "method"),
            registry=self.registry,
        )
        self.storage_stages = Histogram(
            "storage_stages",
            "Requests of one operation that had to wait for each other; Lance's count one each.",
            ("operation",),
            buckets=_STAGES,
            registry=self.registry,
        )
        self.operation_seconds = Histogram(
            "operation_seconds", "Time of one operation.", ("operation",), buckets=_SECONDS, registry=self.registry
        )
        self.requests = Counter(
            "http_requests_total", "Answers by operation and status.", ("operation", "status"), registry=self.registry
        )
        self.in_flight = Gauge("http_requests_in_flight", "Requests being worked on.", registry=self.registry)
        self.refused = Counter(
            "http_refused_total", "Requests not begun, by reason.", ("code",), registry=self.registry
        )
        self._meters: list[Meter] = []

    def meter(self) -> Meter:
        """A meter for one more graph."""
        meter = Meter(self)
        self._meters.append(meter)
        return meter

    def page(self) -> bytes:
        """The text that Prometheus reads. Requests of Lance outside of operations are counted first."""
        for meter in self._meters:
            meter.collect(BACKGROUND)
        return generate_latest(self.registry)


class Meter:
    """Counts the requests of one graph."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lock = Lock()
        self._tables: TableStore | None = None
        self._counted = IoStats(0, 0, 0, 0)
        self._store: MeteredStore | None = None

    def wrap(self, store: Store) -> Store:
        """The store with its requests counted. Passed to `make_backend`, which wraps its store with it."""
        self._store = MeteredStore(store, listener=self._count_requests)
        return self._store

    def watch(self, tables: TableStore) -> None:
        self._tables = tables

    def collect(self, operation: str) -> int:
        """Count the requests of Lance since the last call, and return their number."""
        if self._tables is None:
            return 0
        with self._lock:
            now = self._tables.io_stats()
            spent, self._counted = now - self._counted, now
        ops = self._metrics.storage_ops
        if spent.read_iops > 0:
            ops.labels(operation, "LANCE_READ").inc(spent.read_iops)
        if spent.write_iops > 0:
            ops.labels(operation, "LANCE_WRITE").inc(spent.write_iops)
        return max(0, spent.read_iops) + max(0, spent.write_iops)

    @contextmanager
    def operation(self, name: str) -> Iterator[None]:
        """One logical operation of the calling thread: a span, its requests, stages and seconds."""
        token = _operation.set(name)
        try:
            with (
                _tracer.start_as_current_span(f"omnigraph.{name}") as span,
                self._metrics.operation_seconds.labels(name).time(),
            ):
                if self._store is None:
                    yield
                    self.collect(name)
                    return
                with self._store.measure(name, this_context_only=True) as window:
                    try:
                        yield
                    finally:
                        lance = self.collect(name)
                        stages = window.hops + lance
                        self._metrics.storage_stages.labels(name).observe(stages)
                        span.set_attribute("storage.ops", len(window.log) + lance)
                        span.set_attribute("storage.stages", stages)
        finally:
            _operation.reset(token)

    def _count_requests(self, requests: Sequence[Request]) -> None:
        name = _operation.get()
        for request in requests:
            self._metrics.storage_ops.labels(name, request.kind.value).inc()
