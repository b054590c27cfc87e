"""Fairness between processes that write one branch: the winner of a seq waits, losers never back off.

A loser needs two hops per round (read the record that won, try again), a winner one, so without pacing the first
winner would win for ever. A process that has seen another process's record lately waits up to two round trips after
each own success. A process that has not leaves a window of three round trips after every sixteen commits, in which a
starving process can land a record.

That is enough among processes of equal speed. For a process with slower requests, all others leave a longer window
before every seq divisible by 32. Only processes that have lost many rounds in a row do not wait there.
"""

from __future__ import annotations

from omnigraph.clock import Clock, IdSource

_FOREIGN_MEMORY_S = 2.0
_COMMITS_PER_WINDOW = 16
_SMOOTHING = 0.2
_SLOW_WINDOW_EVERY = 32
_SLOW_WINDOW_ROUND_TRIPS = 10
_SLOW_WINDOW_MAX_S = 0.5
_STARVING_ROUNDS = 6


class Pacing:
    """Decides when the leader of a publisher may try for the next seq. Only the leading thread uses it."""

    def __init__(self, clock: Clock, ids: IdSource) -> None:
        self._clock = clock
        self._ids = ids
        self._round_trip_s = 0.0
        self._foreign_at = float("-inf")
        self._uncontested = 0
        self._lost_rounds = 0
        self._not_before = 0.0

    def wait_for_turn(self, seq: int) -> None:
        """Sleep until this process may try for `seq`."""
        wait_s = self._not_before - self._clock.monotonic()
        if seq % _SLOW_WINDOW_EVERY == 0 and self._has_met_others() and self._lost_rounds < _STARVING_ROUNDS:
            wait_s = max(wait_s, min(_SLOW_WINDOW_ROUND_TRIPS * self._round_trip_s, _SLOW_WINDOW_MAX_S))
        if wait_s > 0:
            self._clock.sleep(wait_s)

    def note_foreign_record(self) -> None:
        self._foreign_at = self._clock.monotonic()
        self._uncontested = 0

    def note_lost_round(self, put_s: float) -> None:
        """Another record took the seq, after a PUT of `put_s` seconds."""
        self._measure(put_s)
        self._lost_rounds += 1

    def note_landed_record(self, put_s: float) -> None:
        """The record landed after a PUT of `put_s` seconds; decide when the next may start."""
        self._measure(put_s)
        self._lost_rounds = 0
        now = self._clock.monotonic()
        if self._has_met_others():
            self._not_before = now + self._ids.uniform(0, 2 * self._round_trip_s)
            return
        self._uncontested += 1
        if self._uncontested % _COMMITS_PER_WINDOW == 0:
            self._not_before = now + 3 * self._round_trip_s

    def _has_met_others(self) -> bool:
        return self._clock.monotonic() - self._foreign_at < _FOREIGN_MEMORY_S

    def _measure(self, put_s: float) -> None:
        self._round_trip_s += _SMOOTHING * (put_s - self._round_trip_s) if self._round_trip_s else put_s
