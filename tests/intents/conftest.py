"""Graphs whose bulk driver was killed, made once per place of death and copied for every test."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.intents.intent_actor import age, build
from tests.intents.workers import drive_until_killed
from tests.support.processes import Workers

DeadAt = Callable[..., str]


@pytest.fixture(scope="session")
def dead_template(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    folder = tmp_path_factory.mktemp("dead")
    template = folder / "alive"
    build(str(template))
    templates: dict[tuple[tuple[str, str], ...], Path] = {}

    def make(**how: str) -> Path:
        key = tuple(sorted(how.items()))
        if key not in templates:
            path = folder / f"dead{len(templates)}"
            shutil.copytree(template, path)
            with Workers(drive_until_killed, 1, {"uri": str(path), **how}) as workers:
                workers.start()
                result = workers.wait(check=False)[0]
            assert result.exit_code == -signal.SIGKILL, f"it lived on: {result.value} {result.error}"
            templates[key] = path
        return templates[key]

    return make


@pytest.fixture
def dead_at(dead_template: Callable[..., Path], tmp_path: Path) -> DeadAt:
    """A graph whose driver was killed at a point; long ago, unless `fresh`."""

    def copy(point: str, *, fresh: bool = False, **how: str) -> str:
        uri = str(tmp_path / "graph")
        shutil.copytree(dead_template(point=point, **how), uri)
        if not fresh:
            age(uri)
        return uri

    return copy


@pytest.fixture
def graph_address(tmp_path: Path) -> str:
    """A graph without bulk operations."""
    uri = str(tmp_path / "graph")
    build(uri)
    return uri
