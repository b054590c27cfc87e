"""Columns as ranks: every row holds the place of its value among the distinct values of its column, in their order.

Comparisons with a value are then comparisons of small integers with one place, groups are counted by place, and an
order by value is an order by place. Ranks are made once per state of a table and kept with its image.
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
from omnigraph.query.plan.nodes import Condition
from omnigraph.query.run.storage_filters import column_and_value, fits_type
from omnigraph.schema.arrow import arrow_type
from omnigraph.schema.catalog import PropType

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Whole numbers up to here are exact as floats.
EXACT_FLOAT_BOUND = float(1 << 53)


class NeedsSqlFallback(Exception):
    """What is asked here does not fit the short way."""


@dataclass(frozen=True)
class RankedColumn:
    """`ranks[row]` is the place of the row's value in `values`, which ascend; -1 where there is none."""

    ranks: npt.NDArray[np.int32]
    values: pa.Array

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> RankedColumn:
        coded = column.combine_chunks().dictionary_encode()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.combine_chunks()
        order = pc.sort_indices(_sortable(coded.dictionary)).to_numpy(zero_copy_only=False)
        places = np.empty(len(order), np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        found = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        # A row without a value points behind the last place.
        return cls(np.append(places, np.int32(-1))[found], coded.dictionary.take(pa.array(order)))

    @property
    def nbytes(self) -> int:
        return int(self.ranks.nbytes + self.values.nbytes)

    @cached_property
    def numbers(self) -> Ints:
        """The values as integers, of a type that has them."""
        wide = pa.uint64() if self.values.type == pa.uint64() else pa.int64()
        if wide == pa.uint64() and len(self.values) and self.values[-1].as_py() >= EXACT_FLOAT_BOUND:
            raise NeedsSqlFallback
        made: Ints = _integers(self.values).to_numpy(zero_copy_only=False).astype(np.int64)
        return made

    def rank_range(self, value: Any) -> tuple[int, int]:
        """Where the value would stand, before and behind its equals."""
        if pa.types.is_string(self.values.type):
            places = range(len(self.values))
            return (
                bisect_left(places, value, key=lambda at: self.values[at].as_py()),
                bisect_right(places, value, key=lambda at: self.values[at].as_py()),
            )
        number = _integers(pa.array([value], self.values.type))[0].as_py()
        return int(np.searchsorted(self.numbers, number)), int(np.searchsorted(self.numbers, number, side="right"))

    def no_rows(self) -> Bools:
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
    """The ranked columns of one snapshot, and conditions on them."""

    coded_tables: CodedTables
    resolve_value: ValueResolver

    def column(self, type_id: str, name: str) -> RankedColumn:
        _, view, key = self.coded_tables.table(type_id)
        images = self.coded_tables.column_cache
        return images.derive(key, ("ranks", name), lambda: RankedColumn.of(images.columns(key, view, [name])[name]))

    def rows(self, type_id: str, where: Sequence[Condition]) -> Ints:
        """The rows for which all conditions are true."""
        found: Bools | None = None
        for one in where:
            true = self._rows_where_true(type_id, one)
            found = true if found is None else found & true
        assert found is not None
        return np.flatnonzero(found)

    def _rows_where_true(self, type_id: str, condition: Condition) -> Bools:
        match condition:
            case CheckedNullTest(Prop() as prop, negated):
                ranks = self.column(type_id, prop.column).ranks
                return ranks >= 0 if negated else ranks < 0
            case AnyOf(parts):
                return reduce(or_, [self._rows_where_true(type_id, one) for one in parts])
            case AllOf(parts):
                return reduce(and_, [self._rows_where_true(type_id, one) for one in parts])
            case CheckedCompare():
                return self._compare(type_id, condition)
        raise NeedsSqlFallback

    def _compare(self, type_id: str, one: CheckedCompare) -> Bools:
        named = column_and_value(one)
        if named is None:
            raise NeedsSqlFallback
        prop, op, value = named
        column, meant = self.column(type_id, prop.column), self.resolve_value(value)
        if meant is None:
            return column.no_rows()
        if op == "in":
            return _is_one_of(column, [item for item in meant if item is not None], prop.type)
        if not fits_type(prop.type, meant):
            raise NeedsSqlFallback
        if op in ("contains", "starts_with"):
            test = pc.starts_with if op == "starts_with" else pc.match_substring
            return _by_rank(column, np.asarray(test(column.values, meant)))
        return _compare_ranks(column, op, meant)


def _compare_ranks(column: RankedColumn, op: str, meant: Any) -> Bools:
    ranks = column.ranks
    first, behind = column.rank_range(meant)
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


def _is_one_of(column: RankedColumn, items: Sequence[Any], kind: PropType) -> Bools:
    if not all(fits_type(kind, item) for item in items):
        raise NeedsSqlFallback
    wanted = np.zeros(len(column.values), np.bool_)
    for item in pa.array(items, arrow_type(kind)).to_pylist():
        first, behind = column.rank_range(item)
        wanted[first:behind] = True
    return _by_rank(column, wanted)


def _by_rank(column: RankedColumn, values: Bools) -> Bools:
    """Per row what `values` says of its value; a missing one is never true."""
    return np.append(values, np.False_)[column.ranks]
