"""Random mutations, transactions, branches, reopenings and crashes, by two processes: a model agrees after every step.

The model is that of the random oracle; it shares no code with the engine. Here every operation is written in the
language, and Hypothesis looks for the shortest sequence that goes wrong. S147, S170
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import omnigraph
from omnigraph.api import Graph, make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import Receipt
from omnigraph.config import Config
from omnigraph.errors import ConstraintViolation, KeyConflict, OmnigraphError, ReadSetChanged, Unavailable, Unknown
from omnigraph.storage.store import PutResult, Store
from tests.mutate.texts import to_texts
from tests.oracle import model
from tests.oracle.operations import NOTES, PEOPLE, Dice
from tests.oracle.structure import structure_violations
from tests.scenarios.stores import PassOn
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore
from tests.support.pauses import ControlledPauses

Operation = Sequence[model.Json]

MAIN = "main"
MAX_BRANCHES = 4
STEPS = 32
POINTS = ("write.captured", "write.validated", "write.staged", "write.before-record", "write.after-record")
FAULTS = (Fault.FAIL_BEFORE, Fault.LOSE_ANSWER, Fault.EXISTS_WITHOUT_EFFECT, Fault.EXISTS_AFTER_EFFECT)
TABLE_EFFECTS = ("birth", "stage", "restage", "commit")
EFFECTS = (1, 1, 1, 2, 2, 3, 4, 5, 6, 8)
"""Where a process ends: most changes have one effect, staged ones two per table and the record."""
_MINTED = 26
A = TypeVar("A")


class EffectCrash(BaseException):
    """The end of a simulated process: no handler of the engine may turn it into an answer."""


@dataclass(frozen=True)
class OperationAnswer:
    """What a caller was told: `ok`, `nothing`, `violation`, `key_conflict`, `conflict`, `unknown` or `crashed`."""

    word: str
    counts: dict[str, int] | None = None


class ProcessLife:
    """Counts the effects of a process, on the store and on tables, and ends it at one of them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._left = 0
        self._after = False
        self.is_over = False

    def end_at(self, nth: int, *, after: bool) -> None:
        self._left, self._after = nth, after

    def effect(self, work: Callable[[], A]) -> A:
        with self._lock:
            self._left -= 1
            now = self._left == 0
            if self.is_over or (now and not self._after):
                self.is_over = True
                raise EffectCrash("before an effect")
            result = work()
            if now:
                self.is_over = True
                raise EffectCrash("after an effect")
        return result


class MortalStore(PassOn):
    """A store whose writes are effects of a life."""

    def __init__(self, inner: Store, life: ProcessLife) -> None:
        super().__init__(inner)
        self._life = life

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        return self._life.effect(lambda: self.inner.put_if_absent(key, data))

    def put(self, key: str, data: bytes) -> None:
        self._life.effect(lambda: self.inner.put(key, data))


class MortalProcess:
    """Its own runtime, caches, queue, pauses and faults."""

    def __init__(self, uri: str, config: Config) -> None:
        self._uri, self._config = uri, config
        self.open()

    def open(self) -> None:
        self.pauses = ControlledPauses()
        self.life = ProcessLife()
        self.backend = make_backend(self._uri, None, self._config, wrap=self._wrap, pauses=self.pauses)
        for name in TABLE_EFFECTS:
            self._make_mortal(name)
        self.runtime = GraphRuntime.open(self.backend, read_only=False)

    def reopen(self) -> None:
        self.backend.close()
        self.open()

    def graph(self, branch: str) -> Graph:
        return Graph(self.runtime, self.runtime.branch(branch))

    def fail(self, plan: FaultPlan) -> None:
        self._faulty.plan = plan

    def run(self, branch: str, operation: Operation, *, whole: bool) -> OperationAnswer:
        """One operation: as one query if the language allows and `whole` is asked for, else as a transaction."""
        texts = list(to_texts(operation))

        def query() -> Receipt:
            return self.graph(branch).mutate(texts[0].source, texts[0].params, strict=texts[0].strict)

        def transaction() -> Receipt:
            with self.graph(branch).transaction() as t:
                for text in texts:
                    t.mutate(text.source, text.params, strict=text.strict)
            assert t.receipt is not None
            return t.receipt

        return run_and_classify(query if whole and len(texts) == 1 else transaction)

    def _wrap(self, store: Store) -> Store:
        self._faulty = FaultyStore(MortalStore(store, self.life), FaultPlan.none())
        return self._faulty

    def _make_mortal(self, name: str) -> None:
        """Lance writes past the store, so its calls are effects of their own."""
        tables, life = self.backend.tables, self.life
        original = getattr(tables, name)
        object.__setattr__(tables, name, lambda *args, **named: life.effect(lambda: original(*args, **named)))


def run_and_classify(work: Callable[[], Receipt]) -> OperationAnswer:
    try:
        result = work()
    except ConstraintViolation:
        return OperationAnswer("violation")
    except KeyConflict:
        return OperationAnswer("key_conflict")
    except ReadSetChanged:
        return OperationAnswer("conflict")
    except (Unknown, Unavailable):
        return OperationAnswer("unknown")
    except EffectCrash:
        return OperationAnswer("crashed")
    return OperationAnswer("ok" if result.commit_id else "nothing", dict(result.counts))


def predict(state: model.State, operation: Operation) -> tuple[OperationAnswer, model.State]:
    """What must be answered, and the state afterwards."""
    try:
        receipt = model.apply(state, operation)
    except model.Refused as refused:
        return OperationAnswer(refused.answer), state
    return OperationAnswer("ok", receipt.counts), receipt.state


def content(view: Any) -> model.State:
    """A graph as the model would have it: rows whose id the engine chose are known by their tag."""
    state = model.empty()
    for name in state:
        for row in view.table(name).to_arrow().to_pylist():
            row_id = f"?{row['tag']}" if len(row["id"]) == _MINTED and "tag" in row else row["id"]
            assert row_id not in state[name], f"{name} {row_id} is there twice"
            state[name][row_id] = {**row, "id": row_id}
    return state


SEEDS = st.integers(0, 10**6)
"""What an operation is drawn with, so that a failure shows a number that repeats it."""


class Machine(RuleBasedStateMachine):
    """Two processes, up to four branches."""

    fold: ClassVar[str] = "never"

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="omnigraph-machine-"))
        self._uri = str(self._folder / "graph")
        self._tags = 0
        self.states: dict[str, model.State] = {}
        self.past: list[tuple[str, str, model.State]] = []

    @initialize(staged=st.booleans())
    def begin(self, staged: bool) -> None:
        """One process rides in records; the other does too, or stages everything."""
        inline = Config(fsync=False, fold=self.fold, publish_deadline_s=10.0)  # type: ignore[arg-type]
        config = Config(
            fsync=False, fold=self.fold, publish_deadline_s=10.0, inline_share=0 if staged else 4  # type: ignore[arg-type]
        )  # fmt: skip
        omnigraph.init(self._uri, model.SCHEMA, config=inline)
        self.processes = [MortalProcess(self._uri, inline), MortalProcess(self._uri, config)]
        everybody = [{"do": "insert", "type": "Person", "values": {"name": name}, "strict": False} for name in PEOPLE]
        everybody += [{"do": "insert", "type": "Note", "values": {"id": name}, "strict": False} for name in NOTES]
        _, self.states[MAIN] = predict(model.empty(), everybody)
        assert self.processes[0].run(MAIN, everybody, whole=True).word == "ok"
        self.touched = MAIN

    # ---- one at a time ----

    @rule(seed=SEEDS, who=st.integers(0, 1), branch=st.integers(0, 3), whole=st.booleans())
    def operate(self, seed: int, who: int, branch: int, whole: bool) -> None:
        name, operation = self._branch(branch), self._operation(seed)
        answer, after = predict(self.states[name], operation)
        outcome = self.processes[who].run(name, operation, whole=whole)
        assert outcome.word == answer.word, (outcome, answer, operation)
        assert answer.counts is None or outcome.counts == answer.counts, (outcome, answer, operation)
        self._settle(name, after)

    @rule(who=st.integers(0, 1), branch=st.integers(0, 3))
    def fold_now(self, who: int, branch: int) -> None:
        name = self._branch(branch)
        self.processes[who].graph(name).fold()
        self._settle(name, self.states[name])

    @rule(who=st.integers(0, 1))
    def reopen(self, who: int) -> None:
        self.processes[who].reopen()

    # ---- two at a time ----

    @rule(
        seed=SEEDS, who=st.integers(0, 1), branch=st.integers(0, 3), point=st.sampled_from(POINTS[:-1]),
        whole=st.booleans(),
    )  # fmt: skip
    def overtake(self, seed: int, who: int, branch: int, point: str, whole: bool) -> None:
        """While one stands at a point the other does a whole operation."""
        name = self._branch(branch)
        earlier, later = self._operation(seed), self._operation(seed + 1)
        before = self.states[name]
        slow, fast = self.processes[who], self.processes[1 - who]
        between: list[OperationAnswer] = []
        slow.pauses.call_at(point, lambda: between.append(fast.run(name, later, whole=True)))
        outcome = slow.run(name, earlier, whole=whole)
        slow.reopen()  # a point that was not reached must not fire later
        middle = before
        if between:
            answer, middle = predict(before, later)
            assert between[0].word == answer.word, (between[0], answer, later)
        answer, after = predict(middle, earlier)
        if outcome.word == "conflict":
            # Only a transaction is told; what it decided on has changed, so its effect is not wanted.
            assert between, earlier
        elif outcome.word == "ok" or (whole and len(list(to_texts(earlier))) == 1):
            assert outcome.word == answer.word, (outcome, answer, earlier, later)
            assert answer.counts is None or outcome.counts == answer.counts, (outcome, answer, earlier, later)
        else:
            # A transaction's refusal is true of the state that it began with.
            assert outcome.word == predict(before, earlier)[0].word, (outcome, earlier, later)
        self._settle(name, after if outcome.word == "ok" else middle)

    # ---- failures ----

    @rule(seed=SEEDS, who=st.integers(0, 1), branch=st.integers(0, 3), point=st.sampled_from(POINTS))
    def crash(self, seed: int, who: int, branch: int, point: str) -> None:
        """The process ends at a point; the next one finds all of it or nothing."""

        def die() -> None:
            raise EffectCrash(point)

        process = self.processes[who]
        process.pauses.call_at(point, die)
        self._accept_either(process, self._branch(branch), self._operation(seed))
        process.reopen()

    @rule(
        seed=SEEDS, who=st.integers(0, 1), branch=st.integers(0, 3), nth=st.sampled_from(EFFECTS), after=st.booleans(),
    )  # fmt: skip
    def crash_at_an_effect(self, seed: int, who: int, branch: int, nth: int, after: bool) -> None:
        """The process ends at its n-th effect, a table's or the record's; from then on it has none."""
        process, name = self.processes[who], self._branch(branch)
        process.graph(name).refresh()
        process.life.end_at(nth, after=after)
        self._accept_either(process, name, self._operation(seed))
        process.reopen()

    @rule(
        seed=SEEDS, who=st.integers(0, 1), branch=st.integers(0, 3), fault=st.sampled_from(FAULTS),
        nth=st.integers(1, 6), times=st.sampled_from([1, 1, 2, 5]),
    )  # fmt: skip
    def fail(self, seed: int, who: int, branch: int, fault: Fault, nth: int, times: int) -> None:
        """Some requests go wrong; the same handle goes on afterwards."""
        process = self.processes[who]
        process.fail(FaultPlan.at(nth, fault, times=times))
        self._accept_either(process, self._branch(branch), self._operation(seed))

    def _accept_either(self, process: MortalProcess, name: str, operation: Operation) -> None:
        """Whatever was answered, the state is the one before or the one after; and the one that was answered."""
        answer, after = predict(self.states[name], operation)
        outcome = process.run(name, operation, whole=True)
        process.fail(FaultPlan.none())
        state = content(omnigraph.open(self._uri, name, read_only=True, config=Config(fsync=False)).view())
        if outcome.word == "ok":
            assert state == after, operation
            assert outcome.counts == answer.counts
        elif outcome.word not in ("unknown", "crashed"):
            assert (outcome.word, state) == (answer.word, self.states[name]), operation
        assert state in (self.states[name], after), operation
        self._settle(name, state)

    # ---- branches ----

    @precondition(lambda self: len(self.states) < MAX_BRANCHES)
    @rule(who=st.integers(0, 1), source=st.integers(0, 3))
    def fork(self, who: int, source: int) -> None:
        origin = self._branch(source)
        name = next(candidate for candidate in ("a", "a/b", "c") if candidate not in self.states)
        self.processes[who].graph(origin).branch.create(name, origin)
        self.states[name] = self.states[origin]
        self.touched = name

    @precondition(lambda self: len(self.states) > 1)
    @rule(who=st.integers(0, 1), which=st.integers(0, 3))
    def unfork(self, who: int, which: int) -> None:
        name = sorted(set(self.states) - {MAIN})[which % (len(self.states) - 1)]
        self.processes[who].graph(MAIN).branch.delete(name)
        del self.states[name]
        self.touched = MAIN
        with pytest.raises(OmnigraphError):
            self.processes[1 - who].graph(name)

    # ---- the verdict ----

    @invariant()
    def both_processes_agree_with_the_model(self) -> None:
        for process in getattr(self, "processes", ()):
            assert content(process.graph(self.touched).view()) == self.states[self.touched]

    def teardown(self) -> None:
        try:
            if self.states:
                self._look_back()
        finally:
            for process in getattr(self, "processes", ()):
                process.backend.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _look_back(self) -> None:
        """Every branch, every commit of the way, and the chain itself."""
        process = MortalProcess(self._uri, Config(fsync=False, fold="never"))
        try:
            main = process.graph(MAIN)
            assert main.branch.list() == sorted(self.states)
            for name, state in self.states.items():
                assert content(process.graph(name).view()) == state
            for name, commit_id, state in self.past:
                assert content(main.at(commit_id)) == state, f"{name} at {commit_id}"
            assert structure_violations(process.runtime) == []
        finally:
            process.backend.close()

    def _settle(self, name: str, state: model.State) -> None:
        """The rules hold in every state that was committed; it is remembered under its commit."""
        assert list(model.violations(state)) == []
        self.states[name] = state
        self.touched = name
        self.past.append((name, self.processes[0].graph(name).refresh(), state))

    def _branch(self, number: int) -> str:
        names = sorted(self.states)
        return names[number % len(names)]

    def _operation(self, seed: int) -> Operation:
        """Statements whose keyless rows are recognisable; strict or lenient as a whole."""
        self._tags += 1
        statements = Dice(random.Random(seed)).operation(f"g{self._tags}")
        strict = any(statement.get("strict") for statement in statements)
        return [
            {**statement, "strict": strict} if statement["do"] == "insert" else statement for statement in statements
        ]


def machine_of(fold: str) -> type[Machine]:
    return type(f"Machine_{fold}", (Machine,), {"fold": fold})


def run_machine(fold: str, examples: int) -> None:
    run_state_machine_as_test(
        machine_of(fold),
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("fold", ["never", "always", "random"])
def test_s147_a_model_agrees_after_every_step(fold: str) -> None:
    run_machine(fold, examples=4)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fold", ["never", "always", "random"])
def test_s147_for_longer(fold: str) -> None:
    run_machine(fold, examples=20)
