"""Runs statements in DuckDB, which sees nothing but Arrow tables under positional names and bound values."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.query.limits import Budget, Deadline, limit_error

_POOL_SIZE = 4
_MEMORY_STEP = 1 << 24
_SMALL_BYTES = 1 << 20


class DuckDatabase:
    """One in-memory database and its registered tables; a table that is registered already is not registered again."""

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
        """Registers exactly these tables, so that tables of former statements are freed unless they are used again."""
        self.unregister_tables([name for name in self._tables if name not in tables])
        for name, table in tables.items():
            if self._tables.get(name) is not table:
                self.connection.register(name, table)
                self._tables[name] = table

    def unregister_tables(self, names: Collection[str]) -> None:
        """Unregisters tables, which frees those that nothing else refers to."""
        for name in names:
            self._tables.pop(name, None)
            self.connection.unregister(name)


class DuckPool:
    """A pool of databases. Each runs one statement at a time, so that its memory limit applies to one query."""

    def __init__(self) -> None:
        self._free: list[DuckDatabase] = []
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self) -> Iterator[DuckDatabase]:
        """Lends a database to one user at a time; closes it instead of reusing it if the block raises."""
        with self._lock:
            database = self._free.pop() if self._free else None
        database = database or DuckDatabase()
        is_sound = False
        try:
            yield database
            is_sound = True
        finally:
            with self._lock:
                is_reused = is_sound and len(self._free) < _POOL_SIZE
                if is_reused:
                    self._free.append(database)
            if not is_reused:
                database.connection.close()


_POOL = DuckPool()


def run_statement(
    sql: str,
    tables: Mapping[str, pa.Table],
    values: Mapping[str, Any],
    deadline: Deadline,
    budget: Budget,
    cached_tables: Collection[str] = (),
) -> pa.Table:
    """Returns the rows of one statement.

    Tables of the column cache are likely to be used again, and small tables hold little memory: both stay registered
    until the next statement on the same database, which is cheaper than unregistering them now.
    """
    with _POOL.borrow() as database:
        database.limit_memory(budget.remaining_bytes)
        database.register_tables(tables)
        try:
            with deadline.interrupting(database.connection.interrupt):
                return database.connection.sql(sql, params=dict(values)).to_arrow_table()
        except duckdb.Error as error:
            raise _translate_error(error, deadline, budget) from error
        finally:
            large = [name for name, table in tables.items() if table.nbytes > _SMALL_BYTES]
            database.unregister_tables([name for name in large if name not in cached_tables])


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
