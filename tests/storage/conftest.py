from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.storage.local import LocalStore
from tests.storage.s3_double import S3Double, serving


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "graph", fsync=False)


@pytest.fixture(scope="session")
def s3_double() -> Iterator[S3Double]:
    with serving() as server:
        yield server


@pytest.fixture
def double(s3_double: S3Double) -> S3Double:
    s3_double.reset()
    return s3_double
