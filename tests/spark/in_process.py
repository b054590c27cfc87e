"""Spark's tasks run in this process: for schedules and inputs that need many loads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from omnigraph.load.spark import check, load, split
from omnigraph.load.spark import publish as index


def run_tasks_here(patch: pytest.MonkeyPatch) -> None:
    def run_here(
        session: object, count: int, work: Callable[[int], Iterable[dict[str, Any]]], at_once: int | None = None
    ) -> list[dict[str, Any]]:
        return [json.loads(json.dumps(result)) for number in range(count) for result in work(number)]

    for module in (split, check, index):
        patch.setattr(module, "run_tasks", run_here)
    patch.setattr(load, "get_session", lambda *_: None)
