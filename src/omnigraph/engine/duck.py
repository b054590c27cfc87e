"""DuckDB as a calculator: it sees Arrow tables under positional names and bound values, nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from omnigraph.engine.limits import Budget, Deadline, exceeded
from omnigraph.errors import InvalidInput, OmnigraphError

_POOLED = 4


class Ducks:
    """In-memory databases for reuse. Each runs one statement at a time, so that its memory limit is one query's."""

    def __init__(self) -> None:
        self._free: list[duckdb.DuckDBPyConnection] = []
        self._lock = threading.Lock()

    @contextmanager
    def borrowed(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._lock:
            found = self._free.pop() if self._free else None
        if found is None:
            found = _open()
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
                found.close()


def _open() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect(":memory:", config={"enable_external_access": False, "python_enable_replacements": False})
    made.execute("SET TimeZone = 'UTC'")
    made.execute("SET preserve_insertion_order = false")
    return made


DUCKS = Ducks()


def run(
    sql: str,
    tables: Mapping[str, pa.Table],
    values: Mapping[str, Any],
    deadline: Deadline,
    budget: Budget,
) -> pa.Table:
    """The rows of one statement. The connection is given back clean, or closed if anything went wrong."""
    with DUCKS.borrowed() as connection:
        connection.execute("SET memory_limit = ?", [f"{max(1, budget.left_bytes // 1024)}KiB"])
        for name, table in tables.items():
            connection.register(name, table)
        try:
            with deadline.interrupting(connection.interrupt):
                return connection.sql(sql, params=dict(values)).to_arrow_table()
        except duckdb.Error as error:
            raise _translated(error, deadline, budget) from error
        finally:
            for name in tables:
                connection.unregister(name)


def _translated(error: duckdb.Error, deadline: Deadline, budget: Budget) -> OmnigraphError:
    if isinstance(error, duckdb.InterruptException):
        deadline.check()
        return InvalidInput("the query was cancelled", code="cancelled")
    if isinstance(error, duckdb.OutOfMemoryException):
        return exceeded(
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
