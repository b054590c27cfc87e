"""All effects that an operation needs (storage, clock, ids, threads), in one value that callers hand down."""

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
    """One graph's storage as one process uses it, with its clock, its source of ids and its pause points."""

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
        """Call `work` for all items in parallel and return the results in order.

        Raises the first error, after all calls have ended.
        """
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
        """Start `work` in another thread; meters count its requests as the caller's."""
        return self._workers.submit(copy_context().run, work)

    def in_background(self, work: Callable[[], object]) -> None:
        """Start work that no caller waits for, such as a fold, and whose failure is ignored. `close` waits for it."""
        # A process that is ending accepts no more work; the operation that asks for it has succeeded all the same.
        with suppress(RuntimeError):
            self._background.submit(work)

    def close(self) -> None:
        self._background.shutdown(wait=True)
        self._workers.shutdown(wait=True)
        self.tables.close()
