"""Groups the counted rows of a join tree: aggregates per group, their order, and the window that the query returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.query.language.bind import ValueResolver
from omnigraph.query.language.checked import AggregateCall, Entity, Expr, Prop
from omnigraph.query.plan.facts import entity_columns
from omnigraph.query.plan.join_tree import JoinTree
from omnigraph.query.run.count_trees import TreeCounter, WeightedRows, sum_by_position
from omnigraph.query.run.ranked_columns import (
    EXACT_FLOAT_BOUND,
    Int64Array,
    NeedsSqlFallback,
    RankedColumn,
    RankedColumns,
)

Outputs = tuple[tuple[str, ...], ...]

#: Groups are numbered in an array over all possible keys if these are at most so many per row, otherwise by hashing.
_KEYS_PER_ROW = 4
_FEW_KEYS = 4_096
#: Combined keys must fit into 64 bits.
_MAX_KEYS = 1 << 62


def aggregate_tree(tree: JoinTree, outputs: Outputs, counter: TreeCounter, resolve_value: ValueResolver) -> pa.Table:
    """Returns the flat result of a join tree. Raises NeedsSqlFallback if numbers grow too large for exact arrays."""
    aggregation = tree.aggregation
    if not tree.output_variables and not aggregation.keys:
        total = counter.total(tree.body)
        groups = _Groups(tree.body.types, counter.ranked_columns, WeightedRows({}, None, 0), (), total)
    else:
        rows = counter.rows(tree.body, tree.output_variables)
        keys = tuple(aggregation.columns[position].value for position in aggregation.keys)
        groups = _Groups(tree.body.types, counter.ranked_columns, rows, keys)
    window = _window(tree, groups, resolve_value)
    flat: dict[str, pa.Array] = {}
    for column, names in zip(aggregation.columns, outputs, strict=True):
        flat |= dict(zip(names, groups.output_columns(column.value, window), strict=True))
    return pa.table(flat)


@dataclass
class _Groups:
    """Rows by group. Without keys there is one group, even without rows; `total` is then its number of rows.

    A group's combined key is a number in a mixed radix: one digit per key, which is its code + 1 (0: no value).
    """

    types: Mapping[str, str]
    ranked_columns: RankedColumns
    rows: WeightedRows
    keys: tuple[Expr, ...]
    total: int | None = None
    _computed: dict[Expr, _GroupValues] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._radixes = [self._radix(key) for key in self.keys]
        possible_keys = prod(self._radixes)
        if possible_keys >= _MAX_KEYS:
            raise NeedsSqlFallback
        if not self.keys:
            self.group_of_row, self.combined_keys = np.zeros(self.rows.count, np.int64), np.zeros(1, np.int64)
            return
        row_keys = np.zeros(self.rows.count, np.int64)
        for key, radix in zip(self.keys, self._radixes, strict=True):
            row_keys = row_keys * radix + (self._row_codes(key) + 1)
        self.group_of_row, self.combined_keys = _number_groups(row_keys, possible_keys)

    @property
    def count(self) -> int:
        return len(self.combined_keys)

    def _column(self, prop: Prop) -> RankedColumn:
        return self.ranked_columns.column(self.types[prop.var], prop.column)

    def _radix(self, key: Expr) -> int:
        if isinstance(key, Entity):
            return len(self.ranked_columns.coded_tables.ids(self.types[key.var])) + 1
        assert isinstance(key, Prop)
        return len(self._column(key).values) + 1

    def _row_codes(self, value: Expr) -> Int64Array:
        """Returns per row the code of an entity, or the rank of a property."""
        assert isinstance(value, (Entity, Prop))
        nodes = self.rows.nodes[value.var]
        return nodes if isinstance(value, Entity) else self._column(value).ranks[nodes].astype(np.int64)

    def _key_codes(self, position: int) -> Int64Array:
        """Returns per group the code of the key at this position."""
        return self.combined_keys // prod(self._radixes[position + 1 :]) % self._radixes[position] - 1

    # ---- values per group --------------------------------------------------------------------------------------------

    def values(self, value: Expr) -> _GroupValues:
        """Returns the value of every group; computed once."""
        if value not in self._computed:
            self._computed[value] = (
                self._aggregate(value) if isinstance(value, AggregateCall) else self._key_values(value)
            )
        return self._computed[value]

    def _key_values(self, value: Expr) -> _GroupValues:
        assert isinstance(value, (Prop, Entity))
        if value in self.keys:
            codes = self._key_codes(self.keys.index(value))
            return _GroupValues(codes, codes >= 0, None if isinstance(value, Entity) else self._column(value).values)
        assert isinstance(value, Prop)
        column = self._column(value)
        codes = column.ranks[self._group_nodes(value.var)].astype(np.int64)
        return _GroupValues(codes, codes >= 0, column.values)

    def _group_nodes(self, var: str) -> Int64Array:
        """Returns the node of every group, for a variable that is a key as a whole entity."""
        positions = (i for i, key in enumerate(self.keys) if isinstance(key, Entity) and key.var == var)
        return self._key_codes(next(positions))

    def _aggregate(self, call: AggregateCall) -> _GroupValues:
        if isinstance(call.argument, Entity) and not call.distinct:
            return _GroupValues(self._row_counts())
        codes = self._row_codes(call.argument)
        is_present = codes >= 0
        groups, codes = self.group_of_row[is_present], codes[is_present]
        weights = None if self.rows.weights is None else self.rows.weights[is_present]
        match call.function:
            case "count" if call.distinct:
                return self._count_distinct(groups, codes)
            case "count":
                return _GroupValues(sum_by_position(groups, weights, self.count))
            case "min" | "max":
                assert isinstance(call.argument, Prop)
                return self._extreme(call.function, groups, codes, self._column(call.argument).values)
        assert isinstance(call.argument, Prop)
        numbers = self._column(call.argument).numbers[codes]
        counts, sums = sum_by_position(groups, weights, self.count), self._sums(groups, numbers, weights)
        if call.function == "sum":
            return _GroupValues(sums, counts > 0)
        with np.errstate(invalid="ignore"):
            return _GroupValues(np.where(counts > 0, sums / counts, -np.inf), counts > 0)

    def _row_counts(self) -> Int64Array:
        if self.total is not None:
            return np.array([self.total], np.int64)
        return sum_by_position(self.group_of_row, self.rows.weights, self.count)

    def _sums(self, groups: Int64Array, numbers: Int64Array, weights: Int64Array | None) -> Int64Array:
        rows = float(len(numbers)) if weights is None else float(weights.sum(dtype=np.float64))
        largest = float(np.abs(numbers.astype(np.float64)).max(initial=0.0))
        if rows * largest >= EXACT_FLOAT_BOUND:
            raise NeedsSqlFallback
        sums = np.bincount(groups, numbers if weights is None else numbers * weights, minlength=self.count)
        return sums.astype(np.int64)

    def _count_distinct(self, groups: Int64Array, codes: Int64Array) -> _GroupValues:
        width = int(codes.max(initial=0)) + 1
        if width * self.count >= _MAX_KEYS:
            raise NeedsSqlFallback
        pairs = pc.unique(pa.array(groups * width + codes)).to_numpy(zero_copy_only=False)
        return _GroupValues(np.bincount(pairs // width, minlength=self.count))

    def _extreme(self, function: str, groups: Int64Array, codes: Int64Array, values: pa.Array) -> _GroupValues:
        extremes = np.full(self.count, len(values) if function == "min" else -1, np.int64)
        (np.minimum if function == "min" else np.maximum).at(extremes, groups, codes)
        is_present = (extremes >= 0) & (extremes < len(values))
        return _GroupValues(np.where(is_present, extremes, -1), is_present, values)

    # ---- the result --------------------------------------------------------------------------------------------------

    def output_columns(self, value: Expr, groups: Int64Array) -> list[pa.Array]:
        """Returns the flat columns of a value for these groups."""
        if not isinstance(value, Entity):
            return [self.values(value).output_column(groups)]
        coded_tables = self.ranked_columns.coded_tables
        type_def, view, key = coded_tables.table(self.types[value.var])
        names = entity_columns(type_def)
        nodes = pa.array(self._group_nodes(value.var)[groups])
        rows = coded_tables.column_cache.columns(key, view, names).take(nodes)
        return [rows[name] for name in names]


@dataclass(frozen=True)
class _GroupValues:
    """One value per group. `order` ascends with the value, missing values lowest.

    `order` is a rank in `values`, or without `values` the value itself. `is_present` None: no value is missing.
    """

    order: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    is_present: npt.NDArray[np.bool_] | None = None
    values: pa.Array | None = None

    def output_column(self, groups: Int64Array) -> pa.Array:
        is_missing = None if self.is_present is None else ~self.is_present[groups]
        column = pa.array(self.order[groups], mask=is_missing)
        return column if self.values is None else self.values.take(column)

    def sort_keys(self, groups: Int64Array, *, descending: bool) -> npt.NDArray[np.float64] | npt.NDArray[np.int64]:
        keys = self.order[groups]
        if self.is_present is not None and self.values is None:
            lowest = -np.inf if keys.dtype == np.float64 else -(1 << 62)
            keys = np.where(self.is_present[groups], keys, lowest)
        return -keys if descending else keys


def _number_groups(row_keys: Int64Array, possible_keys: int) -> tuple[Int64Array, Int64Array]:
    """Returns the group of every row, and the combined key of every group."""
    if possible_keys <= max(_FEW_KEYS, len(row_keys) * _KEYS_PER_ROW):
        group_keys = np.flatnonzero(np.bincount(row_keys, minlength=possible_keys))
        group_of_key = np.zeros(possible_keys, np.int64)
        group_of_key[group_keys] = np.arange(len(group_keys))
        return group_of_key[row_keys], group_keys
    coded = pa.array(row_keys).dictionary_encode()
    return (
        coded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        coded.dictionary.to_numpy(zero_copy_only=False),
    )


def _window(tree: JoinTree, groups: _Groups, resolve_value: ValueResolver) -> Int64Array:
    """Returns the groups that the query returns, in order."""
    offset = resolve_value(tree.offset) if tree.offset is not None else 0
    limit = resolve_value(tree.limit) if tree.limit is not None else None
    window = np.arange(groups.count)
    end = len(window) if limit is None else min(len(window), offset + limit)
    keys = [(key.value, key.descending) for key in tree.keys] + [(tie, False) for tie in tree.ties]
    if keys and end:
        value, descending = keys[0]
        if end * 4 < len(window):
            # A group that the first key puts behind the last group of the window cannot be in the window.
            leading = groups.values(value).sort_keys(window, descending=descending)
            window = np.flatnonzero(leading <= np.partition(leading, end - 1)[end - 1])
        order = [groups.values(value).sort_keys(window, descending=descending) for value, descending in keys]
        window = window[np.lexsort(order[::-1])]
    return window[offset:end]
