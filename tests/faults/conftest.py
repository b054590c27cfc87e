"""The graph that every fault strikes, built once, and its judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.ground import build_graph
from tests.faults.judge import Judge


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    scratch: Path = tmp_path_factory.mktemp("faults")
    template = scratch / "template"
    build_graph(str(template))
    return Judge(template, scratch)
