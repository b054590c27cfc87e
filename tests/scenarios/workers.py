"""What the child processes of the scenarios do."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import omnigraph
from omnigraph.api import Graph, make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.config import Config
from omnigraph.errors import OmnigraphError
from tests.scenarios.bed import SCHEMA, company, person, wait_until, works_at
from tests.support.pauses import ControlledPauses
from tests.support.processes import Link
from tests.support.throttled_store import ThrottledStore


def _config(config: dict[str, Any]) -> Config:
    return Config(**{"fsync": False, **config})


def insert_rows(link: Link, *, uri: str, config: dict[str, Any], rows: int, branch: str = "main") -> int:
    """Insert persons one by one, reporting each that was acknowledged."""
    graph = omnigraph.open(uri, branch, config=_config(config))
    link.ready()
    for number in range(rows):
        name = f"w{link.index}-{number}"
        graph.apply([person(name, number)])
        link.send(row=name)
    return rows


def insert_pairs(link: Link, *, uri: str, config: dict[str, Any], rows: int) -> int:
    """Insert a person, a company and an edge between them per commit; the three tables always agree."""
    graph = omnigraph.open(uri, config=_config(config))
    link.ready()
    for number in range(rows):
        name = f"w{link.index}-{number}"
        receipt = graph.apply([person(name, number), company(name, number), works_at(name, name)])
        link.send(row=name, commit_id=receipt.commit_id)
    return rows


def group_then_crash(link: Link, *, uri: str, config: dict[str, Any], point: str, writers: int) -> None:
    """One write is held while others gather behind it; the process dies at `point` of the record that holds them."""
    pauses = ControlledPauses()
    runtime = GraphRuntime.open(make_backend(uri, None, _config(config), pauses=pauses), read_only=False)
    graph = Graph(runtime, runtime.branch("main"))
    queue = graph._branch.publisher._queue
    pauses.crash_at(point, 2)
    with pauses.hold("write.before-record") as hold:
        writes = [[person("first")]] + [[person(f"g{number}")] for number in range(writers)]
        threads = [threading.Thread(target=graph.apply, args=(write,), daemon=True) for write in writes]
        threads[0].start()
        hold.wait_reached()
        for thread in threads[1:]:
            thread.start()
        wait_until(lambda: len(queue) == len(threads), "all writers to queue")
        link.send(queued=len(queue))
    for thread in threads:
        thread.join()


def write_then_die(link: Link, *, uri: str, config: dict[str, Any], window: str, client_key: str | None) -> None:
    """A write over three tables by a process that dies at `window`: a pause, or the n-th table's files or commit."""
    pauses = ControlledPauses()
    backend = make_backend(uri, None, _config(config), pauses=pauses)
    runtime = GraphRuntime.open(backend, read_only=False)
    graph = Graph(runtime, runtime.branch("main"))
    if "." in window:
        pauses.crash_at(window)
    else:
        verb, count = window.split()
        _die_after(backend.tables, verb, int(count))
    graph.apply([person("ada", 36), company("acme", 3), works_at("ada", "acme")], client_key=client_key)


def _die_after(tables: Any, verb: str, count: int) -> None:
    """Kill this process as soon as `tables.<verb>` has returned `count` times, one after the other."""
    original, lock, call_count = getattr(tables, verb), threading.Lock(), [0]

    def count_call(*args: Any, **kwargs: Any) -> Any:
        with lock:
            result = original(*args, **kwargs)
            call_count[0] += 1
            if call_count[0] == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

    setattr(tables, verb, count_call)


def init_graph(link: Link, *, uri: str) -> str:
    """Try to create the graph together with the others; what came of it."""
    link.ready()
    try:
        return omnigraph.init(uri, SCHEMA, config=_config({})).graph_id
    except OmnigraphError as error:
        return error.code


def write_rows(link: Link, *, uri: str, config: dict[str, Any], rows: int, threads: int) -> int:
    """Several threads on one handle insert rows, reporting each that was acknowledged or refused with a typed error."""
    graph = omnigraph.open(uri, config=_config(config))
    link.ready()
    failures: list[BaseException] = []

    def write(thread: int) -> None:
        try:
            for number in range(rows):
                name = f"w{link.index}-{thread}-{number}"
                _write_and_tell(link, graph, name, number)
        except BaseException as error:
            failures.append(error)
            raise

    running = [threading.Thread(target=write, args=(thread,)) for thread in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]
    return rows * threads


def _write_and_tell(link: Link, graph: Graph, name: str, number: int) -> None:
    started_s = time.monotonic()
    try:
        receipt = graph.apply([person(name, number)])
    except OmnigraphError as error:
        if not error.retryable:
            raise
        link.send(refused=name, code=error.code, seconds=time.monotonic() - started_s)
    else:
        link.send(
            row=name, commit_id=receipt.commit_id, attempts=receipt.attempts, seconds=time.monotonic() - started_s
        )


def write_for_a_while(
    link: Link, *, uri: str, config: dict[str, Any], latency_s: float, duration_s: float, least: int = 0
) -> int:
    """Commit again and again over a slow store; how many landed before the time was up.

    On a slow machine the time is up only when everybody together has landed `least` more than there were.
    """
    backend = make_backend(uri, None, _config(config), wrap=lambda store: ThrottledStore(store, latency_s))
    runtime = GraphRuntime.open(backend, read_only=False)
    graph = Graph(runtime, runtime.branch("main"))
    publisher = graph._branch.publisher
    link.ready()
    end_s, landed, end_seq = time.monotonic() + duration_s, 0, publisher.head.seq + least
    while time.monotonic() < end_s or publisher.head.seq < end_seq:
        graph.apply([person(f"w{link.index}", landed)])
        landed += 1
    return landed
