"""Interrupts inside the publisher's own steps: nobody waits for ever, nothing is left in the queue. S7, S38"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from omnigraph.commit.footprint import PlanConflict
from omnigraph.commit.next_record import next_record
from omnigraph.commit.publish_plan import PublishPlan, WriteTxn
from omnigraph.commit.publisher import PlanStale, Publisher, PublishOutcome, _Ticket
from omnigraph.errors import ReadSetChanged
from omnigraph.mutate.mutation import Mutation
from omnigraph.storage.store import PutResult
from tests.schedules.hooked import HookedStore, Put
from tests.schedules.world import WAIT_S, Actor, World, person


def _once(act: Callable[[], object], then: Callable[..., Any]) -> Callable[..., Any]:
    """`then`, with `act` before the first call."""
    pending = [act]

    def call(*args: Any, **keywords: Any) -> Any:
        if pending:
            pending.pop()()
        return then(*args, **keywords)

    return call


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_interrupted_while_the_record_is_composed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was sent yet: the write of the interrupted caller must not appear with somebody's next one. S7"""
    actor = world.actor()
    monkeypatch.setattr("omnigraph.commit.publisher.next_record", _once(_interrupt, next_record))
    with pytest.raises(KeyboardInterrupt):
        actor.apply(person("given up"))
    assert actor.publisher._queue == []
    actor.apply(person("later"))
    assert set(world.rows("Person")) == {"later"}


def test_the_group_of_an_interrupted_composer_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others were chosen for the same record: nothing of theirs was sent, so they land by the next one. S7, S38"""
    actor = world.actor()
    with actor.hold_at("write.before-record", lambda: actor.apply(person("first"))) as first:
        group = [world.start(partial(actor.apply, person(name))) for name in ("a", "b", "c")]
        actor.wait_queued(4)
        monkeypatch.setattr("omnigraph.commit.publisher.next_record", _once(_interrupt, next_record))
    first.result(WAIT_S)
    errors = [ticket.exception(WAIT_S) for ticket in group]
    assert sorted(str(type(error)) for error in errors if error is not None) == [str(KeyboardInterrupt)]
    landed = {name for name, error in zip(("a", "b", "c"), errors, strict=True) if error is None}
    assert set(world.rows("Person")) == {"first", *landed}


def test_interrupted_as_soon_as_it_leads(world: World) -> None:
    """The interrupt strikes between taking the lead and the first step: somebody else leads then. S7"""
    actor = world.actor()
    actor.publisher._turn = _Interrupting(lambda: actor.publisher._leader is not None)
    with pytest.raises(KeyboardInterrupt):
        actor.apply(person("given up"))
    actor.publisher._turn = threading.Condition()
    running = world.start(lambda: actor.apply(person("later")))
    assert running.result(WAIT_S).commit_id
    assert set(world.rows("Person")) == {"later"}


def test_a_verdict_on_a_plan_that_was_just_withdrawn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller was interrupted while the leader looked at it: the leader's own write goes on. S7"""
    actor = world.actor()
    judged = Publisher._find_outcome

    def verdict(self: Publisher, ticket: Any, head: Any, recent: Any) -> PublishOutcome | None:
        if ticket.plan.options.actor == "waiter":
            self._withdraw(ticket)
            return PlanStale(PlanConflict(None, "it does not hold"))
        return judged(self, ticket, head, recent)

    with actor.hold_at("write.before-record", lambda: actor.apply(person("first"))) as first:
        waiting = world.start(lambda: actor.apply(person("waiter"), actor="waiter", on_conflict="fail"))
        actor.wait_queued(2)
        leading = world.start(lambda: actor.apply(person("leader")))
        actor.wait_queued(3)
        monkeypatch.setattr(Publisher, "_find_outcome", verdict)
    assert first.result(WAIT_S).commit_id
    assert leading.result(WAIT_S).commit_id
    assert isinstance(waiting.exception(WAIT_S), ReadSetChanged)
    assert actor.publisher._queue == []


def test_a_caller_that_left_is_not_tried_again_after_a_lost_round(world: World) -> None:
    """Its record was on the way when it was interrupted, and was refused: that settles it. S7"""
    second_actor = world.actor()

    def lose(number: int, key: str, data: bytes, put: Put) -> PutResult:
        if number == 1:
            assert Ticket.is_in_flight
            actor.publisher._withdraw(Ticket)
            second_actor.apply(person("winner"))
        return put()

    actor: Actor = world.actor(wrap=lambda store: HookedStore(store, lose))
    backend = actor.runtime.backend
    plan = Mutation(backend, lambda _: [person("gone")]).prepare(WriteTxn(actor.snapshot()))
    assert isinstance(plan, PublishPlan)
    Ticket = _Ticket(plan, backend.clock.monotonic() + WAIT_S)
    actor.publisher._queue.append(Ticket)
    actor.apply(person("leader"))
    actor.apply(person("later"))
    assert set(world.rows("Person")) == {"winner", "leader", "later"}


class _Interrupting(threading.Condition):
    """Raises once, as it is left, when `due` says so."""

    def __init__(self, due: Callable[[], bool]) -> None:
        super().__init__()
        self._due: Callable[[], bool] | None = due

    def __exit__(self, *args: Any) -> None:
        super().__exit__(*args)
        if self._due is not None and self._due():
            self._due = None
            raise KeyboardInterrupt
