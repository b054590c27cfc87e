"""Computes the searches of a leaf as additional columns of its rows: text ranks, and distances of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.adjacency.column_cache import CachedTableKey, ColumnCache
from omnigraph.embed.providers import Embedder, embed_query_text
from omnigraph.log.table_view import TableView
from omnigraph.query.language.bind import ValueResolver
from omnigraph.query.language.checked import Bm25, Nearest, TextFilter
from omnigraph.query.limits import Deadline
from omnigraph.query.plan.nodes import Edges, Scan, Search
from omnigraph.query.search.text import TextIndex, TextQuery, match_texts

_BLOCK_VALUES = 1 << 22
Floats = npt.NDArray[np.float64]


def distances(column: pa.ChunkedArray, query: Sequence[float], metric: str, check: Callable[[], None]) -> pa.Array:
    """Returns the distance of every row of the column from the query."""
    query_vector = np.asarray(query, np.float32).astype(np.float64)
    parts = [_chunk_distances(chunk, query_vector, metric, check) for chunk in column.chunks]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.float64())


def _chunk_distances(chunk: pa.Array, query_vector: Floats, metric: str, check: Callable[[], None]) -> pa.Array:
    size = len(query_vector)
    missing = np.asarray(chunk.is_null())
    # `flatten` would leave out missing rows; `values` is the whole buffer and ignores the offset.
    values = chunk.values.slice(chunk.offset * size, len(chunk) * size)
    flat = values.fill_null(0.0).to_numpy(zero_copy_only=False).reshape(len(chunk), size)
    result = np.empty(len(chunk))
    step = max(1, _BLOCK_VALUES // size)
    for start in range(0, len(chunk), step):
        check()
        result[start : start + step] = _block_distances(
            flat[start : start + step].astype(np.float64), query_vector, metric
        )
    return pa.array(result, mask=missing | np.isnan(result))


def _block_distances(rows: Floats, query_vector: Floats, metric: str) -> Floats:
    # Sums each row in the same order whatever block the row is in; a matrix product does not guarantee that.
    if metric == "l2":
        return np.asarray(np.sqrt(((rows - query_vector) ** 2).sum(axis=1)))
    inner = (rows * query_vector).sum(axis=1)
    if metric == "dot":
        return np.asarray(1.0 - inner)
    lengths = np.sqrt((rows**2).sum(axis=1)) * np.sqrt((query_vector**2).sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine = np.where(lengths > 0, inner / lengths, np.nan)
    return np.asarray(1.0 - np.clip(cosine, -1.0, 1.0))


@dataclass(frozen=True)
class Searcher:
    """Evaluates searches for one run."""

    column_cache: ColumnCache
    resolve_value: ValueResolver
    deadline: Deadline
    embedder: Embedder | None

    def columns(
        self, leaf: Scan | Edges, rows: pa.Table, key: CachedTableKey, view: TableView, *, is_whole: bool
    ) -> list[pa.Array]:
        """Returns one array per search. `is_whole`: the rows are those of the whole cached table, in its order."""
        return [self._column(search, rows, key, view, is_whole=is_whole) for search in leaf.searches]

    def _column(
        self, search: Search, rows: pa.Table, key: CachedTableKey, view: TableView, *, is_whole: bool
    ) -> pa.Array:
        column = search.prop.column
        match search:
            case Nearest():
                return distances(rows[column], self._query_vector(search), search.metric, self.deadline.check)
            case Bm25():
                index = self._index(key, view, column)
                query = self.resolve_value(search.query)
                return index.scores(query) if is_whole else index.scores_of(rows[column], query)
            case TextFilter():
                edits = self.resolve_value(search.edits) if search.edits is not None else 0
                text_query = TextQuery.of(search.function, self.resolve_value(search.query), edits)
                if is_whole:
                    return pa.array(self._index(key, view, column).match_rows(text_query, self.deadline.check))
                return pa.array(match_texts(rows[column], text_query, self.deadline.check))

    def _index(self, key: CachedTableKey, view: TableView, column: str) -> TextIndex:
        def make() -> TextIndex:
            texts = self.column_cache.columns(key, view, [column])[column]
            if view.overlay is not None and view.pinned is not None:
                layer = self.column_cache.layer(key, view)
                if layer.is_stable:
                    base = self._index(key.base, replace(view, overlay=None), column)
                    return base.with_changes(texts, layer.overlay_positions, self.deadline.check)
            return TextIndex.of(texts, self.deadline.check)

        return self.column_cache.derive(key, ("text", column), make)

    def _query_vector(self, nearest: Nearest) -> Sequence[float]:
        query = self.resolve_value(nearest.query)
        if not nearest.embeds:
            return list(query)
        size = nearest.prop.type.vector_size
        assert size is not None
        return embed_query_text(query, size, nearest.model, self.embedder)


def columns_to_search(leaf: Scan | Edges) -> tuple[str, ...]:
    """Returns the columns that the searches of a leaf read."""
    return tuple(dict.fromkeys(search.prop.column for search in leaf.searches))


def text_filter_mask(leaf: Scan | Edges, columns: Sequence[pa.Array]) -> pa.Array | None:
    """Returns which rows pass the text filters in the leaf's `where`; None without any. `columns`: one per search."""
    filters = [column for search, column in zip(leaf.searches, columns, strict=True) if search in leaf.where]
    if not filters:
        return None
    return pa.array(np.logical_and.reduce([np.asarray(column) for column in filters]))
