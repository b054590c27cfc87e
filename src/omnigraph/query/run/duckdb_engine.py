"""DuckDB as a calculator: it sees Arrow tables under positional names and bound values, nothing else."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.query.limits import Budget, Deadline, limit_error

_POOLED = 4
_MEMORY_STEP = 1 << 24
_SMALL_BYTES = 1 << 20


class DuckDatabase:
    """One in-memory database, and the tables it knows: a table that comes again is not introduced again."""

    def __init__(self) -> None:
        config: dict[str, Any] = {"enable_external_access": False, "python_enable_replacements": False}
        self.connection = duckdb.connect(":memory:", config=config)
        self.connection.execute("SET TimeZone = 'UTC'")
        self.connection.execute("SET preserve_insertion_order = false")
        self._memory_bytes = 0
        self._tables: dict[str, pa.Table] = {}

    def limit_memory(self, memory_bytes: int) -> None:
        memory_bytes -= memory_bytes % _MEMORY_STEP
        if memory_bytes != self._memory_bytes:
            self.connection.execute("SET memory_limit = ?", [f"{max(_MEMORY_STEP, memory_bytes) // 1024}KiB"])
            self._memory_bytes = memory_bytes

    def register_tables(self, tables: Mapping[str, pa.Table]) -> None:
        """Exactly these tables: of former statements only what comes again is held in memory."""
        self.unregister_tables([name for name in self._tables if name not in tables])
        for name, table in tables.items():
            if self._tables.get(name) is not table:
                self.connection.register(name, table)
                self._tables[name] = table

    def unregister_tables(self, names: Collection[str]) -> None:
        """Let go of tables that are nobody else's."""
        for name in names:
            self._tables.pop(name, None)
            self.connection.unregister(name)


class DuckPool:
    """Databases for reuse. Each runs one statement at a time, so that its memory limit is one query's."""

    def __init__(self) -> None:
        self._free: list[DuckDatabase] = []
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self) -> Iterator[DuckDatabase]:
        """One that nobody else uses; it is closed instead of given back if anything goes wrong."""
        with self._lock:
            found = self._free.pop() if self._free else None
        found = found or DuckDatabase()
        sound = False
        try:
            yield found
            sound = True
        finally:
            with self._lock:
                keep = sound and len(self._free) < _POOLED
                if keep:
                    self._free.append(found)
            if not keep:
                found.connection.close()


_POOL = DuckPool()


def run_statement(
    sql: str,
    tables: Mapping[str, pa.Table],
    values: Mapping[str, Any],
    deadline: Deadline,
    budget: Budget,
    lasting: Collection[str] = (),
) -> pa.Table:
    """The rows of one statement. Tables named in `lasting` are expected to come again, and small ones cost nothing:
    both stay until the next statement, which is cheaper than to forget them now.
    """
    with _POOL.borrow() as duck:
        duck.limit_memory(budget.remaining_bytes)
        duck.register_tables(tables)
        try:
            with deadline.interrupting(duck.connection.interrupt):
                return duck.connection.sql(sql, params=dict(values)).to_arrow_table()
        except duckdb.Error as error:
            raise _translate_error(error, deadline, budget) from error
        finally:
            duck.unregister_tables(
                [name for name, one in tables.items() if name not in lasting and one.nbytes > _SMALL_BYTES]
            )


def _translate_error(error: duckdb.Error, deadline: Deadline, budget: Budget) -> OmnigraphError:
    if isinstance(error, duckdb.InterruptException):
        deadline.check()
        return InvalidInput("the query was cancelled", code="cancelled")
    if isinstance(error, duckdb.OutOfMemoryException):
        return limit_error(
            "query_memory_bytes",
            budget.bound_bytes,
            None,
            f"the query needs more than {budget.bound_bytes} bytes of memory",
            "Narrow the query, or raise the limit",
        )
    if isinstance(error, (duckdb.ConversionException, duckdb.OutOfRangeException)):
        return InvalidInput(
            "a number of the result does not fit its type",
            code="number_overflow",
            advice="A sum of whole numbers must fit I64 (U64 for unsigned ones)",
        )
    raise error
