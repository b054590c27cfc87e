"""Bulk operations of this process: each leaves word of itself before its first effect, and ends what it began.

    operation_id = backend.ids.ulid()
    with Intents(backend).open("load", operation_id, base, options) as intent:
        ...                                   # stage the tables, for hours if need be
        plan = intent.confirm(plan)           # from here on others can finish it
        receipt = ...                         # publish that plan
        intent.done(receipt.commit_id)

What lies in the store meanwhile, and who may write it: `intent_objects.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from omnigraph.commit.birth import create_object
from omnigraph.commit.idempotency import with_intent_claim
from omnigraph.commit.publish_plan import PublishPlan, WriteOptions
from omnigraph.errors import Forbidden, IntentEnded, OmnigraphError, Unavailable, Unknown, Unsupported
from omnigraph.intents.objects import (
    BEAT,
    BEATS_PER_GRACE,
    DECISION,
    OPEN,
    Aborted,
    Ending,
    Opening,
    decide_aborted,
    decode_decision,
    encode_opening,
    intent_key,
    take_over,
    write_end,
)
from omnigraph.intents.plan_codec import encode_plan
from omnigraph.log.commit_record import CommitRecord
from omnigraph.storage.backend import Backend

_LONGEST_BEAT_S = 30.0


class Intents:
    """Opens intents for the bulk operations of this process."""

    def __init__(self, backend: Backend, *, warn: Callable[[str], None] | None = None) -> None:
        self._backend = backend
        self._warn = warn or (lambda _: None)

    def open(self, operation: str, op_id: str, base: CommitRecord, options: WriteOptions) -> Intent:
        """Leave word of an operation before its first effect. A failure here means that nothing was begun.

        `op_id` is the id under which the operation will be published; `operation` says what it is, for people.
        """
        config, clock = self._backend.config, self._backend.clock
        opening = Opening(
            op_id=op_id,
            operation=operation,
            branch=base.header.branch,
            stream=base.stream,
            base=base.commit_id,
            actor=options.actor,
            message=options.message,
            client_key=options.client_key,
            opened_at=clock.now().isoformat(timespec="milliseconds"),
            grace_s=config.recovery_grace,
            beat_s=min(_LONGEST_BEAT_S, config.recovery_grace / (2 * BEATS_PER_GRACE)),
        )
        data = encode_opening(opening)
        key = intent_key(op_id, OPEN)
        try:
            held = create_object(self._backend, key, data)
        except Unknown as error:
            # Should it appear after all, recovery finds an operation that never confirmed anything.
            raise Unavailable(f"the {operation} was not begun: {error.message}", advice="Try again", key=key) from error
        if held != data:
            raise Unsupported(f"{key} exists already", code="intent_exists", advice="Use a new operation id", key=key)
        self._backend.pauses.reach("intent.opened")
        return Intent(self._backend, opening, self._warn)


class Intent:
    """One bulk operation of this process, from its first effect to its end; for use in a `with` block.

    Leaving the block by an error ends the intent where that is certain to be right, and leaves it to recovery where
    it is not.
    """

    def __init__(self, backend: Backend, opening: Opening, warn: Callable[[str], None]) -> None:
        self._backend = backend
        self.opening = opening
        self._warn = warn
        self._confirmed = False
        self._ended = False
        self._heart = _Heart(backend, intent_key(opening.op_id, BEAT), opening.beat_s)

    @property
    def id(self) -> str:
        return self.opening.op_id

    @property
    def is_confirmed(self) -> bool:
        return self._confirmed

    def confirm(self, plan: PublishPlan) -> PublishPlan:
        """Everything is staged: leave the whole plan behind. The answer is the plan to publish, with its claim.

        Raises IntentEnded if a recoverer was first. A later plan of the same operation, re-prepared because others
        committed meanwhile, needs no word of its own: what was left behind can only be rolled back then.
        """
        assert plan.op_id == self.id
        claimed = with_intent_claim(plan, self.id)
        self._backend.pauses.reach("intent.staged")
        if not self._confirmed:
            key = intent_key(self.id, DECISION)
            try:
                held = decode_decision(create_object(self._backend, key, encode_plan(claimed)), key)
            except Unknown as error:
                raise _unknown(self.opening) from error
            if isinstance(held, Aborted):
                self._ended = True
                raise _ended(self.opening, held.reason)
            self._confirmed = True
        self._backend.pauses.reach("intent.confirmed")
        return claimed

    def claim(self, plan: PublishPlan) -> PublishPlan:
        """Instead of `confirm`, for a plan that only this process can carry out: nothing of it is left behind.

        It is published with its claim, or by nobody: recovery rolls it back under the same claim.
        """
        assert plan.op_id == self.id
        return with_intent_claim(plan, self.id)

    def done(self, commit_id: str | None) -> None:
        """The record is durable. That this could not be noted is only worth a warning."""
        self._ended = True
        self._heart.stop()
        self._backend.pauses.reach("intent.before-done")
        try:
            write_end(self._backend, self.id, Ending("done", commit_id, None))
        except OmnigraphError as error:
            self._warn(f"intent {self.id} could not be closed; the next open does it: {error.message}")

    def abort(self, reason: str) -> None:
        """Give the operation up. Raises Unknown if a recoverer is publishing it, or if nobody can tell."""
        self._heart.stop()
        if self._ended:
            return
        try:
            if self._confirmed:
                withdrawn = take_over(self._backend, self.id, "driver") == "driver"
            else:
                withdrawn = isinstance(decide_aborted(self._backend, self.id, reason, "driver"), Aborted)
        except (Unavailable, Forbidden, Unknown) as error:
            if not self._confirmed:
                return  # without a confirmation nobody can publish it; recovery aborts it in its time
            raise _unknown(self.opening) from error
        if not withdrawn:
            raise _unknown(self.opening)
        self._ended = True
        try:
            write_end(self._backend, self.id, Ending("abandoned", None, reason))
        except OmnigraphError as error:
            self._warn(f"intent {self.id} could not be closed; the next open does it: {error.message}")

    def __enter__(self) -> Intent:
        self._heart.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._heart.stop()
        if self._ended or isinstance(error, (Unknown, IntentEnded)):
            return
        if error is None:
            self.abort("it ended without a commit")
        elif isinstance(error, Exception) or not self._confirmed:
            self.abort(f"{type(error).__name__}: {error}")


class _Heart:
    """Writes the heartbeat while the operation runs. One that could not be written is made up for by the next."""

    def __init__(self, backend: Backend, key: str, every_s: float) -> None:
        self._backend = backend
        self._key = key
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="omnigraph-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No heartbeat is written once this has returned."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._backend.store.put(self._key, b"")
            except OmnigraphError:
                continue


def _ended(opening: Opening, reason: str) -> IntentEnded:
    return IntentEnded(
        f"the {opening.operation} was ended by recovery, nothing of it is visible: {reason}",
        advice="Run it again; if it was merely slow, raise OMNIGRAPH_RECOVERY_GRACE",
        op_id=opening.op_id,
    )


def _unknown(opening: Opening) -> Unknown:
    return Unknown(
        f"the {opening.operation} failed here after it was staged; recovery may still publish it",
        advice="See `omnigraph recover --list`, or repeat it with the same client key, before anything else",
        op_id=opening.op_id,
        client_key=opening.client_key,
    )
