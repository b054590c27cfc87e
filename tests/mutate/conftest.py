"""A graph for each test, in each of the ways to keep changes.

By default the printed seed picks one way for each test, so that every run mixes them; `make test-all` tries all three.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutate.ground import MODES, Ground


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mode" not in metafunc.fixturenames:
        return
    seed = os.environ.get("OMNIGRAPH_TEST_SEED") or metafunc.config.getoption("randomly_seed")
    chosen = random.Random(f"{seed}/{metafunc.definition.nodeid}").choice(list(MODES))
    metafunc.parametrize("mode", [one if one == chosen else pytest.param(one, marks=pytest.mark.slow) for one in MODES])


@pytest.fixture
def ground(mode: str, tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(tmp_path, mode)
    yield ground
    ground.close()


@pytest.fixture
def inline(tmp_path: Path) -> Iterator[Ground]:
    """Where the way to keep a change makes no difference."""
    ground = Ground(tmp_path, "inline")
    yield ground
    ground.close()
