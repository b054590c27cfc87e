"""Tables whose entities are coded as small integers: the code of a row is its position in the cached table.

Coding a table version takes one pass and is cached; joins, reachability and counts over whole tables then work on
integers, and a hop from a few nodes is a slice of an array.
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
from omnigraph.adjacency.reachability import Adjacency, unique_values
from omnigraph.errors import Corruption
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.table_view import TableView
from omnigraph.query.language.checked import Direction
from omnigraph.schema.catalog import Catalog, TypeDef

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Ends:
    """The codes of both ends of every edge, in the order of the cached edge table."""

    source: Int32Array
    target: Int32Array

    @property
    def nbytes(self) -> int:
        return int(self.source.nbytes + self.target.nbytes)


@dataclass(frozen=True)
class PairSet:
    """The pairs of a hop: codes of the left and of the right end."""

    left: Int32Array
    right: Int32Array

    @property
    def nbytes(self) -> int:
        return int(self.left.nbytes + self.right.nbytes)


class CachedArray:
    """An Arrow array as a value of the cache."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)


@dataclass(frozen=True)
class CachedFlag:
    """A truth value as a value of the cache."""

    value: bool
    nbytes: int = 1


@dataclass(frozen=True)
class CodedTables:
    """The codes and adjacencies of one snapshot; all of them are kept in the column cache."""

    snapshot: Snapshot
    column_cache: ColumnCache
    _tables: dict[str, tuple[TypeDef, TableView, CachedTableKey]] = field(default_factory=dict, repr=False)

    @property
    def catalog(self) -> Catalog:
        return self.snapshot.catalog

    def table(self, type_id: str) -> tuple[TypeDef, TableView, CachedTableKey]:
        """Returns the type definition, the table view and the cache key of a type."""
        table = self._tables.get(type_id)
        if table is None:
            type_def = self.catalog.by_id[type_id]
            view = self.snapshot.view(type_def)
            table = self._tables[type_id] = (type_def, view, CachedTableKey.of(type_def.id, view))
        return table

    def derive(self, edge: str, name: Hashable, make: Callable[[], S]) -> S:
        """Returns a structure derived from an edge table and from the codes of both its ends."""
        type_def, _, key = self.table(edge)
        end_keys = (self.table(type_def.source or "")[2], self.table(type_def.target or "")[2])
        return self.column_cache.derive(key, (name, end_keys), make)

    def ids(self, type_id: str) -> pa.Array:
        """Returns the ids of a type by code."""
        _, view, key = self.table(type_id)

        def make() -> CachedArray:
            return CachedArray(self.column_cache.columns(key, view, ["id"])["id"].combine_chunks())

        return self.column_cache.derive(key, "ids", make).array

    def all_codes(self, type_id: str) -> pa.Array:
        """Returns all codes of a type, ascending."""
        _, _, key = self.table(type_id)
        size = len(self.ids(type_id))

        def make() -> CachedArray:
            return CachedArray(pa.array(np.arange(size, dtype=np.int32)))

        return self.column_cache.derive(key, "places", make).array

    def codes_of_ids(self, type_id: str, ids: list[str]) -> pa.Array:
        """Returns the codes of those ids that exist."""
        all_ids = self.ids(type_id)
        matches = (
            pc.index_in(all_ids, value_set=pa.array(ids, pa.utf8())) if ids else pa.nulls(len(all_ids), pa.int32())
        )
        return self.all_codes(type_id).filter(matches.is_valid())

    def ends(self, edge: str) -> Ends:
        type_def, view, key = self.table(edge)

        def make() -> Ends:
            if self._only_adds(edge):
                old, new = self._without_overlays.ends(edge), self._overlay_ends(edge)
                return Ends(np.concatenate([old.source, new.source]), np.concatenate([old.target, new.target]))
            return self._encode_ends(type_def, self.column_cache.columns(key, view, ["src", "dst"]))

        return self.derive(edge, "ends", make)

    def _encode_ends(self, type_def: TypeDef, rows: pa.Table) -> Ends:
        source_ids, target_ids = self.ids(type_def.source or ""), self.ids(type_def.target or "")
        return Ends(_encode_ids(rows["src"], source_ids, type_def), _encode_ids(rows["dst"], target_ids, type_def))

    # ---- small writes: the codes and edges of the versions stay valid ------------------------------------------------

    @cached_property
    def _without_overlays(self) -> CodedTables:
        """The same versions without their overlays."""
        return CodedTables(replace(self.snapshot, record=replace(self.snapshot.record, overlay={})), self.column_cache)

    def _only_adds(self, edge: str) -> bool:
        """Whether overlays exist, and leave all codes and edges of the versions valid."""
        type_def, view, key = self.table(edge)
        ends = [self.table(type_id) for type_id in (type_def.source or "", type_def.target or "")]
        if view.pinned is None or all(table_key.overlay is None for table_key in (key, *(end[2] for end in ends))):
            return False
        if view.overlay is not None and self.column_cache.layer(key, view).order is not None:
            return False
        is_stable = all(
            end_view.overlay is None
            or (end_view.pinned is not None and self.column_cache.layer(end_key, end_view).is_stable)
            for _, end_view, end_key in ends
        )
        return is_stable and self._without_overlays._has_all_ends(edge)

    def _has_all_ends(self, edge: str) -> bool:
        """Whether every end has a code: an edge of a version may lead to a node that only an overlay contains."""

        def make() -> CachedFlag:
            try:
                self.ends(edge)
            except Corruption:
                return CachedFlag(False)
            return CachedFlag(True)

        return self.derive(edge, "whole", make).value

    def _overlay_ends(self, edge: str) -> Ends:
        """Returns the ends of the edges that the overlay adds."""
        type_def, view, key = self.table(edge)

        def make() -> Ends:
            if view.overlay is None:
                return Ends(np.zeros(0, np.int32), np.zeros(0, np.int32))
            layer = self.column_cache.layer(key, view)
            return self._encode_ends(type_def, layer.rows.select(["src", "dst"]).take(layer.added_rows))

        return self.derive(edge, "added", make)

    def _extend_adjacency(self, edge: str, direction: Direction, *, distinct: bool, backwards: bool) -> Adjacency:
        graph = self._without_overlays.adjacency(edge, direction, distinct=distinct, backwards=backwards)
        added = _orient_ends(self._overlay_ends(edge), direction)
        near, far = (added.right, added.left) if backwards else (added.left, added.right)
        pairs = list(zip(near.tolist(), far.tolist(), strict=True))
        if distinct:
            pairs = [pair for pair in dict.fromkeys(pairs) if not graph.has(*pair)]
        left = np.array([near_code for near_code, _ in pairs], np.int64)
        right = np.array([far_code for _, far_code in pairs], np.int64)
        return graph.with_pairs(left, right, self.sizes(edge, direction)[1 if backwards else 0])

    def has_ends(self, edge: str) -> bool:
        """Whether the ends of the edges are cached, or those without overlays, from which they are computed quickly."""
        type_def, _, key = self.table(edge)
        ends = self.table(type_def.source or "")[2], self.table(type_def.target or "")[2]
        cache_keys = ((key, ("ends", ends)), (key.base, ("ends", (ends[0].base, ends[1].base))))
        return any(self.column_cache.byte_cache.peek(cache_key) is not None for cache_key in cache_keys)

    def sizes(self, edge: str, direction: Direction) -> tuple[int, int]:
        """Returns the number of nodes at the left and at the right end of a hop."""
        type_def = self.catalog.by_id[edge]
        sources, targets = len(self.ids(type_def.source or "")), len(self.ids(type_def.target or ""))
        return (targets, sources) if direction == "backward" else (sources, targets)

    def pairs(self, edge: str, direction: Direction, *, distinct: bool) -> PairSet:
        """Returns all pairs of a hop."""
        return self.derive(edge, ("pairs", direction, distinct), lambda: self._pairs(edge, direction, distinct))

    def _pairs(self, edge: str, direction: Direction, distinct: bool) -> PairSet:
        pairs = _orient_ends(self.ends(edge), direction)
        if not distinct:
            return pairs
        width = max(1, self.sizes(edge, direction)[1])
        keys = unique_values(pairs.left.astype(np.int64) * width + pairs.right)
        return PairSet((keys // width).astype(np.int32), (keys % width).astype(np.int32))

    def adjacency(self, edge: str, direction: Direction, *, distinct: bool, backwards: bool = False) -> Adjacency:
        """Returns the neighbours over a hop, from its left end or, if `backwards`, from its right end."""

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
        """Returns the edges by the node in this column, `src` or `dst`: neighbours are codes of edges."""
        type_def = self.catalog.by_id[edge]

        def make() -> Adjacency:
            ends = self.ends(edge)
            nodes = ends.source if column == "src" else ends.target
            node_count = len(self.ids((type_def.source if column == "src" else type_def.target) or ""))
            return Adjacency.of(nodes, np.arange(len(nodes), dtype=np.int32), node_count)

        return self.derive(edge, ("incidence", column), make)


def _orient_ends(ends: Ends, direction: Direction) -> PairSet:
    """Returns edges as pairs of a hop; a loop read the other way is the same pair."""
    left, right = (ends.target, ends.source) if direction == "backward" else (ends.source, ends.target)
    if direction == "either":
        is_no_loop = ends.source != ends.target
        left, right = np.concatenate([left, right[is_no_loop]]), np.concatenate([right, left[is_no_loop]])
    return PairSet(left, right)


def _encode_ids(column: pa.ChunkedArray, ids: pa.Array, type_def: TypeDef) -> Int32Array:
    codes = pc.index_in(column, value_set=ids)
    if codes.null_count:
        raise Corruption(
            f"{type_def.table_key} has edges whose ends do not exist",
            advice="Run `omnigraph verify`",
            table=type_def.id,
        )
    array: Int32Array = codes.combine_chunks().to_numpy(zero_copy_only=False).astype(np.int32)
    return array
