"""Opens graphs for programs with an event loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Generic, TypeVar

from omnigraph import api
from omnigraph.api import remote
from omnigraph.api.asynchronous.graph import AsyncGraph, AsyncRemoteGraph, AsyncView
from omnigraph.api.asynchronous.threads import THREADS, Threads
from omnigraph.api.asynchronous.twins import ClosableTwin
from omnigraph.config import Config
from omnigraph.log.branches import MAIN
from omnigraph.schema.catalog import Catalog

T = TypeVar("T", bound=ClosableTwin)


class Opening(Generic[T]):
    """A graph that is being opened: `g = await aio.open(…)` or `async with aio.open(…) as g:`.

    A caller who awaits it closes the graph. The end of the block waits for running calls and closes the graph itself.
    """

    def __init__(self, twin_class: type[T], threads: int, open_target: Callable[[], Any]) -> None:
        self._twin_class = twin_class
        self._threads = Threads(threads)
        self._open_target = open_target
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def _open(self) -> T:
        try:
            # A handle whose caller was cancelled may hold a claim on the branch, so it is closed.
            target = await self._threads.run(self._open_target, on_abandoned=_close)
        except BaseException:
            self._threads.shut_down()
            raise
        return self._twin_class(lambda: target, self._threads).owning(self._threads)


def init(
    uri: str | os.PathLike[str],
    schema: str | os.PathLike[str] | Catalog,
    *,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
    threads: int = THREADS,
) -> Opening[AsyncGraph]:
    """Create a graph. `schema` is a `.pg` file, the text of one, or a compiled catalog."""
    return Opening(AsyncGraph, threads, lambda: api.init(uri, schema, storage_options=storage_options, config=config))


def open(
    uri: str | os.PathLike[str],
    branch: str = MAIN,
    *,
    read_only: bool = False,
    freshness: api.Freshness = "latest",
    exclusive: bool = False,
    recover: bool = True,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
    threads: int = THREADS,
) -> Opening[AsyncGraph]:
    """A handle on one branch of a graph; at most `threads` of its calls run at once, the others wait."""
    return Opening(
        AsyncGraph,
        threads,
        lambda: api.open(
            uri,
            branch,
            read_only=read_only,
            freshness=freshness,
            exclusive=exclusive,
            recover=recover,
            storage_options=storage_options,
            config=config,
        ),
    )


def open_at(
    uri: str | os.PathLike[str],
    commit_id: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
    threads: int = THREADS,
) -> Opening[AsyncView]:
    """One commit, read-only, without a look at any branch."""
    return Opening(
        AsyncView, threads, lambda: api.open_at(uri, commit_id, storage_options=storage_options, config=config)
    )


def connect(
    url: str,
    token: str | None = None,
    *,
    graph: str | None = None,
    branch: str = MAIN,
    ca: str | os.PathLike[str] | None = None,
    threads: int = THREADS,
) -> Opening[AsyncRemoteGraph]:
    """A graph behind a server: `http://host:port/graphs/NAME`, or `graph=`; neither is needed if it has only one."""
    return Opening(AsyncRemoteGraph, threads, lambda: remote.connect(url, token, graph=graph, branch=branch, ca=ca))


def _close(opened: Any) -> None:
    if hasattr(opened, "close"):
        opened.close()
