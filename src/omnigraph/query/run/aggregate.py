"""Groups of counted rows: aggregates per group, their order, and the window of them that is returned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.query.language.bind import ValueResolver
from omnigraph.query.language.checked import AggregateCall, Entity, Expr, Prop
from omnigraph.query.plan.facts import entity_columns
from omnigraph.query.plan.join_tree import JoinTree
from omnigraph.query.run.count_trees import TreeCounter, WeightedRows, sum_by_position
from omnigraph.query.run.ranked_columns import EXACT_FLOAT_BOUND, Ints, NeedsSqlFallback, RankedColumn, RankedColumns
from omnigraph.schema.catalog import Catalog

Outputs = tuple[tuple[str, ...], ...]

#: Groups are counted in an array over all their possible keys up to so many keys per row, else by hashing.
_KEYS_PER_ROW = 4
_FEW_KEYS = 4_096
_MOST_KEYS = 1 << 62


def aggregate_tree(tree: JoinTree, outputs: Outputs, counter: TreeCounter, given: ValueResolver) -> pa.Table:
    """The flat result of a counted tree. Raises Beyond where numbers grow too large for the short way."""
    catalog = counter.coded_tables.catalog
    if not tree.output_variables and not tree.aggregation.keys:
        total = counter.total(tree.body)
        groups = _Groups(tree.body.types, counter.ranked_columns, WeightedRows({}, None, 0), (), total)
    else:
        rows = counter.rows(tree.body, tree.output_variables)
        keys = tuple(tree.aggregation.columns[place].value for place in tree.aggregation.keys)
        groups = _Groups(tree.body.types, counter.ranked_columns, rows, keys)
    places = _window(tree, groups, given)
    flat: dict[str, pa.Array] = {}
    for column, names in zip(tree.aggregation.columns, outputs, strict=True):
        flat |= dict(zip(names, groups.output_columns(column.value, places, catalog), strict=True))
    return pa.table(flat)


@dataclass
class _Groups:
    """Rows by group. Without keys there is one group, even without rows; `total` is then known beforehand."""

    types: Mapping[str, str]
    ranks: RankedColumns
    rows: WeightedRows
    keys: tuple[Expr, ...]
    total: int | None = None
    _done: dict[Expr, _Values] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._radixes = [self._radix(one) for one in self.keys]
        if reduce(lambda one, two: one * two, self._radixes, 1) >= _MOST_KEYS:
            raise NeedsSqlFallback
        if not self.keys:
            self.of_row, self.found = np.zeros(self.rows.count, np.int64), np.zeros(1, np.int64)
            return
        joined = np.zeros(self.rows.count, np.int64)
        for one, radix in zip(self.keys, self._radixes, strict=True):
            joined = joined * radix + (self._codes(one) + 1)
        self.of_row, self.found = _number_groups(joined, reduce(lambda one, two: one * two, self._radixes, 1))

    @property
    def count(self) -> int:
        return len(self.found)

    def _column(self, prop: Prop) -> RankedColumn:
        return self.ranks.column(self.types[prop.var], prop.column)

    def _radix(self, key: Expr) -> int:
        if isinstance(key, Entity):
            return len(self.ranks.coded_tables.ids(self.types[key.var])) + 1
        assert isinstance(key, Prop)
        return len(self._column(key).values) + 1

    def _codes(self, value: Expr) -> Ints:
        """Per row the node of an entity, or the rank of a property."""
        assert isinstance(value, (Entity, Prop))
        nodes = self.rows.nodes[value.var]
        return nodes if isinstance(value, Entity) else self._column(value).ranks[nodes].astype(np.int64)

    def _key_codes(self, place: int) -> Ints:
        """Per group the code of one of its keys."""
        below = reduce(lambda one, two: one * two, self._radixes[place + 1 :], 1)
        return self.found // below % self._radixes[place] - 1

    # ---- values per group --------------------------------------------------------------------------------------------

    def values(self, value: Expr) -> _Values:
        """One number per group in the order of the values, and whether it is there."""
        if value not in self._done:
            self._done[value] = self._aggregate(value) if isinstance(value, AggregateCall) else self._key(value)
        return self._done[value]

    def _key(self, value: Expr) -> _Values:
        assert isinstance(value, (Prop, Entity))
        if value in self.keys:
            codes = self._key_codes(self.keys.index(value))
            return _Values(codes, codes >= 0, None if isinstance(value, Entity) else self._column(value).values)
        assert isinstance(value, Prop)
        column = self._column(value)
        codes = column.ranks[self._nodes(value.var)].astype(np.int64)
        return _Values(codes, codes >= 0, column.values)

    def _nodes(self, var: str) -> Ints:
        """The node of a group that is made of one."""
        place = next(at for at, one in enumerate(self.keys) if isinstance(one, Entity) and one.var == var)
        return self._key_codes(place)

    def _aggregate(self, value: AggregateCall) -> _Values:
        if isinstance(value.argument, Entity) and not value.distinct:
            return _Values(self._sizes())
        codes = self._codes(value.argument)
        present = codes >= 0
        group, codes = self.of_row[present], codes[present]
        weights = None if self.rows.weights is None else self.rows.weights[present]
        match value.function:
            case "count" if value.distinct:
                return self._count_distinct(group, codes)
            case "count":
                return _Values(sum_by_position(group, weights, self.count))
            case "min" | "max":
                assert isinstance(value.argument, Prop)
                return self._extreme(value.function, group, codes, self._column(value.argument).values)
        assert isinstance(value.argument, Prop)
        numbers = self._column(value.argument).numbers[codes]
        counts, sums = sum_by_position(group, weights, self.count), self._sums(group, numbers, weights)
        if value.function == "sum":
            return _Values(sums, counts > 0)
        with np.errstate(invalid="ignore"):
            return _Values(np.where(counts > 0, sums / counts, -np.inf), counts > 0)

    def _sizes(self) -> Ints:
        if self.total is not None:
            return np.array([self.total], np.int64)
        return sum_by_position(self.of_row, self.rows.weights, self.count)

    def _sums(self, group: Ints, numbers: Ints, weights: Ints | None) -> Ints:
        rows = float(len(numbers)) if weights is None else float(weights.sum(dtype=np.float64))
        largest = float(np.abs(numbers.astype(np.float64)).max(initial=0.0))
        if rows * largest >= EXACT_FLOAT_BOUND:
            raise NeedsSqlFallback
        found = np.bincount(group, numbers if weights is None else numbers * weights, minlength=self.count)
        return found.astype(np.int64)

    def _count_distinct(self, group: Ints, codes: Ints) -> _Values:
        width = int(codes.max(initial=0)) + 1
        if width * self.count >= _MOST_KEYS:
            raise NeedsSqlFallback
        pairs = pc.unique(pa.array(group * width + codes)).to_numpy(zero_copy_only=False)
        return _Values(np.bincount(pairs // width, minlength=self.count))

    def _extreme(self, function: str, group: Ints, codes: Ints, values: pa.Array) -> _Values:
        found = np.full(self.count, len(values) if function == "min" else -1, np.int64)
        (np.minimum if function == "min" else np.maximum).at(found, group, codes)
        there = (found >= 0) & (found < len(values))
        return _Values(np.where(there, found, -1), there, values)

    # ---- the result --------------------------------------------------------------------------------------------------

    def output_columns(self, value: Expr, places: Ints, catalog: Catalog) -> list[pa.Array]:
        """The result columns of a value for the groups at these places."""
        if not isinstance(value, Entity):
            return [self.values(value).output_column(places)]
        type_id = self.types[value.var]
        _, view, key = self.ranks.coded_tables.table(type_id)
        names = entity_columns(catalog.by_id[type_id])
        rows = self.ranks.coded_tables.column_cache.columns(key, view, names).take(
            pa.array(self._nodes(value.var)[places])
        )
        return [rows[name] for name in names]


@dataclass(frozen=True)
class _Values:
    """`order` ascends with the value, with missing ones lowest; it is the value itself unless `values` names it."""

    order: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    there: npt.NDArray[np.bool_] | None = None
    values: pa.Array | None = None

    def output_column(self, places: Ints) -> pa.Array:
        missing = None if self.there is None else ~self.there[places]
        found = pa.array(self.order[places], mask=missing)
        return found if self.values is None else self.values.take(found)

    def sort_keys(self, places: Ints, *, descending: bool) -> npt.NDArray[np.float64] | npt.NDArray[np.int64]:
        own = self.order[places]
        if self.there is not None and self.values is None:
            lowest = -np.inf if own.dtype == np.float64 else -(1 << 62)
            own = np.where(self.there[places], own, lowest)
        return -own if descending else own


def _number_groups(joined: Ints, keys: int) -> tuple[Ints, Ints]:
    """The group of every row, and the joined keys of every group."""
    if keys <= max(_FEW_KEYS, len(joined) * _KEYS_PER_ROW):
        found = np.flatnonzero(np.bincount(joined, minlength=keys))
        numbers = np.zeros(keys, np.int64)
        numbers[found] = np.arange(len(found))
        return numbers[joined], found
    coded = pa.array(joined).dictionary_encode()
    return (
        coded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        coded.dictionary.to_numpy(zero_copy_only=False),
    )


def _window(tree: JoinTree, groups: _Groups, given: ValueResolver) -> Ints:
    """The groups that are returned, in order."""
    first = given(tree.offset) if tree.offset is not None else 0
    most = given(tree.limit) if tree.limit is not None else None
    places = np.arange(groups.count)
    behind = len(places) if most is None else min(len(places), first + most)
    keys = [(one.value, one.descending) for one in tree.keys] + [(one, False) for one in tree.ties]
    if keys and behind:
        value, descending = keys[0]
        if behind * 4 < len(places):
            # Only groups that are not behind the last of the window by the first key can be in it.
            leading = groups.values(value).sort_keys(places, descending=descending)
            places = np.flatnonzero(leading <= np.partition(leading, behind - 1)[behind - 1])
        order = [groups.values(one).sort_keys(places, descending=down) for one, down in keys]
        places = places[np.lexsort(order[::-1])]
    return places[first:behind]
