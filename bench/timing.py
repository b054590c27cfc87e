"""Repeats and times calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median


def seconds(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


def median_s(work: Callable[[], object], repeat: int) -> float:
    """Returns the median of `repeat` runs after a first run that does not count, since it has one-time costs."""
    work()
    return median(seconds(work) for _ in range(repeat))


def medians_s(ways: Mapping[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Returns the medians of several calls that take turns, so that a busy machine slows all of them."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeat + 1):
        for name, work in ways.items():
            times[name].append(seconds(work))
    return {name: median(spent[1:]) for name, spent in times.items()}
