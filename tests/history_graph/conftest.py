from __future__ import annotations

from pathlib import Path

import pytest

from tests.history_graph.bed import Bed, knows, people


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    """Four people, Bob knows Carol."""
    made = Bed.make(tmp_path / "graph")
    made.main.apply([*people("Alice", "Bob", "Carol", "Dan"), knows("Bob", "Carol", "b-c")])
    return made
