"""Back-pressure: small writers on a neglected graph are slowed, then refused, until somebody runs optimize.

Every fold leaves a small fragment. What reads pay for them grows with their number, so writers that add to them wait a
little longer the more there are. The record tells the number; nothing is read to find it out.
"""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.config import Config
from omnigraph.errors import Unavailable
from omnigraph.log.commit_record import CommitRecord, Pin

_WHOLE_FRAGMENT_BYTES = 32 << 20
_LONGEST_WAIT_S = 1.0

NEEDS_OPTIMIZE = "needs_optimize"
"""The code of the refusal, which holds for the record it was found on."""


def small_fragments(pin: Pin) -> int:
    """How many fragments the table has beyond those that its bytes justify."""
    return max(0, pin.fragments - pin.size_bytes // _WHOLE_FRAGMENT_BYTES)


def tables_in_need(record: CommitRecord, config: Config) -> list[str]:
    """Tables that optimize should look after, long before any writer has to wait for it."""
    return [table for table, pin in record.pins.items() if small_fragments(pin) >= config.upkeep_fragments]


def pressure_wait_s(head: CommitRecord, tables: Iterable[str], config: Config) -> float:
    """How long a small writer of these tables has to wait. Raises Unavailable where it must not go on at all."""
    worst, count = max(
        ((table, small_fragments(head.pins[table])) for table in tables if table in head.pins),
        key=lambda table_and_count: table_and_count[1],
        default=("", 0),
    )
    low, high = config.pressure_wait_fragments, config.pressure_stop_fragments
    if count >= high:
        raise Unavailable(
            f"table {worst} has {count} small fragments, {high} are too many for further small writes",
            code=NEEDS_OPTIMIZE,
            advice="Run `omnigraph optimize`, then send the write again",
            table=worst,
            limit="pressure_stop_fragments",
            bound=high,
            value=count,
            retry_after_s=30,
        )
    return _LONGEST_WAIT_S * (count - low + 1) / (high - low) if count >= low else 0.0
