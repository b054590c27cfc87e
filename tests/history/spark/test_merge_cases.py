"""The whole truth table, with upkeep at random points, and every case beside it with a real Spark session.

S61–S94: the tests of tests/history with their own expectations; there the cases run with upkeep as well.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.history import test_lineage, test_merged_rules, test_row_rule, test_schemas
from tests.history.conftest import bed, upkeep  # noqa: F401 - fixtures of the tests collected here
from tests.history.spark.test_on_tasks import CELLS, cases_of, merge_with
from tests.history.test_truth_table import MIXED, PLAIN, run_cell

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

globals().update(cases_of(test_row_rule, test_merged_rules, test_lineage, test_schemas))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    way = "compacted" if metafunc.function is test_cell else "plain"
    metafunc.parametrize("upkeep", [way], indirect=True)


@pytest.fixture(autouse=True)
def on_spark(monkeypatch: pytest.MonkeyPatch, spark: SparkSession, upkeep: None) -> None:  # noqa: F811
    merge_with(monkeypatch, spark)


@pytest.mark.parametrize(("source", "target"), CELLS, ids=[f"{one}-{other}" for one, other in CELLS])
def test_cell(tmp_path: Path, source: str, target: str) -> None:
    number = CELLS.index((source, target))
    run_cell(tmp_path / "graph", source, target, [PLAIN, *MIXED][number % (1 + len(MIXED))])
