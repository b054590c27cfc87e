from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.s3_double import S3Double, serving


@pytest.fixture(scope="session")
def s3_double() -> Iterator[S3Double]:
    with serving() as server:
        yield server


@pytest.fixture
def double(s3_double: S3Double) -> S3Double:
    s3_double.reset()
    return s3_double
