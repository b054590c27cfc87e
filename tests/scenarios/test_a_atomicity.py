"""Scenarios A: atomicity and visibility. S1 to S17."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from omnigraph.errors import ConstraintViolation, InvalidInput, KeyConflict, NotFound, OmnigraphError, ParseError
from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode, Statement, Update
from tests.scenarios import workers
from tests.scenarios.bed import (
    ScenarioBed,
    ScenarioProcess,
    by_name,
    company,
    knows,
    person,
    rows_of,
    set_age,
    without,
    works_at,
)
from tests.support.processes import Workers

THREE_TABLES = (person("ada", 36), company("acme", 3), works_at("ada", "acme"))
WRITE_POINTS = ("write.captured", "write.validated", "write.staged", "write.before-record")


def _all_rows(graph: Any) -> dict[str, dict[str, dict[str, Any]]]:
    return {type_name: rows_of(graph, type_name) for type_name in ("Person", "Company", "Knows", "WorksAt")}


def test_s1_a_mutation_over_three_tables_is_all_or_nothing(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    before = _all_rows(process.graph)
    with pytest.raises(ConstraintViolation):
        process.apply(*THREE_TABLES, works_at("ada", "no such company"))
    assert _all_rows(process.graph) == before
    assert not local_bed.logical()
    process.apply(*THREE_TABLES)
    assert set(local_bed.rows("Person")) == {"ada"}
    assert set(local_bed.rows("Company")) == {"acme"}
    assert local_bed.edges("WorksAt") == {("ada", "acme")}
    assert len(local_bed.logical()) == 1


@pytest.mark.parametrize("staged", [False, True], ids=["inline", "staged"])
def test_s1_readers_see_all_tables_change_at_once(local_bed: ScenarioBed, staged: bool) -> None:
    """Up to the record nothing is there, after it everything, though three tables were written."""
    writer, reader = local_bed.process(staged=staged), local_bed.process()
    with writer.pauses.hold("write.after-record") as after:
        with writer.hold_at("write.before-record", lambda: writer.apply(*THREE_TABLES)) as running:
            assert not any(_all_rows(reader.graph).values())
        after.wait_reached()
        assert [len(all_row) for all_row in _all_rows(reader.graph).values()] == [1, 1, 0, 1]
    running.result()
    local_bed.assert_sound()


@pytest.mark.parametrize("failing", ["stage", "commit"])
def test_s1_a_failure_at_any_of_the_tables_leaves_nothing(local_bed: ScenarioBed, failing: str) -> None:
    writer = local_bed.process(staged=True)
    original, calls, lock = getattr(writer.backend.tables, failing), [0], threading.Lock()

    def fails_at_the_second(*args: Any, **kwargs: Any) -> Any:
        with lock:
            calls[0] += 1
            second = calls[0] == 2
        if second:
            raise OmnigraphError("injected")
        return original(*args, **kwargs)

    object.__setattr__(writer.backend.tables, failing, fails_at_the_second)
    with pytest.raises(OmnigraphError, match="injected"):
        writer.apply(*THREE_TABLES)
    assert not any(_all_rows(local_bed.process().graph).values())
    writer.apply(*THREE_TABLES)
    assert [len(all_row) for all_row in _all_rows(local_bed.process().graph).values()] == [1, 1, 0, 1]


def test_s2_statements_see_what_earlier_ones_did(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    receipt = process.apply(
        person("ada", 36),
        set_age("ada", 37),
        person("bob", 10),
        knows("ada", "bob"),
        Update("Person", {"city": "Paris"}, Compare("age", ">", 36)),
    )
    assert receipt.counts == {"inserted": 3, "updated": 0, "deleted": 0}
    people = local_bed.rows("Person")
    assert (people["ada"]["age"], people["ada"]["city"], people["bob"]["city"]) == (37, "Paris", None)
    process.apply(Delete("Person", by_name("bob")), person("bob", 11))
    assert local_bed.rows("Person")["bob"] == {"id": "bob", "name": "bob", "age": 11, "email": None, "city": None}
    assert local_bed.edges() == set(), "the edge went with the first bob"


def test_s2_in_the_query_language_and_in_a_transaction(local_bed: ScenarioBed) -> None:
    graph = local_bed.process().graph
    graph.mutate(
        "query q($n: String) { insert Person { name: $n } update Person set { age: 5 } where name = $n }", {"n": "x"}
    )
    with graph.transaction() as txn:
        txn.mutate("query q() { update Person set { age: 6 } where age = 5 }")
        txn.mutate("query q() { delete Person where age = 6 }")
        txn.mutate('query q() { insert Person { name: "y" } }')
    assert local_bed.ages() == {"y": None}
    assert len(local_bed.logical()) == 2


def test_s3_n_inserts_in_one_mutation_are_one_commit(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    receipt = process.apply(*[person(f"p{number}", number) for number in range(60)])
    many = process.graph.mutate_many(
        "query add($n: String) { insert Company { name: $n } }", [{"n": f"c{number}"} for number in range(40)]
    )
    assert (receipt.counts["inserted"], many.counts["inserted"]) == (60, 40)
    assert [record.commit_id for record in local_bed.logical()] == [receipt.commit_id, many.commit_id]
    assert (len(local_bed.rows("Person")), len(local_bed.rows("Company"))) == (60, 40)


def test_s4_an_insert_and_an_update_of_one_row_are_one_row(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    receipt = process.apply(person("ada", 1), set_age("ada", 2), person("ada", city="Rome"), set_age("ada", 3))
    assert receipt.counts == {"inserted": 1, "updated": 0, "deleted": 0}
    assert local_bed.rows("Person")["ada"] == {"id": "ada", "name": "ada", "age": 3, "email": None, "city": "Rome"}
    (record,) = local_bed.logical()
    (touched,) = record.touched.values()
    assert (touched.inserted, touched.updated, touched.deleted) == (1, 0, 0)


def test_s4_a_row_made_and_removed_in_one_mutation_is_no_commit(local_bed: ScenarioBed) -> None:
    receipt = local_bed.process().apply(person("ghost", 1), without("ghost"))
    assert (receipt.commit_id, receipt.counts) == (None, {"inserted": 0, "updated": 0, "deleted": 0})
    assert not local_bed.logical()


def test_s5_chained_updates_see_the_value_in_between(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    process.apply(person("a", 10), person("b", 20), person("c", 30))
    receipt = process.apply(
        Update("Person", {"age": 25}, Compare("age", "<", 25)),
        Update("Person", {"age": 40}, Compare("age", "=", 25)),
        Update("Person", {"city": "old"}, Compare("age", ">=", 40)),
        Update("Person", {"age": 31}, Compare("city", "=", "old")),
    )
    assert receipt.counts["updated"] == 2
    people = local_bed.rows("Person")
    assert {name: (row["age"], row["city"]) for name, row in people.items()} == {
        "a": (31, "old"),
        "b": (31, "old"),
        "c": (30, None),
    }


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (knows("ada", "nobody"), ConstraintViolation),
        (person("eve", email="taken@x"), ConstraintViolation),
        (person("taken", strict=True), KeyConflict),
        (InsertNode("Nothing", {}), NotFound),
        (InsertNode("Person", {"name": "x", "nick": 1}), InvalidInput),
        (InsertNode("Person", {"name": "x", "age": "many"}), InvalidInput),
        (InsertNode("Person", {"age": 3}), InvalidInput),
        (Update("Person", {"name": "other"}, by_name("taken")), InvalidInput),
        (Delete("Person", Compare("nick", "=", 1)), InvalidInput),
    ],
    ids=lambda one: one.__name__ if isinstance(one, type) else "",
)
def test_s6_a_failure_in_the_last_statement_leaves_graph_and_handle_usable(
    local_bed: ScenarioBed, last: Statement, error: type[OmnigraphError]
) -> None:
    process = local_bed.process()
    process.apply(person("taken", 5, email="taken@x"))
    before = local_bed.logical()
    with pytest.raises(error) as caught:
        process.apply(person("ada", 1), set_age("taken", 9), last)
    assert caught.value.code
    assert local_bed.ages() == {"taken": 5}
    assert [record.commit_id for record in local_bed.logical()] == [record.commit_id for record in before]
    process.apply(person("ada", 1), set_age("taken", 9))
    assert local_bed.ages() == {"taken": 9, "ada": 1}


def test_s6_text_that_does_not_parse_costs_nothing(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    with process.meter.measure() as cost, pytest.raises(ParseError):
        process.graph.mutate("query q() { insert Person { name: } }")
    assert cost.requests == 0


def _interrupt_at(process: ScenarioProcess, point: str, statements: Sequence[Statement]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    process.pauses.call_at(point, interrupt)
    with pytest.raises(KeyboardInterrupt):
        process.apply(*statements)


@pytest.mark.parametrize("point", WRITE_POINTS)
@pytest.mark.parametrize("staged", [False, True], ids=["inline", "staged"])
def test_s7_an_interrupted_write_leaves_no_visible_state(local_bed: ScenarioBed, point: str, staged: bool) -> None:
    """Ctrl-C at every point before the record; the same handle goes on afterwards."""
    if point == "write.staged" and not staged:
        point = "write.validated"
    process = local_bed.process(staged=staged)
    _interrupt_at(process, point, THREE_TABLES)
    assert not any(_all_rows(local_bed.process().graph).values())
    process.apply(*THREE_TABLES)
    assert len(local_bed.logical()) == 1
    local_bed.assert_sound()


def test_s7_an_interruption_after_the_record_loses_nothing(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    _interrupt_at(process, "write.after-record", [person("ada", 1)])
    assert local_bed.ages() == {"ada": 1}
    process.apply(person("bob", 2))
    assert local_bed.ages() == {"ada": 1, "bob": 2}
    assert len(local_bed.logical()) == 2


def test_s7_an_interrupted_leader_does_not_strand_those_who_wait(local_bed: ScenarioBed) -> None:
    """The thread that leads a group is interrupted; the waiting ones are answered all the same."""
    process = local_bed.process()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with process.pauses.hold("write.captured") as hold:
        waiting = local_bed.start(lambda: process.apply(person("bob", 2)))
        hold.wait_reached()
        process.pauses.call_at("write.before-record", interrupt)
        with pytest.raises(KeyboardInterrupt):
            process.apply(person("ada", 1))
    waiting.result(30)
    assert local_bed.ages() == {"bob": 2}


@pytest.mark.parametrize("point", [*WRITE_POINTS[:2], "write.before-record", "write.after-record"])
def test_s7_a_cancelled_task_is_all_or_nothing(local_bed: ScenarioBed, point: str) -> None:
    """The task is gone at once, its thread ends on its own: three tables together, or none of them."""
    process = local_bed.process()

    async def cancel_while_held() -> None:
        with process.pauses.hold(point) as hold:
            task = asyncio.create_task(asyncio.to_thread(process.apply, *THREE_TABLES))
            await asyncio.to_thread(hold.wait_reached)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            sizes = [len(all_row) for all_row in _all_rows(local_bed.process().graph).values()]
            assert sizes == ([1, 1, 0, 1] if point == "write.after-record" else [0, 0, 0, 0])

    asyncio.run(cancel_while_held())
    process.apply(person("bob"))
    all_rows = _all_rows(local_bed.process().graph)
    assert ("ada" in all_rows["Person"]) == ("acme" in all_rows["Company"]) == bool(all_rows["WorksAt"])
    local_bed.assert_sound()


@pytest.mark.parametrize("strict", [True, False], ids=["append", "merge"])
def test_s8_a_batch_with_one_bad_edge_lands_nothing_and_the_next_works(local_bed: ScenarioBed, strict: bool) -> None:
    process = local_bed.process()
    process.apply(person("old", 1))
    batch: list[Statement] = [person(f"p{number}", number, strict=strict) for number in range(5)]
    good = [knows("p0", "p1"), knows("p2", "old")]
    with pytest.raises(ConstraintViolation) as caught:
        process.apply(*batch, *good, knows("p3", "nobody"), knows("none", "p4"))
    assert {(violation["rule"], violation["value"]) for violation in caught.value.violations} == {
        ("endpoint", "nobody"),
        ("endpoint", "none"),
    }
    assert local_bed.ages() == {"old": 1}
    process.apply(*batch, *good)
    assert len(local_bed.ages()) == 6
    assert local_bed.edges() == {("p0", "p1"), ("p2", "old")}


def test_s10_a_deleted_node_takes_its_edges_in_the_same_commit(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    process.apply(person("a"), person("b"), person("c"), company("x"))
    process.apply(knows("a", "b"), knows("b", "a"), knows("b", "c"), works_at("a", "x"), knows("a", "a"))
    receipt = process.apply(without("a"))
    assert receipt.counts == {"inserted": 0, "updated": 0, "deleted": 1 + 4}
    assert local_bed.edges() == {("b", "c")}
    assert local_bed.edges("WorksAt") == set()
    assert local_bed.logical()[-1].commit_id == receipt.commit_id
    local_bed.assert_sound()


def test_s11_cascade_and_explicit_delete_do_not_count_twice(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    process.apply(person("a"), person("b"), person("c"))
    process.apply(knows("a", "b"), knows("c", "b"))
    receipt = process.apply(
        Delete("Knows", Compare("from", "=", "a")), without("a"), Delete("Knows", Compare("to", "=", "b"))
    )
    assert receipt.counts["deleted"] == 3
    (touched,) = (each for table, each in local_bed.logical()[-1].touched.items() if "knows" in table)
    assert touched.deleted == 2
    assert local_bed.edges() == set()


def test_s12_overlapping_deletes_count_once_and_nulls_stay(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    process.apply(person("a", 5), person("b", 15), person("c", 25), person("null"), person("city", city="Rome"))
    receipt = process.apply(Delete("Person", Compare("age", ">", 10)), Delete("Person", Compare("age", ">", 20)))
    assert receipt.counts["deleted"] == 2
    assert set(local_bed.ages()) == {"a", "null", "city"}
    assert process.apply(Delete("Person", Compare("age", "!=", 5))).commit_id is None, "null is not unequal to 5"
    assert process.apply(Delete("Person", Compare("age", "=", None))).commit_id is None
    assert set(local_bed.ages()) == {"a", "null", "city"}


def test_s13_nothing_matched_is_zero_and_no_commit(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    process.apply(person("a", 5))
    head = local_bed.logical()[-1].commit_id
    for statement in (
        without("nobody"),
        set_age("nobody", 3),
        Delete("Person", Compare("age", ">", 99)),
        Update("Person", {"age": 1}, Compare("age", ">", 99)),
        Delete("Knows", Compare("from", "=", "a")),
    ):
        receipt = process.apply(statement)
        assert receipt.commit_id is None
        assert receipt.counts == {"inserted": 0, "updated": 0, "deleted": 0}
    assert local_bed.logical()[-1].commit_id == head


@pytest.mark.parametrize("staged", [False, True], ids=["inline", "staged"])
def test_s14_an_acknowledged_write_survives_its_process(bed: ScenarioBed, staged: bool) -> None:
    """The writer is killed the moment its acknowledgement is heard; a fresh process sees every row it reported."""
    config = {"fold": bed.fold, **({"inline_share": 0} if staged else {})}
    args = {"uri": bed.place.uri, "config": config, "rows": 10_000}
    with Workers(workers.insert_rows, 1, args, env=bed.place.env) as children:
        children.start()
        children.wait_for(lambda: len(children.workers[0].messages) >= 5)
        children.workers[0].kill()
        (result,) = children.wait()
    assert result.killed
    acknowledged = {message["row"] for message in result.messages}
    assert len(acknowledged) >= 5
    people = set(bed.rows("Person"))
    assert people >= acknowledged
    assert len(people - acknowledged) <= 1, "only the write in flight may be there besides"


def test_s15_a_snapshot_keeps_its_view(bed: ScenarioBed) -> None:
    first_process, second_process = bed.process(), bed.process()
    first_process.apply(person("a", 1), person("b", 2), knows("a", "b"))
    before = second_process.graph.view()
    old_rows = _all_rows(before)
    first_process.apply(set_age("a", 99), without("b"), person("c", 3))
    first_process.graph.fold()
    assert _all_rows(before) == old_rows
    assert {name: row["age"] for name, row in rows_of(second_process.graph, "Person").items()} == {"a": 99, "c": 3}
    assert _all_rows(first_process.graph.at(before.commit_id)) == old_rows
    assert _all_rows(before) == old_rows


def test_s16_warm_state_equals_a_fresh_reopen(bed: ScenarioBed) -> None:
    """After every kind of commit, what the writer holds in memory is what a new process reads, in all fields."""
    process = bed.process()
    stager = bed.process(staged=True)
    steps: list[Callable[[], object]] = [
        lambda: process.apply(person("a", 1), person("b", 2), actor="ada", message="first", client_key="k1"),
        lambda: process.apply(knows("a", "b"), company("x", 1)),
        lambda: process.graph.fold(),
        lambda: stager.apply(person("c", 3), set_age("a", 10)),
        lambda: process.apply(without("b")),
        lambda: process.graph.schema.apply(process.graph.schema.source + "\nnode Extra { name: String @key }"),
        lambda: process.apply(InsertNode("Extra", {"name": "e"})),
        lambda: process.graph.fold(),
    ]
    for step in steps:
        step()
        for warm in (process, stager):
            record, fresh = warm.head, bed.process()
            assert record.as_bytes == fresh.head.as_bytes
            assert record.header == fresh.head.header
            assert (record.pins, record.epoch, record.trail) == (fresh.head.pins, fresh.head.epoch, fresh.head.trail)
            assert warm.graph.snapshot() == fresh.graph.snapshot()
            assert warm.graph.commits(None) == fresh.graph.commits(None)
            snapshot = Snapshot(warm.backend, record, warm.runtime.catalogs.get(record.schema))
            again = Snapshot(fresh.backend, fresh.head, fresh.runtime.catalogs.get(record.schema))
            assert snapshot.catalog == again.catalog
            for each in snapshot.catalog.types:
                rows = [view.scan().sort_by("id").to_pylist() for view in (snapshot.view(each), again.view(each))]
                assert rows[0] == rows[1]


def test_s17_actor_and_key_are_in_the_commit_and_nowhere_else(bed: ScenarioBed) -> None:
    process = bed.process(fold="never")
    before = set(bed.place.all_keys())
    receipt = process.apply(person("a"), actor="ada", message="why", client_key="key-1")
    assert receipt.commit_id is not None
    (added,) = set(bed.place.all_keys()) - before
    assert added.startswith("__manifest/"), "an inline commit is one object"
    info = bed.process().graph.commits(1)[0]
    assert (info.commit_id, info.actor, info.message, info.kind) == (receipt.commit_id, "ada", "why", "mutate")
    (member,) = bed.process().graph.at(receipt.commit_id).commit()["members"]
    assert (member["actor"], member["client_key"], member["counts"]["inserted"]) == ("ada", "key-1", 1)
    again = bed.process().apply(person("a"), client_key="key-1")
    assert again.replayed
    assert again.commit_id == receipt.commit_id
    assert [commit.commit_id for commit in bed.process().graph.commits(None, actor="ada")] == [receipt.commit_id]


def test_s17_every_commit_names_its_parent(bed: ScenarioBed) -> None:
    process = bed.process()
    for number in range(bed.place.scale(40, 5)):
        process.apply(person(f"p{number}"))
    commits = bed.process().graph.commits(None)
    assert [info.parents for info in commits] == [(older.commit_id,) for older in commits[1:]] + [()]
    assert [info.seq for info in commits] == list(range(len(commits) - 1, -1, -1))


def test_s2_an_edge_may_be_upserted_by_its_id(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    process.apply(person("a"), person("b"), InsertEdge("Knows", "a", "b", {"id": "e1", "since": 1}))
    receipt = process.apply(InsertEdge("Knows", "b", "a", {"id": "e1", "since": 2}))
    assert receipt.counts == {"inserted": 0, "updated": 1, "deleted": 0}
    assert local_bed.edges() == {("b", "a")}
