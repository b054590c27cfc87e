"""What a server does by itself: folding, the recovery sweep, and cleanup if it was told to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from omnigraph.api.recovery import recovery
from omnigraph.commit.back_pressure import tables_in_need
from omnigraph.commit.fold import fullness
from omnigraph.config import Config
from omnigraph.errors import OmnigraphError
from omnigraph.server.calls import Service
from omnigraph.server.hosting import HostedGraph
from omnigraph.server.settings import Upkeep
from omnigraph.upkeep.cleanup.retention import Policy


@asynccontextmanager
async def upkeep(service: Service, config: Config) -> AsyncIterator[None]:
    """The tasks, as long as the block lasts. A failure is told in the journal and tried again next time."""
    wanted = service.settings.upkeep
    jobs: list[tuple[str, float, Callable[[HostedGraph], object]]] = []
    if config.fold == "auto":
        jobs.append(("fold", wanted.fold_every_s, fold))
        jobs.append(("optimize", wanted.optimize_every_s, optimize))
    jobs.append(("recover", wanted.recover_every_s, sweep))
    if wanted.cleanup_every_s is not None:
        jobs.append(("cleanup", wanted.cleanup_every_s, lambda graph: cleanup(graph, wanted)))
    tasks = [asyncio.create_task(_repeat(service, *job)) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _repeat(service: Service, name: str, every_s: float, work: Callable[[HostedGraph], object]) -> None:
    # What a dead process left is ended at once, as whenever a graph is opened for writing; the rest can wait.
    wait_s = 0.0 if work is sweep else every_s
    while True:
        await asyncio.sleep(wait_s)
        wait_s = every_s
        for graph in service.host:
            if graph.is_open and not graph.settings.read_only:
                # Shielded: what was begun is waited for when the server stops, in `Workers.stop`.
                await asyncio.shield(service.workers.start(partial(_once, service, name, graph, work)))


def _once(service: Service, name: str, graph: HostedGraph, work: Callable[[HostedGraph], object]) -> None:
    try:
        with graph.meter.operation(name):
            done = work(graph)
    except OmnigraphError as error:
        service.journal.tell(name, logging.WARNING, error, graph=graph.name)
    except Exception as error:  # noqa: BLE001 a task that ended would be missed by nobody
        service.journal.tell(name, logging.ERROR, error, graph=graph.name)
    else:
        if done:
            service.journal.tell(name, graph=graph.name, done=done)


def fold(graph: HostedGraph) -> list[str]:
    """Fold branches in use whose overlay is past its soft bound. What other processes wrote is theirs to fold."""
    folded = []
    for handle in graph.handles:
        state = handle.view(fresh=False).state
        if fullness(state.record, state.backend.config) >= 1:
            commit_id = handle.fold()
            folded += [commit_id] if commit_id else []
    return folded


def cleanup(graph: HostedGraph, wanted: Upkeep) -> dict[str, Any] | None:
    """Collect what is beyond the retention that was set."""
    policy = Policy(wanted.keep, wanted.older_than_s)
    report = graph.on(None, lambda one: one.cleanup(confirm=True, policy=policy)).to_json()
    return {name: len(report[name]) for name in ("expired", "files", "failures")} if report["files"] else None


def sweep(graph: HostedGraph) -> list[dict[str, Any]]:
    """End bulk operations whose process is gone."""
    ended = ("rolled_forward", "rolled_back")
    return [one.to_json() for one in recovery(graph.site()).run() if one.verdict in ended]


def optimize(graph: HostedGraph) -> list[str]:
    """Compact branches in use before their small fragments make writers wait."""
    made: list[str] = []
    for handle in graph.handles:
        view = handle.view(fresh=False)
        needy = tables_in_need(view.state.record, view.state.backend.config)
        types = [view.catalog.by_id[table].name for table in needy if table in view.catalog.by_id]
        made += handle.optimize(types).commits if types else ()
    return made
