"""H23 to H31 and H39: names, unknown outcomes, repeated keys, ids, the newest record, the writer epoch, time."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from omnigraph.clock import SystemClock, SystemIds
from omnigraph.commit.publish_plan import Receipt, WriteOptions
from omnigraph.commit.publisher import PlanPublished
from omnigraph.errors import Corruption, InvalidInput, SnapshotExpired, Unavailable, Unknown, WriterFenced
from omnigraph.log.commit_record import CommitRecord, Stub, decode_record
from omnigraph.log.stream import record_key
from omnigraph.query.language.statements import InsertNode
from omnigraph.storage.keys import KeyClass
from omnigraph.storage.metering import RequestKind
from omnigraph.storage.store import PutResult
from tests.oracle.structure import entries_of
from tests.schedules.guarded import run_without_rules
from tests.schedules.hooked import HookedStore, Put, ShortSighted
from tests.schedules.world import WAIT_S, Actor, World, person, set_age
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore

NOTE = InsertNode("Note", {"text": "n"})


def _collect(actor: Actor, record: CommitRecord) -> None:
    """What cleanup leaves of a record: its name and its header."""
    actor.runtime.backend.store.put(record_key(record.stream, record.seq), Stub(record.header).encode())


def _notes(world: World) -> int:
    return len(world.rows("Note"))


def _ops(world: World) -> list[str]:
    """Every operation of main, in order."""
    reader = world.reader()
    return [member.op_id for entry in entries_of(reader.runtime, reader.head.stream) for member in entry.header.members]


def test_h23_a_collected_name_stays_taken(world: World) -> None:
    """A writer stalls before seq 1; others land, and 1 is collected. It may not be born again there. H23"""
    stalled, second_actor = world.actor(), world.actor()
    with stalled.hold_at("write.before-record", lambda: stalled.apply(NOTE)) as late:
        for number in range(3):
            second_actor.apply(person(f"p{number}"))
        _collect(second_actor, second_actor.runtime.records(second_actor.head.stream).record(1))
    assert late.result(WAIT_S).commit_id == f"{second_actor.head.stream}.4"
    assert _notes(world) == 1
    with pytest.raises(SnapshotExpired):
        second_actor.graph.at(f"{second_actor.head.stream}.1")


@run_without_rules("names-stay")
def test_h23_a_stub_still_says_whose_record_it_was(world: World) -> None:
    """Our PUT landed and its answer was lost; before we look, others land and ours is collected. H23"""
    actor = world.actor()

    def collect_unseen(number: int, key: str, data: bytes, put: Put) -> PutResult:
        if number > 1:
            return put()
        put()
        actor.apply(person("x"))
        _collect(actor, actor.runtime.records(actor.head.stream).record(1))
        raise Unavailable("the answer was lost")

    writer = world.actor(wrap=lambda store: HookedStore(store, collect_unseen))
    assert writer.apply(NOTE).commit_id == f"{actor.head.stream}.1"
    assert _notes(world) == 1
    assert len(_ops(world)) == len(set(_ops(world)))


def _insisting(actor: Actor) -> Receipt:
    """A caller that was told "it did not land" and tries again, as it may."""
    try:
        return actor.apply(NOTE)
    except Unavailable:
        return actor.apply(NOTE)


@run_without_rules("absent-proves-nothing")
def test_h24_a_put_that_arrives_late_is_not_doubled(world: World) -> None:
    """The PUT times out, the seq is absent, and only then it arrives. H24"""
    on_the_way: list[tuple[str, bytes]] = []

    def late(number: int, key: str, data: bytes, put: Put) -> PutResult:
        if number == 1:
            on_the_way.append((key, data))
            raise Unavailable("no answer")
        for old_key, old_data in on_the_way:
            actor.runtime.backend.store.put_if_absent(old_key, old_data)
        return put()

    actor = world.actor()
    writer = world.actor(wrap=lambda store: HookedStore(store, late))
    receipt = _insisting(writer)
    assert _notes(world) == 1
    assert receipt.commit_id == writer.head.commit_id


def test_h24_unknown_is_said_with_the_means_to_ask_again(world: World) -> None:
    """Nobody answers until the deadline; the PUT arrives after that; the same key finds it. H24, H26"""
    sent: list[tuple[str, bytes]] = []

    def silent(number: int, key: str, data: bytes, put: Put) -> PutResult:
        sent.append((key, data))
        raise Unavailable("no answer")

    writer = world.actor(wrap=lambda store: HookedStore(store, silent), publish_deadline_s=0.2)
    with pytest.raises(Unknown) as raised:
        writer.apply(NOTE, client_key="k1")
    assert raised.value.details["client_key"] == "k1"
    assert len(set(sent)) == 1, "the same bytes at the same seq, however often"
    actor = world.actor()
    actor.runtime.backend.store.put_if_absent(*sent[0])
    again = actor.apply(NOTE, client_key="k1")
    assert again.replayed
    assert again.commit_id == actor.head.commit_id
    assert raised.value.details["op_id"] in _ops(world)
    assert _notes(world) == 1


def _faulty(fault: Fault, world: World) -> tuple[Actor, FaultPlan]:
    plan = FaultPlan.at(1, fault, kinds=[RequestKind.PUT], key_classes=[KeyClass.RECORD])
    world.actor()  # record 0 must be there before the fault is armed
    return world.actor(wrap=lambda store: FaultyStore(store, plan)), plan


def _lands_once(world: World, fault: Fault) -> None:
    writer, plan = _faulty(fault, world)
    receipt = writer.apply(NOTE)
    assert [hit.fault for hit in plan.hits] == [fault]
    assert _notes(world) == 1
    assert receipt.commit_id == writer.head.commit_id
    assert _ops(world).count(writer.head.members[0].op_id) == 1
    world.assert_sound()


@run_without_rules("exists-is-no-answer")
def test_h25_exists_without_effect_is_sent_again(world: World) -> None:
    """409: the store says "exists" and nothing is there. H25"""
    _lands_once(world, Fault.EXISTS_WITHOUT_EFFECT)


@run_without_rules("rid-and-op-id")
def test_h25_exists_after_an_own_success_is_a_success(world: World) -> None:
    """412 to the client's own second try. H25"""
    _lands_once(world, Fault.EXISTS_AFTER_EFFECT)


@run_without_rules("rid-and-op-id")
def test_h25_a_lost_answer_is_looked_up(world: World) -> None:
    """Landed, and the connection broke. H25"""
    _lands_once(world, Fault.LOSE_ANSWER)


def test_h25_a_time_out_without_effect_is_sent_again(world: World) -> None:
    """Nothing landed, and nobody said so. H24, H25"""
    _lands_once(world, Fault.FAIL_BEFORE)


def test_h25_a_record_of_somebody_else_refuses(world: World) -> None:
    """Exists, and the rid is another's: ours goes one further. H25"""
    writer, second_actor = world.actor(), world.actor()
    with writer.hold_at("write.before-record", lambda: writer.apply(NOTE)) as late:
        second_actor.apply(person("x"))
    assert late.result(WAIT_S).commit_id == f"{second_actor.head.stream}.2"
    assert _notes(world) == 1


@run_without_rules("key-claim")
def test_h26_two_concurrent_uses_of_one_key_are_one_commit(world: World) -> None:
    """The second finds the first one's answer, though it was prepared before it landed. H26"""
    writer, second_actor = world.actor(), world.actor()
    with writer.hold_at("write.before-record", lambda: writer.apply(NOTE, client_key="k")) as late:
        first = second_actor.apply(NOTE, client_key="k")
    second = late.result(WAIT_S)
    assert second.replayed
    assert second.commit_id == first.commit_id
    assert second.counts == first.counts
    assert _notes(world) == 1


@run_without_rules("key-of-stream")
def test_h26_a_branch_does_not_inherit_answers(world: World) -> None:
    """The same key on a fork is another write. H26"""
    main = world.actor()
    main.apply(NOTE, client_key="k")
    main.graph.branch.create("dev")
    dev = world.actor(branch="dev")
    assert not dev.apply(person("x"), client_key="k").replayed
    assert set(world.ages("dev")) == {"x"}


def test_h26_an_answer_survives_folds_and_restarts(world: World) -> None:
    """`_ops` is a table like any other. H26"""
    main = world.actor()
    first = main.apply(NOTE, client_key="k")
    main.apply(person("x"))
    assert main.graph.fold() is not None
    assert "_ops" not in main.head.overlay
    again = world.reader().apply(NOTE, client_key="k")
    assert (again.replayed, again.commit_id, again.counts) == (True, first.commit_id, first.counts)
    assert _notes(world) == 1


def test_h26_a_key_too_old_to_be_remembered_is_refused(world: World) -> None:
    """A ULID tells its age. H26"""
    with pytest.raises(InvalidInput) as refused:
        world.actor().apply(NOTE, client_key="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert refused.value.code == "idempotency_window_passed"


class _Backwards(SystemIds):
    """Ids whose order is the opposite of their age."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 10**24

    def ulid(self) -> str:
        self._next -= 1
        return f"{self._next:026d}"


def test_h27_no_order_is_taken_from_identifiers(world: World) -> None:
    """Commits, forks and folds with ids that run backwards: order comes from seqs and parents alone. H27"""
    writer = world.actor(ids=_Backwards())
    for number in range(4):
        writer.apply(person("x", number), actor=f"a{number}")
    writer.graph.branch.create("dev")
    dev = writer.graph.on_branch("dev")
    dev.apply([set_age("x", 9)])
    dev.fold()
    assert world.ages("dev") == {"x": 9}
    assert world.ages() == {"x": 3}
    commit_ids = [commit.commit_id for commit in dev.commits(limit=None)]
    assert [commit_id.rpartition(".")[2] for commit_id in commit_ids] == ["2", "1", "0", "4", "3", "2", "1", "0"]
    world.assert_sound()


@run_without_rules("gen-of-all-parents")
def test_h27_a_commit_is_found_by_its_public_id(world: World) -> None:
    """`<stream>.<seq>`; parents by stream, seq and rid; gen is one more than the greatest parent's. H27"""
    main = world.actor()
    old = main.apply(person("x", 1)).commit_id
    main.graph.branch.create("dev")
    dev = world.actor(branch="dev")
    for _ in range(3):
        dev.apply(person("y"))
    merged = main.publish(main.plan("merge", merged_header=dev.head.header))
    assert isinstance(merged, PlanPublished)
    record = main.head
    assert [parent.commit_id for parent in record.header.parents] == [old, dev.head.commit_id]
    assert record.header.gen == 1 + dev.head.header.gen
    assert old is not None
    assert main.graph.at(old).table("Person").count() == 1


@run_without_rules("gap-is-damage")
def test_h28_a_gap_below_the_head_stops_loudly(world: World) -> None:
    """A record vanished: whoever opens the branch is told, nobody writes into the hole. H28"""
    writer = world.actor()
    for number in range(4):
        writer.apply(person(f"p{number}"))
    writer.runtime.backend.store.delete(record_key(writer.head.stream, 2))
    with pytest.raises(Corruption) as raised:
        world.actor()
    assert raised.value.details["seq"] == 2


@run_without_rules("probe-upward")
def test_h28_a_listing_that_lags_is_probed_upward(world: World) -> None:
    """The newest three records are not listed yet. H28"""
    writer = world.actor()
    for number in range(6):
        writer.apply(person(f"p{number}"))
    newcomer = world.actor(wrap=lambda store: ShortSighted(store, 3))
    assert newcomer.publisher.head.seq == 6


@run_without_rules("complete-records")
def test_h29_every_record_is_complete(world: World) -> None:
    """Any commit is readable from its record alone, whatever became of the others. H29"""
    writer = world.actor()
    writer.apply(person("a", 1))
    writer.apply(person("b", 1))
    writer.graph.branch.create("dev")
    writer.apply(person("c", 1))
    for seq in (1, 2):
        _collect(writer, writer.runtime.records(writer.head.stream).record(seq))
    assert world.ages() == {"a": 1, "b": 1, "c": 1}
    assert world.ages("dev") == {"a": 1, "b": 1}


@run_without_rules("epoch-fence")
def test_h30_while_somebody_holds_the_branch_nobody_else_publishes(world: World) -> None:
    """Neither who was there before, nor who comes later, nor a fold. H30"""
    before, owner = world.actor(), world.actor()
    before.apply(person("x"))
    holder = owner.runtime.claim(owner.branch, WriteOptions())
    late = world.actor()
    for outsider in (before, late):
        with pytest.raises(WriterFenced):
            outsider.apply(person("y"))
        assert outsider.graph.fold() is None
    owner.graph._holder = holder
    owner.apply(person("z"))
    owner.graph.close()
    late.apply(person("y"))
    assert set(world.ages()) == {"x", "y", "z"}
    world.assert_sound()


@run_without_rules("epoch-in-between")
def test_h30_a_claim_in_between_fences_though_it_was_released(world: World) -> None:
    """Each record in between is asked, not only the newest. H30"""
    writer, owner = world.actor(), world.actor()
    with writer.hold_at("write.before-record", lambda: writer.apply(person("x"))) as late:
        holder = owner.runtime.claim(owner.branch, WriteOptions())
        owner.runtime.release(owner.branch, holder, WriteOptions())
    with pytest.raises(WriterFenced):
        late.result(WAIT_S)
    assert world.ages() == {}


@run_without_rules("epoch-fence")
def test_h30_a_takeover_fences_the_holder_before(world: World) -> None:
    """Also one that is already on its way. H30"""
    first, second = world.actor(), world.actor()
    first.graph._holder = first.runtime.claim(first.branch, WriteOptions())
    with first.hold_at("write.before-record", lambda: first.apply(person("x"))) as late:
        second.graph._holder = second.runtime.claim(second.branch, WriteOptions())
        second.apply(person("y"))
    with pytest.raises(WriterFenced):
        late.result(WAIT_S)
    assert set(world.ages()) == {"y"}
    assert second.head.epoch.n == 2


def test_h30_a_fork_starts_without_a_holder(world: World) -> None:
    """A claim is about one stream. H30"""
    owner = world.actor()
    owner.graph._holder = owner.runtime.claim(owner.branch, WriteOptions())
    world.actor().graph.branch.create("dev")
    world.actor(branch="dev").apply(person("x"))
    assert set(world.ages("dev")) == {"x"}


class _Behind(SystemClock):
    """A machine whose clock is a day slow."""

    def now(self) -> datetime:
        return super().now() - timedelta(days=1)


@run_without_rules("time-never-goes-back")
def test_h31_time_never_goes_back_along_the_chain(world: World) -> None:
    """A slow clock writes after a right one. H31"""
    right, slow = world.actor(), world.actor(clock=_Behind())
    right.apply(person("x", 1))
    slow.apply(person("x", 2))
    slow.graph.fold()
    slow.graph.branch.create("dev")
    right.apply(person("x", 3))
    world.assert_sound()
    dev = world.actor(branch="dev").head.header
    assert dev.created_at >= slow.runtime.records(dev.parents[0].stream).record(dev.parents[0].seq).header.created_at


@run_without_rules("op-id-once")
def test_h39_one_operation_published_twice_lands_once(world: World) -> None:
    """Two recoverers roll the same operation forward: the second finds the first one's record. H39"""
    first, second = world.actor(), world.actor()
    plan = first.plan("mutate")
    landed = first.publish(plan)
    outcome = second.publish(plan)
    assert isinstance(landed, PlanPublished)
    assert isinstance(outcome, PlanPublished)
    assert outcome.record.commit_id == landed.record.commit_id
    assert _ops(world).count(plan.op_id) == 1


def test_a_damaged_record_is_named(world: World) -> None:
    """One flipped byte is corruption, not an older state. S162"""
    writer = world.actor()
    writer.apply(person("x"))
    key = record_key(writer.head.stream, 1)
    data = bytearray(writer.runtime.backend.store.get(key))
    data[-3] ^= 1
    with pytest.raises(Corruption, match="damaged"):
        decode_record(bytes(data), key)
