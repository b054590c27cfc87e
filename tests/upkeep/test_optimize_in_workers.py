"""Optimize with its long work elsewhere: the tasks of Spark run here, so that every index kind and schedule is cheap.

The same on a real session: tests/upkeep/spark/test_compact.py. S124
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from omnigraph.log.indexes import list_schema_indexes
from omnigraph.storage.lance import RewriteOptions
from omnigraph.upkeep import optimize_on_spark
from omnigraph.upkeep.optimize import Optimizer, OptimizeReport
from omnigraph.upkeep.optimize_on_spark import SparkRewriteExecutor
from omnigraph.upkeep.verify.check_tables import find_index_disagreements
from tests.schedules.world import Actor, World
from tests.upkeep.cleanup.test_cleanup import find_unnamed_files, to_the_end
from tests.upkeep.upkeep_graphs import PATIENT, contents, fill, make_scattered


@pytest.fixture(autouse=True)
def tasks_run_here(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks every job had."""
    jobs: list[int] = []

    def run_here(session: object, count: int, work: Callable[[int], Iterable[dict[str, Any]]]) -> list[dict[str, Any]]:
        jobs.append(count)
        return [json.loads(json.dumps(result)) for number in range(count) for result in work(number)]

    def never(*_: object) -> None:
        raise AssertionError("the driver built an index")

    monkeypatch.setattr(optimize_on_spark, "run_tasks", run_here)
    monkeypatch.setattr(optimize_on_spark, "get_session", lambda **_: None)
    monkeypatch.setattr("omnigraph.storage.lance.table_store.build_index", never)
    return jobs


def run(actor: Actor, rows_per_part: int, **options: Any) -> OptimizeReport:
    workers = SparkRewriteExecutor(actor.runtime.backend.tables.location, rows_per_part=rows_per_part)
    return Optimizer(actor.runtime, actor.branch, options=RewriteOptions(**options), executor=workers).run()


def coverage(actor: Actor, table_key: str) -> dict[str, dict[str, Any]]:
    tables = {table["table_key"]: table for table in actor.graph.snapshot(indexes=True)["tables"]}
    return {index["name"]: index for index in tables[table_key]["indexes"]}


def assert_indexes_tell_the_truth(actor: Actor) -> None:
    snapshot = actor.snapshot()
    for type_def in snapshot.catalog.types:
        pinned = snapshot.view(type_def).pinned
        if pinned is not None:
            assert list(find_index_disagreements(pinned, list_schema_indexes(type_def, pinned), sample=40)) == []


def test_all_kinds_of_indexes_are_built_by_workers(world: World) -> None:
    actor = make_scattered(world, **PATIENT)
    before = contents(actor)
    report = run(actor, 1 << 22)
    assert (report.is_complete, len(report.commits)) == (True, 1)
    indexes = coverage(actor, "node:Person")
    assert {index["kind"] for index in indexes.values()} == {"BTREE", "INVERTED", "IVF_FLAT"}
    assert all((index["covered_rows"], index["segments"]) == (index["rows"], 1) for index in indexes.values())
    assert contents(world.reader()) == before
    assert_indexes_tell_the_truth(actor)
    assert run(actor, 1 << 22).commits == ()
    assert world.reader().graph.verify(deep=True).ok


def test_a_sorted_index_over_many_rows_has_parts(world: World, tasks_run_here: list[int]) -> None:
    actor = make_scattered(world, **PATIENT)
    before = contents(actor)
    assert run(actor, 100, target_rows=60).is_complete
    indexes = coverage(actor, "node:Person")
    assert {index["segments"] for index in indexes.values() if index["kind"] == "BTREE"} == {3}
    assert {index["segments"] for index in indexes.values() if index["kind"] != "BTREE"} == {1}
    assert max(tasks_run_here) > len(indexes)
    assert_indexes_tell_the_truth(actor)
    assert run(actor, 100, target_rows=60).commits == ()
    fill(actor, 80, 400)
    assert run(actor, 100, target_rows=60).is_complete
    later = [index for index in coverage(actor, "node:Person").values() if index["kind"] != "IVF_FLAT"]
    assert all(index["covered_rows"] == index["rows"] for index in later)  # too few vectors are read instead
    assert_indexes_tell_the_truth(actor)
    assert {name: len(rows) for name, rows in contents(world.reader()).items()} == {
        **{name: len(rows) for name, rows in before.items()},
        "Person": len(before["Person"]) + 80,
    }
    assert world.reader().graph.verify(deep=True).ok


def test_optimize_in_workers_always_opens_an_intent(world: World) -> None:  # H35
    actor, second_actor = make_scattered(world, **PATIENT), world.actor()
    before = contents(actor)
    with actor.hold_at("optimize.staged", lambda: run(actor, 100)) as running:
        assert [intent.operation for intent in second_actor.graph.recover_list()] == ["optimize"]
        to_the_end(second_actor, keep=1)
    assert len(running.result().commits) == 1
    to_the_end(second_actor, keep=1)
    assert (contents(world.reader()), find_unnamed_files(world)) == (before, [])
