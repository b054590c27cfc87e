"""A graph for each test, in each of the ways to keep changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutations.ground import MODES, Ground


@pytest.fixture(params=list(MODES))
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path, request.param)
    yield made
    made.close()


@pytest.fixture
def inline(tmp_path: Path) -> Iterator[Ground]:
    """Where the way to keep a change makes no difference."""
    made = Ground(tmp_path, "inline")
    yield made
    made.close()
