"""Scenarios N: more that must hold. S162, S165, S166, S168, S170."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import ConstraintViolation, WriterFenced
from omnigraph.query.language.statements import Compare, Delete, Update
from tests.scenarios import workers
from tests.scenarios.bed import (
    SCHEMA,
    WAIT_S,
    GraphLocation,
    ScenarioBed,
    ScenarioProcess,
    at_once,
    company,
    knows,
    outcomes,
    person,
    rows_of,
    set_age,
    without,
    works_at,
)
from tests.support.processes import run_workers


@pytest.mark.parametrize("staged", [False, True], ids=["inline", "staged"])
@pytest.mark.parametrize("point", ["write.captured", "write.validated", "write.before-record"])
def test_s162_a_writer_in_flight_is_fenced_by_an_exclusive_open(
    local_bed: ScenarioBed, staged: bool, point: str
) -> None:
    process = local_bed.process(staged=staged)
    process.apply(person("a", 1))
    with process.hold_at(point, lambda: process.apply(person("late"))) as running:
        holder = local_bed.open(exclusive=True)
    error = running.exception(WAIT_S)
    assert isinstance(error, WriterFenced)
    assert not error.retryable
    assert error.advice
    assert local_bed.ages() == {"a": 1}
    for attempt in (
        partial(process.apply, person("again")),
        partial(process.apply, without("nobody")),
        partial(local_bed.process().apply, person("newcomer")),
    ):
        with pytest.raises(WriterFenced):
            attempt()
    holder.apply([person("b", 2)])
    holder.close()
    process.apply(person("c", 3))
    assert local_bed.ages() == {"a": 1, "b": 2, "c": 3}
    local_bed.assert_sound()


def test_s162_a_takeover_fences_the_former_holder_and_readers_go_on(local_bed: ScenarioBed) -> None:
    first, second = local_bed.open(exclusive=True), local_bed.open(exclusive=True)
    with pytest.raises(WriterFenced):
        first.apply([person("a")])
    second.apply([person("b")])
    assert rows_of(first, "Person").keys() == {"b"}
    assert rows_of(local_bed.process(read_only=True).graph, "Person").keys() == {"b"}
    first.close()
    second.apply([person("c")])
    second.close()
    third = local_bed.open(exclusive=True)
    with pytest.raises(WriterFenced):
        local_bed.process().apply(person("d"))
    third.close()
    local_bed.process().apply(person("d"))
    assert set(local_bed.ages()) == {"b", "c", "d"}


def test_s162_folds_are_fenced_and_forks_are_free(local_bed: ScenarioBed) -> None:
    process = local_bed.process(fold="never")
    process.apply(person("a", 1))
    with process.hold_at("fold.before-record", process.graph.fold) as running:
        holder = local_bed.open(exclusive=True)
    error = running.exception(WAIT_S)
    assert error is None or isinstance(error, WriterFenced)
    branch = holder.branch.create("dev")
    branch.apply([person("b", 2)])
    local_bed.process("dev").apply(person("c", 3))
    assert local_bed.ages("dev") == {"a": 1, "b": 2, "c": 3}
    holder.close()
    local_bed.assert_sound()


def _cost_of_insert(process: ScenarioProcess, name: str) -> tuple[Any, int, int, int]:
    before = process.backend.tables.io_stats()
    with process.meter.measure() as cost:
        receipt = process.apply(person(name))
    assert receipt.commit_id == process.publisher.head.commit_id, "it landed"
    lance = process.backend.tables.io_stats() - before
    return cost.by_kind_and_class, cost.hops, lance.read_iops, lance.write_iops


@pytest.mark.parametrize("staged", [False, True], ids=["inline", "staged"])
def test_s165_the_first_write_on_a_fresh_branch_costs_what_it_costs_on_main(
    local_bed: ScenarioBed, staged: bool
) -> None:
    main = local_bed.process(staged=staged, fold="never")
    main.apply(person("warm"), company("c"))
    main.apply(person("warmer"))
    branch = main.graph.branch.create("dev")
    on_main = _cost_of_insert(main, "a")
    main.graph = branch
    assert _cost_of_insert(main, "b") == on_main
    assert set(local_bed.ages("dev")) == {"warm", "warmer", "b"}


def test_s166_two_births_of_one_table_at_the_same_moment(bed: ScenarioBed) -> None:
    makers = [bed.process(staged=True, fold="never") for _ in range(bed.place.scale(6, 3))]
    successes, failed = outcomes(
        at_once(bed, [partial(process.apply, person(f"p{number}", number)) for number, process in enumerate(makers)])
    )
    assert not failed
    assert len(successes) == len(makers)
    assert bed.ages() == {f"p{number}": number for number in range(len(makers))}
    datasets = {key.split("/")[1] for key in bed.place.all_keys() if key.startswith("tables/")}
    assert len(datasets) == 1
    bed.assert_sound()


@pytest.mark.parametrize("crash", ["stage", "commit"])
def test_s166_one_of_them_crashes_half_way(bed: ScenarioBed, crash: str) -> None:
    """One stands before its record, the other dies after its own birth: one dataset is named, all rows are there."""
    first_process, victim = bed.process(staged=True, fold="never"), bed.process(staged=True, fold="never")
    with first_process.hold_at("write.before-record", lambda: first_process.apply(person("a", 1))) as running:
        point = "write.staged" if crash == "commit" else "write.validated"
        victim.crash_at(point, partial(victim.apply, person("lost", 9)))
        bed.process(staged=True, fold="never").apply(person("b", 2))
    running.result(WAIT_S)
    assert bed.ages() == {"a": 1, "b": 2}
    datasets = {key.split("/")[1] for key in bed.place.all_keys() if key.startswith("tables/")}
    assert len(datasets) == 1
    bed.assert_sound()


def test_s166_births_on_two_branches_at_once(local_bed: ScenarioBed) -> None:
    main = local_bed.process(staged=True, fold="never")
    main.graph.branch.create("dev")
    dev = local_bed.process("dev", staged=True, fold="never")
    with main.hold_at("write.before-record", lambda: main.apply(person("a", 1))) as running:
        dev.apply(person("b", 2))
    running.result(WAIT_S)
    assert local_bed.ages() == {"a": 1}
    assert local_bed.ages("dev") == {"b": 2}
    datasets = {key.split("/")[1] for key in local_bed.place.all_keys() if key.startswith("tables/")}
    assert len(datasets) == 1
    local_bed.assert_sound()


def test_s168_init_by_eight_processes_at_once(local_place: GraphLocation) -> None:
    results = run_workers(workers.init_graph, 8, {"uri": local_place.uri})
    answers = Counter(result.value for result in results)
    assert answers.pop("graph_exists") == 7
    ((graph_id, count),) = answers.items()
    assert count == 1
    graph = omnigraph.open(local_place.uri, config=omnigraph.Config(fsync=False))
    assert graph.graph_id == graph_id
    assert [info.kind for info in graph.commits()] == ["init"]
    graph.apply([person("a")])


FoldOrNot = Callable[[], object]
STEPS = pytest.mark.parametrize(
    "folds",
    list(itertools.product([False, True], repeat=2)),
    ids=lambda folds: "".join("F" if one else "-" for one in folds),
)


def _playing(bed: ScenarioBed, folds: tuple[bool, bool]) -> tuple[ScenarioProcess, list[FoldOrNot]]:
    process = bed.process(fold="never")
    return process, [process.graph.fold if fold else lambda: None for fold in folds]


@STEPS
def test_s170_update_and_delete_of_rows_that_are_only_in_the_overlay(
    local_bed: ScenarioBed, folds: tuple[bool, bool]
) -> None:
    writer, (first, second) = _playing(local_bed, folds)
    writer.apply(person("a", 1), person("b", 2), person("c", 3))
    first()
    writer.apply(person("d", 4), set_age("a", 10))
    assert writer.apply(set_age("d", 40)).counts["updated"] == 1
    assert writer.apply(Update("Person", {"city": "x"}, Compare("age", ">=", 10))).counts["updated"] == 2
    assert writer.apply(without("d")).counts["deleted"] == 1
    assert writer.apply(without("b")).counts["deleted"] == 1
    second()
    people = local_bed.rows("Person")
    assert {name: (row["age"], row["city"]) for name, row in people.items()} == {"a": (10, "x"), "c": (3, None)}
    writer.graph.fold()
    assert local_bed.rows("Person") == people
    local_bed.assert_sound()


@STEPS
def test_s170_delete_and_re_insert_across_a_fold(local_bed: ScenarioBed, folds: tuple[bool, bool]) -> None:
    writer, (first, second) = _playing(local_bed, folds)
    writer.apply(person("a", 1, email="a@x", city="Rome"))
    first()
    writer.apply(without("a"))
    second()
    assert local_bed.ages() == {}
    receipt = writer.apply(person("a", 2))
    assert receipt.counts["inserted"] == 1
    assert local_bed.rows("Person")["a"] == {"id": "a", "name": "a", "age": 2, "email": None, "city": None}
    writer.apply(person("b", email="a@x"))
    writer.graph.fold()
    assert local_bed.rows("Person")["a"]["age"] == 2
    local_bed.assert_sound()


@STEPS
def test_s170_cascade_into_overlay_edges(local_bed: ScenarioBed, folds: tuple[bool, bool]) -> None:
    writer, (first, second) = _playing(local_bed, folds)
    writer.apply(person("a"), person("b"), company("x"), knows("a", "b"))
    first()
    writer.apply(knows("b", "a"), works_at("a", "x"))
    second()
    assert writer.apply(without("a")).counts["deleted"] == 4
    assert (local_bed.edges(), local_bed.edges("WorksAt")) == (set(), set())
    writer.graph.fold()
    assert (local_bed.edges(), local_bed.edges("WorksAt")) == (set(), set())
    local_bed.assert_sound()


@STEPS
def test_s170_a_schema_change_over_a_non_empty_overlay(local_bed: ScenarioBed, folds: tuple[bool, bool]) -> None:
    writer, (first, second) = _playing(local_bed, folds)
    writer.apply(person("a", 1, city="Rome"))
    first()
    writer.apply(person("b", 2, city="Oslo"))
    changed = SCHEMA.replace("city: String?", 'town: String? @rename_from("city")  nick: String?')
    writer.graph.schema.apply(changed)
    second()
    people = local_bed.rows("Person")
    assert {name: (row["town"], row["nick"]) for name, row in people.items()} == {
        "a": ("Rome", None),
        "b": ("Oslo", None),
    }
    writer.graph.schema.apply(changed.replace("nick: String?", ""), allow_data_loss=True)
    writer.graph.schema.apply(changed)
    writer.apply(person("c", nick="cc"))
    assert {name: row["nick"] for name, row in local_bed.rows("Person").items()} == {"a": None, "b": None, "c": "cc"}
    local_bed.assert_sound()


@STEPS
def test_s170_forks_with_overlays_on_both_sides(local_bed: ScenarioBed, folds: tuple[bool, bool]) -> None:
    writer, (first, second) = _playing(local_bed, folds)
    writer.apply(person("a", 1), person("b", 2))
    first()
    writer.apply(set_age("a", 10))
    writer.graph.branch.create("dev")
    dev = local_bed.process("dev", fold="never")
    dev.apply(set_age("a", 20), without("b"), person("c", 3))
    writer.apply(set_age("b", 30), person("d", 4))
    second()
    assert local_bed.ages() == {"a": 10, "b": 30, "d": 4}
    assert local_bed.ages("dev") == {"a": 20, "c": 3}
    dev.graph.fold()
    writer.graph.fold()
    assert local_bed.ages() == {"a": 10, "b": 30, "d": 4}
    assert local_bed.ages("dev") == {"a": 20, "c": 3}
    local_bed.assert_sound()


@pytest.mark.parametrize("point", ["fold.captured", "fold.staged", "fold.before-record"])
@pytest.mark.parametrize("verb", ["insert", "update", "delete", "re-insert", "staged update", "staged delete", "edge"])
def test_s170_inline_and_staged_writes_against_a_fold(local_bed: ScenarioBed, point: str, verb: str) -> None:
    """A fold stands at each of its points while rows that it has taken are written again."""
    folder, writer = local_bed.process(fold="never"), local_bed.process(fold="never", staged=verb.startswith("staged"))
    folder.apply(person("a", 1), person("b", 2), knows("a", "b"))
    with folder.hold_at(point, folder.graph.fold) as running:
        if verb == "insert":
            writer.apply(person("c", 3))
        elif verb.endswith("update"):
            writer.apply(set_age("a", 9))
        elif verb.endswith("delete"):
            writer.apply(without("a"))
        elif verb == "re-insert":
            writer.apply(without("a"))
            writer.apply(person("a", 7))
        else:
            writer.apply(Delete("Knows", Compare("from", "=", "a")))
    running.result(WAIT_S)
    expected: dict[str, dict[str, int | None]] = {
        "insert": {"a": 1, "b": 2, "c": 3},
        "update": {"a": 9, "b": 2},
        "staged update": {"a": 9, "b": 2},
        "delete": {"b": 2},
        "staged delete": {"b": 2},
        "re-insert": {"a": 7, "b": 2},
        "edge": {"a": 1, "b": 2},
    }
    for _ in range(2):
        assert local_bed.ages() == expected[verb]
        assert local_bed.edges() == ({("a", "b")} if verb in ("insert", "update", "staged update") else set())
        local_bed.process(fold="never").graph.fold()
    local_bed.assert_sound()


def test_s170_rules_hold_across_overlay_and_tables(local_bed: ScenarioBed) -> None:
    """Uniqueness, endpoints and cardinality count rows wherever they are."""
    process = local_bed.process(fold="never")
    process.apply(person("a", email="a@x"), company("x"), company("y"), company("z"), works_at("a", "x"))
    process.graph.fold()
    process.apply(person("b", email="b@x"), works_at("a", "y"))
    for broken in (
        person("c", email="a@x"),
        person("c", email="b@x"),
        works_at("a", "z"),
        knows("a", "nobody"),
    ):
        with pytest.raises(ConstraintViolation):
            process.apply(broken)
    process.apply(Update("Person", {"email": None}, Compare("name", "=", "a")))
    process.apply(person("c", email="a@x"))
    process.apply(Delete("WorksAt", Compare("to", "=", "x")))
    process.apply(works_at("a", "z"))
    assert local_bed.edges("WorksAt") == {("a", "y"), ("a", "z")}
