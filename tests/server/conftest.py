"""One server process for all tests here; each test has a graph of its own in its directory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import omnigraph as og
from tests.server.bed import PEOPLE, QUICK, Door, Facade, Server

_numbers = itertools.count()


@pytest.fixture(scope="session")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the shared server serves."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="session")
def server(graphs: Path) -> Iterator[Server]:
    server = Server(graphs)
    yield server
    assert server.stop() == 0
    assert server.noise == []


@pytest.fixture
def graph_path(graphs: Path) -> Path:
    """A new graph in the shared server's directory."""
    path = graphs / f"g{next(_numbers)}"
    og.init(path, PEOPLE, config=QUICK)
    return path


@pytest.fixture
def door(server: Server, graph_path: Path) -> Iterator[Door]:
    """A new graph behind the shared server."""
    door = Door(server.url, graph_path.name, graph_path)
    yield door
    door.http.close()


@pytest.fixture(params=["embedded", "remote"])
def g(request: pytest.FixtureRequest, door: Door) -> Iterator[Facade]:
    """One graph, opened here and held over HTTP: what a test of the facade asks must not show which."""
    facade: Facade = door.open_embedded() if request.param == "embedded" else door.connect()
    yield facade
    facade.close()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Door]]:
    """Servers of a test's own, with one graph called `own` each; they are stopped after the test."""
    started: list[Server] = []
    doors: list[Door] = []

    def serve(*words: str | Path, token: str | None = None, **environment: str) -> Door:
        location = tmp_path / "own"
        if not location.exists():
            og.init(location, PEOPLE, config=QUICK)
        server = Server(location, *words, environment=environment)
        started.append(server)
        doors.append(Door(server.url, "own", location, token, server))
        return doors[-1]

    yield serve
    for door in doors:
        door.http.close()
    for server in started:
        if not server.has_ended:
            server.stop()
        assert server.noise == []
