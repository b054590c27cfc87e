"""Columns as ranks: every row holds the position of its value among the sorted distinct values of its column.

A comparison with a value is then a comparison of small integers, groups are counted by rank, and an order by value is
an order by rank. Ranks are computed once per state of a table and kept in the column cache.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_, or_
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.adjacency.coded_tables import CodedTables
from omnigraph.query.language.bind import ValueResolver
from omnigraph.query.language.checked import AllOf, AnyOf, CheckedCompare, CheckedNullTest, Prop
from omnigraph.query.plan.nodes import PlanCondition
from omnigraph.query.run.storage_filters import column_and_value, fits_type
from omnigraph.schema.arrow import arrow_type
from omnigraph.schema.catalog import PropType

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Integers below this bound are exact as floats, in which numpy adds weights.
EXACT_FLOAT_BOUND = float(1 << 53)


class NeedsSqlFallback(Exception):
    """The query cannot be counted exactly on arrays, and runs as SQL instead."""


@dataclass(frozen=True)
class RankedColumn:
    """`ranks[row]` is the position of the row's value in the ascending `values`; -1 if the row has none."""

    ranks: npt.NDArray[np.int32]
    values: pa.Array

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> RankedColumn:
        coded = column.combine_chunks().dictionary_encode()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.combine_chunks()
        order = pc.sort_indices(_sortable(coded.dictionary)).to_numpy(zero_copy_only=False)
        rank_of_index = np.empty(len(order), np.int32)
        rank_of_index[order] = np.arange(len(order), dtype=np.int32)
        indices = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        # The index -1 of a row without a value selects the appended rank.
        return cls(np.append(rank_of_index, np.int32(-1))[indices], coded.dictionary.take(pa.array(order)))

    @property
    def nbytes(self) -> int:
        return int(self.ranks.nbytes + self.values.nbytes)

    @cached_property
    def numbers(self) -> Int64Array:
        """The values as integers; only for a column of integers, booleans or dates."""
        wide = pa.uint64() if self.values.type == pa.uint64() else pa.int64()
        if wide == pa.uint64() and len(self.values) and self.values[-1].as_py() >= EXACT_FLOAT_BOUND:
            raise NeedsSqlFallback
        numbers: Int64Array = _integers(self.values).to_numpy(zero_copy_only=False).astype(np.int64)
        return numbers

    def rank_range(self, value: Any) -> tuple[int, int]:
        """Returns the first rank that is not less than the value, and the first that is greater."""
        if pa.types.is_string(self.values.type):
            ranks = range(len(self.values))
            return (
                bisect_left(ranks, value, key=lambda rank: self.values[rank].as_py()),
                bisect_right(ranks, value, key=lambda rank: self.values[rank].as_py()),
            )
        number = _integers(pa.array([value], self.values.type))[0].as_py()
        return int(np.searchsorted(self.numbers, number)), int(np.searchsorted(self.numbers, number, side="right"))

    def no_rows(self) -> BoolArray:
        return np.zeros(len(self.ranks), np.bool_)


def _sortable(values: pa.Array) -> pa.Array:
    return values.cast(pa.uint8()) if pa.types.is_boolean(values.type) else values


def _integers(values: pa.Array) -> pa.Array:
    if pa.types.is_boolean(values.type):
        return values.cast(pa.uint8()).cast(pa.int64())
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).cast(pa.int64())
    return values.cast(pa.int64()) if not pa.types.is_uint64(values.type) else values


@dataclass(frozen=True)
class RankedColumns:
    """The ranked columns of one snapshot; evaluates conditions on them."""

    coded_tables: CodedTables
    resolve_value: ValueResolver

    def column(self, type_id: str, name: str) -> RankedColumn:
        _, view, key = self.coded_tables.table(type_id)
        cache = self.coded_tables.column_cache
        return cache.derive(key, ("ranks", name), lambda: RankedColumn.of(cache.columns(key, view, [name])[name]))

    def rows(self, type_id: str, where: Sequence[PlanCondition]) -> Int64Array:
        """Returns the positions of the rows for which all conditions, at least one, are true."""
        return np.flatnonzero(reduce(and_, [self._rows_where_true(type_id, condition) for condition in where]))

    def _rows_where_true(self, type_id: str, condition: PlanCondition) -> BoolArray:
        match condition:
            case CheckedNullTest(Prop() as prop, negated):
                ranks = self.column(type_id, prop.column).ranks
                return ranks >= 0 if negated else ranks < 0
            case AnyOf(parts):
                return reduce(or_, [self._rows_where_true(type_id, part) for part in parts])
            case AllOf(parts):
                return reduce(and_, [self._rows_where_true(type_id, part) for part in parts])
            case CheckedCompare():
                return self._compare(type_id, condition)
        raise NeedsSqlFallback

    def _compare(self, type_id: str, compare: CheckedCompare) -> BoolArray:
        comparison = column_and_value(compare)
        if comparison is None:
            raise NeedsSqlFallback
        prop, op, operand = comparison
        column, value = self.column(type_id, prop.column), self.resolve_value(operand)
        if value is None:
            return column.no_rows()
        if op == "in":
            return _is_one_of(column, [item for item in value if item is not None], prop.type)
        if not fits_type(prop.type, value):
            raise NeedsSqlFallback
        if op in ("contains", "starts_with"):
            test = pc.starts_with if op == "starts_with" else pc.match_substring
            return _by_rank(column, np.asarray(test(column.values, value)))
        return _compare_ranks(column, op, value)


def _compare_ranks(column: RankedColumn, op: str, value: Any) -> BoolArray:
    ranks = column.ranks
    first, behind = column.rank_range(value)
    match op:
        case "=":
            return ranks == first if behind > first else column.no_rows()
        case "!=":
            return (ranks >= 0) & ((ranks < first) | (ranks >= behind))
        case "<":
            return (ranks >= 0) & (ranks < first)
        case "<=":
            return (ranks >= 0) & (ranks < behind)
        case ">":
            return ranks >= behind
        case ">=":
            return ranks >= first
    raise NeedsSqlFallback


def _is_one_of(column: RankedColumn, items: Sequence[Any], prop_type: PropType) -> BoolArray:
    if not all(fits_type(prop_type, item) for item in items):
        raise NeedsSqlFallback
    is_listed = np.zeros(len(column.values), np.bool_)
    for item in pa.array(items, arrow_type(prop_type)).to_pylist():
        first, behind = column.rank_range(item)
        is_listed[first:behind] = True
    return _by_rank(column, is_listed)


def _by_rank(column: RankedColumn, values: BoolArray) -> BoolArray:
    """Turns flags by rank (`values`) into flags by row; False for a row whose value is null."""
    return np.append(values, np.False_)[column.ranks]
