"""Places, folding and the bed of the scenarios.

Every scenario runs under one of three ways to fold: never, after every commit, at random. By default the printed seed
picks one for each test, so that every run mixes them; `make test-all` runs all three, and `OMNIGRAPH_TEST_FOLD=always`
(or `never`, `random`, `all`) decides for a whole run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.bed import GraphLocation, ScenarioBed
from tests.support.s3 import S3Place

FOLDS = ("never", "always", "random")


def _seed(config: pytest.Config) -> str:
    return os.environ.get("OMNIGRAPH_TEST_SEED") or str(config.getoption("randomly_seed"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fold" not in metafunc.fixturenames:
        return
    response = os.environ.get("OMNIGRAPH_TEST_FOLD", "")
    if response in FOLDS:
        metafunc.parametrize("fold", [response])
        return
    if response == "all":
        metafunc.parametrize("fold", FOLDS)
        return
    chosen_fold = _choose_fold(metafunc.config, metafunc.definition.nodeid)
    metafunc.parametrize(
        "fold", [fold if fold == chosen_fold else pytest.param(fold, marks=pytest.mark.slow) for fold in FOLDS]
    )


def _choose_fold(config: pytest.Config, test: str) -> str:
    return random.Random(f"{_seed(config)}/{test}").choice(FOLDS)


def s3_as_place(name: str, s3_place: S3Place) -> GraphLocation:
    return GraphLocation(name, s3_place.uri, s3_place.storage_options, s3_place.env)


@pytest.fixture
def local_place(tmp_path: Path) -> GraphLocation:
    """A directory."""
    return GraphLocation("local", str(tmp_path / "graph"))


@pytest.fixture
def moto_place(s3_place: S3Place) -> GraphLocation:
    return s3_as_place("moto", s3_place)


@pytest.fixture(params=["local", pytest.param("moto", marks=pytest.mark.s3)])
def store_place(request: pytest.FixtureRequest) -> GraphLocation:
    """A directory, and a bucket of an S3-protocol server."""
    store_place: GraphLocation = request.getfixturevalue("local_place" if request.param == "local" else "moto_place")
    return store_place


@pytest.fixture(
    params=[
        "local",
        pytest.param("moto", marks=pytest.mark.s3),
        pytest.param("seaweed", marks=[pytest.mark.s3, pytest.mark.slow]),
    ]
)
def racing_place(request: pytest.FixtureRequest) -> GraphLocation:
    """For races: also SeaweedFS, whose conditional PUT is its own."""
    if request.param == "seaweed":
        return s3_as_place("seaweed", request.getfixturevalue("seaweed_place"))
    store_place: GraphLocation = request.getfixturevalue("local_place" if request.param == "local" else "moto_place")
    return store_place


def _make_bed(request: pytest.FixtureRequest, where: GraphLocation, fold: str) -> Iterator[ScenarioBed]:
    bed = ScenarioBed(where, fold, f"{_seed(request.config)}/{request.node.nodeid}")
    yield bed
    bed.close()


@pytest.fixture
def bed(request: pytest.FixtureRequest, store_place: GraphLocation, fold: str) -> Iterator[ScenarioBed]:
    """A new graph on every place in turn."""
    yield from _make_bed(request, store_place, fold)


@pytest.fixture
def local_bed(request: pytest.FixtureRequest, local_place: GraphLocation, fold: str) -> Iterator[ScenarioBed]:
    """A new graph in a directory."""
    yield from _make_bed(request, local_place, fold)


@pytest.fixture
def moto_bed(request: pytest.FixtureRequest, moto_place: GraphLocation, fold: str) -> Iterator[ScenarioBed]:
    """A new graph in a bucket."""
    yield from _make_bed(request, moto_place, fold)


@pytest.fixture
def race_bed(request: pytest.FixtureRequest, racing_place: GraphLocation, fold: str) -> Iterator[ScenarioBed]:
    yield from _make_bed(request, racing_place, fold)
