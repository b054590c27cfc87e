"""The life of an intent in the process that opened it: who decides, what is told, and that the heart stops."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from omnigraph.commit.publish_plan import PublishPlan, WriteOptions
from omnigraph.errors import (
    Conflict,
    ConstraintViolation,
    Contention,
    IntentEnded,
    InvalidInput,
    OmnigraphError,
    Unavailable,
    Unknown,
)
from omnigraph.intents.objects import (
    IntentAborted,
    IntentConfirmed,
    IntentEnding,
    decide_aborted,
    decode_decision,
    decode_ending,
    intent_key,
    store_now,
    take_over,
    write_end,
)
from omnigraph.intents.scope import IntentScope
from omnigraph.intents.states import list_intents, read_intent
from omnigraph.log.commit_record import CommitRecord, Member
from omnigraph.query.language.statements import InsertEdge, InsertNode
from omnigraph.storage.keys import KeyClass
from omnigraph.storage.metering import RequestKind
from tests.intents.intent_actor import ACTOR, ROWS, IntentActor, acting, age, audits, intents, names, objects
from tests.load.spark.loading import load, new_graph, node, write_lines
from tests.support.faulty_store import Fault, FaultPlan


def _open_intent(actor: IntentActor, op_id: str = "01BBBBBBBBBBBBBBBBBBBBBBBB") -> IntentScope:
    """An open intent with its heartbeat, for use in a `with` block."""
    intent = IntentScope(actor.backend, "load", WriteOptions(actor=ACTOR))
    intent.open(op_id, actor.graph._branch.publisher.head)
    return intent


def _open_silent_intent(actor: IntentActor, op_id: str = "01BBBBBBBBBBBBBBBBBBBBBBBB") -> IntentScope:
    """An open intent whose driver never writes a heartbeat."""
    intent = _open_intent(actor, op_id)
    intent._stop_heart()
    return intent


def _plan(actor: IntentActor, intent: IntentScope) -> PublishPlan:
    return PublishPlan("load", intent.id, actor.graph._branch.publisher.head)


def _hearts() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "omnigraph-heartbeat"]


def test_a_bulk_operation_leaves_three_objects_and_ends_itself(graph_address: str) -> None:
    with acting(graph_address) as actor:
        receipt = actor.bulk()
        (intent,) = intents(graph_address)
        assert objects(graph_address, intent) == ["0-open", "1", "2"]
        key = intent_key(intent, "2")
        assert decode_ending(actor.backend.store.get(key), key) == IntentEnding("done", receipt.commit_id, None)
        assert actor.recover() == []
        assert [member.op_id for member in _members(actor, receipt.commit_id)] == [intent]
    assert not _hearts()


def _members(actor: IntentActor, commit_id: str | None) -> tuple[Member, ...]:
    record = actor.graph.at(str(commit_id)).state.record
    assert isinstance(record, CommitRecord)
    return record.members


def test_a_small_change_writes_no_intent(graph_address: str) -> None:
    with acting(graph_address) as actor:
        assert actor.bulk([InsertNode("Person", {"name": "Eve"})]).commit_id
        assert intents(graph_address) == []


@pytest.mark.parametrize(("people", "intent_count"), [(20, 0), (9000, 1)])
def test_a_load_in_this_process_leaves_one_if_it_is_large(people: int, intent_count: int, tmp_path: Path) -> None:
    lines = [node("Person", name=f"p{number}", email=f"{number}@{'x' * 120}") for number in range(people)]
    graph = new_graph(tmp_path / "graph")
    report = load(graph, write_lines(tmp_path / "many.ndjson", lines), engine="local", split_bytes=1 << 20)
    assert [intent.commit_id for intent in graph.recover_list()] == [report.commit_id] * intent_count
    assert graph.view().table("Person").to_arrow(["id"]).num_rows == people


def test_the_opening_says_who_does_what(graph_address: str) -> None:
    with acting(graph_address) as actor:
        head = actor.graph._branch.publisher.head
        options = WriteOptions(actor=ACTOR, message="nightly", client_key="k")
        intent = IntentScope(actor.backend, "load", options)
        intent.open("01CCCCCCCCCCCCCCCCCCCCCCCC", head)
        intent._stop_heart()
        state = read_intent(actor.backend, list_intents(actor.backend.store)[0])
        assert state.opening == intent.opening
        opening = state.opening
        assert (opening.operation, opening.branch, opening.stream, opening.base) == (
            "load",
            "main",
            head.stream,
            head.commit_id,
        )
        assert (opening.actor, opening.message, opening.client_key) == (ACTOR, "nightly", "k")
        assert opening.grace_s >= 10 * opening.beat_s
        with pytest.raises(OmnigraphError) as error:
            IntentScope(actor.backend, "load", WriteOptions()).open(opening.op_id, head)
        assert error.value.code == "intent_exists"


def test_h38_the_first_decision_holds_for_everybody(graph_address: str) -> None:
    """H38: driver and recoverer, in both orders; and of two recoverers."""
    with acting(graph_address) as actor:
        first = _open_silent_intent(actor)
        confirmed = first.confirm(_plan(actor, first))
        assert confirmed.ops_row_ids == (f"{confirmed.base.stream}/{first.id}",)
        assert isinstance(decide_aborted(actor.backend, first.id, "late", "recoverer"), IntentConfirmed)
        second = _open_silent_intent(actor, "01DDDDDDDDDDDDDDDDDDDDDDDD")
        assert decide_aborted(actor.backend, second.id, "one", "a") == IntentAborted("one", "a")
        assert decide_aborted(actor.backend, second.id, "two", "b") == IntentAborted("one", "a")
        with pytest.raises(IntentEnded, match="one"):
            second.confirm(_plan(actor, second))


def test_h38_a_late_heartbeat_changes_no_decision(graph_address: str) -> None:
    """H38: the heartbeat is an object of its own, and the only one that is written twice."""
    with acting(graph_address, recovery_grace=0.02) as actor:
        with _open_intent(actor) as intent:
            beats = list_intents(actor.backend.store)[0].objects
            for _ in range(3):
                response = beats.get("heartbeat")
                while (beats := list_intents(actor.backend.store)[0].objects).get("heartbeat") == response:
                    actor.backend.clock.monotonic()
            decide_aborted(actor.backend, intent.id, "silent", "recoverer")
            key = intent_key(intent.id, "1")
            decided = actor.backend.store.get(key)
            before = list_intents(actor.backend.store)[0].objects["heartbeat"]
            while list_intents(actor.backend.store)[0].objects["heartbeat"] == before:
                actor.backend.clock.monotonic()
            assert actor.backend.store.get(key) == decided
            with pytest.raises(IntentEnded):
                intent.confirm(_plan(actor, intent))
        assert not _hearts()


def test_h38_of_two_ends_the_first_holds(graph_address: str) -> None:
    with acting(graph_address) as actor:
        intent = _open_silent_intent(actor)
        assert write_end(actor.backend, intent.id, IntentEnding("done", "x.1", None)) == IntentEnding(
            "done", "x.1", None
        )
        assert write_end(actor.backend, intent.id, IntentEnding("abandoned", None, "late")) == IntentEnding(
            "done", "x.1", None
        )
        assert take_over(actor.backend, intent.id, "recovery") == "recovery"
        assert take_over(actor.backend, intent.id, "driver") == "recovery"


def test_h38_the_clock_is_the_store_s(graph_address: str) -> None:
    """A driver whose own clock is years off is judged by what the store says of its objects."""
    with acting(graph_address) as actor:
        _open_silent_intent(actor)
        folder = list_intents(actor.backend.store)[0]
        state = read_intent(actor.backend, folder)
        now = store_now(actor.backend)
        assert state.is_live(now, 900)
        age(graph_address, 2000)
        silent = read_intent(actor.backend, list_intents(actor.backend.store)[0])
        assert not silent.is_live(now, 900)
        assert silent.is_live(now, 3000)
        assert silent.opening.opened_at == state.opening.opened_at


def test_the_grace_is_never_less_than_ten_heartbeats(graph_address: str) -> None:
    with acting(graph_address) as actor:
        _open_silent_intent(actor)
        age(graph_address, 250)
        state = read_intent(actor.backend, list_intents(actor.backend.store)[0])
        assert state.is_live(store_now(actor.backend), 0), "it beats every 30 seconds"


def test_a_failing_operation_aborts_its_own_intent(graph_address: str) -> None:
    """It fails before it confirmed: nobody need recover anything, and no audit is due."""
    with acting(graph_address) as actor:
        actor.pauses.fail_at("write.staged", InvalidInput("no"))
        with pytest.raises(InvalidInput):
            actor.bulk()
        (intent,) = intents(graph_address)
        key = intent_key(intent, "1")
        decided = decode_decision(actor.backend.store.get(key), key)
        assert isinstance(decided, IntentAborted)
        assert (decided.by, "no" in decided.reason) == ("driver", True)
        assert "2" in objects(graph_address, intent)
        assert actor.recover() == []
        assert audits(actor.graph) == []
        with pytest.raises(ConstraintViolation):
            actor.bulk([InsertEdge("Knows", f"x{number}", "Ada") for number in range(ROWS)])
        assert len(intents(graph_address)) == 1, "what is refused before it stages anything opens none"
    assert not _hearts()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_operation_aborts_before_it_is_confirmed(
    graph_address: str, interrupt: type[BaseException]
) -> None:
    with acting(graph_address) as actor:
        actor.pauses.call_at("write.staged", lambda: (_ for _ in ()).throw(interrupt()))
        with pytest.raises(interrupt):
            actor.bulk()
        assert "2" in objects(graph_address, intents(graph_address)[0])
    assert not _hearts()


def test_interrupt_while_the_heartbeat_starts_is_raised_as_it_is(
    graph_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def interrupt_heartbeat(thread: threading.Thread) -> None:
        if thread.name == "omnigraph-heartbeat":
            raise KeyboardInterrupt
        start(thread)

    with acting(graph_address) as actor:
        monkeypatch.setattr(threading.Thread, "start", interrupt_heartbeat)
        with pytest.raises(KeyboardInterrupt):
            actor.bulk()
        monkeypatch.undo()
        assert len(names(actor.graph)) == 2


def test_an_interrupted_operation_is_left_to_recovery_once_it_is_confirmed(graph_address: str) -> None:
    """Whether its record is on its way is not known here; what was promised by confirming is kept."""
    with acting(graph_address) as actor:
        actor.pauses.call_at("intent.confirmed", lambda: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            actor.bulk()
        assert objects(graph_address, intents(graph_address)[0]) == ["0-open", "1"]
        age(graph_address)
        assert [recovered["verdict"] for recovered in actor.recover()] == ["rolled_forward"]
        assert len(names(actor.graph)) == 2 + ROWS
    assert not _hearts()


def test_a_definite_failure_after_confirm_gives_the_operation_up(graph_address: str) -> None:
    """Who is told that it failed must not see it appear later: a recoverer obeys the driver that gave up."""
    with acting(graph_address) as actor:
        actor.pauses.fail_at("intent.confirmed", Contention("too slow"))
        with pytest.raises(Contention):
            actor.bulk()
        (intent,) = intents(graph_address)
        assert objects(graph_address, intent) == ["0-open", "1", "2", "taken"]
        (Path(graph_address) / intent_key(intent, "2")).unlink()  # it died before it could note the end
        age(graph_address)
        (recovered,) = actor.recover()
        assert (recovered["verdict"], recovered["class"]) == ("rolled_back", "given_up")
        assert names(actor.graph) == {"Ada", "Bob"}


def test_a_failure_that_meets_a_recoverer_is_unknown(graph_address: str) -> None:
    """The driver would say "failed", but a recoverer has begun to publish: nobody knows yet."""
    with acting(graph_address) as actor:

        def take_over_and_fail() -> None:
            take_over(actor.backend, intents(graph_address)[0], "recovery")
            raise Contention("too slow")

        actor.pauses.call_at("intent.confirmed", take_over_and_fail)
        with pytest.raises(Unknown) as error:
            actor.bulk(client_key="k1")
        assert error.value.details["op_id"] == intents(graph_address)[0]
        assert error.value.details["client_key"] == "k1"
        age(graph_address)
        assert [recovered["verdict"] for recovered in actor.recover()] == ["rolled_forward"]


def test_a_failure_to_open_aborts_before_any_effect(graph_address: str) -> None:
    """S155, phase A."""
    with acting(graph_address) as actor:
        actor.arm(FaultPlan.at(1, Fault.FAIL_BEFORE, kinds={RequestKind.PUT}, times=None))
        staged: list[str] = []
        actor.pauses.call_at("write.staged", lambda: staged.append("staged"))
        with pytest.raises(Unavailable, match="was not begun"):
            actor.bulk()
        assert staged == []
        actor.arm(FaultPlan.none())
        assert intents(graph_address) == []


def test_a_failure_to_note_the_end_is_a_warning(graph_address: str) -> None:
    """S155, phase D: the write is durable, the answer is positive, and the next open tidies up."""
    with acting(graph_address) as actor:
        actor.pauses.call_at("intent.before-done", lambda: _no_intents(actor))
        warnings: list[str] = []
        receipt = actor.bulk(warn=warnings.append)
        assert receipt.commit_id is not None
        assert [intents(graph_address)[0] in warning for warning in warnings] == [True]
        actor.arm(FaultPlan.none())
        age(graph_address)
        assert [recovered["class"] for recovered in actor.recover()] == ["published"]
        assert [audit["recovery_kind"] for audit in audits(actor.graph)] == ["rolled_forward"]


def _no_intents(actor: IntentActor) -> None:
    actor.arm(FaultPlan.at(1, Fault.FAIL_BEFORE, key_classes={KeyClass.INTENT}, times=None))


def test_a_conflict_that_the_driver_meets_is_its_own_business(graph_address: str) -> None:
    """It re-prepares with its input at hand, under the same intent, and what it confirmed before is not published."""
    driver, second_actor = IntentActor(graph_address), IntentActor(graph_address)
    try:
        meddle = [InsertNode("Person", {"name": "p0003", "age": 7})]
        driver.pauses.call_at("intent.confirmed", lambda: second_actor.graph.apply(meddle))
        receipt = driver.bulk(on_conflict="retry")
        assert receipt.counts == {"inserted": ROWS - 1, "updated": 1, "deleted": 0}
        assert len(names(second_actor.graph)) == 2 + ROWS
        assert objects(graph_address, intents(graph_address)[0]) == ["0-open", "1", "2"]
        driver.pauses.call_at(
            "intent.confirmed", lambda: second_actor.graph.apply([InsertNode("Person", {"name": "q0003"})])
        )
        with pytest.raises(Conflict):
            driver.bulk([InsertNode("Person", {"name": f"q{number:04d}"}) for number in range(ROWS)])
        assert "taken" in objects(graph_address, intents(graph_address)[1])
    finally:
        driver.close()
        second_actor.close()
