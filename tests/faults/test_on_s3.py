"""Lance's own requests fail as well: the twin of the sweeps on an S3 server, struck through a proxy (S45–S47, S145).

obstore and Lance repeat a failed request by themselves, so that a single one is usually absorbed; an outage is one
that lasts to the end of the operation.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.atomicity import DIED, AtomicityCheck, FaultAnswer, attempt, next_write
from tests.faults.faulty_process import FaultyProcess, content_of
from tests.faults.operations import BY_NAME, FaultOperation
from tests.faults.workers import run_until_killed
from tests.support.processes import Workers
from tests.support.proxy import Proxy
from tests.support.proxy_faults import How
from tests.support.s3 import S3Place, ServerProcess, fresh_bucket

pytestmark = pytest.mark.s3

_STRUCK = ("insert-keyed", "insert-staged", "several-tables-staged", "fold", "branch-create", "delete-cascade-staged")
_ONCE: tuple[How, ...] = ("503", "500", "429", "drop_request", "drop_answer", "503_after", "409")
_OUTAGES: tuple[How, ...] = ("503", "500", "429", "403", "drop_request")
_CLASSES = {
    "insert-keyed": ["record"],
    "insert-staged": ["table-data", "table-manifest", "table-txn", "record"],
    "several-tables-staged": ["table-data", "table-manifest", "table-deletion", "record"],
    "fold": ["table-data", "table-manifest", "table-deletion", "record"],
    "branch-create": ["record", "registry"],
    "delete-cascade-staged": ["table-deletion", "table-manifest", "record"],
}


class S3FaultBed:
    """Graphs on S3, reached by the writer through a proxy and by everybody else directly."""

    def __init__(self, proxy: Proxy, atomicity: AtomicityCheck) -> None:
        self.proxy = proxy
        self.atomicity = atomicity
        self.count = 0

    def graph(self, s3_place: S3Place) -> S3Place:
        """A fresh copy of the graph, straight from the directory that the local sweeps start from."""
        self.count += 1
        target = s3_place.below(str(self.count))
        store = target.object_store()
        template = self.atomicity.template
        for path in template.rglob("*"):
            if path.is_file():
                store.put(str(path.relative_to(template)), path.read_bytes())
        return target

    def writer(self, s3_place: S3Place, operation: FaultOperation) -> FaultyProcess:
        through = s3_place.through(self.proxy)
        # Real time: requests that a client repeats take their time, so the deadline is what is short.
        return FaultyProcess(
            through.uri, through.storage_options, hasty=False, publish_deadline_s=2.0, **operation.config
        )

    def check(self, operation: FaultOperation, s3_place: S3Place, answer: FaultAnswer, case: str) -> bool:
        before, after = self.atomicity.before_and_after(operation)
        now = content_of(s3_place.uri, s3_place.storage_options)
        assert now in (before, after), f"{case}: neither before nor after"
        assert before == after or not answer.is_positive or now == after, f"{case}: acknowledged, but not there"
        assert before == after or not answer.is_negative or now == before, f"{case}: {answer.error!r}, but there"
        return now == after

    def go_on(self, operation: FaultOperation, s3_place: S3Place, happened: bool, case: str) -> None:
        """A new process finishes the work, and writes on."""
        process = FaultyProcess(s3_place.uri, s3_place.storage_options, **operation.config)
        try:
            if not happened:
                again = attempt(process, operation, operation.prepare(process))
                assert again.is_positive, f"{case}: the repetition failed with {again.error!r}"
                assert self.check(operation, s3_place, again, case)
            next_write(process.open())
        finally:
            process.close()


@pytest.fixture
def bed(s3_proxy: Proxy, atomicity: AtomicityCheck) -> S3FaultBed:
    return S3FaultBed(s3_proxy, atomicity)


@pytest.fixture
def ground(moto_server: ServerProcess) -> Iterator[S3Place]:
    with fresh_bucket(moto_server) as place:
        yield place


def _strike(
    bed: S3FaultBed, ground: S3Place, operation: FaultOperation, case: str, how: How, **where: Any
) -> FaultAnswer:
    target = bed.graph(ground)
    process = bed.writer(target, operation)
    try:
        prepared = operation.prepare(process)
        fault = bed.proxy.fail(how, **where)
        answer = attempt(process, operation, prepared)
        bed.proxy.clear_faults()
        assert fault.hits, f"{case}: nothing was struck"
        bed.go_on(operation, target, bed.check(operation, target, answer, case), case)
        return answer
    finally:
        process.close()


@pytest.mark.parametrize("name", _STRUCK)
def test_one_request_fails(name: str, bed: S3FaultBed, ground: S3Place, sweep_seed: int) -> None:
    """A request of each class, in a way that the seed picks: absorbed, or a typed and true answer. S47, S145"""
    chance = random.Random(f"{sweep_seed}/s3/{name}")
    for key_class in _CLASSES[name]:
        how = chance.choice(_ONCE if key_class in ("record", "registry") else _ONCE[:-1])
        case = f"{name}: {how} once at {key_class}"
        answer = _strike(bed, ground, BY_NAME[name], case, how, method="PUT", key_class=key_class)
        assert answer.is_positive, f"{case}: a single failure was not absorbed: {answer.error!r}"


@pytest.mark.parametrize("name", _STRUCK)
def test_an_outage(name: str, bed: S3FaultBed, ground: S3Place, sweep_seed: int) -> None:
    """All requests of a class fail from some moment on: typed, true, and over with the outage. S47, S145"""
    chance = random.Random(f"{sweep_seed}/s3-outage/{name}")
    key_class = chance.choice(_CLASSES[name])
    how = chance.choice(_OUTAGES)
    case = f"{name}: {how} for good at {key_class}"
    answer = _strike(bed, ground, BY_NAME[name], case, how, method="PUT", key_class=key_class, times=None)
    assert answer.error is not None, f"{case}: acknowledged"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["503", "403", "drop_request"])  # 500 and 429 are tried again just as 503 is
@pytest.mark.parametrize("name", _STRUCK)
def test_every_outage(name: str, how: How, bed: S3FaultBed, ground: S3Place) -> None:
    """S47, S145"""
    for key_class in _CLASSES[name]:
        case = f"{name}: {how} for good at {key_class}"
        answer = _strike(bed, ground, BY_NAME[name], case, how, method="PUT", key_class=key_class, times=None)
        assert answer.error is not None, f"{case}: acknowledged"


@pytest.mark.slow
@pytest.mark.parametrize("how", _ONCE)
@pytest.mark.parametrize("name", _STRUCK)
def test_every_class_fails_once(name: str, how: How, bed: S3FaultBed, ground: S3Place) -> None:
    """S47, S145"""
    for key_class in _CLASSES[name]:
        if how == "409" and key_class not in ("record", "registry"):
            continue  # only a conditional PUT is answered so
        case = f"{name}: {how} once at {key_class}"
        answer = _strike(bed, ground, BY_NAME[name], case, how, method="PUT", key_class=key_class)
        assert answer.is_positive, f"{case}: a single failure was not absorbed: {answer.error!r}"


def _kill(bed: S3FaultBed, ground: S3Place, operation: FaultOperation, n: int) -> bool:
    """SIGKILL right after the n-th PUT of any kind has had its effect; whether there was one."""
    target = bed.graph(ground)
    through = target.through(bed.proxy)
    args = {"uri": through.uri, "operation": operation.name, "options": through.storage_options}
    case = f"{operation} killed after PUT {n}"
    with Workers(run_until_killed, 1, args) as workers:
        workers.wait_for(lambda: all(worker.is_ready or worker.has_ended for worker in workers.workers), "the child")
        fault = bed.proxy.fail("drop_answer", nth=n, method="PUT", on_hit=workers.workers[0].kill)
        workers.start()
        result = workers.wait()[0]
    bed.proxy.clear_faults()
    assert result.killed == bool(fault.hits), f"{case}: {result}"
    answer = DIED if result.killed else FaultAnswer(result.value)
    bed.go_on(operation, target, bed.check(operation, target, answer, case), case)
    return result.killed


@pytest.mark.parametrize("name", ["insert-staged", "fold"])
def test_killed_after_some_put(name: str, bed: S3FaultBed, ground: S3Place, sweep_seed: int) -> None:
    """Data file, transaction, manifest or record: what is named is there, what is there unnamed is garbage. S43–S46"""
    n = random.Random(f"{sweep_seed}/s3-kill/{name}").randint(1, 4)
    assert _kill(bed, ground, BY_NAME[name], n)


@pytest.mark.slow
@pytest.mark.parametrize("name", _STRUCK)
def test_killed_after_every_put(name: str, bed: S3FaultBed, ground: S3Place) -> None:
    """S43–S46"""
    n = 1
    while _kill(bed, ground, BY_NAME[name], n):
        n += 1
    assert n > 1


@pytest.mark.parametrize("name", ["insert-keyed", "insert-staged", "fold"])
def test_a_record_arrives_late(name: str, bed: S3FaultBed, ground: S3Place) -> None:
    """The client gave the PUT up and sent it again; then the first one arrives: it finds its place taken. H24, S48"""
    operation = BY_NAME[name]
    target = bed.graph(ground)
    process = bed.writer(target, operation)
    try:
        prepared = operation.prepare(process)
        late = bed.proxy.fail("arrive_late", method="PUT", key_class="record")
        answer = attempt(process, operation, prepared)
        assert answer.is_positive, answer.error
        late.release()
        late.wait_done()
        bed.go_on(operation, target, bed.check(operation, target, answer, name), name)
    finally:
        process.close()
