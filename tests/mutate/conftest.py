"""A graph for each test, in each of the ways to keep changes.

By default the printed seed picks one way for each test, so that every run mixes them; `make test-all` tries all three.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutate.ground import MODES, MutationGround


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mode" not in metafunc.fixturenames:
        return
    seed = os.environ.get("OMNIGRAPH_TEST_SEED") or metafunc.config.getoption("randomly_seed")
    mode = random.Random(f"{seed}/{metafunc.definition.nodeid}").choice(list(MODES))
    metafunc.parametrize(
        "mode",
        [each_mode if each_mode == mode else pytest.param(each_mode, marks=pytest.mark.slow) for each_mode in MODES],
    )


@pytest.fixture
def ground(mode: str, tmp_path: Path) -> Iterator[MutationGround]:
    ground = MutationGround(tmp_path, mode)
    yield ground
    ground.close()


@pytest.fixture
def inline(tmp_path: Path) -> Iterator[MutationGround]:
    """Where the way to keep a change makes no difference."""
    ground = MutationGround(tmp_path, "inline")
    yield ground
    ground.close()
