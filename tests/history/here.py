"""As much of a Spark session as merge and diff use, in this process: for tables of cases that need hundreds of jobs.

Functions are pickled on their way, as for a worker. Frames are worked out at once and hold their rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

_TYPES = {"string": pa.utf8(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}


def _schema(text: str) -> pa.Schema:
    return pa.schema([(name, _TYPES[kind]) for name, kind in (part.split() for part in text.split(","))])


def _pickle_roundtrip(function: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]


class Row(dict[str, Any]):
    """By name and by place, as Spark's are."""

    def __getitem__(self, key: str | int) -> Any:
        return list(self.values())[key] if isinstance(key, int) else super().__getitem__(key)


@dataclass(frozen=True)
class HereFrame:
    """A frame whose rows are known."""

    rows: pa.Table

    def mapInArrow(self, function: Callable[[Iterator[pa.RecordBatch]], Any], schema: str) -> HereFrame:
        results = list(_pickle_roundtrip(function)(iter(self.rows.to_batches())))
        return HereFrame(
            pa.Table.from_batches(results, results[0].schema) if results else _schema(schema).empty_table()
        )

    def filter(self, condition: str) -> HereFrame:
        match = re.fullmatch(r"(\w+) = '(\w+)'", condition)
        assert match, condition
        return HereFrame(self.rows.filter(pa.compute.equal(self.rows[match[1]], match[2])))

    def select(self, *names: str) -> HereFrame:
        return HereFrame(self.rows.select(list(names)))

    def groupBy(self, *names: str) -> _Grouped:
        return _Grouped(self, names)

    def orderBy(self, name: str) -> HereFrame:
        return HereFrame(self.rows.sort_by(name))

    def limit(self, count: int) -> HereFrame:
        return HereFrame(self.rows.slice(0, count))

    def unionAll(self, here_frame: HereFrame) -> HereFrame:
        return HereFrame(pa.concat_tables([self.rows, here_frame.rows]))

    def persist(self) -> HereFrame:
        return self

    def unpersist(self) -> HereFrame:
        return self

    def count(self) -> int:
        return int(self.rows.num_rows)

    def collect(self) -> list[Row]:
        return [Row(row) for row in self.rows.to_pylist()]


@dataclass(frozen=True)
class _Grouped:
    frame: HereFrame
    names: tuple[str, ...]

    def applyInArrow(self, function: Callable[..., pa.Table], schema: str) -> HereFrame:
        rows = self.frame.rows
        keys = [tuple(one) for one in zip(*(rows[name].to_pylist() for name in self.names), strict=True)]
        places: dict[tuple[Any, ...], list[int]] = {}
        for at, key in enumerate(keys):
            places.setdefault(key, []).append(at)
        work = _pickle_roundtrip(function)
        results = [
            work(tuple(pa.scalar(one) for one in key), rows.take(pa.array(positions))).cast(_schema(schema))
            for key, positions in places.items()
        ]
        return HereFrame(pa.concat_tables(results) if results else _schema(schema).empty_table())


class HereSession:
    """What `spark=` takes."""

    def range(self, start: int, end: int, step: int, parts: int) -> HereFrame:
        return HereFrame(pa.table({"id": pa.array(range(start, end, step), pa.int64())}))

    def createDataFrame(self, rows: list[Any], schema: str) -> HereFrame:
        assert not rows
        return HereFrame(_schema(schema).empty_table())
