"""The graph that every fault strikes, built once, with the check of what must hold afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.atomicity import AtomicityCheck
from tests.faults.faulty_process import build_graph


@pytest.fixture(scope="session")
def atomicity(tmp_path_factory: pytest.TempPathFactory) -> AtomicityCheck:
    scratch: Path = tmp_path_factory.mktemp("faults")
    template = scratch / "template"
    build_graph(str(template))
    return AtomicityCheck(template, scratch)
