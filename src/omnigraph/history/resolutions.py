"""Resolutions of single conflicts, as users write them: the conflicts they were shown, each with what to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.errors import InvalidInput
from omnigraph.history.decide_row import Resolution

_FIELDS = ("entity_kind", "type_name", "entity_id")


def resolutions_of(raw: object, where: str = "resolutions") -> dict[tuple[str, str], Resolution]:
    """By (`kind:Type`, id). Takes a list of conflicts with a field `resolve`, or the error that lists them.

    A conflict without `resolve` stays one; other fields do not matter.
    """
    found: dict[tuple[str, str], Resolution] = {}
    for place, one in enumerate(_entries(raw, where)):
        if not isinstance(one, Mapping) or not all(isinstance(one.get(name), str) for name in _FIELDS):
            raise _refused(f"{where}, item {place + 1}, does not name an entity")
        chosen = one.get("resolve")
        if chosen is None:
            continue
        if chosen not in ("ours", "theirs"):
            raise _refused(f"{where}, item {place + 1}, is resolved by {chosen!r}")
        entity = (f"{one['entity_kind']}:{one['type_name']}", one["entity_id"])
        if found.setdefault(entity, chosen) != chosen:
            raise _refused(f"{where} settles {entity[0]} {entity[1]!r} both ways")
    return found


def _entries(raw: object, where: str) -> Sequence[Any]:
    listed = raw.get("merge_conflicts") if isinstance(raw, Mapping) else raw
    if not isinstance(listed, list):
        raise _refused(f"{where} is not a list of conflicts")
    return listed


def _refused(message: str) -> InvalidInput:
    return InvalidInput(
        message,
        code="bad_resolutions",
        advice='Write [{"entity_kind", "type_name", "entity_id", "resolve": "ours" or "theirs"}, …]',
    )
