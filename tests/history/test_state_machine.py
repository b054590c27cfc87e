"""Random branches, changes, merges, deletions, re-creations, compactions against a model. S61–S63, S70–S74, S86–S92."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from omnigraph.api import Graph
from omnigraph.errors import MergeConflict
from omnigraph.query.language.statements import Compare, Delete, Statement, Update
from tests.history.bed import LAYOUTS, MergeBed, knows, person, remove, rows, summarize
from tests.history.model import Commit, Merged, Model, State, difference

BRANCHES = ("main", "a", "b", "c")
NAMES = tuple("PQRST")
EDGES = tuple(f"e{number}" for number in range(4))

branches = st.sampled_from(BRANCHES)
layouts = st.sampled_from(sorted(LAYOUTS))
names = st.sampled_from(NAMES)
edges = st.sampled_from(EDGES)
ages = st.integers(0, 2)
nicks = st.sampled_from([None, "", "x"])


def state_of(view: Any) -> State:
    state: State = {("Person", key): _plain(row, "name", "nick", "age") for key, row in rows(view, "Person").items()}
    return state | {("Knows", key): _plain(row, "from", "to", "since") for key, row in rows(view, "Knows").items()}


def _plain(row: dict[str, Any], *columns: str) -> dict[str, Any]:
    return {name: row[name] for name in columns}


class Histories(RuleBasedStateMachine):
    """Whatever is done, every branch holds what the model says, and every diff tells what the model says."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="omnigraph-machine-"))
        self.bed = MergeBed.make(self.folder / "graph")
        self.model = Model()
        self.commits: list[tuple[str, Commit]] = [(self.bed.main.refresh(), self.model.heads["main"])]

    def teardown(self) -> None:
        try:
            for branch in self.model.heads:
                self.check(branch)
            assert self.bed.main.verify(deep=True).ok
        finally:
            shutil.rmtree(self.folder)

    def check(self, branch: str) -> None:
        graph = self.bed.on(branch)
        assert state_of(graph.view()) == self.model.state(branch), branch
        self.commits.append((graph.refresh(), self.model.heads[branch]))

    def apply(self, branch: str, layout: str, statements: list[Statement], state: State) -> None:
        if branch not in self.model.heads:
            return
        if self.bed.on(branch, layout).apply(statements).commit_id is not None:
            self.model.commit(branch, state)
        self.check(branch)

    @initialize()
    def begin(self) -> None:
        state: State = {("Person", name): {"name": name, "nick": None, "age": 0} for name in NAMES[:4]}
        state["Knows", "e0"] = {"from": "P", "to": "Q", "since": 0}
        people = [person(name, age=0) for name in NAMES[:4]]
        self.apply("main", "staged", [*people, knows("P", "Q", "e0", since=0)], state)
        for name in BRANCHES[1:]:
            self.bed.fork(name)
            self.model.heads[name] = self.model.heads["main"]

    @rule(branch=branches, layout=layouts, name=names, age=ages, nick=nicks)
    def put(self, branch: str, layout: str, name: str, age: int, nick: str | None) -> None:
        state = dict(self.model.heads[branch].state) if branch in self.model.heads else {}
        state["Person", name] = {"name": name, "nick": nick, "age": age}
        self.apply(branch, layout, [person(name, age=age, nick=nick)], state)

    @rule(branch=branches, layout=layouts, name=names, age=ages)
    def grow(self, branch: str, layout: str, name: str, age: int) -> None:
        self.update(branch, layout, name, {"age": age})

    @rule(branch=branches, layout=layouts, name=names, nick=nicks)
    def call(self, branch: str, layout: str, name: str, nick: str | None) -> None:
        self.update(branch, layout, name, {"nick": nick})

    def update(self, branch: str, layout: str, name: str, values: dict[str, Any]) -> None:
        state = dict(self.model.heads[branch].state) if branch in self.model.heads else {}
        if ("Person", name) in state:
            state["Person", name] = {**state["Person", name], **values}
        self.apply(branch, layout, [Update("Person", values, Compare("name", "=", name))], state)

    @rule(branch=branches, layout=layouts, name=names)
    def remove(self, branch: str, layout: str, name: str) -> None:
        known = self.model.heads[branch].state if branch in self.model.heads else {}
        state = {
            place: row
            for place, row in known.items()
            if place != ("Person", name) and name not in (row.get("from"), row.get("to"))
        }
        self.apply(branch, layout, [remove(name)], state)

    @rule(branch=branches, layout=layouts, edge=edges, tail=names, head=names)
    def connect(self, branch: str, layout: str, edge: str, tail: str, head: str) -> None:
        known = self.model.heads[branch].state if branch in self.model.heads else {}
        if ("Person", tail) not in known or ("Person", head) not in known:
            return
        if ("Knows", edge) in known:
            state = {**known, ("Knows", edge): {**known["Knows", edge], "from": tail, "to": head}}
            move = Update("Knows", {"from": tail, "to": head}, Compare("id", "=", edge))
            self.apply(branch, layout, [move], state)
        else:
            state = {**known, ("Knows", edge): {"from": tail, "to": head, "since": 1}}
            self.apply(branch, layout, [knows(tail, head, edge, since=1)], state)

    @rule(branch=branches, layout=layouts, edge=edges)
    def forget(self, branch: str, layout: str, edge: str) -> None:
        known = self.model.heads[branch].state if branch in self.model.heads else {}
        state = {place: row for place, row in known.items() if place != ("Knows", edge)}
        self.apply(branch, layout, [Delete("Knows", Compare("id", "=", edge))], state)

    @rule(name=branches, source=branches)
    def create(self, name: str, source: str) -> None:
        if name in self.model.heads or source not in self.model.heads:
            return
        self.bed.fork(name, source)
        self.model.heads[name] = self.model.heads[source]
        self.check(name)

    @precondition(lambda self: len(self.model.heads) > 2)
    @rule(name=st.sampled_from(BRANCHES[1:]))
    def delete(self, name: str) -> None:
        if name in self.model.heads:
            self.bed.main.branch.delete(name)
            del self.model.heads[name]

    @rule(branch=branches, how=st.sampled_from(["fold", "optimize"]))
    def compact(self, branch: str, how: str) -> None:
        if branch in self.model.heads:
            getattr(self.bed.on(branch), how)()
            self.check(branch)

    @rule(
        source=branches,
        into=branches,
        layout=layouts,
        cells=st.booleans(),
        resolve=st.sampled_from([None, None, "ours", "theirs"]),
    )
    def merge(self, source: str, into: str, layout: str, cells: bool, resolve: Any) -> None:
        if source == into or not {source, into} <= self.model.heads.keys():
            return
        report = self.model.merge(source, into, cells=cells, resolve=resolve)
        before = self.bed.on(into).refresh()
        found = merge_branch(self.bed.on(into, layout), source, cell_level=cells, resolve=resolve)
        assert (found.outcome, found.conflicts) == (report.outcome, report.conflicts)
        if report.outcome in ("merged", "fast_forward"):
            union = difference(self.model.state(into), report.state)
            self.model.commit(into, report.state, self.model.heads[source])
            assert summarize(self.bed.main.diff(before, self.bed.on(into).refresh())) == union  # S92
        self.check(into)
        self.check(source)

    @rule(one=branches, other=branches)
    def merges_commute(self, one: str, other: str) -> None:
        """What both directions can do without help gives the same content. S92"""
        if one == other or not {one, other} <= self.model.heads.keys():
            return
        outcomes = []
        for mine, theirs in ((one, other), (other, one)):
            graph = self.bed.fork("trial", mine)
            outcomes.append(merge_branch(graph, theirs))
            if not outcomes[-1].conflicts:
                outcomes[-1] = Merged(outcomes[-1].outcome, state_of(graph.view()))
            self.bed.main.branch.delete("trial")
        first, second = outcomes
        assert first.conflicts == second.conflicts
        assert first.state == second.state

    @rule(data=st.data())
    def compare(self, data: st.DataObject) -> None:
        (old_id, old), (new_id, new) = (data.draw(st.sampled_from(self.commits)) for _ in range(2))
        changes = list(self.bed.main.diff(old_id, new_id))
        assert summarize(changes) == difference(old.state, new.state)
        for change in changes:
            for image, state in ((change.before, old.state), (change.after, new.state)):
                row = state.get((change.type, change.id))
                assert (image is None) == (row is None)
                assert row is None or {name: image[name] for name in row} == row  # type: ignore[index]


def merge_branch(graph: Graph, source: str, **options: Any) -> Merged:
    try:
        return Merged(graph.branch.merge(source, **options).outcome, {})
    except MergeConflict as error:
        return Merged(
            "conflict", {}, frozenset((conflict["kind"], conflict["entity_id"]) for conflict in error.conflicts)
        )


def run_machine(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_histories() -> None:
    run_machine(examples=5, steps=25)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_long_histories() -> None:
    run_machine(examples=50, steps=50)
