"""Graphs of every shape, built once and copied for each test: what one test writes must not show in another's count."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omnigraph.config import Config
from tests.cost.ground import INLINE, CostGround, MeteredActor, Shape, build


@pytest.fixture(scope="session")
def _templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Shape], Path]:
    built: dict[Shape, Path] = {}

    def template(shape: Shape) -> Path:
        if shape not in built:
            path = tmp_path_factory.mktemp("cost") / "graph"
            build(CostGround(str(path)), shape)
            built[shape] = path
        return built[shape]

    return template


@pytest.fixture
def ground_of(_templates: Callable[[Shape], Path], tmp_path: Path) -> Callable[[Shape], CostGround]:
    """A graph of a shape, in a directory of its own."""

    def ground(shape: Shape) -> CostGround:
        path = tmp_path / f"graph-{shape.depth}-{shape.tables}-{shape.branches}"
        if not path.exists():
            # Nothing stored is ever changed in place, so links are copies.
            shutil.copytree(_templates(shape), path, copy_function=os.link)
        return CostGround(str(path))

    return ground


@pytest.fixture
def ground(ground_of: Callable[[Shape], CostGround]) -> CostGround:
    """A small graph."""
    return ground_of(Shape())


@pytest.fixture
def act_on() -> Iterator[Callable[..., MeteredActor]]:
    """Actors that have opened main; closed after the test."""
    actors: list[MeteredActor] = []

    def act(ground: CostGround, config: Config = INLINE) -> MeteredActor:
        actors.append(MeteredActor(ground, config).open())
        return actors[-1]

    yield act
    for actor in actors:
        actor.close()
