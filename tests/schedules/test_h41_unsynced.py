"""H41: a record that has its name but whose folder could not be synced is not acknowledged as it is."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import patch

import pytest

from omnigraph.storage.keys import KeyClass
from omnigraph.storage.metering import RequestKind
from omnigraph.storage.store import Store
from tests.schedules.world import World, person
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("blind", [False, True])
def test_h41_a_sync_that_failed_is_made_up_for_before_the_answer(world: World, number: int, blind: bool) -> None:
    """The link was made, the sync of its folder fails once: finding the record there is not enough. H41, H25

    `blind`: the first look at it fails as well. That the disk is full is no proof then that nothing landed.
    """
    stores: list[FaultyStore] = []

    def faulty(store: Store) -> Store:
        stores.append(FaultyStore(store, FaultPlan.none()))
        return stores[-1]

    writer = world.actor(fsync=True, wrap=faulty)
    if blind:
        stores[0].plan = FaultPlan.at(1, Fault.FAIL_BEFORE, kinds=[RequestKind.GET], key_classes=[KeyClass.RECORD])
    fsync, calls = os.fsync, list[tuple[str, bool]]()

    def failing(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        fails = Path(path).parent.name == "__manifest" and not any(failed for _, failed in calls)
        calls.append((path, fails))
        if fails:
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    with patch("os.fsync", failing):
        writer.apply(person("x", 1))
    failed = next(position for position, (_, fails) in enumerate(calls) if fails)
    assert (calls[failed][0], False) in calls[failed + 1 :]
    assert world.ages() == {"x": 1}
