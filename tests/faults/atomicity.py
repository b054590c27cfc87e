"""What must hold after any fault: exactly before or exactly after, the answer true, nothing to repair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph.api import Graph
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.errors import OmnigraphError, Unknown
from omnigraph.query.language.statements import InsertNode
from omnigraph.storage.metering import RequestKind
from tests.faults.faulty_process import Content, FaultyProcess, content_of, copy_graph
from tests.faults.operations import FaultOperation
from tests.oracle.structure import structure_violations
from tests.support.faulty_store import FaultPlan


@dataclass(frozen=True)
class FaultAnswer:
    """What the caller was told: a result, or an error. None of both if the process died."""

    value: object = None
    error: OmnigraphError | None = None
    died: bool = False

    @property
    def is_positive(self) -> bool:
        return not self.died and self.error is None

    @property
    def is_negative(self) -> bool:
        """The caller was told that it did not happen."""
        return self.error is not None and not isinstance(self.error, Unknown)


DIED = FaultAnswer(died=True)


def attempt(process: FaultyProcess, operation: FaultOperation, prepared: Any) -> FaultAnswer:
    """Run it; only typed errors are answers."""
    try:
        return FaultAnswer(operation.run(process, prepared))
    except OmnigraphError as error:
        return FaultAnswer(error=error)


class AtomicityCheck:
    """Knows what the graph looks like before and after an operation that nothing disturbs."""

    def __init__(self, template: Path, scratch: Path) -> None:
        self.template = template
        self._scratch = scratch
        self._known: dict[str, tuple[Content, Content]] = {}
        self._seen: dict[str, list[tuple[RequestKind, str, bool]]] = {}

    def start(self, operation: FaultOperation, target: Path) -> str:
        """A graph of its own for one case."""
        return copy_graph(self._scratch / "nothing" if operation.on_empty else self.template, target)

    def requests(self, operation: FaultOperation, plan_of: Callable[[int], FaultPlan]) -> int:
        """How many requests of the undisturbed operation plans of this sort can hit."""
        self.before_and_after(operation)
        hits = plan_of(1)
        return sum(hits.decide(kind, key, conditional=put) is not None for kind, key, put in self._seen[operation.name])

    def before_and_after(self, operation: FaultOperation) -> tuple[Content, Content]:
        if operation.name not in self._known:
            self._known[operation.name] = self._run_undisturbed(operation)
        return self._known[operation.name]

    def check(
        self, operation: FaultOperation, uri: str, answer: FaultAnswer, case: str, *, happened: bool = False
    ) -> bool:
        """Whether the operation has happened, as a new process sees it; fails unless that is whole and as told."""
        before, after = self.before_and_after(operation)
        now = content_of(uri)
        assert now in (before, after), f"{case}: neither before nor after: {now}"
        if before == after:
            return answer.is_positive
        if answer.is_positive:
            assert now == after, f"{case}: acknowledged, but it is not there"
        if answer.is_negative and not happened:  # a failed repetition says nothing about an earlier success
            assert now == before, f"{case}: told {answer.error!r}, but it is there"
        return now == after

    def finish(self, operation: FaultOperation, uri: str, happened: bool, case: str, *, thorough: bool = True) -> None:
        """The caller tries again, as far as that is right, and then everybody goes on as if nothing had been.

        `thorough` reads every version of every table, which takes longer than all the rest.
        """
        _, after = self.before_and_after(operation)
        process = FaultyProcess(uri, **operation.config)
        try:
            if not happened or operation.keyed:
                answer = attempt(process, operation, operation.prepare(process))
                assert answer.is_positive, f"{case}: the repetition failed with {answer.error!r}"
                if happened:
                    assert getattr(answer.value, "replayed", True), f"{case}: done twice under one client key"
        finally:
            process.close()
        assert content_of(uri) == after, f"{case}: after the repetition"
        self._go_on(uri, case, thorough=thorough)

    def _go_on(self, uri: str, case: str, *, thorough: bool) -> None:
        """The next operations of a new process work, and no chain or pin is damaged."""
        process = FaultyProcess(uri)
        try:
            graph = process.open()
            next_write(graph)
            graph.fold()
            assert "Zoe" in graph.table("Person").to_arrow(["name"])["name"].to_pylist()
            violations = structure_violations(graph._runtime) if thorough else []
            assert not violations, f"{case}: {violations}"
        finally:
            process.close()

    def _run_undisturbed(self, operation: FaultOperation) -> tuple[Content, Content]:
        uri = self.start(operation, self._scratch / f"undisturbed-{operation.name}")
        process = FaultyProcess(uri, **operation.config)
        try:
            prepared = operation.prepare(process)
            before = content_of(uri)
            self._seen[operation.name] = process.watch()
            operation.run(process, prepared)
            missed = set(operation.points) - set(process.pauses.points_reached)
            assert not missed, f"{operation} does not pass {missed}: {process.pauses.points_reached}"
            return before, content_of(uri)
        finally:
            process.close()


def next_write(graph: Graph) -> None:
    """A plain insert; whoever finds the branch claimed by a dead process takes it over first."""
    holder = None
    if graph._branch.publisher.refresh().epoch.holder is not None:
        holder = graph._runtime.claim(graph._branch, WriteOptions())
    Graph(graph._runtime, graph._branch, holder=holder).apply([InsertNode("Person", {"name": "Zoe"})])
    if holder is not None:
        graph._runtime.release(graph._branch, holder, WriteOptions())
