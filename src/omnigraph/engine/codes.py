"""Tables with entities coded as small integers: the place of a row in the image of its table.

Coding costs one pass over a table version and is kept with its image; joins, reachability and counts over whole tables
then work on integers, and a hop from a few nodes is a slice of an array.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.images import ImageKey, Images, S
from omnigraph.engine.reach import Adjacency, each_once
from omnigraph.errors import Corruption
from omnigraph.lang.query.checked import Direction
from omnigraph.lang.schema.model import Catalog, TypeDef
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.view import TableView

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Ends:
    """Both ends of every edge, in the order of the edge table's image."""

    source: Ints
    target: Ints

    @property
    def nbytes(self) -> int:
        return int(self.source.nbytes + self.target.nbytes)


@dataclass(frozen=True)
class PairSet:
    """Pairs of a hop, left and right."""

    left: Ints
    right: Ints

    @property
    def nbytes(self) -> int:
        return int(self.left.nbytes + self.right.nbytes)


class Held:
    """An Arrow array under the interface of the cache."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)


@dataclass(frozen=True)
class Codes:
    """The coded tables of one snapshot."""

    snapshot: Snapshot
    images: Images
    _known: dict[str, tuple[TypeDef, TableView, ImageKey]] = field(default_factory=dict, repr=False)

    @property
    def catalog(self) -> Catalog:
        return self.snapshot.catalog

    def image(self, type_id: str) -> tuple[TypeDef, TableView, ImageKey]:
        found = self._known.get(type_id)
        if found is None:
            one = self.catalog.by_id[type_id]
            view = self.snapshot.view(one)
            found = self._known[type_id] = (one, view, ImageKey.of(one.id, view))
        return found

    def derived(self, edge: str, what: Hashable, make: Callable[[], S]) -> S:
        """Something made of an edge table and the codes of both its ends."""
        one, _, key = self.image(edge)
        state = (self.image(one.source or "")[2], self.image(one.target or "")[2])
        return self.images.derived(key, (what, state), make)

    def ids(self, type_id: str) -> pa.Array:
        """The ids of a type by their code."""
        _, view, key = self.image(type_id)

        def make() -> Held:
            return Held(self.images.columns(key, view, ["id"])["id"].combine_chunks())

        return self.images.derived(key, "ids", make).array

    def places(self, type_id: str) -> pa.Array:
        """All codes of a type, in order."""
        _, _, key = self.image(type_id)
        size = len(self.ids(type_id))
        return self.images.derived(key, "places", lambda: Held(pa.array(np.arange(size, dtype=np.int32)))).array

    def of_ids(self, type_id: str, ids: list[str]) -> pa.Array:
        """The codes of those ids that exist."""
        known = self.ids(type_id)
        found = pc.index_in(known, value_set=pa.array(ids, pa.utf8())) if ids else pa.nulls(len(known), pa.int32())
        return self.places(type_id).filter(found.is_valid())

    def ends(self, edge: str) -> Ends:
        one, view, key = self.image(edge)

        def make() -> Ends:
            rows = self.images.columns(key, view, ["src", "dst"])
            source, target = self.ids(one.source or ""), self.ids(one.target or "")
            return Ends(_coded(rows["src"], source, one), _coded(rows["dst"], target, one))

        return self.derived(edge, "ends", make)

    def has_ends(self, edge: str) -> bool:
        """Whether the coded edges are in memory."""
        one, _, key = self.image(edge)
        source, target = self.image(one.source or "")[2], self.image(one.target or "")[2]
        return self.images.cache.peek((key, ("ends", (source, target)))) is not None

    def sizes(self, edge: str, direction: Direction) -> tuple[int, int]:
        """Number of nodes at the left and the right end of a hop."""
        one = self.catalog.by_id[edge]
        source, target = len(self.ids(one.source or "")), len(self.ids(one.target or ""))
        return (target, source) if direction == "backward" else (source, target)

    def pairs(self, edge: str, direction: Direction, *, distinct: bool) -> PairSet:
        """All pairs of a hop."""
        return self.derived(edge, ("pairs", direction, distinct), lambda: self._pairs(edge, direction, distinct))

    def _pairs(self, edge: str, direction: Direction, distinct: bool) -> PairSet:
        ends = self.ends(edge)
        left, right = (ends.target, ends.source) if direction == "backward" else (ends.source, ends.target)
        if direction == "either":
            other = ends.source != ends.target
            left, right = np.concatenate([left, right[other]]), np.concatenate([right, left[other]])
        if not distinct:
            return PairSet(left, right)
        width = max(1, self.sizes(edge, direction)[1])
        keys = each_once(left.astype(np.int64) * width + right)
        return PairSet((keys // width).astype(np.int32), (keys % width).astype(np.int32))

    def adjacency(self, edge: str, direction: Direction, *, distinct: bool, backwards: bool = False) -> Adjacency:
        """Neighbours over the pairs of a hop, from its left end, or `backwards` from its right end."""

        def make() -> Adjacency:
            pairs = self.pairs(edge, direction, distinct=distinct)
            sizes = self.sizes(edge, direction)
            if backwards:
                return Adjacency.of(pairs.right, pairs.left, sizes[1])
            return Adjacency.of(pairs.left, pairs.right, sizes[0])

        return self.derived(edge, ("adjacency", direction, distinct, backwards), make)

    def incidence(self, edge: str, column: str) -> Adjacency:
        """Edges by the node that stands in `column`: the targets are places in the edge table's image."""
        one = self.catalog.by_id[edge]

        def make() -> Adjacency:
            ends = self.ends(edge)
            at = ends.source if column == "src" else ends.target
            nodes = len(self.ids((one.source if column == "src" else one.target) or ""))
            return Adjacency.of(at, np.arange(len(at), dtype=np.int32), nodes)

        return self.derived(edge, ("incidence", column), make)


def _coded(column: pa.ChunkedArray, ids: pa.Array, one: TypeDef) -> Ints:
    found = pc.index_in(column, value_set=ids)
    if found.null_count:
        raise Corruption(
            f"{one.table_key} has edges whose ends do not exist", advice="Run `omnigraph verify`", table=one.id
        )
    coded: Ints = found.combine_chunks().to_numpy(zero_copy_only=False).astype(np.int32)
    return coded
