"""Everything effectful that an operation needs, in one value that is handed down and never looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TypeVar

from omnigraph.clock import Clock, IdSource, SystemClock, SystemIds
from omnigraph.config import Config
from omnigraph.storage.lance import TableStore
from omnigraph.storage.pauses import NO_PAUSES, Pauses
from omnigraph.storage.store import Store

A = TypeVar("A")
B = TypeVar("B")

_PARALLEL_TABLES = 16


@dataclass(frozen=True)
class Backend:
    """One graph's storage as one process sees it, with the clock, the ids and the test hooks that go with it."""

    store: Store
    tables: TableStore
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=SystemIds)
    pauses: Pauses = NO_PAUSES
    config: Config = field(default_factory=Config)
    lists_in_order: bool = True
    _workers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_PARALLEL_TABLES, thread_name_prefix="omnigraph-io"), repr=False
    )
    _background: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="omnigraph-upkeep"), repr=False
    )

    def in_parallel(self, work: Callable[[A], B], items: Iterable[A]) -> list[B]:
        """`work` of every item, at once, in their order; the first error is raised after all have ended."""
        item_list = list(items)
        if len(item_list) <= 1:
            return [work(item) for item in item_list]
        futures = [self._workers.submit(copy_context().run, work, item) for item in item_list]
        errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None:
                raise error
        return [future.result() for future in futures]

    def start(self, work: Callable[[], B]) -> Future[B]:
        """Start `work` now, beside what the caller does meanwhile; meters see it as the caller's."""
        return self._workers.submit(copy_context().run, work)

    def in_background(self, work: Callable[[], object]) -> None:
        """Work nobody waits for, such as a fold; its failure is nobody's failure. `close` waits for it."""
        # A process that is ending takes no more work; what led here has been done and must be answered as such.
        with suppress(RuntimeError):
            self._background.submit(work)

    def close(self) -> None:
        self._background.shutdown(wait=True)
        self._workers.shutdown(wait=True)
        self.tables.close()
