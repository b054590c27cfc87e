"""Repeating and timing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median


def seconds(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


def median_s(work: Callable[[], object], repeat: int) -> float:
    """The middle of `repeat` runs, the first of which is not counted: it pays for what is loaded once."""
    work()
    return median(seconds(work) for _ in range(repeat))


def medians_s(ways: Mapping[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """The same for several ways that take turns, so that a busy moment of the machine hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeat + 1):
        for name, work in ways.items():
            times[name].append(seconds(work))
    return {name: median(spent[1:]) for name, spent in times.items()}
