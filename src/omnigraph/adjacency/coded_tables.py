"""Tables with entities coded as small integers: the place of a row in the image of its table.

Coding costs one pass over a table version and is kept with its image; joins, reachability and counts over whole tables
then work on integers, and a hop from a few nodes is a slice of an array.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.adjacency.column_cache import CachedTableKey, ColumnCache, S
from omnigraph.adjacency.reachability import Adjacency, sorted_unique
from omnigraph.errors import Corruption
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.table_view import TableView
from omnigraph.query.language.checked import Direction
from omnigraph.schema.catalog import Catalog, TypeDef

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Ends:
    """Both ends of every edge, in the order of the edge table's image."""

    source: Int32Array
    target: Int32Array

    @property
    def nbytes(self) -> int:
        return int(self.source.nbytes + self.target.nbytes)


@dataclass(frozen=True)
class PairSet:
    """Pairs of a hop, left and right."""

    left: Int32Array
    right: Int32Array

    @property
    def nbytes(self) -> int:
        return int(self.left.nbytes + self.right.nbytes)


class CachedArray:
    """An Arrow array under the interface of the cache."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)


@dataclass(frozen=True)
class CachedFlag:
    """An answer under the interface of the cache."""

    value: bool
    nbytes: int = 1


@dataclass(frozen=True)
class CodedTables:
    """The coded tables of one snapshot."""

    snapshot: Snapshot
    column_cache: ColumnCache
    _states: dict[str, tuple[TypeDef, TableView, CachedTableKey]] = field(default_factory=dict, repr=False)

    @property
    def catalog(self) -> Catalog:
        return self.snapshot.catalog

    def table(self, type_id: str) -> tuple[TypeDef, TableView, CachedTableKey]:
        found = self._states.get(type_id)
        if found is None:
            one = self.catalog.by_id[type_id]
            view = self.snapshot.view(one)
            found = self._states[type_id] = (one, view, CachedTableKey.of(one.id, view))
        return found

    def derive(self, edge: str, what: Hashable, make: Callable[[], S]) -> S:
        """Something made of an edge table and the codes of both its ends."""
        one, _, key = self.table(edge)
        state = (self.table(one.source or "")[2], self.table(one.target or "")[2])
        return self.column_cache.derive(key, (what, state), make)

    def ids(self, type_id: str) -> pa.Array:
        """The ids of a type by their code."""
        _, view, key = self.table(type_id)

        def make() -> CachedArray:
            return CachedArray(self.column_cache.columns(key, view, ["id"])["id"].combine_chunks())

        return self.column_cache.derive(key, "ids", make).array

    def all_codes(self, type_id: str) -> pa.Array:
        """All codes of a type, in order."""
        _, _, key = self.table(type_id)
        size = len(self.ids(type_id))
        return self.column_cache.derive(
            key, "places", lambda: CachedArray(pa.array(np.arange(size, dtype=np.int32)))
        ).array

    def codes_of_ids(self, type_id: str, ids: list[str]) -> pa.Array:
        """The codes of those ids that exist."""
        known = self.ids(type_id)
        found = pc.index_in(known, value_set=pa.array(ids, pa.utf8())) if ids else pa.nulls(len(known), pa.int32())
        return self.all_codes(type_id).filter(found.is_valid())

    def ends(self, edge: str) -> Ends:
        one, view, key = self.table(edge)

        def make() -> Ends:
            if self._only_adds(edge):
                old, new = self._base.ends(edge), self._added_ends(edge)
                return Ends(np.concatenate([old.source, new.source]), np.concatenate([old.target, new.target]))
            return self._ends_of(one, self.column_cache.columns(key, view, ["src", "dst"]))

        return self.derive(edge, "ends", make)

    def _ends_of(self, one: TypeDef, rows: pa.Table) -> Ends:
        source, target = self.ids(one.source or ""), self.ids(one.target or "")
        return Ends(_encode_ids(rows["src"], source, one), _encode_ids(rows["dst"], target, one))

    # ---- what small writes leave as it was ---------------------------------------------------------------------------

    @cached_property
    def _base(self) -> CodedTables:
        """The same versions without their overlays."""
        return CodedTables(replace(self.snapshot, record=replace(self.snapshot.record, overlay={})), self.column_cache)

    def _only_adds(self, edge: str) -> bool:
        """Whether there is something on top of the versions, and only such that all their codes and edges stay."""
        one, view, key = self.table(edge)
        nodes = [self.table(type_id) for type_id in (one.source or "", one.target or "")]
        if view.pinned is None or all(at.overlay is None for at in (key, *(at for _, _, at in nodes))):
            return False
        if view.overlay is not None and self.column_cache.layer(key, view).order is not None:
            return False
        stable = all(
            held.overlay is None or (held.pinned is not None and self.column_cache.layer(at, held).is_stable)
            for _, held, at in nodes
        )
        return stable and self._base._has_all_ends(edge)

    def _has_all_ends(self, edge: str) -> bool:
        """Whether all ends can be coded: an edge of a version may lead to a node that so far only an overlay holds."""

        def make() -> CachedFlag:
            try:
                self.ends(edge)
            except Corruption:
                return CachedFlag(False)
            return CachedFlag(True)

        return self.derive(edge, "whole", make).value

    def _added_ends(self, edge: str) -> Ends:
        """The edges that the overlay adds."""
        one, view, key = self.table(edge)

        def make() -> Ends:
            if view.overlay is None:
                return Ends(np.zeros(0, np.int32), np.zeros(0, np.int32))
            layer = self.column_cache.layer(key, view)
            return self._ends_of(one, layer.rows.select(["src", "dst"]).take(layer.added_rows))

        return self.derive(edge, "added", make)

    def _extend_adjacency(self, edge: str, direction: Direction, *, distinct: bool, backwards: bool) -> Adjacency:
        graph = self._base.adjacency(edge, direction, distinct=distinct, backwards=backwards)
        new = _orient_ends(self._added_ends(edge), direction)
        near, far = (new.right, new.left) if backwards else (new.left, new.right)
        pairs = list(zip(near.tolist(), far.tolist(), strict=True))
        if distinct:
            pairs = [pair for pair in dict.fromkeys(pairs) if not graph.has(*pair)]
        left, right = np.array([one for one, _ in pairs], np.int64), np.array([two for _, two in pairs], np.int64)
        return graph.with_pairs(left, right, self.sizes(edge, direction)[1 if backwards else 0])

    def has_ends(self, edge: str) -> bool:
        """Whether the coded edges are in memory, or those of their versions, from which they are made quickly."""
        one, _, key = self.table(edge)
        ends = self.table(one.source or "")[2], self.table(one.target or "")[2]
        base = (key.base, ("ends", (ends[0].base, ends[1].base)))
        return any(self.column_cache.byte_cache.peek(known) is not None for known in ((key, ("ends", ends)), base))

    def sizes(self, edge: str, direction: Direction) -> tuple[int, int]:
        """Number of nodes at the left and the right end of a hop."""
        one = self.catalog.by_id[edge]
        source, target = len(self.ids(one.source or "")), len(self.ids(one.target or ""))
        return (target, source) if direction == "backward" else (source, target)

    def pairs(self, edge: str, direction: Direction, *, distinct: bool) -> PairSet:
        """All pairs of a hop."""
        return self.derive(edge, ("pairs", direction, distinct), lambda: self._pairs(edge, direction, distinct))

    def _pairs(self, edge: str, direction: Direction, distinct: bool) -> PairSet:
        pairs = _orient_ends(self.ends(edge), direction)
        if not distinct:
            return pairs
        width = max(1, self.sizes(edge, direction)[1])
        keys = sorted_unique(pairs.left.astype(np.int64) * width + pairs.right)
        return PairSet((keys // width).astype(np.int32), (keys % width).astype(np.int32))

    def adjacency(self, edge: str, direction: Direction, *, distinct: bool, backwards: bool = False) -> Adjacency:
        """Neighbours over the pairs of a hop, from its left end, or `backwards` from its right end."""

        def make() -> Adjacency:
            if self._only_adds(edge):
                return self._extend_adjacency(edge, direction, distinct=distinct, backwards=backwards)
            pairs = self.pairs(edge, direction, distinct=distinct)
            sizes = self.sizes(edge, direction)
            if backwards:
                return Adjacency.of(pairs.right, pairs.left, sizes[1])
            return Adjacency.of(pairs.left, pairs.right, sizes[0])

        return self.derive(edge, ("adjacency", direction, distinct, backwards), make)

    def incidence(self, edge: str, column: str) -> Adjacency:
        """Edges by the node that stands in `column`: the targets are places in the edge table's image."""
        one = self.catalog.by_id[edge]

        def make() -> Adjacency:
            ends = self.ends(edge)
            at = ends.source if column == "src" else ends.target
            nodes = len(self.ids((one.source if column == "src" else one.target) or ""))
            return Adjacency.of(at, np.arange(len(at), dtype=np.int32), nodes)

        return self.derive(edge, ("incidence", column), make)


def _orient_ends(ends: Ends, direction: Direction) -> PairSet:
    """Edges as pairs of a hop; a loop read the other way is the same pair."""
    left, right = (ends.target, ends.source) if direction == "backward" else (ends.source, ends.target)
    if direction == "either":
        other = ends.source != ends.target
        left, right = np.concatenate([left, right[other]]), np.concatenate([right, left[other]])
    return PairSet(left, right)


def _encode_ids(column: pa.ChunkedArray, ids: pa.Array, one: TypeDef) -> Int32Array:
    found = pc.index_in(column, value_set=ids)
    if found.null_count:
        raise Corruption(
            f"{one.table_key} has edges whose ends do not exist", advice="Run `omnigraph verify`", table=one.id
        )
    coded: Int32Array = found.combine_chunks().to_numpy(zero_copy_only=False).astype(np.int32)
    return coded
