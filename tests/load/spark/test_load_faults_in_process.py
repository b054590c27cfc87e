"""S155 for a load on Spark: the store fails at each request of its driver; the load is there whole or not at all.

The tasks run in this process. By default the printed seed picks places; `slow` strikes every one.
"""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest

from omnigraph.api import Graph
from omnigraph.errors import OmnigraphError, Unknown
from omnigraph.load.spark import load as load_module
from tests.intents.intent_actor import acting, age, audits, build, names
from tests.load.spark.loading import edge, load, node, write_lines
from tests.spark.in_process import run_tasks_here
from tests.support.faulty_store import EFFECTS, Fault, FaultPlan

_ANY_REQUEST = (Fault.FAIL_BEFORE, Fault.FORBID)
_FAULTS = (*_ANY_REQUEST, Fault.LOSE_ANSWER, Fault.EXISTS_WITHOUT_EFFECT, Fault.EXISTS_AFTER_EFFECT)
_BEFORE = ({"Ada", "Bob"}, 0)
_AFTER = ({"Ada", "Bob", *(f"n{one}" for one in range(40))}, 40)


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    run_tasks_here(monkeypatch)
    monkeypatch.setattr(load_module, "BULK_BYTES", 0)  # a load of few rows leaves word of itself as a large one does


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faults") / "template"
    build(str(path))
    return path


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    people = [node("Person", name=f"n{number}", age=number) for number in range(40)]
    return write_lines(tmp_path / "in.ndjson", [*people, *(edge("Knows", f"n{number}", "Bob") for number in range(40))])


def _read_people(graph: Graph) -> tuple[set[str], int]:
    return names(graph), graph.view(fresh=True).table("Knows").to_arrow(["id"]).num_rows


def _recover_and_read(uri: str, told: str) -> tuple[set[str], int]:
    """What there is once everybody is back: what was left is ended, and told at most once."""
    age(uri)
    with acting(uri) as actor:
        actor.recover()
        assert actor.recover() == [], f"{told}: something is still pending"
        told_of = [audit["operation_id"] for audit in audits(actor.graph)]
        assert len(told_of) == len(set(told_of)), f"{told}: audited twice"
        assert actor.graph.verify().ok, told
        return _read_people(actor.graph)


def _strike(template: Path, uri: str, lines: Path, plan: FaultPlan) -> bool:
    """One load under a fault; whether there was such a request."""
    shutil.copytree(template, uri)
    error: OmnigraphError | None = None
    with acting(uri) as actor:
        actor.arm(plan)
        try:
            load(actor.graph, lines)
        except OmnigraphError as raised:
            error = raised
    told = f"{plan.hits[:2]} told {error!r}"
    with acting(uri) as reader:
        at_once = _read_people(reader.graph)
    in_the_end = _recover_and_read(uri, told)
    assert at_once in (_BEFORE, _AFTER), told
    assert in_the_end in (_BEFORE, _AFTER), told
    if error is None:
        assert at_once == in_the_end == _AFTER, f"{told}: acknowledged and not there"
    elif not isinstance(error, Unknown):
        assert at_once == in_the_end == _BEFORE, f"{told}: it appeared all the same"
    return bool(plan.hits)


def _plan(fault: Fault, n: int, times: int | None) -> FaultPlan:
    return FaultPlan.at(n, fault, kinds=None if fault in _ANY_REQUEST else EFFECTS, times=times)


@pytest.mark.parametrize("fault", _FAULTS)
def test_some_request_of_the_driver_fails(
    fault: Fault, template: Path, tmp_path: Path, lines: Path, sweep_seed: int
) -> None:
    chance = random.Random(f"{sweep_seed}/spark/{fault}")
    watched = _plan(fault, 10**9, None)
    assert not _strike(template, str(tmp_path / "counted"), lines, watched)
    assert watched.request_count > 3, "the intent, its plan, the record and its end at least"
    places = list(itertools.product(range(1, watched.request_count + 1), (1, None)))
    for number, (n, times) in enumerate(chance.sample(places, 2)):
        _strike(template, str(tmp_path / str(number)), lines, _plan(fault, n, times))


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, None], ids=["once", "for-good"])
@pytest.mark.parametrize("fault", _FAULTS)
def test_every_request_of_the_driver_fails(
    fault: Fault, times: int | None, template: Path, tmp_path: Path, lines: Path
) -> None:
    struck = itertools.takewhile(
        lambda n: _strike(template, str(tmp_path / str(n)), lines, _plan(fault, n, times)), itertools.count(1)
    )
    assert len(list(struck)) > 3
