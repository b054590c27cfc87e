"""The searches of a leaf as further columns of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from omnigraph.adjacency.column_cache import ImageKey, Images
from omnigraph.embed.providers import Embedder, embedded
from omnigraph.log.table_view import TableView
from omnigraph.query.language import checked as c
from omnigraph.query.language.bind import Given
from omnigraph.query.limits import Deadline
from omnigraph.query.plan import nodes as n
from omnigraph.query.search.text import TextIndex, TextQuery, hits
from omnigraph.query.search.vectors import distances


@dataclass(frozen=True)
class Searcher:
    """Evaluates searches for one run."""

    images: Images
    given: Given
    deadline: Deadline
    embedder: Embedder | None

    def columns(
        self, leaf: n.Scan | n.Edges, rows: pa.Table, key: ImageKey, view: TableView, *, whole: bool
    ) -> list[pa.Array]:
        """One array per search of the leaf. `whole`: the rows are all rows of the table, in the order of the image."""
        return [self._column(one, rows, key, view, whole=whole) for one in leaf.computed]

    def _column(self, one: n.Computed, rows: pa.Table, key: ImageKey, view: TableView, *, whole: bool) -> pa.Array:
        column = one.prop.column
        match one:
            case c.Nearest():
                return distances(rows[column], self._vector(one), one.metric, self.deadline.check)
            case c.Bm25():
                index = self._index(key, view, column)
                query = self.given(one.query)
                return index.scores(query) if whole else index.scores_of(rows[column], query)
            case c.TextFilter():
                edits = self.given(one.edits) if one.edits is not None else 0
                asked = TextQuery.of(one.function, self.given(one.query), edits)
                if whole:
                    return pa.array(self._index(key, view, column).hits(asked, self.deadline.check))
                return pa.array(hits(rows[column], asked, self.deadline.check))

    def _index(self, key: ImageKey, view: TableView, column: str) -> TextIndex:
        def make() -> TextIndex:
            texts = self.images.columns(key, view, [column])[column]
            if view.overlay is not None and view.pinned is not None:
                layer = self.images.layer(key, view)
                if layer.stable:
                    base = self._index(key.base, replace(view, overlay=None), column)
                    return base.changed(texts, layer.changed, self.deadline.check)
            return TextIndex.of(texts, self.deadline.check)

        return self.images.derived(key, ("text", column), make)

    def _vector(self, one: c.Nearest) -> Sequence[float]:
        meant = self.given(one.query)
        if not one.embeds:
            return list(meant)
        size = one.prop.type.vector_size
        assert size is not None
        return embedded(meant, size, one.model, self.embedder)


def sources(leaf: n.Scan | n.Edges) -> tuple[str, ...]:
    """The columns that the searches of a leaf look at."""
    return tuple(dict.fromkeys(one.prop.column for one in leaf.computed))


def matching(leaf: n.Scan | n.Edges, found: Sequence[pa.Array]) -> pa.Array | None:
    """Which rows pass the text filters that hold for every row of the leaf; None if there are none."""
    wanted = [array for one, array in zip(leaf.computed, found, strict=True) if one in leaf.where]
    if not wanted:
        return None
    return pa.array(np.logical_and.reduce([np.asarray(one) for one in wanted]))
