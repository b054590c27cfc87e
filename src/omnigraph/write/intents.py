"""Intents: what a bulk operation leaves in `__recovery/<op id>/`, so that others can end what its process could not.

    0-open      before the first durable effect: who does what, from which commit
    heartbeat   written again and again while the process lives; nothing is decided by its content
    1           created once: *confirmed*, with the whole plan, or *aborted*. Whoever creates it decides, driver or
                recoverer, and everybody else obeys
    taken       created once, after a confirmation: by a recoverer that will publish the plan, or by a driver that
                gives up. So no caller is told "failed" of an operation that appears later
    2           the end: *done*, with its commit, or *abandoned*, with the reason

No object but the heartbeat is ever written twice, and the driver's life is judged by the store's clock alone (H38).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Literal

from omnigraph.errors import Conflict, Corruption, Forbidden, OmnigraphError, Unavailable, Unknown, Unsupported
from omnigraph.log.codec import decode_frame, encode_frame
from omnigraph.log.record import CommitRecord
from omnigraph.storage.backend import Backend
from omnigraph.write.birth import create_object
from omnigraph.write.idempotency import with_intent_claim
from omnigraph.write.plan import PublishPlan, WriteOptions
from omnigraph.write.plan_codec import SavedPlan, decode_plan, encode_plan

RECOVERY = "__recovery/"
OPEN, BEAT, DECISION, TAKEN, END = "0-open", "heartbeat", "1", "taken", "2"
INTENT_VERSION = 1
BEATS_PER_GRACE = 10
"""So many heartbeats must be missing, at least, before anybody else may act."""

_CLOCK = "__locks/clock"
_LONGEST_BEAT_S = 30.0


class IntentEnded(Conflict):
    """Somebody else ended the operation, since it gave no sign of life. Nothing of it is visible."""

    default_code = "intent_ended"


@dataclass(frozen=True, slots=True)
class Opening:
    """What `0-open` says. `grace_s` is how long the driver may be silent, `beat_s` how often it means to be heard."""

    op_id: str
    operation: str
    branch: str
    stream: str
    base: str
    actor: str | None
    message: str | None
    client_key: str | None
    opened_at: str
    grace_s: float
    beat_s: float


@dataclass(frozen=True, slots=True)
class Aborted:
    """A decision against the operation: nothing of it will ever be named."""

    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Everything is staged and this is the plan."""

    plan: SavedPlan


Decision = Confirmed | Aborted


@dataclass(frozen=True, slots=True)
class Ending:
    """How it ended, for good."""

    outcome: Literal["done", "abandoned"]
    commit_id: str | None
    reason: str | None


def intent_key(op_id: str, name: str) -> str:
    return f"{RECOVERY}{op_id}/{name}"


def store_now(backend: Backend) -> datetime:
    """The store's clock, as it stamps an object that is written now."""
    backend.store.put(_CLOCK, b"")
    return backend.store.head(_CLOCK).modified_at


def decode_opening(data: bytes, key: str) -> Opening:
    return Opening(**_facts(data, key, "open"))


def decode_decision(data: bytes, key: str) -> Decision:
    head = _head(data, key)
    if head.get("intent") == "aborted":
        return Aborted(**_facts(data, key, "aborted"))
    return Confirmed(decode_plan(data, key))


def decode_ending(data: bytes, key: str) -> Ending:
    return Ending(**_facts(data, key, "end"))


def decide_aborted(backend: Backend, op_id: str, reason: str, by: str) -> Decision:
    """Decide against the operation, unless somebody was first. The answer is what holds now."""
    key = intent_key(op_id, DECISION)
    return decode_decision(create_object(backend, key, _encode("aborted", asdict(Aborted(reason, by)))), key)


def take_over(backend: Backend, op_id: str, by: Literal["driver", "recovery"]) -> Literal["driver", "recovery"]:
    """Who may say the last word on a confirmed plan: the driver that gives up, or those who publish it for it."""
    key = intent_key(op_id, TAKEN)
    held = _facts(create_object(backend, key, _encode("taken", {"by": by})), key, "taken")["by"]
    return "driver" if held == "driver" else "recovery"


def decode_taken(data: bytes, key: str) -> str:
    return str(_facts(data, key, "taken")["by"])


def write_end(backend: Backend, op_id: str, ending: Ending) -> Ending:
    """End the intent, unless it was ended before. The answer is the end that holds."""
    key = intent_key(op_id, END)
    return decode_ending(create_object(backend, key, _encode("end", asdict(ending))), key)


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
        data = _encode("open", asdict(opening))
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
        if self._ended or isinstance(error, Unknown):
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


def _encode(what: str, facts: Mapping[str, Any]) -> bytes:
    return encode_frame({"v": INTENT_VERSION, "intent": what, "facts": dict(facts)}, [])


def _head(data: bytes, key: str) -> dict[str, Any]:
    try:
        return decode_frame(data, key)[0]
    except ValueError as error:
        raise _unreadable(key, error) from error


def _facts(data: bytes, key: str, what: str) -> dict[str, Any]:
    head = _head(data, key)
    if head.get("v") != INTENT_VERSION:
        raise Unsupported(f"{key} has intent version {head.get('v')}", advice="Upgrade omnigraph", key=key)
    facts = head.get("facts")
    if head.get("intent") != what or not isinstance(facts, dict):
        raise _unreadable(key, f"it is not {what!r}")
    return facts


def _unreadable(key: str, why: object) -> Corruption:
    return Corruption(f"{key} cannot be read: {why}", advice="Restore it, or move it away", key=key)


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
