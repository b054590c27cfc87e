"""A PUT that nobody answers and that arrives when it likes: `Unknown`, settled by the client key (H24, S35, S46)."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.commit.publish_plan import Receipt
from omnigraph.errors import Unknown
from omnigraph.query.language.statements import InsertNode
from omnigraph.storage.store import PutResult, Store
from tests.faults.atomicity import DIED, AtomicityCheck, attempt
from tests.faults.faulty_process import FaultyProcess
from tests.faults.operations import CLIENT_KEY, OPERATIONS, FaultOperation
from tests.faults.stores import LateArrivalStore

_KEYED = [one for one in OPERATIONS if one.keyed]
_LANDING = [one for one in OPERATIONS if "write.before-record" in one.points]


class _Case:
    """An operation whose record is under way, and whose caller was told `Unknown`."""

    def __init__(self, atomicity: AtomicityCheck, operation: FaultOperation, folder: Path) -> None:
        self.atomicity, self.operation = atomicity, operation
        self.uri = atomicity.start(operation, folder)
        self.process = FaultyProcess(self.uri, wrap=self._wrap, **operation.config)
        self.prepared = operation.prepare(self.process)
        self.late.is_silent = True
        answer = attempt(self.process, operation, self.prepared)
        assert isinstance(answer.error, Unknown), answer
        assert answer.error.details["op_id"]
        assert len(self.late.pending) == 1, "it went on to another seq while the first was unknown"
        assert not self.atomicity.check(operation, self.uri, answer, f"{operation} is unknown")
        self.error = answer.error
        self.late.is_silent = False

    def _wrap(self, store: Store) -> Store:
        self.late = LateArrivalStore(store)
        return self.late

    def repeat(self) -> object:
        answer = attempt(self.process, self.operation, self.prepared)
        assert self.atomicity.check(self.operation, self.uri, answer, f"{self.operation} repeated")
        assert answer.is_positive, answer.error
        return answer.value


@pytest.mark.parametrize("operation", _KEYED, ids=str)
def test_late_record_arrives_before_the_repetition(
    operation: FaultOperation, atomicity: AtomicityCheck, tmp_path: Path
) -> None:
    """The repetition finds the first one's answer. H24, S46"""
    case = _Case(atomicity, operation, tmp_path / "graph")
    assert case.error.details["client_key"] == CLIENT_KEY
    assert case.late.store_pending() == [PutResult.CREATED]
    receipt = case.repeat()
    assert isinstance(receipt, Receipt)
    assert receipt.replayed
    atomicity.finish(operation, case.uri, True, "arrived, then repeated")


@pytest.mark.parametrize("operation", _KEYED, ids=str)
def test_late_record_arrives_after_the_repetition(
    operation: FaultOperation, atomicity: AtomicityCheck, tmp_path: Path
) -> None:
    """The repetition took the seq, so that the first one can never land. H24, S46"""
    case = _Case(atomicity, operation, tmp_path / "graph")
    receipt = case.repeat()
    assert isinstance(receipt, Receipt)
    assert not receipt.replayed
    assert case.late.store_pending() == [PutResult.EXISTS]
    atomicity.finish(operation, case.uri, True, "repeated, then arrived")


@pytest.mark.parametrize("operation", _LANDING, ids=str)
def test_late_record_arrives_after_its_caller_gave_up(
    operation: FaultOperation, atomicity: AtomicityCheck, tmp_path: Path
) -> None:
    """Long after its caller gave up: whole, and everybody goes on from it. H24"""
    case = _Case(atomicity, operation, tmp_path / "graph")
    assert case.late.store_pending() == [PutResult.CREATED]
    told = f"{operation} arrived late"
    happened = atomicity.check(operation, case.uri, DIED, told)
    assert happened, told
    atomicity.finish(operation, case.uri, happened, told)


@pytest.mark.parametrize("operation", _LANDING, ids=str)
def test_another_commit_takes_the_sequence_number_of_the_late_record(
    operation: FaultOperation, atomicity: AtomicityCheck, tmp_path: Path
) -> None:
    """Another process commits meanwhile: only then is it certain that the first did not land. H24"""
    case = _Case(atomicity, operation, tmp_path / "graph")
    process = FaultyProcess(case.uri)
    holder = case.prepared[1] if isinstance(case.prepared, tuple) else None
    branch = "dev" if operation.name == "branch-delete" else "main"
    graph = process.open(branch)
    graph._holder = holder
    graph.apply([InsertNode("Company", {"name": "Other"})])
    assert case.late.store_pending() == [PutResult.EXISTS]
    answer = attempt(case.process, operation, case.prepared)
    assert answer.is_positive, answer.error
    names = FaultyProcess(case.uri).open().table("Company").to_arrow(["name"])["name"].to_pylist()
    assert ("Other" in names) == (branch == "main")
    case.process.close()
    process.close()
