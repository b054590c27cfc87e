"""Writers, branches, crashes, optimize and cleanup in any order: what is kept stays whole, what is not kept goes.

The machine of tests/mutations with upkeep beside it. A commit that was kept reads exactly as when it was made; one
that was collected says so and never shows half of itself. S124, S128–S133
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from omnigraph.config import Config
from omnigraph.errors import SnapshotExpired
from omnigraph.graph import Graph
from omnigraph.log.record import NON_LOGICAL
from omnigraph.upkeep.retention import Policy
from tests.mutations.test_state_machine import MAIN, STEPS, Crash, Machine, Process, content

#: Nothing is spared for its age: what falls out of retention goes as soon as the steps of cleanup allow.
SWIFT: dict[str, Any] = {"older_than_s": 0, "margin_s": 0, "horizon_s": 0, "newest_records": 1, "lock_stale_s": 0}
CRASH_POINTS = (
    "fold.captured", "fold.staged", "fold.before-record", "fold.after-record",
    "optimize.captured", "optimize.staged", "optimize.before-record", "optimize.after-record",
    "cleanup.fenced", "cleanup.stubbed", "cleanup.archived", "cleanup.listed", "cleanup.marked", "cleanup.delete",
)  # fmt: skip


class UpkeepMachine(Machine):
    """The same two processes, either of which may look after the graph at any time."""

    fold: ClassVar[str] = "random"

    @rule(who=st.integers(0, 1), branch=st.integers(0, 3))
    def optimize(self, who: int, branch: int) -> None:
        name = self._branch(branch)
        self.processes[who].graph(name).optimize()
        self._settle(name, self.states[name])

    @rule(who=st.integers(0, 1), keep=st.integers(1, 4), runs=st.integers(1, 3))
    def cleanup(self, who: int, keep: int, runs: int) -> None:
        kept = {}
        for graph in self._graphs():
            for commit in _newest(graph, keep):
                with suppress(SnapshotExpired):  # by an earlier run that kept fewer
                    kept[commit] = content(graph.at(commit))
        assert len(kept) >= len(self.states)
        for _ in range(runs):
            self.processes[who].graph(MAIN).cleanup(policy=Policy(keep=keep, **SWIFT), confirm=True)
        for commit, before in kept.items():
            for process in self.processes:
                assert content(process.graph(MAIN).at(commit)) == before, commit

    @precondition(lambda self: self.past)
    @rule(
        who=st.integers(0, 1), branch=st.integers(0, 3), point=st.sampled_from(CRASH_POINTS), verb=st.integers(0, 2)
    )  # fmt: skip
    def crash_in_upkeep(self, who: int, branch: int, point: str, verb: int) -> None:
        """Whatever it was doing, the graph says the same as before; the other process finds nothing to repair."""

        def die() -> None:
            raise Crash(point)

        process, name = self.processes[who], self._branch(branch)
        process.pauses.call_at(point, die)
        graph = process.graph(name)
        work = (graph.optimize, graph.fold, lambda: graph.cleanup(policy=Policy(keep=3, **SWIFT), confirm=True))[verb]
        with suppress(Crash):
            work()
        process.reopen()
        self._settle(name, self.states[name])

    def _graphs(self) -> list[Graph]:
        return [self.processes[0].graph(name) for name in sorted(self.states)]

    def _look_back(self) -> None:
        """Every commit of the way is whole or says that it was collected; in the end nothing is left to sweep."""
        process = Process(self._uri, Config(fsync=False, fold="never"))
        try:
            main = process.graph(MAIN)
            for name, state in self.states.items():
                assert content(process.graph(name).view()) == state
            for name, commit_id, state in self.past:
                try:
                    found = content(main.at(commit_id))
                except SnapshotExpired:
                    continue
                assert found == state, f"{name} at {commit_id}"
            policy = Policy(keep=1, **SWIFT)
            for _ in range(4):
                main.cleanup(policy=policy, confirm=True)
            left = main.cleanup(policy=policy)
            assert not left.condemns, left.condemns
            assert main.verify().ok, main.verify().to_json()
            for name, state in self.states.items():
                assert content(process.graph(name).view()) == state
        finally:
            process.backend.close()


def _newest(graph: Graph, keep: int) -> list[str]:
    """The commits that a policy of `keep` has to spare."""
    found = [one.commit_id for one in graph.commits(None) if one.kind not in NON_LOGICAL and _own(graph, one.commit_id)]
    return found[:keep]


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


def test_what_is_kept_stays_whole() -> None:
    run_machine(examples=4)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_what_is_kept_stays_whole_for_longer() -> None:
    run_machine(examples=60)
