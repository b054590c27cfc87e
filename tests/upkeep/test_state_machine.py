"""Writers, branches, merges, crashes, optimize and cleanup in any order: what is kept stays whole, the rest goes.

The machine of tests/mutate with merges and upkeep beside it. A commit that was kept reads exactly as when it was
made; one that was collected says so and never shows half of itself; a merge finds its base however much was collected.
S124, S128–S133, S161
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

import omnigraph
from omnigraph.api import Graph
from omnigraph.config import Config
from omnigraph.errors import MergeConflict, SnapshotExpired
from omnigraph.log.commit_record import NON_LOGICAL
from omnigraph.storage.keys import TEMPORARY_PREFIX
from omnigraph.upkeep.cleanup.retention import Policy
from omnigraph.upkeep.optimize import Optimizer
from tests.history.model import Model
from tests.history.model import State as Places
from tests.mutate.test_state_machine import (
    MAIN,
    MAX_BRANCHES,
    POINTS,
    STEPS,
    EffectCrash,
    Machine,
    MortalProcess,
    content,
)
from tests.oracle import model

#: Nothing is spared for its age: what falls out of retention goes as soon as the steps of cleanup allow.
SWIFT: dict[str, Any] = {"older_than_s": 0, "margin_s": 0, "horizon_s": 0, "newest_records": 1, "lock_stale_s": 0}
CRASH_POINTS = (
    "fold.captured", "fold.staged", "fold.before-record", "fold.after-record",
    "optimize.captured", "optimize.staged", "optimize.before-record", "optimize.after-record",
    "intent.opened", "intent.staged", "intent.confirmed", "intent.before-done",
    "cleanup.fenced", "cleanup.stubbed", "cleanup.archived", "cleanup.listed", "cleanup.marked", "cleanup.delete",
)  # fmt: skip


#: Where a process leaves the temporary file of a put that it did not live to finish.
FOLDERS = ("", "__manifest/", "__branches/", "__trash/", "__locks/", "schemas/")


class UpkeepMachine(Machine):
    """The same two processes, either of which may merge or look after the graph at any time."""

    fold: ClassVar[str] = "random"

    def __init__(self) -> None:
        super().__init__()
        self.lines = Model()

    # ---- merges ----

    @precondition(lambda self: len(self.states) > 1)
    @rule(
        who=st.integers(0, 1), source=st.integers(0, 3), into=st.integers(0, 3),
        resolve=st.sampled_from([None, None, "ours", "theirs"]),
    )  # fmt: skip
    def merge(self, who: int, source: int, into: int, resolve: Any) -> None:
        self._merge(self.processes[who], self._branch(source), self._branch(into), resolve)

    @precondition(lambda self: len(self.states) > 1)
    @rule(
        who=st.integers(0, 1), source=st.integers(0, 3), into=st.integers(0, 3), point=st.sampled_from(POINTS[:-1]),
        runs=st.integers(1, 3),
    )  # fmt: skip
    def merge_while_others_clean_up(self, who: int, source: int, into: int, point: str, runs: int) -> None:
        """What it stands on, and what it means to adopt, is collected while it stands at a point."""
        slow, fast = self.processes[who], self.processes[1 - who]

        def clean_up() -> None:
            for _ in range(runs):
                fast.graph(MAIN).cleanup(policy=Policy(keep=1, **SWIFT), confirm=True)

        slow.pauses.call_at(point, clean_up)
        self._merge(slow, self._branch(source), self._branch(into), "theirs")
        slow.reopen()  # a point that was not reached must not fire later

    @precondition(lambda self: len(self.states) > 1)
    @rule(
        who=st.integers(0, 1), source=st.integers(0, 3), into=st.integers(0, 3), point=st.sampled_from(POINTS),
    )  # fmt: skip
    def crash_in_a_merge(self, who: int, source: int, into: int, point: str) -> None:
        """The process ends at a point; the next one finds the whole merge or nothing."""

        def die() -> None:
            raise EffectCrash(point)

        process = self.processes[who]
        process.pauses.call_at(point, die)
        self._merge(process, self._branch(source), self._branch(into), None)
        process.reopen()

    def _merge(self, process: MortalProcess, source: str, into: str, resolve: Any) -> None:
        """Merge, as the model says, or be refused, as the model says."""
        if source == into:
            return
        report = self.lines.merge(source, into, resolve=resolve)
        state = _by_type(report.state)
        refused = bool(report.conflicts) or any(model.violations(state))
        merges = self._merges(into)
        outcome_code = _outcome_code(lambda: process.graph(into).branch.merge(source, resolve=resolve))
        landed = self._merges(into) != merges
        if outcome_code == "conflict":
            assert refused
            assert not landed
        elif outcome_code == "merged":
            assert not refused, report
            assert landed or state == self.states[into]
        if landed:
            self.lines.commit(into, report.state, self.lines.heads[source])
        self._settle(into, state if landed else self.states[into])

    def _merges(self, name: str) -> list[str]:
        """Merges of the branch, as one who has just come sees them."""
        graph = omnigraph.open(self._uri, name, read_only=True, config=Config(fsync=False))
        return [commit.commit_id for commit in graph.commits(None) if commit.kind == "merge"]

    # ---- what the lines of the model have to know ----

    @precondition(lambda self: len(self.states) < MAX_BRANCHES)
    @rule(who=st.integers(0, 1), source=st.integers(0, 3))
    def fork(self, who: int, source: int) -> None:
        origin = self._branch(source)
        self._remember(origin)
        super().fork(who, source)
        self.lines.heads[self.touched] = self.lines.heads[origin]

    def _settle(self, name: str, state: model.State) -> None:
        super()._settle(name, state)
        self._remember(name)

    def _remember(self, name: str) -> None:
        places = _by_place(self.states[name])
        if places != self.lines.state(name):
            self.lines.commit(name, places)

    # ---- upkeep ----

    @rule(folder=st.sampled_from(FOLDERS), number=st.integers(0, 9))
    def leave_temporary_file(self, folder: str, number: int) -> None:
        """What a process leaves that is killed between writing an object and giving it its name. H41"""
        directory = Path(self._uri) / folder
        directory.mkdir(exist_ok=True)
        (directory / f"{TEMPORARY_PREFIX}{number}").write_bytes(b"half")

    @rule(who=st.integers(0, 1), branch=st.integers(0, 3), large=st.booleans())
    def optimize(self, who: int, branch: int, large: bool) -> None:
        name = self._branch(branch)
        _optimize(self.processes[who], name, large=large)
        self._settle(name, self.states[name])

    @rule(who=st.integers(0, 1))
    def recover(self, who: int) -> None:
        """End what crashed operations left: rows are the same before and after."""
        _recover(self.processes[who].graph(MAIN))
        self._settle(MAIN, self.states[MAIN])

    @rule(who=st.integers(0, 1), keep=st.integers(1, 4), runs=st.integers(1, 3))
    def cleanup(self, who: int, keep: int, runs: int) -> None:
        protected = {}
        for graph in self._graphs():
            for commit in _newest(graph, keep):
                with suppress(SnapshotExpired):  # by an earlier run that kept fewer
                    protected[commit] = content(graph.at(commit))
        assert len(protected) >= len(self.states)
        for _ in range(runs):
            self.processes[who].graph(MAIN).cleanup(policy=Policy(keep=keep, **SWIFT), confirm=True)
        for commit, before in protected.items():
            for process in self.processes:
                assert content(process.graph(MAIN).at(commit)) == before, commit

    @precondition(lambda self: self.past)
    @rule(
        who=st.integers(0, 1), branch=st.integers(0, 3), point=st.sampled_from(CRASH_POINTS), verb=st.integers(0, 3)
    )  # fmt: skip
    def crash_in_upkeep(self, who: int, branch: int, point: str, verb: int) -> None:
        """Whatever it was doing, the graph says the same as before; the other process finds nothing to repair."""

        def die() -> None:
            raise EffectCrash(point)

        process, name = self.processes[who], self._branch(branch)
        process.pauses.call_at(point, die)
        graph = process.graph(name)
        work: Callable[[], object] = (
            graph.optimize,
            graph.fold,
            lambda: graph.cleanup(policy=Policy(keep=3, **SWIFT), confirm=True),
            lambda: _optimize(process, name, large=True),
        )[verb]
        with suppress(EffectCrash):
            work()
        process.reopen()
        self._settle(name, self.states[name])

    def _graphs(self) -> list[Graph]:
        return [self.processes[0].graph(name) for name in sorted(self.states)]

    def _look_back(self) -> None:
        """Every commit of the way is whole or says that it was collected; in the end nothing is left to sweep."""
        process = MortalProcess(self._uri, Config(fsync=False, fold="never"))
        try:
            main = process.graph(MAIN)
            for name, state in self.states.items():
                assert content(process.graph(name).view()) == state
            for name, commit_id, state in self.past:
                try:
                    rows = content(main.at(commit_id))
                except SnapshotExpired:
                    continue
                assert rows == state, f"{name} at {commit_id}"
            _recover(main)
            policy = Policy(keep=1, **SWIFT)
            for _ in range(4):
                main.cleanup(policy=policy, confirm=True)
            report = main.cleanup(policy=policy)
            assert not report.condemns, report.condemns
            assert not list(Path(self._uri).rglob(f"{TEMPORARY_PREFIX}*"))
            assert "unnamed_files" not in {problem.code for problem in main.verify().problems}
            assert main.verify().ok, main.verify().to_json()
            for name, state in self.states.items():
                assert content(process.graph(name).view()) == state
        finally:
            process.backend.close()


def _optimize(process: MortalProcess, name: str, *, large: bool) -> None:
    """A large one leaves an intent."""
    Optimizer(process.runtime, process.runtime.branch(name), intent_above_bytes=0 if large else 1 << 30).run()


def _recover(graph: Graph) -> None:
    for intent in graph.recover_list():
        if intent.state in ("live", "unconfirmed", "confirmed", "aborted"):
            graph.recover(intent.id)


def _outcome_code(work: Callable[[], object]) -> str:
    try:
        work()
    except MergeConflict:
        return "conflict"
    except EffectCrash:
        return "crashed"
    return "merged"


def _by_place(state: model.State) -> Places:
    return {(name, row_id): row for name, rows in state.items() for row_id, row in rows.items()}


def _by_type(places: Places) -> model.State:
    rows_by_type = model.empty()
    for (name, row_id), row in places.items():
        rows_by_type[name][row_id] = row
    return rows_by_type


def _newest(graph: Graph, keep: int) -> list[str]:
    """The commits that a policy of `keep` has to spare."""
    commit_ids = [
        commit.commit_id
        for commit in graph.commits(None)
        if commit.kind not in NON_LOGICAL and _own(graph, commit.commit_id)
    ]
    return commit_ids[:keep]


def _own(graph: Graph, commit_id: str) -> bool:
    """Of this branch itself: commits from before the fork belong to the source."""
    return commit_id.partition(".")[0] == graph.view().commit_id.partition(".")[0]


def run_machine(examples: int) -> None:
    run_state_machine_as_test(
        UpkeepMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_retained_commits_stay_readable() -> None:
    run_machine(examples=4)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_retained_commits_stay_readable_in_long_runs() -> None:
    run_machine(examples=30)
