"""One process of the random test: it does random things to a graph, and writes down what it did and was told.

Every operation is written to the diary before it is submitted and its answer after it came, so that a process killed
at any instant leaves a true account: an operation without an answer may have landed once or not at all.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from omnigraph.api import Graph, make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.config import Config
from omnigraph.errors import (
    BranchClosed,
    ConstraintViolation,
    Contention,
    KeyConflict,
    NotFound,
    OmnigraphError,
    PreconditionFailed,
    ReadSetChanged,
    Unavailable,
    Unknown,
    WriterFenced,
)
from omnigraph.log.branches import BranchExists
from omnigraph.log.stream import record_key
from omnigraph.storage.keys import KeyClass
from omnigraph.storage.metering import RequestKind
from omnigraph.storage.store import ObjectMissing
from tests.oracle.model import KINDS, digest
from tests.oracle.operations import Dice, to_statements
from tests.schedules.rules import remove
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore
from tests.support.processes import Link
from tests.support.throttled_store import ThrottledStore

BRANCHES = ("main", "b0", "b1")
_KEYS = 40
_DEAD_AFTER = 6
"""So often in a row is a writer shut out before it takes the branch over from an owner that must be dead."""
_RATES = {
    Fault.FAIL_BEFORE: 0.015,
    Fault.LOSE_ANSWER: 0.015,
    Fault.EXISTS_WITHOUT_EFFECT: 0.015,
    Fault.EXISTS_AFTER_EFFECT: 0.015,
    Fault.KILL_AFTER: 0.002,
}
_ANSWERS: tuple[tuple[type[OmnigraphError], str], ...] = (
    (ConstraintViolation, "violation"),
    (KeyConflict, "key_conflict"),
    (PreconditionFailed, "precondition"),
    (ReadSetChanged, "read_set"),
    (BranchClosed, "closed"),
    (WriterFenced, "fenced"),
    (Contention, "contention"),
    (Unavailable, "unavailable"),
    (Unknown, "unknown"),
)


class Diary:
    """Lines that survive the writer: each is one write to the operating system."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._lock = threading.Lock()

    def write(self, **line: Any) -> None:
        with self._lock:
            os.write(self._file, json.dumps(line).encode() + b"\n")


class Observer:
    """The newest record of each stream as the store has it, without telling the engine about it."""

    def __init__(self, runtime: GraphRuntime) -> None:
        self._runtime = runtime
        self._seen: dict[str, int] = {}

    def newest(self, stream: str) -> int:
        seq = self._seen.get(stream, 0)
        while self._is_there(stream, seq + 1):
            seq += 1
        self._seen[stream] = seq
        return seq

    def _is_there(self, stream: str, seq: int) -> bool:
        try:
            self._runtime.backend.store.head(record_key(stream, seq))
        except ObjectMissing:
            return False
        return True


class OracleActor:
    """One thread of a worker."""

    def __init__(self, name: str, runtime: GraphRuntime, observer: Observer, diary: Diary, seed: str) -> None:
        self._name = name
        self._runtime = runtime
        self._observer = observer
        self._diary = diary
        self._chance = random.Random(seed)
        self._dice = Dice(self._chance)
        self._graphs: dict[str, Graph] = {}
        self._number = 0
        self._shut_out = 0

    def step(self) -> None:
        """One thing, chosen at random. Every typed answer is fine here; the oracle judges it."""
        roll = self._chance.random()
        try:
            if roll < 0.02:
                self._create_or_delete()
            elif roll < 0.08:
                self._fold()
            elif roll < 0.12:
                self._read()
            elif roll < 0.123:
                self._exclusively(self._graph())
            else:
                self._operate(self._graph())
        except (BranchClosed, NotFound, WriterFenced, BranchExists, Unavailable, Unknown, Contention):
            self._graphs.clear()

    def _graph(self) -> Graph:
        name = self._chance.choices(BRANCHES, (70, 15, 15))[0]
        if name not in self._graphs:
            self._graphs[name] = Graph(self._runtime, self._runtime.branch(name))
        return self._graphs[name]

    def _operate(self, graph: Graph) -> None:
        self._number += 1
        tag = f"{self._name}.{self._number}"
        operation = self._dice.operation(tag)
        stream = graph._branch.publisher.records.stream
        options = self._options(stream, graph)
        line = {"tag": tag, "stream": stream, "operation": operation, "options": options, "holder": graph._holder}
        self._diary.write(what="begin", **line, low=self._observer.newest(stream))
        answer = self._answer(lambda: graph.apply(to_statements(operation), actor=tag, **options))
        self._diary.write(what="end", tag=tag, **answer, high=self._observer.newest(stream))
        if answer["answer"] in ("closed", "fenced"):
            self._graphs.clear()
        self._shut_out = self._shut_out + 1 if answer["answer"] == "fenced" else 0
        if self._shut_out >= _DEAD_AFTER:
            self._shut_out = 0
            self._exclusively(graph)

    def _options(self, stream: str, graph: Graph) -> dict[str, Any]:
        roll = self._chance.random()
        if roll < 0.12:
            return {"client_key": f"key{self._chance.randrange(_KEYS)}"}
        if roll < 0.2:
            return {"client_key": f"{self._name}.key{self._chance.randrange(4)}"}
        if roll < 0.28:
            seq = max(0, graph._branch.publisher.head.seq - self._chance.choice([0, 0, 0, 1, 3]))
            return {"if_commit": f"{stream}.{seq}"}
        return {"on_conflict": "fail"} if roll < 0.34 else {}

    def _answer(self, work: Callable[[], Any]) -> dict[str, Any]:
        try:
            receipt = work()
        except OmnigraphError as error:
            word_of_error = next((word for kind, word in _ANSWERS if isinstance(error, kind)), None)
            if word_of_error is None:
                raise
            return {"answer": word_of_error, "text": str(error)}
        if receipt.commit_id is None:
            return {"answer": "nothing"}
        word = "replayed" if receipt.replayed else "landed"
        return {"answer": word, "commit_id": receipt.commit_id, "counts": dict(receipt.counts)}

    def _fold(self) -> None:
        self._graph().fold()

    def _read(self) -> None:
        """What a reader saw, to be compared with what was there."""
        graph = self._graph()
        stream = graph._branch.publisher.records.stream
        low = self._observer.newest(stream)
        view = graph.view()
        rows = {name: view.table(name).to_arrow().to_pylist() for name in KINDS}
        state = {name: {row["id"]: row for row in rows_of_type} for name, rows_of_type in rows.items()}
        self._diary.write(what="read", low=low, commit_id=view.commit_id, digest=digest(state))

    def _create_or_delete(self) -> None:
        name = self._chance.choice(BRANCHES[1:])
        graph = Graph(self._runtime, self._runtime.branch("main"))
        if self._chance.random() < 0.5:
            created = graph.branch.create(name)
            self._diary.write(what="created", stream=created._branch.publisher.records.stream)
            return
        stream = self._runtime.branch(name).publisher.records.stream
        graph.branch.delete(name)
        self._diary.write(what="deleted", stream=stream)
        self._graphs.pop(name, None)

    def _exclusively(self, on: Graph) -> None:
        """Claim a branch, write a little, and give it back: also how a dead owner's branch becomes free."""
        branch = on._branch
        holder = self._runtime.claim(branch, WriteOptions())
        for _ in range(self._chance.randint(0, 2)):
            self._operate(Graph(self._runtime, branch, holder=holder))
        self._runtime.release(branch, holder, WriteOptions())


def run(
    link: Link,
    *,
    uri: str,
    options: Mapping[str, str] | None,
    diary: str,
    name: str,
    slot: int,
    seed: str,
    faults: bool,
    broken: str | None = None,
) -> None:
    """Act as `seed` decides, until killed."""
    if broken:
        remove(broken)
    chance = random.Random(seed)
    plan = _faults(random.Random(f"{seed}/faults")) if faults else FaultPlan.none()
    # A slow store lets plans gather behind the one that is on its way, and other processes get in between.
    threads, latency_s = (4, 0.012) if slot == 0 else chance.choice([(1, 0.0), (2, 0.004), (4, 0.012)])
    config = _config(chance, slot)
    backend = make_backend(uri, options, config, wrap=lambda store: FaultyStore(ThrottledStore(store, latency_s), plan))
    observed = GraphRuntime.open(make_backend(uri, options, config), read_only=True)
    runtime = GraphRuntime.open(backend, read_only=False)
    book = Diary(diary)
    actors = [
        OracleActor(f"{name}.{number}", runtime, Observer(observed), book, f"{seed}/{number}")
        for number in range(threads)
    ]
    link.ready()
    failures: list[BaseException] = []
    for actor in actors:
        threading.Thread(target=_act, args=(actor, failures), daemon=True).start()
    count = 0
    while not failures:
        fired = plan.hits
        for hit in fired[count:]:
            book.write(what=f"fault {hit.fault}")
        count = len(fired)
        time.sleep(0.1)
    raise failures[0]


def _act(actor: OracleActor, failures: list[BaseException]) -> None:
    try:
        while not failures:
            actor.step()
    except BaseException as error:
        failures.append(error)
        raise


def _config(chance: random.Random, slot: int) -> Config:
    """Random, but every trial has somebody who groups, somebody who stages and somebody who folds."""
    return Config(
        fsync=False,
        fold="random" if slot == 2 else chance.choice(["random", "auto", "auto", "never"]),
        inline_share={0: 4, 1: 0}.get(slot, chance.choice([4, 4, 4, 0])),
        overlay_soft_entries=chance.choice([24, 64]),
        publish_deadline_s=10.0,
    )


def _faults(chance: random.Random) -> FaultPlan:
    """Rare misfortunes of record and registry PUTs, and of reads of records."""
    writes = FaultPlan.rates(
        _RATES, chance.random, kinds=[RequestKind.PUT], key_classes=[KeyClass.RECORD, KeyClass.REGISTRY]
    )
    reads = FaultPlan.rates(
        {Fault.FAIL_BEFORE: 0.002}, chance.random, kinds=[RequestKind.GET], key_classes=[KeyClass.RECORD]
    )
    return writes.also(reads)
