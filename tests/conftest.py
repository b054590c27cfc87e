"""What every test shares: fixtures from `tests.support.fixtures` and one printed seed for the sampled sweeps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = (
    ["tests.support.fixtures"] if Path(__file__).with_name("support").joinpath("fixtures.py").exists() else []
)


def _sweep_seed(config: pytest.Config) -> int:
    given = os.environ.get("OMNIGRAPH_TEST_SEED")
    return int(given) if given else int(config.getoption("randomly_seed"))


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
