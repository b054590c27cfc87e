"""Background jobs of a server: folding, optimize, recovery, and cleanup if it has an interval."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from omnigraph.api.recovery import make_recovery
from omnigraph.commit.fold import fullness
from omnigraph.config import Config
from omnigraph.errors import OmnigraphError
from omnigraph.server.calls import Service
from omnigraph.server.hosting import HostedGraph
from omnigraph.server.settings import UpkeepSettings
from omnigraph.upkeep.cleanup.retention import Policy


@asynccontextmanager
async def run_upkeep(service: Service, config: Config) -> AsyncIterator[None]:
    """Run the jobs while the block lasts. A failure goes to the journal, and the job runs again at its next time."""
    settings = service.settings.upkeep
    jobs: list[tuple[str, float, Callable[[HostedGraph], object]]] = []
    if config.fold == "auto":
        jobs.append(("fold", settings.fold_every_s, fold))
        jobs.append(("optimize", settings.optimize_every_s, optimize))
    jobs.append(("recover", settings.recover_every_s, sweep))
    if settings.cleanup_every_s is not None:
        jobs.append(("cleanup", settings.cleanup_every_s, lambda graph: cleanup(graph, settings)))
    tasks = [asyncio.create_task(_repeat(service, *job)) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _repeat(service: Service, name: str, every_s: float, work: Callable[[HostedGraph], object]) -> None:
    # Recovery starts at once, as it does when a graph is opened for writing; the other jobs can wait.
    wait_s = 0.0 if work is sweep else every_s
    while True:
        await asyncio.sleep(wait_s)
        wait_s = every_s
        for graph in service.host:
            if graph.is_open and not graph.settings.read_only:
                # Shielded: when the server stops, `Workers.stop` waits for a job that runs.
                await asyncio.shield(service.workers.start(partial(_run_once, service, name, graph, work)))


def _run_once(service: Service, name: str, graph: HostedGraph, work: Callable[[HostedGraph], object]) -> None:
    try:
        with graph.meter.operation(name):
            outcome = work(graph)
    except OmnigraphError as error:
        service.journal.write(name, logging.WARNING, error, graph=graph.name)
    except Exception as error:  # noqa: BLE001 nobody would notice that the task has ended
        service.journal.write(name, logging.ERROR, error, graph=graph.name)
    else:
        if outcome:
            service.journal.write(name, graph=graph.name, done=outcome)


def fold(graph: HostedGraph) -> list[str]:
    """Fold branches in use whose overlay is past its soft bound. Other processes fold their own branches."""
    folded = []
    for handle in graph.handles:
        state = handle.view(fresh=False).state
        if fullness(state.record, state.backend.config) >= 1:
            commit_id = handle.fold()
            folded += [commit_id] if commit_id else []
    return folded


def cleanup(graph: HostedGraph, settings: UpkeepSettings) -> dict[str, Any] | None:
    """Collect the commits and files beyond the retention of the settings."""
    policy = Policy(settings.keep, settings.older_than_s)
    report = graph.with_branch(None, lambda handle: handle.cleanup(confirm=True, policy=policy)).to_json()
    return {name: len(report[name]) for name in ("expired", "files", "failures")} if report["files"] else None


def sweep(graph: HostedGraph) -> list[dict[str, Any]]:
    """End bulk operations whose process is gone."""
    ended = ("rolled_forward", "rolled_back")
    return [result.to_json() for result in make_recovery(graph.runtime()).run() if result.verdict in ended]


def optimize(graph: HostedGraph) -> list[str]:
    """Compact branches in use before their small fragments make writers wait."""
    reports = [handle.optimize_if_needed() for handle in graph.handles]
    return [commit_id for report in reports if report is not None for commit_id in report.commits]
