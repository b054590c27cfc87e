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
"""So many heartbeats must be missing, at least, before anybody else may act."""

_CLOCK = "__locks/clock"


@dataclass(frozen=True, slots=True)
class IntentOpening:
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
class IntentAborted:
    """A decision against the operation: nothing of it will ever be named."""

    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class IntentConfirmed:
    """Everything is staged and this is the plan."""

    plan: SavedPlan


IntentDecision = IntentConfirmed | IntentAborted


@dataclass(frozen=True, slots=True)
class IntentEnding:
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
    """Decide against the operation, unless somebody was first. The answer is what holds now."""
    key = intent_key(op_id, DECISION)
    return decode_decision(create_object(backend, key, _encode("aborted", asdict(IntentAborted(reason, by)))), key)


def take_over(backend: Backend, op_id: str, by: Literal["driver", "recovery"]) -> Literal["driver", "recovery"]:
    """Who may say the last word on a confirmed plan: the driver that gives up, or those who publish it for it."""
    key = intent_key(op_id, TAKEN)
    held = _facts(create_object(backend, key, _encode("taken", {"by": by})), key, "taken")["by"]
    return "driver" if held == "driver" else "recovery"


def decode_taken(data: bytes, key: str) -> str:
    return str(_facts(data, key, "taken")["by"])


def write_end(backend: Backend, op_id: str, ending: IntentEnding) -> IntentEnding:
    """End the intent, unless it was ended before. The answer is the end that holds."""
    key = intent_key(op_id, END)
    return decode_ending(create_object(backend, key, _encode("end", asdict(ending))), key)


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
