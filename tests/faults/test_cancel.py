"""A caller is interrupted at each named point: nothing is visible or everything, and nobody else is held up (S7)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from omnigraph.api import Graph
from omnigraph.errors import Unavailable, Unknown
from omnigraph.query.language.statements import InsertNode
from tests.faults.atomicity import DIED, AtomicityCheck, FaultAnswer, attempt
from tests.faults.faulty_process import FaultyProcess
from tests.faults.operations import BY_NAME, OPERATIONS, FaultOperation
from tests.scenarios.bed import wait_until

_PLACES = [(one, point) for one in OPERATIONS for point in one.points]
_IDS = [f"{one}-{point}" for one, point in _PLACES]
_WAIT_S = 30.0


def _interrupt() -> None:
    raise KeyboardInterrupt


def _names(graph: Graph) -> list[str]:
    names: list[str] = graph.table("Person").to_arrow(["name"])["name"].to_pylist()
    return sorted(names)


@pytest.mark.parametrize(("operation", "point"), _PLACES, ids=_IDS)
def test_interrupted_at_a_named_point(
    operation: FaultOperation, point: str, atomicity: AtomicityCheck, tmp_path: Path
) -> None:
    """Ctrl-C: whole or nothing; the same handle then finishes the work, and so does everybody else. S7"""
    uri = atomicity.start(operation, tmp_path / "graph")
    process = FaultyProcess(uri, **operation.config)
    case = f"{operation} interrupted at {point}"
    try:
        prepared = operation.prepare(process)
        process.pauses.call_at(point, _interrupt)
        with pytest.raises(KeyboardInterrupt):
            operation.run(process, prepared)
        happened = atomicity.check(operation, uri, DIED, case)
        assert happened or not point.endswith("after-record") or operation.name == "fold", case
        if not happened:
            answer = attempt(process, operation, prepared)
            assert answer.is_positive, f"{case}: the same handle then fails with {answer.error!r}"
            happened = atomicity.check(operation, uri, answer, case)
    finally:
        process.close()
    atomicity.finish(operation, uri, happened, case, thorough=False)


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "point"), _PLACES, ids=_IDS)
def test_an_error_at_a_named_point(
    operation: FaultOperation, point: str, atomicity: AtomicityCheck, tmp_path: Path
) -> None:
    """The same with a typed error, which before the record is the answer. S6"""
    uri = atomicity.start(operation, tmp_path / "graph")
    process = FaultyProcess(uri, **operation.config)
    case = f"{operation} failed at {point}"
    try:
        prepared = operation.prepare(process)
        process.pauses.fail_at(point, Unavailable("injected: this point failed", code="injected_fault"))
        answer = attempt(process, operation, prepared)
        # A point after the record is no place where the engine itself fails; that it is whole is all that is asked.
        judged_answer = (
            FaultAnswer(died=True) if "after" in point or "registry" in point or "stamped" in point else answer
        )
        happened = atomicity.check(operation, uri, judged_answer, case)
    finally:
        process.close()
    atomicity.finish(operation, uri, happened, case, thorough=False)


def test_a_waiting_writer_is_interrupted(atomicity: AtomicityCheck, tmp_path: Path) -> None:
    """It waits behind a record in flight; its write is not published, and the leader does not notice. S7"""
    uri = atomicity.start(BY_NAME["insert-keyed"], tmp_path / "graph")
    process = FaultyProcess(uri)
    graph = process.open()
    with ThreadPoolExecutor(1) as pool, process.pauses.hold("write.before-record") as hold:
        leading = pool.submit(graph.apply, [InsertNode("Person", {"name": "leader"})])
        hold.wait_reached(_WAIT_S)
        waiting = _Interruptible(lambda: graph.apply([InsertNode("Person", {"name": "waiter"})]))
        wait_until(lambda: len(graph._branch.publisher._queue) == 2, "the second writer to queue")
        waiting.interrupt()
        hold.release()
        assert leading.result(_WAIT_S).commit_id
        waiting.join()
    assert isinstance(waiting.raised, KeyboardInterrupt)
    graph.apply([InsertNode("Person", {"name": "later"})])
    names = _names(graph)
    assert {"leader", "later"} <= set(names)
    assert names == _names(FaultyProcess(uri).open())
    process.close()


@pytest.mark.parametrize("point", ["write.before-record", "write.after-record"])
def test_the_leader_of_a_group_is_interrupted(point: str, atomicity: AtomicityCheck, tmp_path: Path) -> None:
    """Others ride in the record of the interrupted one: they get a true answer, and the queue moves on. S7, S38"""
    uri = atomicity.start(BY_NAME["insert-keyed"], tmp_path / "graph")
    process = FaultyProcess(uri)
    graph = process.open()
    names = [f"g{number}" for number in range(4)]
    with ThreadPoolExecutor(5) as pool:
        with process.pauses.hold("write.before-record") as hold:
            first = pool.submit(graph.apply, [InsertNode("Person", {"name": "first"})])
            hold.wait_reached(_WAIT_S)
            process.pauses.call_at(point, _interrupt, 2 if point.endswith("after-record") else 1)
            group = [pool.submit(graph.apply, [InsertNode("Person", {"name": name})]) for name in names]
            wait_until(lambda: len(graph._branch.publisher._queue) == 5, "all writers to queue")
        assert first.result(_WAIT_S).commit_id
        errors = [one.exception(_WAIT_S) for one in group]
    assert sum(isinstance(one, KeyboardInterrupt) for one in errors) == 1
    there = set(_names(FaultyProcess(uri).open()))
    for name, error in zip(names, errors, strict=True):
        assert error is None or isinstance(error, (KeyboardInterrupt, Unknown)), error
        if error is None:
            assert name in there
    landed = there & set(names)
    assert landed in (set(names), {name for name, error in zip(names, errors, strict=True) if error is None})
    graph.apply([InsertNode("Person", {"name": "later"})])
    assert "later" in _names(graph)
    process.close()


@pytest.mark.parametrize("name", ["insert-keyed", "insert-staged", "several-tables-staged", "fold", "branch-create"])
def test_interrupted_anywhere(name: str, atomicity: AtomicityCheck, tmp_path: Path) -> None:
    """From another thread, while the writer stands at a point: the exception comes up wherever it goes on. S7"""
    operation = BY_NAME[name]
    for number, point in enumerate(operation.points):
        uri = atomicity.start(operation, tmp_path / str(number))
        process = FaultyProcess(uri, **operation.config)
        prepared = operation.prepare(process)
        with process.pauses.hold(point) as hold:
            running = _Interruptible(partial(operation.run, process, prepared))
            hold.wait_reached(_WAIT_S)
            running.interrupt()
        running.join()
        assert isinstance(running.raised, KeyboardInterrupt)
        case = f"{operation} interrupted from outside at {point}"
        happened = atomicity.check(operation, uri, DIED, case)
        process.close()
        atomicity.finish(operation, uri, happened, case, thorough=False)


class _Interruptible:
    """Work in a thread that can be sent a KeyboardInterrupt."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.raised: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def interrupt(self) -> None:
        assert self._thread.ident is not None
        sent = ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(self._thread.ident), ctypes.py_object(KeyboardInterrupt)
        )
        assert sent == 1

    def join(self) -> None:
        self._thread.join(_WAIT_S)
        assert not self._thread.is_alive(), "it hangs"

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - that is what is looked at
            self.raised = error
