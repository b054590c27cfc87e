"""What is counted, under which operation, and what a tracer hears."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.clock import SystemClock
from omnigraph.config import Config
from omnigraph.errors import NotFound
from omnigraph.server import metrics as module
from omnigraph.server.hosting import HostedGraph
from omnigraph.server.metrics import Metrics
from omnigraph.server.settings import settings_for_address
from tests.server.bed import ADD, ALL, PEOPLE, metric

STAGED = Config(fsync=False, fold="never", inline_share=0)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def hosted_graph(tmp_path: Path, metrics: Metrics) -> Iterator[HostedGraph]:
    og.init(tmp_path / "own", PEOPLE, config=STAGED)
    hosted_graph = HostedGraph(settings_for_address(str(tmp_path / "own")), metrics, STAGED, SystemClock())
    hosted_graph.runtime()
    yield hosted_graph
    hosted_graph.close()


def test_operations_at_the_same_time_keep_their_own_requests(hosted_graph: HostedGraph, metrics: Metrics) -> None:
    """The store's requests are exact per operation; Lance's are exact in all."""
    hosted_graph.with_branch(None, lambda g: g.mutate(ADD, {"n": "warm"}))
    before = metrics.page().decode()
    stats = hosted_graph.runtime().backend.tables.io_stats()
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait(30)
        name = "even" if number % 2 == 0 else "odd"
        with hosted_graph.meter.operation(name):
            hosted_graph.with_branch(None, lambda g: g.query(ALL))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = metrics.page().decode()
    for name in ("even", "odd"):
        assert metric(after, "storage_ops_total", operation=name, method="GET") == 4
        assert metric(after, "storage_stages_count", operation=name) == 4
    spent = hosted_graph.runtime().backend.tables.io_stats() - stats
    reads = metric(after, "storage_ops_total", method="LANCE_READ") - metric(
        before, "storage_ops_total", method="LANCE_READ"
    )
    assert reads == spent.read_iops


def test_work_beside_an_operation_is_its_own(hosted_graph: HostedGraph, metrics: Metrics) -> None:
    """Requests that other threads make on behalf of an operation are charged to it."""
    hosted_graph.with_branch(None, lambda g: g.refresh())
    before = metrics.page().decode()
    with hosted_graph.meter.operation("fork"):
        hosted_graph.with_branch(None, lambda g: g.branch.create("x"))
    text = metrics.page().decode()
    elsewhere = {"operation": module.BACKGROUND}
    assert metric(text, "storage_ops_total", **elsewhere) == metric(before, "storage_ops_total", **elsewhere)
    assert metric(text, "storage_ops_total", operation="fork", method="PUT") == 2
    assert metric(text, "storage_ops_total", operation="fork", method="GET") >= 2


def test_a_failed_operation_is_counted(hosted_graph: HostedGraph, metrics: Metrics) -> None:
    with pytest.raises(NotFound), hosted_graph.meter.operation("bad"):
        hosted_graph.with_branch(None, lambda g: g.at("01ARZ3NDEKTSV4RRFFQ69G5FAV.0"))
    text = metrics.page().decode()
    assert metric(text, "storage_ops_total", operation="bad", method="GET") >= 1
    assert metric(text, "storage_stages_count", operation="bad") == 1
    with hosted_graph.meter.operation("good"):
        pass
    assert metric(metrics.page().decode(), "storage_ops_total", operation="good") == 0


def test_a_span_per_operation(hosted_graph: HostedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    spans: list[tuple[str, dict[str, Any]]] = []

    class Span:
        def __init__(self, name: str) -> None:
            spans.append((name, {}))

        def set_attribute(self, name: str, value: Any) -> None:
            spans[-1][1][name] = value

    class Tracer:
        @contextmanager
        def start_as_current_span(self, name: str) -> Iterator[Span]:
            yield Span(name)

    monkeypatch.setattr(module, "_tracer", Tracer())
    with hosted_graph.meter.operation("mutate"):
        hosted_graph.with_branch(None, lambda g: g.mutate(ADD, {"n": "Ada"}))
    name, facts = spans[0]
    assert name == "omnigraph.mutate"
    assert facts["storage.ops"] >= facts["storage.stages"] >= 4
