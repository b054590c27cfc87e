"""`@run_without_rules("rule")`: a schedule that passes with all protocol rules and fails without any one of these."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph.errors import OmnigraphError
from tests.schedules.rules import remove
from tests.schedules.world import World

Schedule = Callable[[World], None]


def run_without_rules(*rules: str) -> Callable[[Schedule], Callable[..., None]]:
    """The schedule as a test: once as the code is, then once without each of the rules, which must be noticed."""

    def decorate(schedule: Schedule) -> Callable[..., None]:
        @pytest.mark.parametrize("removed", [None, *rules], ids=lambda rule: f"without-{rule}" if rule else "all-rules")
        def test(world: World, removed: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
            if removed is None:
                schedule(world)
                return
            remove(removed, monkeypatch.setattr)
            with pytest.raises((AssertionError, OmnigraphError, pytest.fail.Exception)) as noticed:
                schedule(world)
            print(f"without {removed}: {noticed.value}")

        test.__name__ = schedule.__name__
        test.__doc__ = schedule.__doc__
        return test

    return decorate
