"""Lists the intents of a graph with one request, and reads the state of a single intent."""

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
    """The listed objects of one intent, by their name in its folder."""

    op_id: str
    objects: Mapping[str, ObjectInfo]

    @property
    def has_opening(self) -> bool:
        """An intent begins with `0-open`; a folder without it is what a sweep of cleanup has left."""
        return OPEN in self.objects

    @property
    def has_ended(self) -> bool:
        return END in self.objects

    @property
    def opening_time(self) -> datetime:
        """When the intent was opened, by the store's clock: nothing that the operation wrote is older."""
        return self.objects[OPEN].modified_at

    @property
    def ending_time(self) -> datetime | None:
        return self.objects[END].modified_at if self.has_ended else None

    @property
    def last_sign_at(self) -> datetime:
        """When the driver last wrote an object, by the store's clock."""
        return max(self.objects[name].modified_at for name in _SIGNS_OF_LIFE if name in self.objects)


@dataclass(frozen=True, slots=True)
class IntentState:
    """One intent with the content of its objects. `taken_by` says who took over its confirmed plan."""

    folder: IntentFolder
    opening: IntentOpening
    decision: IntentDecision | None
    taken_by: str | None
    ending: IntentEnding | None

    def is_live(self, now: datetime, grace_s: float) -> bool:
        """Whether the driver may still be at work. `now` is a time of the store's clock."""
        silence_s = max(grace_s, BEATS_PER_GRACE * self.opening.beat_s)
        return self.ending is None and now - self.folder.last_sign_at <= timedelta(seconds=silence_s)


def list_intents(store: Store) -> list[IntentFolder]:
    """The folders of all intents, by one listing of `__recovery/`."""
    folders = []
    objects = [info for info in store.list(RECOVERY) if info.key.count("/") == 2]
    for op_id, group in groupby(objects, key=lambda info: info.key.split("/")[1]):
        folders.append(IntentFolder(op_id, {info.key.rsplit("/", 1)[-1]: info for info in group}))
    return folders


def read_intent(backend: Backend, folder: IntentFolder) -> IntentState:
    """Read the objects of the intent. Raises Corruption or Unsupported, which name the object that cannot be read."""
    keys = [intent_key(folder.op_id, name) for name in (OPEN, DECISION, TAKEN, END)]
    opening_data, decision_data, taken_data, ending_data = backend.store.get_many(keys)
    opening = decode_opening(opening_data or b"", keys[0])
    if opening.op_id != folder.op_id:
        raise Corruption(
            f"{keys[0]} tells of operation {opening.op_id}", advice="Restore it, or move it away", key=keys[0]
        )
    return IntentState(
        folder,
        opening,
        decode_decision(decision_data, keys[1]) if decision_data is not None else None,
        decode_taken(taken_data, keys[2]) if taken_data is not None else None,
        decode_ending(ending_data, keys[3]) if ending_data is not None else None,
    )
