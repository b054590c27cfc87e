"""Scenarios B: concurrency and compare-and-swap. S18 to S41."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from omnigraph.commit.publish_plan import Receipt
from omnigraph.commit.publisher import PlanPublished
from omnigraph.errors import (
    ConstraintViolation,
    Contention,
    KeyConflict,
    PreconditionFailed,
    ReadSetChanged,
    SnapshotExpired,
)
from omnigraph.log.commit_record import Stub
from omnigraph.log.stream import record_key
from omnigraph.query.language.statements import Compare, Delete, Statement, Update
from omnigraph.storage.keys import KeyClass
from omnigraph.storage.metering import RequestKind
from tests.scenarios import workers
from tests.scenarios.bed import (
    WAIT_S,
    GraphLocation,
    ScenarioBed,
    ScenarioProcess,
    at_once,
    by_name,
    company,
    knows,
    outcomes,
    person,
    rows_of,
    set_age,
    wait_until,
    without,
    works_at,
)
from tests.scenarios.conftest import s3_as_place
from tests.support.faulty_store import Fault, FaultPlan
from tests.support.processes import run_workers
from tests.support.proxy import Proxy
from tests.support.s3 import S3Place
from tests.support.throttled_store import ThrottledStore

RECORD_PUT: dict[str, Any] = {"kinds": [RequestKind.PUT], "key_classes": [KeyClass.RECORD]}
STAGED = pytest.mark.parametrize("staged", [False, True], ids=["inline", "staged"])


def _strict_race(bed: ScenarioBed, racers: int, *, staged: bool = False) -> None:
    racing = [bed.process(staged=staged) for _ in range(racers)]
    successes, failed = outcomes(
        at_once(bed, [partial(process.apply, person("ada", n, strict=True)) for n, process in enumerate(racing)])
    )
    assert len(successes) == 1, failed
    assert len(failed) == racers - 1
    for error in failed:
        assert isinstance(error, KeyConflict), error
        assert error.details["key_conflict"] == {"table_key": "node:Person", "id": "ada"}
        assert "ada" in str(error)
    assert len(bed.logical()) == 1
    assert set(bed.ages()) == {"ada"}


def test_s18_of_sixteen_strict_inserts_of_one_key_one_wins(race_bed: ScenarioBed) -> None:
    _strict_race(race_bed, 16)


def test_s18_staged(local_bed: ScenarioBed) -> None:
    _strict_race(local_bed, 8, staged=True)


@pytest.mark.s3
def test_s18_on_seaweedfs(seaweed_place: S3Place) -> None:
    """The one race on the second server that every run plays."""
    bed = ScenarioBed(s3_as_place("seaweed", seaweed_place), "never", "s18")
    _strict_race(bed, 16)
    bed.close()


def test_s18_in_the_queue_of_one_process(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    successes, failed = outcomes(
        at_once(local_bed, [partial(process.apply, person("ada", n, strict=True)) for n in range(16)])
    )
    assert len(successes) == 1
    assert all(isinstance(error, KeyConflict) for error in failed), failed
    assert local_bed.ages() == {"ada": rows_of(process.graph, "Person")["ada"]["age"]}


@STAGED
def test_s18_two_strict_inserts_of_one_key_by_schedule(local_bed: ScenarioBed, staged: bool) -> None:
    first_process, second_process = local_bed.process(staged=staged), local_bed.process(staged=staged)
    with first_process.hold_at(
        "write.before-record", lambda: first_process.apply(person("ada", 1, strict=True))
    ) as running:
        second_process.apply(person("ada", 2, strict=True))
    with pytest.raises(KeyConflict) as caught:
        running.result()
    assert caught.value.details["key_conflict"] == {"table_key": "node:Person", "id": "ada"}
    assert local_bed.ages() == {"ada": 2}


@STAGED
def test_s19_inserts_of_disjoint_keys_all_commit(race_bed: ScenarioBed, staged: bool) -> None:
    count = race_bed.place.scale(6, 4) if staged else 16  # a staged write may be re-committed eight times
    racing = [race_bed.process(staged=staged) for _ in range(count)]
    successes, failed = outcomes(
        at_once(race_bed, [partial(process.apply, person(f"p{n}", n)) for n, process in enumerate(racing)])
    )
    assert not failed
    assert len({receipt.commit_id for receipt in successes}) == count
    assert len(race_bed.logical()) == count
    assert race_bed.ages() == {f"p{n}": n for n in range(count)}


def test_s20_eight_processes_on_one_branch(race_bed: ScenarioBed) -> None:
    """Real processes. Every record shows the three tables equally long; every acknowledged commit is in the chain."""
    rows, count = race_bed.place.scale(8, 2), 8
    args = {"uri": race_bed.place.uri, "config": {"fold": race_bed.fold}, "rows": rows}
    results = run_workers(workers.insert_pairs, count, args, env=race_bed.place.env)
    acknowledged = {message["row"]: message["commit_id"] for result in results for message in result.messages}
    assert len(acknowledged) == count * rows
    for record in race_bed.chain():
        assert len({pin.rows for pin in record.pins.values()}) <= 1, f"torn tables at {record.commit_id}"
    landed = {record.commit_id for record in race_bed.logical()}
    assert set(acknowledged.values()) == landed
    assert set(race_bed.rows("Person")) == set(race_bed.rows("Company")) == set(acknowledged)
    assert race_bed.edges("WorksAt") == {(receipt, receipt) for receipt in acknowledged}


def test_s21_branches_proceed_independently(bed: ScenarioBed) -> None:
    branches, writers = bed.place.scale(8, 3), bed.place.scale(8, 3)
    home = bed.process()
    home.apply(person("root"))
    names = [f"b{number}" for number in range(branches)]
    for name in names:
        home.graph.branch.create(name)
    works: list[Callable[[], Receipt]] = []
    for name in names:
        for number in range(writers):
            process = bed.process(name)
            works.append(partial(process.apply, person(f"{name}-{number}")))
    _, failed = outcomes(at_once(bed, works))
    assert not failed
    for name in names:
        assert set(bed.ages(name)) == {"root"} | {f"{name}-{number}" for number in range(writers)}
        assert len(bed.logical(name)) == writers
    assert set(bed.ages()) == {"root"}


@STAGED
def test_s22_a_stale_insert_runs_again_on_the_live_state(bed: ScenarioBed, staged: bool) -> None:
    first_process, second_process = bed.process(staged=staged), bed.process()
    with first_process.hold_at("write.validated", lambda: first_process.apply(person("ada", 3))) as running:
        second_process.apply(person("ada", 1, email="a@x", city="Rome"))
    assert running.result().counts == {"inserted": 0, "updated": 1, "deleted": 0}
    assert running.result().attempts == 2
    assert bed.rows("Person")["ada"] == {"id": "ada", "name": "ada", "age": 3, "email": "a@x", "city": "Rome"}


@STAGED
def test_s22_and_checks_uniqueness_again(bed: ScenarioBed, staged: bool) -> None:
    first_process, second_process = bed.process(staged=staged), bed.process()
    with first_process.hold_at(
        "write.validated", lambda: first_process.apply(person("ada", email="same@x"))
    ) as running:
        second_process.apply(person("bob", email="same@x"))
    with pytest.raises(ConstraintViolation) as caught:
        running.result()
    (violation,) = caught.value.violations
    assert (violation["rule"], violation["id"], violation["value"]) == ("unique", "ada", "same@x")
    assert set(bed.ages()) == {"bob"}


@STAGED
def test_s23_a_stale_update_runs_again_and_is_serial(bed: ScenarioBed, staged: bool) -> None:
    first_process, second_process = bed.process(staged=staged), bed.process()
    first_process.apply(person("a", 10), person("b", 20))
    older = Update("Person", {"city": "old"}, Compare("age", ">", 15))
    with first_process.hold_at("write.validated", lambda: first_process.apply(older)) as running:
        second_process.apply(set_age("a", 30), set_age("b", 5))
    assert running.result().counts["updated"] == 1
    assert {name: row["city"] for name, row in bed.rows("Person").items()} == {"a": "old", "b": None}


@STAGED
def test_s23_a_stale_delete_runs_again_and_is_serial(bed: ScenarioBed, staged: bool) -> None:
    first_process, second_process = bed.process(staged=staged), bed.process()
    first_process.apply(person("a", 10), person("b", 20))
    with first_process.hold_at(
        "write.validated", lambda: first_process.apply(Delete("Person", Compare("age", ">", 15)))
    ) as running:
        second_process.apply(set_age("a", 30), set_age("b", 5), person("c", 40))
    assert running.result().counts["deleted"] == 2
    assert bed.ages() == {"b": 5}


@STAGED
@pytest.mark.parametrize("verb", ["update", "delete", "insert"])
def test_s23_on_conflict_fail_gets_the_conflict(bed: ScenarioBed, staged: bool, verb: str) -> None:
    first_process, second_process = bed.process(staged=staged), bed.process(fold="never")
    first_process.apply(person("a", 10))
    base = second_process.head
    statements: dict[str, Statement] = {"update": set_age("a", 11), "delete": without("a"), "insert": person("a", 12)}
    statement = statements[verb]
    with first_process.hold_at(
        "write.validated", lambda: first_process.apply(statement, on_conflict="fail")
    ) as running:
        receipt = second_process.apply(set_age("a", 99))
    with pytest.raises(ReadSetChanged) as caught:
        running.result()
    (table,) = second_process.head.touched
    assert caught.value.manifest_conflict == {
        "table_key": "node:Person",
        "expected": base.pins[table].changed_seq,
        "actual": second_process.head.seq,
    }
    assert caught.value.code == "conflict"
    assert caught.value.retryable
    assert str(caught.value) == (
        f"stale view of 'node:Person': expected table version {base.pins[table].changed_seq} "
        f"but current is {second_process.head.seq}; refresh and retry"
    )
    assert bed.logical()[-1].commit_id == receipt.commit_id
    assert bed.ages() == {"a": 99}


def test_s23_a_transaction_gets_the_conflict(bed: ScenarioBed) -> None:
    first_process, second_process = bed.process(), bed.process()
    first_process.apply(person("a", 10))
    txn = first_process.graph.transaction().__enter__()
    txn.mutate("query q() { update Person set { age: 11 } where age = 10 }")
    second_process.apply(set_age("a", 99))
    with pytest.raises(ReadSetChanged) as caught:
        txn.__exit__(None, None, None)
    assert caught.value.manifest_conflict is not None
    assert caught.value.manifest_conflict["table_key"] == "node:Person"
    assert bed.ages() == {"a": 99}
    with first_process.graph.transaction() as txn:
        txn.mutate('query q() { update Person set { age: 11 } where name = "a" }')
        second_process.apply(person("b", 1))
    assert bed.ages() == {"a": 11, "b": 1}, "a commit that touches nothing it read is no conflict"


@STAGED
def test_s24_the_budget_of_new_attempts_ends_in_contention(bed: ScenarioBed, staged: bool) -> None:
    first_process, second_process = (
        bed.process(staged=staged, publish_max_rounds=4, publish_max_prepares=2),
        bed.process(),
    )
    first_process.apply(person("a", 0))
    for number in range(1, 8):
        first_process.pauses.call_at("write.validated", partial(second_process.apply, set_age("a", number)), number)
    with pytest.raises(Contention) as caught:
        first_process.apply(Update("Person", {"city": "never"}, by_name("a")))
    assert caught.value.retryable
    assert caught.value.details["attempts"] == (3 if staged else 4)
    assert bed.rows("Person")["a"]["city"] is None
    assert bed.rows("Person")["a"]["age"] == caught.value.details["attempts"]


def test_s24_lost_rounds_end_in_contention_too(bed: ScenarioBed) -> None:
    """Nobody meets the writer's rows, but somebody is always faster."""
    first_process, second_process = bed.process(publish_max_rounds=3), bed.process(fold="never")
    for number in range(1, 8):
        first_process.pauses.call_at("write.before-record", partial(second_process.apply, person(f"o{number}")), number)
    with pytest.raises(Contention) as caught:
        first_process.apply(person("mine"))
    assert caught.value.details["attempts"] == 3
    assert set(bed.ages()) == {"o1", "o2", "o3"}


def test_s25_an_expected_head_is_accepted(bed: ScenarioBed) -> None:
    process = bed.process()
    first = process.apply(person("a", 1))
    process.graph.fold()
    second = process.apply(person("b", 2), if_commit=first.commit_id)
    assert second.commit_id is not None, "a fold after the named commit changes nothing"
    bed.process().apply(person("c", 3), if_commit=bed.process().graph.view().commit_id)
    assert set(bed.ages()) == {"a", "b", "c"}


@pytest.mark.parametrize("point", [None, "write.captured", "write.validated", "write.before-record"])
def test_s25_a_stale_head_is_final_even_for_inserts(bed: ScenarioBed, point: str | None) -> None:
    """`point`: the other commit lands while ours is on its way, and shares no row with it."""
    first_process, second_process = bed.process(), bed.process()
    first = first_process.apply(person("a", 1)).commit_id

    def conditional() -> Receipt:
        return first_process.apply(person("mine"), if_commit=first)

    if point is None:
        second_process.apply(person("other"))
        running: Future[Receipt] = bed.start(conditional)
    else:
        with first_process.hold_at(point, conditional) as running:
            second_process.apply(person("other"))
    error = running.exception(WAIT_S)
    assert isinstance(error, PreconditionFailed), error
    assert not error.retryable
    assert error.details["expected"] == first
    assert set(bed.ages()) == {"a", "other"}


def test_s26_of_a_conditional_update_and_a_conditional_delete_one_wins(bed: ScenarioBed) -> None:
    first_process, second_process = bed.process(), bed.process()
    base = first_process.apply(person("a", 1)).commit_id
    successes, failed = outcomes(
        at_once(
            bed,
            [
                lambda: first_process.apply(set_age("a", 2), if_commit=base),
                lambda: second_process.apply(without("a"), if_commit=base),
            ],
        )
    )
    assert (len(successes), len(failed)) == (1, 1)
    assert isinstance(failed[0], PreconditionFailed)
    assert bed.ages() == ({} if successes[0].counts["deleted"] else {"a": 2})


@pytest.mark.parametrize("update_first", [True, False])
def test_s26_by_schedule(local_bed: ScenarioBed, update_first: bool) -> None:
    first_process, second_process = local_bed.process(), local_bed.process()
    base = first_process.apply(person("a", 1)).commit_id
    works = [
        lambda: first_process.apply(set_age("a", 2), if_commit=base),
        lambda: second_process.apply(without("a"), if_commit=base),
    ]
    late, early = (1, 0) if update_first else (0, 1)
    held_process = (first_process, second_process)[late]
    with held_process.hold_at("write.before-record", works[late]) as running:
        works[early]()
    assert isinstance(running.exception(WAIT_S), PreconditionFailed)
    assert local_bed.ages() == ({"a": 2} if update_first else {})


def test_s27_uniqueness_changed_between_stage_and_publish_is_caught(bed: ScenarioBed) -> None:
    first_process, second_process = bed.process(staged=True), bed.process()
    with first_process.hold_at("write.staged", lambda: first_process.apply(person("ada", email="same@x"))) as running:
        second_process.apply(person("bob", email="same@x"))
    with pytest.raises(ConstraintViolation):
        running.result()
    with first_process.hold_at("write.staged", lambda: first_process.apply(person("ada", email="free@x"))) as running:
        second_process.apply(Update("Person", {"email": "free@x"}, by_name("bob")))
    with pytest.raises(ConstraintViolation):
        running.result()
    assert set(bed.ages()) == {"bob"}


def test_s27_a_value_freed_in_between_may_be_used(bed: ScenarioBed) -> None:
    first_process, second_process = bed.process(), bed.process()
    first_process.apply(person("bob", email="same@x"))
    first_process.head  # noqa: B018 - it has seen bob
    second_process.apply(without("bob"))
    first_process.apply(person("ada", email="same@x"))
    assert set(bed.ages()) == {"ada"}


@STAGED
def test_s28_cardinality_from_a_stale_handle_is_caught(bed: ScenarioBed, staged: bool) -> None:
    """WorksAt is at most two per person."""
    first_process, second_process = bed.process(staged=staged), bed.process()
    first_process.apply(person("p"), company("a"), company("b"), company("c"), works_at("p", "a"))
    second_process.apply(works_at("p", "b"))
    with pytest.raises(ConstraintViolation) as caught:
        first_process.apply(works_at("p", "c"))
    assert {violation["rule"] for violation in caught.value.violations} == {"cardinality"}
    second_process.apply(Delete("WorksAt", Compare("to", "=", "b")))
    with first_process.hold_at("write.before-record", lambda: first_process.apply(works_at("p", "c"))) as running:
        second_process.apply(works_at("p", "b"))
    with pytest.raises(ConstraintViolation):
        running.result()
    assert bed.edges("WorksAt") == {("p", "a"), ("p", "b")}


@STAGED
def test_s29_writers_of_disjoint_tables_do_not_abort_each_other(bed: ScenarioBed, staged: bool) -> None:
    """Both land with the table work they did at first: nothing is staged or re-committed again."""
    first_process, second_process = bed.process(staged=staged, fold="never"), bed.process(staged=staged, fold="never")
    first_process.apply(person("p"), company("c"))
    second_process.graph.refresh()
    counted = {
        name: [process.count_calls(name) for process in (first_process, second_process)]
        for name in ("stage", "restage", "commit")
    }
    with (
        first_process.hold_at(
            "write.before-record", lambda: first_process.apply(person("q", strict=True), on_conflict="fail")
        ) as first,
        second_process.hold_at(
            "write.validated", lambda: second_process.apply(company("d"), on_conflict="fail")
        ) as second,
    ):
        bed.process(fold="never").apply(knows("p", "p"))
    assert (first.result().attempts, second.result().attempts) == (1, 1)
    work = 1 if staged else 0
    assert [len(calls) for calls in counted["stage"]] == [work, work]
    assert [len(calls) for calls in counted["commit"]] == [work, work]
    assert counted["restage"] == [[], []]
    assert set(bed.rows("Person")) == {"p", "q"}
    assert set(bed.rows("Company")) == {"c", "d"}


@STAGED
@pytest.mark.parametrize("late", ["delete", "insert"])
@pytest.mark.parametrize("end", ["from", "to"])
def test_s30_node_removal_against_edge_insert_never_leaves_an_orphan(
    bed: ScenarioBed, staged: bool, late: str, end: str
) -> None:
    first_process, second_process = bed.process(staged=staged), bed.process()
    first_process.apply(person("a"), person("b"))
    second_process.graph.refresh()
    edge = knows("a", "b") if end == "from" else knows("b", "a")
    held_statement, quick = (without("a"), edge) if late == "delete" else (edge, without("a"))
    with first_process.hold_at("write.before-record", lambda: first_process.apply(held_statement)) as running:
        second_process.apply(quick)
    error = running.exception(WAIT_S)
    if late == "delete":
        assert error is None
        assert running.result().counts["deleted"] == 2, "the edge goes with its node"
    else:
        assert isinstance(error, ConstraintViolation)
    assert set(bed.rows("Person")) == {"b"}
    assert bed.edges() == set()
    with pytest.raises(ConstraintViolation):
        bed.process().apply(edge)


def test_s30_write_skew_on_a_predicate_is_serial(bed: ScenarioBed) -> None:
    """Each would change what the other selects: whichever comes second sees the first."""
    first_process, second_process = bed.process(), bed.process()
    first_process.apply(person("a", 60), person("b", 10))
    with first_process.hold_at(
        "write.before-record", lambda: first_process.apply(Update("Person", {"age": 10}, Compare("age", ">", 50)))
    ) as running:
        second_process.apply(Update("Person", {"age": 60}, Compare("age", "<", 50)))
    assert running.result().counts["updated"] == 2
    assert bed.ages() == {"a": 10, "b": 10}


def test_s30_a_phantom_is_selected(bed: ScenarioBed) -> None:
    first_process, second_process = bed.process(), bed.process()
    first_process.apply(person("a", 60))
    with first_process.hold_at(
        "write.before-record", lambda: first_process.apply(Update("Person", {"city": "x"}, Compare("age", ">", 50)))
    ) as running:
        second_process.apply(person("b", 70), person("c", 1))
    running.result()
    assert {name: row["city"] for name, row in bed.rows("Person").items()} == {"a": "x", "b": "x", "c": None}


def _on_two_branches(bed: ScenarioBed) -> tuple[ScenarioProcess, ScenarioProcess]:
    main = bed.process(staged=True)
    main.apply(*[person(f"p{number}", number) for number in range(10)])
    main.graph.branch.create("a")
    main.graph.branch.create("b")
    return bed.process("a", staged=True), bed.process("b", staged=True)


def test_s31_branches_that_name_the_same_pin_diverge_independently(bed: ScenarioBed) -> None:
    first, second = _on_two_branches(bed)
    assert first.head.pins == second.head.pins
    first.apply(set_age("p0", 100), without("p1"))
    second.apply(set_age("p0", 200), person("new", 1))
    base = {f"p{number}": number for number in range(10)}
    assert bed.ages() == base
    assert bed.ages("a") == {name: age for name, age in {**base, "p0": 100}.items() if name != "p1"}
    assert bed.ages("b") == {**base, "p0": 200, "new": 1}
    bed.assert_sound()


def test_s32_pins_made_on_different_branches_never_alias(bed: ScenarioBed) -> None:
    first, second = _on_two_branches(bed)
    states: list[tuple[ScenarioProcess, str, dict[str, Any]]] = []
    for number in range(4):
        for process in (first, second):
            receipt = process.apply(set_age("p0", 1000 * number + (process is second)))
            assert receipt.commit_id is not None
            states.append((process, receipt.commit_id, rows_of(process.graph, "Person")))
    chains = {name: bed.chain(name) for name in ("a", "b", "main")}
    for table in chains["a"][-1].pins:
        versions = {
            name: {record.pins[table].version for record in chain if table in record.pins}
            for name, chain in chains.items()
        }
        assert versions["a"] & versions["b"] <= versions["main"], "two branches share only what they were born with"
    for _, commit_id, rows in states:
        assert rows_of(bed.process().graph.at(commit_id), "Person") == rows
    for name in ("a", "b"):
        ordered = [record.seq for record in chains[name]]
        assert ordered == sorted(ordered), "order is the graph's own sequence, whatever the ids of the versions"


def test_s33_a_pin_taken_over_by_another_stream_keeps_its_rows(bed: ScenarioBed) -> None:
    """A branch from the middle of another branch names versions made there; its own writes build on them."""
    first, _ = _on_two_branches(bed)
    middle = first.apply(person("x", 1), without("p2"))
    assert middle.commit_id is not None
    rows = rows_of(first.graph, "Person")
    first.apply(without("x"), without("p3"))
    first.graph.branch.create("c", middle.commit_id)
    taker = bed.process("c", staged=True)
    assert rows_of(taker.graph, "Person") == rows
    taker.apply(set_age("x", 2), person("y", 3))
    assert bed.rows("Person", "c") == {
        **rows,
        "x": {**rows["x"], "age": 2},
        "y": {"id": "y", "name": "y", "age": 3, "email": None, "city": None},
    }
    bed.assert_sound()


def _data_files(store_place: GraphLocation) -> list[str]:
    return [key for key in store_place.all_keys() if "/data/" in key]


def test_s34_a_refused_record_is_built_anew_from_the_same_data_files(race_bed: ScenarioBed) -> None:
    """Two staged inserts of different keys into one table: the loser re-commits its fragments, rewriting nothing."""
    first_process, second_process = (
        race_bed.process(staged=True, fold="never"),
        race_bed.process(staged=True, fold="never"),
    )
    first_process.apply(person("first"))
    second_process.graph.refresh()
    files = len(_data_files(race_bed.place))
    staged, restaged = first_process.count_calls("stage"), first_process.count_calls("restage")
    with first_process.hold_at(
        "write.before-record", lambda: first_process.apply(person("a", 1), person("b", 2))
    ) as running:
        assert len(_data_files(race_bed.place)) == files + 1
        second_process.apply(person("c", 3))
        assert len(_data_files(race_bed.place)) == files + 2
    result = running.result()
    assert len(_data_files(race_bed.place)) == files + 2, "no data was written a second time"
    assert (len(staged), len(restaged)) == (1, 1)
    assert result.commit_id == race_bed.chain()[-1].commit_id
    assert race_bed.ages() == {"first": None, "a": 1, "b": 2, "c": 3}
    race_bed.assert_sound()


def test_s34_an_inline_loser_costs_one_look_and_one_put(race_bed: ScenarioBed) -> None:
    first_process, second_process = race_bed.process(fold="never"), race_bed.process(fold="never")
    first_process.apply(person("warm"))
    second_process.graph.refresh()
    with first_process.meter.measure() as cost:
        with first_process.hold_at("write.before-record", lambda: first_process.apply(person("a", 1))) as running:
            second_process.apply(person("b", 2))
        assert running.result().attempts == 1
    assert cost.by_kind[RequestKind.PUT] == 2
    assert cost.by_kind[RequestKind.LIST] == 0
    assert cost.hops <= 4, cost.describe()
    assert race_bed.ages() == {"warm": None, "a": 1, "b": 2}


@pytest.mark.parametrize(
    "fault",
    [Fault.LOSE_ANSWER, Fault.EXISTS_AFTER_EFFECT, Fault.EXISTS_WITHOUT_EFFECT, Fault.FAIL_BEFORE],
    ids=["s35 answer lost", "s36 412 after success", "409 without effect", "never arrived"],
)
@STAGED
def test_s35_s36_an_unclear_answer_is_looked_into(race_bed: ScenarioBed, fault: Fault, staged: bool) -> None:
    """Whatever the answer to the PUT of the record, the write is there once and acknowledged at its place."""
    process = race_bed.process(staged=staged, fold="never")
    process.apply(person("warm"))
    plan = process.fail(FaultPlan.at(1, fault, **RECORD_PUT))
    receipt = process.apply(person("a", 1))
    assert len(plan.hits) == 1
    assert receipt.commit_id == race_bed.chain()[-1].commit_id
    assert receipt.attempts == 1
    assert len(race_bed.logical()) == 2
    assert race_bed.ages() == {"warm": None, "a": 1}


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.EXISTS_WITHOUT_EFFECT])
def test_s35_several_unclear_answers_in_a_row(local_bed: ScenarioBed, fault: Fault, times: int) -> None:
    process = local_bed.process(fold="never")
    process.fail(FaultPlan.at(1, fault, **RECORD_PUT, times=times))
    receipt = process.apply(person("a", 1))
    assert receipt.commit_id == local_bed.chain()[-1].commit_id
    assert len(local_bed.logical()) == 1


def test_s35_an_answer_lost_to_a_competitor_is_a_lost_race(local_bed: ScenarioBed) -> None:
    """Our PUT never arrived, another record has the seq: refused, and landed one later."""
    first_process, second_process = local_bed.process(fold="never"), local_bed.process(fold="never")
    first_process.fail(FaultPlan.at(1, Fault.FAIL_BEFORE, **RECORD_PUT))
    first_process.pauses.call_at("write.before-record", lambda: second_process.apply(person("b", 2)))
    receipt = first_process.apply(person("a", 1))
    assert [record.commit_id for record in local_bed.logical()][-1] == receipt.commit_id
    assert local_bed.ages() == {"a": 1, "b": 2}


@pytest.mark.s3
@pytest.mark.parametrize("how", ["drop_answer", "503_after", "409", "503", "drop_request"])
def test_s35_s36_on_the_wire(s3_proxy: Proxy, proxied_place: S3Place, how: Any) -> None:
    """The client repeats requests by itself, so an own success may come back as 412."""
    bed = ScenarioBed(s3_as_place("moto", proxied_place), "never", how)
    process = bed.process()
    fault = s3_proxy.fail(how, method="PUT", key_class="record")
    receipt = process.apply(person("a", 1))
    assert fault.hits >= 1
    assert receipt.commit_id == bed.chain()[-1].commit_id
    assert len(bed.logical()) == 1
    assert bed.ages() == {"a": 1}
    bed.close()


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.parametrize("how", ["drop_answer", "503_after"])
def test_s35_s36_on_the_wire_of_seaweedfs(seaweed_proxy: Proxy, proxied_seaweed_place: S3Place, how: Any) -> None:
    bed = ScenarioBed(s3_as_place("seaweed", proxied_seaweed_place), "never", how)
    process = bed.process()
    seaweed_proxy.fail(how, method="PUT", key_class="record")
    receipt = process.apply(person("a", 1))
    assert receipt.commit_id == bed.chain()[-1].commit_id
    assert bed.ages() == {"a": 1}
    bed.close()


@pytest.mark.parametrize("slowness", ["slow preparation", "slow requests"])
def test_s37_a_slow_writer_among_fast_ones_commits_within_a_bound(bed: ScenarioBed, slowness: str) -> None:
    """Two writers commit as fast as they can; the third stages tables and thinks for ten round trips, or its requests
    take four times as long. It must land within its deadline, again and again."""
    latency_s = 0.01
    slow_s = latency_s if slowness == "slow preparation" else 4 * latency_s
    slow = bed.process(
        staged=slowness == "slow preparation",
        fold="never",
        publish_deadline_s=15.0,
        wrap=lambda store: ThrottledStore(store, slow_s),
    )
    fast = [bed.process(fold="never", wrap=lambda store: ThrottledStore(store, latency_s)) for _ in range(2)]
    stop = threading.Event()

    def hurry(process: ScenarioProcess, number: int) -> int:
        write_count = 0
        while not stop.is_set():
            process.apply(person(f"fast{number}", write_count))
            write_count += 1
        return write_count

    running = [bed.start(partial(hurry, process, number)) for number, process in enumerate(fast)]
    try:
        for number in range(4):
            if slowness == "slow preparation":
                slow.pauses.call_at("write.validated", lambda: stop.wait(10 * latency_s))
            assert slow.apply(person(f"slow{number}")).commit_id is not None
    finally:
        stop.set()
    assert all(process.result(WAIT_S) > 0 for process in running)
    assert {f"slow{number}" for number in range(4)} <= set(bed.ages())


def _start_together(
    bed: ScenarioBed, process: ScenarioProcess, works: Sequence[Callable[[], Receipt]]
) -> list[Future[Receipt]]:
    """Start all of them while a first record is on its way, so that they wait in one queue; then let go."""
    with process.hold_at("write.before-record", lambda: process.apply(person("first"))):
        running = [bed.start(work) for work in works]
        wait_until(lambda: len(process.publisher._queue) == len(works) + 1, "the writers to queue")
    return running


def test_s38_one_invalid_writer_of_a_group_fails_alone(bed: ScenarioBed) -> None:
    process = bed.process()
    works = [partial(process.apply, person(f"p{n}", n), actor=f"actor{n}") for n in range(6)]
    rivals = [partial(process.apply, person(f"rival{n}", email="same@x")) for n in range(2)]
    successes, failed = outcomes(_start_together(bed, process, [*works[:3], *rivals, *works[3:]]))
    assert len(successes) == 7
    (error,) = failed
    assert isinstance(error, ConstraintViolation)
    assert {f"p{n}" for n in range(6)} <= set(bed.ages())
    together = max(bed.logical(), key=lambda record: len(record.members))
    assert len(together.members) >= 7, "they shared a record"
    assert {member.actor for member in together.members} >= {f"actor{n}" for n in range(6)}
    assert len({receipt.commit_id for receipt in successes}) == 1
    bed.assert_sound()


@pytest.mark.parametrize("point", ["write.before-record", "write.after-record"])
def test_s39_a_crash_takes_a_whole_group_or_nothing_of_it(bed: ScenarioBed, point: str) -> None:
    args = {"uri": bed.place.uri, "config": {"fold": "never"}, "point": point, "writers": 5}
    (result,) = run_workers(workers.group_then_crash, 1, args, env=bed.place.env, check=False)
    assert result.exit_code == -9, result.output
    assert result.messages == ({"queued": 6},)
    group = {f"g{n}" for n in range(5)}
    assert set(bed.ages()) == ({"first"} if point == "write.before-record" else {"first"} | group)
    bed.process().apply(person("next"))
    bed.assert_sound()


def test_s40_writers_of_one_row_never_share_a_record(bed: ScenarioBed) -> None:
    process = bed.process()
    process.apply(person("same", 0), person("a"), person("b"))
    works: list[Callable[[], Receipt]] = [partial(process.apply, set_age("same", n)) for n in range(1, 5)]
    works += [lambda: process.apply(knows("a", "b")), lambda: process.apply(without("b"))]
    successes, failed = outcomes(_start_together(bed, process, works))
    assert all(isinstance(error, ConstraintViolation) for error in failed)
    writing = Counter(receipt.commit_id for receipt in successes[:4])
    assert set(writing.values()) == {1}, "each update of the row is a commit of its own"
    assert bed.edges() == set()
    bed.assert_sound()


def _replace_by_stubs(bed: ScenarioBed, process: ScenarioProcess, seqs: Sequence[int]) -> None:
    """What cleanup leaves of old commits: a stub under the same name."""
    store = bed.store()
    for seq in seqs:
        record = process.runtime.records(process.head.stream).record(seq)
        store.put(record_key(record.stream, seq), Stub(record.header).encode())


@STAGED
@pytest.mark.parametrize("point", ["write.captured", "write.validated", "write.before-record"])
def test_s41_a_paused_writer_whose_base_was_collected_is_never_falsely_acknowledged(
    bed: ScenarioBed, staged: bool, point: str
) -> None:
    """While it stands still its base and the seq it wants become stubs, behind a fence; then it goes on."""
    first_process, second_process = bed.process(staged=staged, fold="never"), bed.process(fold="never")
    first_process.apply(person("a", 1))
    base = first_process.head.seq
    with first_process.hold_at(point, lambda: first_process.apply(person("late", 5), set_age("a", 2))) as running:
        second_process.apply(person("b", 2))
        assert isinstance(second_process.publish("gc", gc={"id": "gc-1", "honours": []}), PlanPublished)
        for number in range(3):
            second_process.apply(person(f"c{number}", number))
        _replace_by_stubs(bed, second_process, range(base, base + 3))
    error = running.exception(WAIT_S)
    if error is not None:
        assert isinstance(error, (SnapshotExpired, Contention)), error
        assert "late" not in bed.ages()
    else:
        assert running.result().commit_id == bed.process().head.commit_id, "acknowledged at the end of the live chain"
        assert bed.ages() == {"a": 2, "b": 2, "c0": 0, "c1": 1, "c2": 2, "late": 5}
    with pytest.raises(SnapshotExpired):
        bed.process().graph.at(f"{first_process.head.stream}.{base}")
