"""What every test shares: fixtures from `tests.support.fixtures` and one printed seed for the sampled sweeps."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["tests.support.fixtures", "tests.support.spark_session"]

#: Where a test has many cases, one of so many is fast, and at least one; the seed chooses. All run in `make test-all`.
ONE_OF = {
    "tests/cli/": 3,
    "tests/cost/test_on_s3.py": 4,
    "tests/query/run/": 3,
    "tests/faults/": 4,
    "tests/history/spark/": 4,
    "tests/history/": 3,
    "tests/load/records/": 1,
    "tests/load/spark/": 4,
    "tests/load/export/": 4,
    "tests/load/": 2,
    "tests/intents/": 4,
    "tests/scenarios/": 4,
    "tests/mutate/": 2,
    "tests/server/": 3,
    "tests/spark/": 4,
    "tests/storage/": 3,
    "tests/upkeep/": 4,
}


def _sweep_seed(config: pytest.Config) -> int:
    response = os.environ.get("OMNIGRAPH_TEST_SEED")
    return int(response) if response else int(config.getoption("randomly_seed"))


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for name, cases in _fast_cases(items).items():
        share = next((one for place, one in ONE_OF.items() if name.startswith(place)), 1)
        kept = random.Random(f"{_sweep_seed(config)}/{name}").sample(sorted(cases), -(-len(cases) // share))
        for case in cases.keys() - set(kept):
            cases[case].add_marker(pytest.mark.slow)


def _fast_cases(items: Iterable[pytest.Item]) -> dict[str, dict[str, pytest.Item]]:
    """The cases of every test that are not slow by themselves."""
    found: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if item.get_closest_marker("slow") is None:
            found[item.nodeid.partition("[")[0]][item.nodeid] = item
    return found


class OneSparkWorker(LoadScopeScheduling):  # type: ignore[misc]
    """Tests go to whichever worker is free; one alone runs those of Spark: a second JVM costs more than it saves."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if "spark" in nodeid.partition("::")[0] else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSparkWorker:
    return OneSparkWorker(config, log)


def pytest_report_header(config: pytest.Config) -> str:
    return f"sampled sweeps: OMNIGRAPH_TEST_SEED={_sweep_seed(config)}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Repeat the seeds next to the failures: the header is hidden by -q and scrolls away otherwise."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        order = config.getoption("randomly_seed")
        terminalreporter.write_line(
            f"repeat with: OMNIGRAPH_TEST_SEED={_sweep_seed(config)} pytest --randomly-seed={order}"
        )


@pytest.fixture(scope="session")
def sweep_seed(pytestconfig: pytest.Config) -> int:
    """Decides which cases of a sweep are sampled and what random histories do; OMNIGRAPH_TEST_SEED repeats a run."""
    return _sweep_seed(pytestconfig)
