"""Named points of the engine's operations at which a test can stop, crash or overtake an actor.

The engine calls `pauses.reach("write.staged")` and goes on. Production runs with `NO_PAUSES`; the pauses that a test
controls are in `tests/support/pauses.py`.
"""

from __future__ import annotations

from typing import Final, Protocol


class Pauses(Protocol):
    """Called by the engine at each named point, by the thread that does the work."""

    def reach(self, name: str) -> None: ...


class _NoPauses:
    """Never stops a thread."""

    __slots__ = ()

    def reach(self, name: str) -> None:
        return


NO_PAUSES: Final[Pauses] = _NoPauses()
