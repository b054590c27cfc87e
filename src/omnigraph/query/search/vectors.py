"""Distances of vectors, exact for every row.

`cosine` is 1 − cos, `l2` the Euclidean distance, `dot` 1 − the inner product, so that on unit vectors it equals
cosine. A missing vector, or with cosine a vector without a direction, has no distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_BLOCK_VALUES = 1 << 22
Floats = npt.NDArray[np.float64]


def distances(column: pa.ChunkedArray, query: Sequence[float], metric: str, check: Callable[[], None]) -> pa.Array:
    """The distance of every row of the column from the query."""
    wanted = np.asarray(query, np.float32).astype(np.float64)
    parts = [_chunk_distances(chunk, wanted, metric, check) for chunk in column.chunks]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.float64())


def _chunk_distances(chunk: pa.Array, wanted: Floats, metric: str, check: Callable[[], None]) -> pa.Array:
    size = len(wanted)
    missing = np.asarray(chunk.is_null())
    # `flatten` would leave out missing rows; `values` is the whole buffer and ignores the offset.
    values = chunk.values.slice(chunk.offset * size, len(chunk) * size)
    flat = values.fill_null(0.0).to_numpy(zero_copy_only=False).reshape(len(chunk), size)
    found = np.empty(len(chunk))
    step = max(1, _BLOCK_VALUES // size)
    for at in range(0, len(chunk), step):
        check()
        found[at : at + step] = _block_distances(flat[at : at + step].astype(np.float64), wanted, metric)
    return pa.array(found, mask=missing | np.isnan(found))


def _block_distances(rows: Floats, wanted: Floats, metric: str) -> Floats:
    # Row by row the same sum in the same order, wherever the row stands: a matrix product does not promise that.
    if metric == "l2":
        found: Floats = np.sqrt(((rows - wanted) ** 2).sum(axis=1))
        return found
    inner = (rows * wanted).sum(axis=1)
    if metric == "dot":
        return np.asarray(1.0 - inner)
    lengths = np.sqrt((rows**2).sum(axis=1)) * np.sqrt((wanted**2).sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine = np.where(lengths > 0, inner / lengths, np.nan)
    return np.asarray(1.0 - np.clip(cosine, -1.0, 1.0))
