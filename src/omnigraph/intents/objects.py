"""The objects of an intent, in `__recovery/<op id>/`, from which recovery can end an operation whose process died.

    0-open      written before the first durable effect: who does what, from which commit
    heartbeat   written again and again while the process lives; its content decides nothing
    1           created once: *confirmed*, with the whole plan, or *aborted*. The process that creates it decides, be
                it the driver or a recoverer, and every other process obeys
    taken       created once, after a confirmation: by a recoverer that will publish the plan, or by a driver that
                gives up. So no caller gets "failed" for an operation that appears later
    2           the end: *done*, with the commit id, or *abandoned*, with the reason

The driver is the process that runs the operation. No object but the heartbeat is ever written twice, and only the
store's clock decides whether the driver is alive (H38).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from omnigraph.commit.birth import create_object
from omnigraph.errors import Corruption, Unsupported
from omnigraph.intents.plan_codec import SavedPlan, decode_plan
from omnigraph.log.frame import decode_frame, encode_frame
from omnigraph.storage.backend import Backend

RECOVERY = "__recovery/"
OPEN, BEAT, DECISION, TAKEN, END = "0-open", "heartbeat", "1", "taken", "2"
INTENT_VERSION = 1
BEATS_PER_GRACE = 10
"""At least this many heartbeats must be missing before another process may end the operation."""

_CLOCK = "__locks/clock"


@dataclass(frozen=True, slots=True)
class IntentOpening:
    """The content of `0-open`. `grace_s` is how long the driver may be silent, `beat_s` the time between heartbeats."""

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
class IntentAborted:
    """The decision against the operation: no record will ever name what it staged."""

    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class IntentConfirmed:
    """The decision that the operation may be published: everything is staged, and this is its plan."""

    plan: SavedPlan


IntentDecision = IntentConfirmed | IntentAborted


@dataclass(frozen=True, slots=True)
class IntentEnding:
    """The end of the intent: published in `commit_id`, or abandoned for `reason`."""

    outcome: Literal["done", "abandoned"]
    commit_id: str | None
    reason: str | None


def intent_key(op_id: str, name: str) -> str:
    return f"{RECOVERY}{op_id}/{name}"


def store_now(backend: Backend) -> datetime:
    """The time of the store's clock: the modification time of an object that is written now."""
    backend.store.put(_CLOCK, b"")
    return backend.store.head(_CLOCK).modified_at


def encode_opening(opening: IntentOpening) -> bytes:
    return _encode("open", asdict(opening))


def decode_opening(data: bytes, key: str) -> IntentOpening:
    return IntentOpening(**_facts(data, key, "open"))


def decode_decision(data: bytes, key: str) -> IntentDecision:
    head = _head(data, key)
    if head.get("intent") == "aborted":
        return IntentAborted(**_facts(data, key, "aborted"))
    return IntentConfirmed(decode_plan(data, key))


def decode_ending(data: bytes, key: str) -> IntentEnding:
    return IntentEnding(**_facts(data, key, "end"))


def decide_aborted(backend: Backend, op_id: str, reason: str, by: str) -> IntentDecision:
    """Abort the operation, unless another process has decided before. Returns the decision that holds."""
    key = intent_key(op_id, DECISION)
    return decode_decision(create_object(backend, key, _encode("aborted", asdict(IntentAborted(reason, by)))), key)


def take_over(backend: Backend, op_id: str, by: Literal["driver", "recovery"]) -> Literal["driver", "recovery"]:
    """Take over a confirmed plan, to give it up (driver) or to publish it (recovery). Returns who took it first."""
    key = intent_key(op_id, TAKEN)
    taken_by = _facts(create_object(backend, key, _encode("taken", {"by": by})), key, "taken")["by"]
    return "driver" if taken_by == "driver" else "recovery"


def decode_taken(data: bytes, key: str) -> str:
    return str(_facts(data, key, "taken")["by"])


def write_end(backend: Backend, op_id: str, ending: IntentEnding) -> IntentEnding:
    """End the intent, unless it was ended before. Returns the ending that holds."""
    key = intent_key(op_id, END)
    return decode_ending(create_object(backend, key, _encode("end", asdict(ending))), key)


def _encode(name: str, facts: Mapping[str, Any]) -> bytes:
    return encode_frame({"v": INTENT_VERSION, "intent": name, "facts": dict(facts)}, [])


def _head(data: bytes, key: str) -> dict[str, Any]:
    try:
        return decode_frame(data, key)[0]
    except ValueError as error:
        raise _unreadable_error(key, error) from error


def _facts(data: bytes, key: str, name: str) -> dict[str, Any]:
    head = _head(data, key)
    if head.get("v") != INTENT_VERSION:
        raise Unsupported(f"{key} has intent version {head.get('v')}", advice="Upgrade omnigraph", key=key)
    facts = head.get("facts")
    if head.get("intent") != name or not isinstance(facts, dict):
        raise _unreadable_error(key, f"it is not {name!r}")
    return facts


def _unreadable_error(key: str, why: object) -> Corruption:
    return Corruption(f"{key} cannot be read: {why}", advice="Restore it, or move it away", key=key)
