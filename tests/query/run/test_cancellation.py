"""A query can be stopped from another thread, before it starts, between its steps, and inside DuckDB."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.clock import SystemClock
from omnigraph.config import Config
from omnigraph.errors import InvalidInput
from omnigraph.query.limits import Cancellation, Deadline, QueryLimits

SLOW = """query slow() {
    match { $a: Person  $b: Person  $c: Person  $a.name != $b.name  $b.name != $c.name  $a.name != $c.name }
    return { count($a) as n }
}"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g", "node Person { name: String @key }\n", config=Config(fsync=False))
    add = "query add($n: String) { insert Person { name: $n } }"
    graph.mutate_many(add, [{"n": f"p{number}"} for number in range(1500)])
    return graph


def test_cancel_inside_duckdb_stops_the_query(graph: og.Graph) -> None:
    cancellation = Cancellation()
    timer = threading.Timer(0.5, cancellation.cancel)
    timer.start()
    with pytest.raises(InvalidInput) as stopped:
        graph.query(SLOW, limits=QueryLimits(timeout_s=120, cancellation=cancellation))
    timer.join()
    assert stopped.value.code == "cancelled"
    # The engine that was interrupted is fit for the next query.
    assert graph.query("query all() { match { $p: Person } return { count($p) as n } }").rows == [{"n": 1500}]


def test_cancel_before_start_stops_the_query(graph: og.Graph) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(InvalidInput) as stopped:
        graph.query(SLOW, limits=QueryLimits(cancellation=cancellation))
    assert stopped.value.code == "cancelled"


def test_an_interrupt_comes_only_inside_the_block() -> None:
    heard: list[str] = []
    cancellation = Cancellation()
    deadline = Deadline(SystemClock(), 60, cancellation)
    with deadline.interrupting(lambda: heard.append("first")):
        cancellation.cancel()
    assert heard == ["first"]
    with pytest.raises(InvalidInput), deadline.interrupting(lambda: heard.append("second")):
        raise AssertionError("must not get here")
    cancellation.cancel()
    assert heard == ["first"]


def test_a_timer_that_outlives_its_query_holds_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may end in the very moment after a query: what the timer's thread holds then would never be freed."""

    class Engine:
        def interrupt(self) -> None:
            raise AssertionError("in time")

    timers: list[threading.Timer] = []
    cancel = threading.Timer.cancel
    monkeypatch.setattr(threading.Timer, "cancel", lambda timer: timers.append(timer))
    engine = Engine()
    engine_ref = weakref.ref(engine)
    with Deadline(SystemClock(), 60.0).interrupting(engine.interrupt):
        pass
    del engine
    gc.collect()
    assert [timer.is_alive() for timer in timers] == [True]
    assert engine_ref() is None
    cancel(timers[0])
