"""What is known of every intent of a graph: one listing, and a read of those that have not ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from omnigraph.errors import Corruption
from omnigraph.intents.objects import (
    BEAT,
    BEATS_PER_GRACE,
    DECISION,
    END,
    OPEN,
    RECOVERY,
    TAKEN,
    IntentDecision,
    IntentEnding,
    IntentOpening,
    decode_decision,
    decode_ending,
    decode_opening,
    decode_taken,
    intent_key,
)
from omnigraph.storage.backend import Backend
from omnigraph.storage.store import ObjectInfo, Store

_SIGNS_OF_LIFE = (OPEN, BEAT, DECISION)


@dataclass(frozen=True, slots=True)
class IntentFolder:
    """The objects of one intent, by their name in its folder, as they were listed."""

    op_id: str
    objects: Mapping[str, ObjectInfo]

    @property
    def is_whole(self) -> bool:
        """An intent begins with its first object; without it, it is what a sweep has left."""
        return OPEN in self.objects

    @property
    def has_ended(self) -> bool:
        return END in self.objects

    @property
    def opened_at(self) -> datetime:
        """By the store's clock: nothing that the operation wrote is older."""
        return self.objects[OPEN].modified_at

    @property
    def ended_at(self) -> datetime | None:
        return self.objects[END].modified_at if self.has_ended else None

    @property
    def last_sign_at(self) -> datetime:
        """When its driver was last heard of."""
        return max(self.objects[name].modified_at for name in _SIGNS_OF_LIFE if name in self.objects)


@dataclass(frozen=True, slots=True)
class IntentState:
    """One intent as it was read."""

    folder: IntentFolder
    opening: IntentOpening
    decision: IntentDecision | None
    taken: str | None
    ending: IntentEnding | None

    def is_live(self, now: datetime, grace_s: float) -> bool:
        """Whether its driver may still be at work; both times are the store's."""
        silence_s = max(grace_s, BEATS_PER_GRACE * self.opening.beat_s)
        return self.ending is None and now - self.folder.last_sign_at <= timedelta(seconds=silence_s)


def list_intents(store: Store) -> list[IntentFolder]:
    """Every folder below `__recovery/`, by one listing."""
    found = []
    listed = [one for one in store.list(RECOVERY) if one.key.count("/") == 2]
    for op_id, group in groupby(listed, key=lambda one: one.key.split("/")[1]):
        found.append(IntentFolder(op_id, {one.key.rsplit("/", 1)[-1]: one for one in group}))
    return found


def read_intent(backend: Backend, found: IntentFolder) -> IntentState:
    """All that the intent says now. Raises Corruption or Unsupported that names the object."""
    keys = [intent_key(found.op_id, name) for name in (OPEN, DECISION, TAKEN, END)]
    opened, decided, taken, ended = backend.store.get_many(keys)
    opening = decode_opening(opened or b"", keys[0])
    if opening.op_id != found.op_id:
        raise Corruption(
            f"{keys[0]} tells of operation {opening.op_id}", advice="Restore it, or move it away", key=keys[0]
        )
    return IntentState(
        found,
        opening,
        decode_decision(decided, keys[1]) if decided is not None else None,
        decode_taken(taken, keys[2]) if taken is not None else None,
        decode_ending(ended, keys[3]) if ended is not None else None,
    )
