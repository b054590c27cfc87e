"""Back-pressure: small writes to a table with many small fragments wait, then are refused, until optimize has run.

Every fold leaves a small fragment, and reads cost more the more fragments there are. So a write that adds to them
waits the longer, the more there are. The commit record holds the number of fragments; no request is needed.
"""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.config import Config
from omnigraph.errors import Unavailable
from omnigraph.log.commit_record import CommitRecord, Pin

_WHOLE_FRAGMENT_BYTES = 32 << 20
_LONGEST_WAIT_S = 1.0

NEEDS_OPTIMIZE = "needs_optimize"
"""The error code of a refused write. The refusal holds for the head it was found on: a newer one may be optimized."""


def small_fragments(pin: Pin) -> int:
    """How many fragments could be saved if each held as many bytes as a full one."""
    return max(0, pin.fragments - pin.size_bytes // _WHOLE_FRAGMENT_BYTES)


def tables_in_need(record: CommitRecord, config: Config) -> list[str]:
    """Tables that should be optimized. They are reported long before writers must wait for it."""
    return [table for table, pin in record.pins.items() if small_fragments(pin) >= config.upkeep_fragments]


def pressure_wait_s(head: CommitRecord, tables: Iterable[str], config: Config) -> float:
    """How long a small write to these tables has to wait. Raises Unavailable if the write is refused."""
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
