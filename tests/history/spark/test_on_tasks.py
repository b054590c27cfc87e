"""The truth table and every case beside it, decided by the tasks of the Spark plane; here they run in this process.

S61–S94, S91: the same tests, the same expectations. tests/spark has them again with a real session.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from omnigraph.api.branches import Branches
from tests.history import test_lineage, test_merged_rules, test_row_rule, test_schemas
from tests.history.here import HereSession
from tests.history.test_truth_table import MIXED, OPS, PLAIN, run_cell

CELLS = list(product(OPS, OPS))


def cases_of(*modules: ModuleType) -> dict[str, Callable[..., None]]:
    """Their tests, to be collected again under another plane."""
    return {name: member for module in modules for name, member in vars(module).items() if name.startswith("test_")}


globals().update(cases_of(test_row_rule, test_merged_rules, test_lineage, test_schemas))


@pytest.fixture(autouse=True)
def on_tasks(monkeypatch: pytest.MonkeyPatch, upkeep: None) -> None:
    merge_with(monkeypatch, HereSession())


def merge_with(monkeypatch: pytest.MonkeyPatch, session: Any) -> None:
    """Every merge runs on this session, unless the test says where."""
    real = Branches.merge

    def merge(branches: Branches, source: str, into: str | None = None, **options: Any) -> Any:
        return real(branches, source, into, **{"engine": "spark", "spark": session, "progress": False, **options})

    monkeypatch.setattr(Branches, "merge", merge)


@pytest.mark.parametrize(("source", "target"), CELLS, ids=[f"{one}-{other}" for one, other in CELLS])
def test_cell(tmp_path: Path, source: str, target: str) -> None:
    number = CELLS.index((source, target))
    run_cell(tmp_path / "graph", source, target, [PLAIN, *MIXED][number % (1 + len(MIXED))])


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), CELLS, ids=[f"{one}-{other}" for one, other in CELLS])
def test_cell_in_every_layout(tmp_path: Path, source: str, target: str) -> None:
    for number, layouts in enumerate([PLAIN, *MIXED]):
        run_cell(tmp_path / f"{number}", source, target, layouts)
