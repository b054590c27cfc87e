"""The searches of a leaf as further columns of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from omnigraph.adjacency.column_cache import CachedTableKey, ColumnCache
from omnigraph.embed.providers import Embedder, embed_query_text
from omnigraph.log.table_view import TableView
from omnigraph.query.language.bind import ValueResolver
from omnigraph.query.language.checked import Bm25, Nearest, TextFilter
from omnigraph.query.limits import Deadline
from omnigraph.query.plan.nodes import Edges, Scan, Search
from omnigraph.query.search.text import TextIndex, TextQuery, match_texts
from omnigraph.query.search.vectors import distances


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
        """One array per search of the leaf. `is_whole`: the rows are all rows of the table, in the order of the image."""
        return [self._column(one, rows, key, view, is_whole=is_whole) for one in leaf.searches]

    def _column(self, one: Search, rows: pa.Table, key: CachedTableKey, view: TableView, *, is_whole: bool) -> pa.Array:
        column = one.prop.column
        match one:
            case Nearest():
                return distances(rows[column], self._vector(one), one.metric, self.deadline.check)
            case Bm25():
                index = self._index(key, view, column)
                query = self.resolve_value(one.query)
                return index.scores(query) if is_whole else index.scores_of(rows[column], query)
            case TextFilter():
                edits = self.resolve_value(one.edits) if one.edits is not None else 0
                asked = TextQuery.of(one.function, self.resolve_value(one.query), edits)
                if is_whole:
                    return pa.array(self._index(key, view, column).match_rows(asked, self.deadline.check))
                return pa.array(match_texts(rows[column], asked, self.deadline.check))

    def _index(self, key: CachedTableKey, view: TableView, column: str) -> TextIndex:
        def make() -> TextIndex:
            texts = self.column_cache.columns(key, view, [column])[column]
            if view.overlay is not None and view.pinned is not None:
                layer = self.column_cache.layer(key, view)
                if layer.is_stable:
                    base = self._index(key.base, replace(view, overlay=None), column)
                    return base.with_changes(texts, layer.changed_positions, self.deadline.check)
            return TextIndex.of(texts, self.deadline.check)

        return self.column_cache.derive(key, ("text", column), make)

    def _vector(self, one: Nearest) -> Sequence[float]:
        meant = self.resolve_value(one.query)
        if not one.embeds:
            return list(meant)
        size = one.prop.type.vector_size
        assert size is not None
        return embed_query_text(meant, size, one.model, self.embedder)


def searched_columns(leaf: Scan | Edges) -> tuple[str, ...]:
    """The columns that the searches of a leaf look at."""
    return tuple(dict.fromkeys(one.prop.column for one in leaf.searches))


def text_filter_mask(leaf: Scan | Edges, found: Sequence[pa.Array]) -> pa.Array | None:
    """Which rows pass the text filters that hold for every row of the leaf; None if there are none."""
    wanted = [array for one, array in zip(leaf.searches, found, strict=True) if one in leaf.where]
    if not wanted:
        return None
    return pa.array(np.logical_and.reduce([np.asarray(one) for one in wanted]))
