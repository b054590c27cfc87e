"""`IntentScope`: the intent of a bulk operation of this process, from before its first effect to its end.

    with IntentScope(backend, "load", options) as intent:
        intent.open(op_id, base)              # before the first effect; the heartbeat starts
        ...                                   # stage the tables, for hours if need be
        plan = intent.confirm(plan)           # from here on another process can publish the plan
        receipt = ...                         # publish that plan
        intent.end(receipt.commit_id)

`objects.py` describes the objects that an intent consists of, and who may write each of them.
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
    IntentAborted,
    IntentEnding,
    IntentOpening,
    decide_aborted,
    decode_decision,
    encode_opening,
    intent_key,
    take_over,
    write_end,
)
from omnigraph.intents.plan_codec import can_be_kept, encode_plan
from omnigraph.log.commit_record import CommitRecord
from omnigraph.storage.backend import Backend

_LONGEST_BEAT_S = 30.0


class IntentScope:
    """Opens, confirms and ends the intent of one bulk operation; for use in a `with` block around the operation.

    An operation that turns out to be small never calls `open`: then `confirm` and `end` have no effect. Leaving the
    block by an error ends the intent if no other process can have published the plan, and otherwise leaves the
    intent to recovery.
    """

    def __init__(
        self,
        backend: Backend,
        operation: str,
        options: WriteOptions,
        *,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """`operation` says in one word what is done, for people who list intents."""
        self._backend = backend
        self._operation = operation
        self._options = options
        self._warn = warn or (lambda _: None)
        self._opening: IntentOpening | None = None
        self._heart: _Heart | None = None
        self._is_confirmed = False
        self._has_ended = False

    @property
    def is_open(self) -> bool:
        """Whether the intent was opened, no matter whether it has ended since."""
        return self._opening is not None

    @property
    def opening(self) -> IntentOpening:
        assert self._opening is not None
        return self._opening

    @property
    def id(self) -> str:
        return self.opening.op_id

    def open(self, op_id: str, base: CommitRecord) -> None:
        """Write the first object of the intent and start the heartbeat. If this fails, nothing was begun.

        `op_id` is the id under which the operation will be published. An intent that is open stays as it is: a
        re-prepared operation continues under the intent of its first attempt.
        """
        if self.is_open:
            return
        opening = self._describe(op_id, base)
        data, key = encode_opening(opening), intent_key(op_id, OPEN)
        try:
            stored = create_object(self._backend, key, data)
        except Unknown as error:
            # If the object appears after all, recovery finds an operation that has confirmed nothing, and aborts it.
            raise Unavailable(
                f"the {self._operation} was not begun: {error.message}", advice="Try again", key=key
            ) from error
        if stored != data:
            raise Unsupported(f"{key} exists already", code="intent_exists", advice="Use a new operation id", key=key)
        self._backend.pauses.reach("intent.opened")
        self._opening = opening
        self._heart = _Heart(self._backend, intent_key(op_id, BEAT), opening.beat_s)
        self._heart.start()

    def confirm(self, plan: PublishPlan) -> PublishPlan:
        """Store the staged plan, so that another process can publish it. Returns the plan to publish, with its claim.

        A plan that only this process can carry out is not stored: it is published by this process or by nobody, and
        recovery rolls it back under the same claim. A re-prepared plan of the same operation is not stored either:
        the stored one can then only be rolled back. Raises IntentEnded if a recoverer has aborted the operation.
        """
        if not self.is_open:
            return plan
        assert plan.op_id == self.id
        claimed_plan = with_intent_claim(plan, self.id)
        if not can_be_kept(plan):
            return claimed_plan
        self._backend.pauses.reach("intent.staged")
        if not self._is_confirmed:
            self._decide_confirmed(claimed_plan)
        self._backend.pauses.reach("intent.confirmed")
        return claimed_plan

    def end(self, commit_id: str | None) -> None:
        """Note that the commit record is durable. A failure to note it is only worth a warning."""
        if not self.is_open:
            return
        self._has_ended = True
        self._stop_heart()
        self._backend.pauses.reach("intent.before-done")
        self._write_end(IntentEnding("done", commit_id, None))

    def abort(self, reason: str) -> None:
        """Give the operation up. Raises Unknown if a recoverer is publishing the plan, or if nobody can tell."""
        self._stop_heart()
        if self._has_ended or not self.is_open:
            return
        try:
            if self._is_confirmed:
                is_withdrawn = take_over(self._backend, self.id, "driver") == "driver"
            else:
                is_withdrawn = isinstance(decide_aborted(self._backend, self.id, reason, "driver"), IntentAborted)
        except (Unavailable, Forbidden, Unknown) as error:
            if not self._is_confirmed:
                return  # without a confirmation nobody can publish the plan; recovery aborts the intent later
            raise _unknown_error(self.opening) from error
        if not is_withdrawn:
            raise _unknown_error(self.opening)
        self._has_ended = True
        self._write_end(IntentEnding("abandoned", None, reason))

    def __enter__(self) -> IntentScope:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_heart()
        if self._has_ended or isinstance(error, (Unknown, IntentEnded)):
            return
        if error is None:
            self.abort("it ended without a commit")
        elif isinstance(error, Exception) or not self._is_confirmed:
            self.abort(f"{type(error).__name__}: {error}")

    def _describe(self, op_id: str, base: CommitRecord) -> IntentOpening:
        config, options = self._backend.config, self._options
        return IntentOpening(
            op_id=op_id,
            operation=self._operation,
            branch=base.header.branch,
            stream=base.stream,
            base=base.commit_id,
            actor=options.actor,
            message=options.message,
            client_key=options.client_key,
            opened_at=self._backend.clock.now().isoformat(timespec="milliseconds"),
            grace_s=config.recovery_grace,
            beat_s=min(_LONGEST_BEAT_S, config.recovery_grace / (2 * BEATS_PER_GRACE)),
        )

    def _decide_confirmed(self, claimed_plan: PublishPlan) -> None:
        key = intent_key(self.id, DECISION)
        try:
            decision = decode_decision(create_object(self._backend, key, encode_plan(claimed_plan)), key)
        except Unknown as error:
            raise _unknown_error(self.opening) from error
        if isinstance(decision, IntentAborted):
            self._has_ended = True
            raise _intent_ended_error(self.opening, decision.reason)
        self._is_confirmed = True

    def _write_end(self, ending: IntentEnding) -> None:
        try:
            write_end(self._backend, self.id, ending)
        except OmnigraphError as error:
            self._warn(f"intent {self.id} could not be closed; the next open does it: {error.message}")

    def _stop_heart(self) -> None:
        if self._heart is not None:
            self._heart.stop()


class _Heart:
    """Writes the heartbeat in a thread while the operation runs. A beat that fails is made up for by the next."""

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
        """Once this has returned, no further heartbeat is written."""
        self._stopped.set()
        # A thread whose start was interrupted cannot be joined.
        if self._thread is not None and self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._backend.store.put(self._key, b"")
            except OmnigraphError:
                continue


def _intent_ended_error(opening: IntentOpening, reason: str) -> IntentEnded:
    return IntentEnded(
        f"the {opening.operation} was ended by recovery, nothing of it is visible: {reason}",
        advice="Run it again; if it was merely slow, raise OMNIGRAPH_RECOVERY_GRACE",
        op_id=opening.op_id,
    )


def _unknown_error(opening: IntentOpening) -> Unknown:
    return Unknown(
        f"the {opening.operation} failed here after it was staged; recovery may still publish it",
        advice="See `omnigraph recover --list`, or repeat it with the same client key, before anything else",
        op_id=opening.op_id,
        client_key=opening.client_key,
    )
