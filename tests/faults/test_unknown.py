"""A PUT that nobody answers and that arrives when it likes: `Unknown`, settled by the client key (H24, S35, S46)."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.commit.publish_plan import Receipt
from omnigraph.errors import Unknown
from omnigraph.query.language.statements import InsertNode
from omnigraph.storage.store import PutResult, Store
from tests.faults.ground import FaultyProcess
from tests.faults.judge import DIED, Judge, attempt
from tests.faults.operations import CLIENT_KEY, OPERATIONS, FaultOperation
from tests.faults.stores import Late

_KEYED = [one for one in OPERATIONS if one.keyed]
_LANDING = [one for one in OPERATIONS if "write.before-record" in one.points]


class _Case:
    """An operation whose record is under way, and whose caller was told `Unknown`."""

    def __init__(self, judge: Judge, operation: FaultOperation, folder: Path) -> None:
        self.judge, self.operation = judge, operation
        self.uri = judge.start(operation, folder)
        self.process = FaultyProcess(self.uri, wrap=self._wrap, **operation.config)
        self.prepared = operation.prepare(self.process)
        self.late.silent = True
        answer = attempt(self.process, operation, self.prepared)
        assert isinstance(answer.error, Unknown), answer
        assert answer.error.details["op_id"]
        assert len(self.late.taken) == 1, "it went on to another seq while the first was unknown"
        assert not self.judge.check(operation, self.uri, answer, f"{operation} is unknown")
        self.error = answer.error
        self.late.silent = False

    def _wrap(self, store: Store) -> Store:
        self.late = Late(store)
        return self.late

    def repeat(self) -> object:
        answer = attempt(self.process, self.operation, self.prepared)
        assert self.judge.check(self.operation, self.uri, answer, f"{self.operation} repeated")
        assert answer.is_positive, answer.error
        return answer.value


@pytest.mark.parametrize("operation", _KEYED, ids=str)
def test_it_arrives_before_the_repetition(operation: FaultOperation, judge: Judge, tmp_path: Path) -> None:
    """The repetition finds the first one's answer. H24, S46"""
    case = _Case(judge, operation, tmp_path / "graph")
    assert case.error.details["client_key"] == CLIENT_KEY
    assert case.late.arrive() == [PutResult.CREATED]
    receipt = case.repeat()
    assert isinstance(receipt, Receipt)
    assert receipt.replayed
    judge.finish(operation, case.uri, True, "arrived, then repeated")


@pytest.mark.parametrize("operation", _KEYED, ids=str)
def test_it_arrives_after_the_repetition(operation: FaultOperation, judge: Judge, tmp_path: Path) -> None:
    """The repetition took the seq, so that the first one can never land. H24, S46"""
    case = _Case(judge, operation, tmp_path / "graph")
    receipt = case.repeat()
    assert isinstance(receipt, Receipt)
    assert not receipt.replayed
    assert case.late.arrive() == [PutResult.EXISTS]
    judge.finish(operation, case.uri, True, "repeated, then arrived")


@pytest.mark.parametrize("operation", _LANDING, ids=str)
def test_it_arrives_while_nobody_looks(operation: FaultOperation, judge: Judge, tmp_path: Path) -> None:
    """Long after its caller gave up: whole, and everybody goes on from it. H24"""
    case = _Case(judge, operation, tmp_path / "graph")
    assert case.late.arrive() == [PutResult.CREATED]
    told = f"{operation} arrived late"
    happened = judge.check(operation, case.uri, DIED, told)
    assert happened, told
    judge.finish(operation, case.uri, happened, told)


@pytest.mark.parametrize("operation", _LANDING, ids=str)
def test_another_one_takes_its_place(operation: FaultOperation, judge: Judge, tmp_path: Path) -> None:
    """Another process commits meanwhile: only then is it certain that the first did not land. H24"""
    case = _Case(judge, operation, tmp_path / "graph")
    process = FaultyProcess(case.uri)
    holder = case.prepared[1] if isinstance(case.prepared, tuple) else None
    branch = "dev" if operation.name == "branch-delete" else "main"
    graph = process.open(branch)
    graph._holder = holder
    graph.apply([InsertNode("Company", {"name": "Other"})])
    assert case.late.arrive() == [PutResult.EXISTS]
    answer = attempt(case.process, operation, case.prepared)
    assert answer.is_positive, answer.error
    names = FaultyProcess(case.uri).open().table("Company").to_arrow(["name"])["name"].to_pylist()
    assert ("Other" in names) == (branch == "main")
    case.process.close()
    process.close()
