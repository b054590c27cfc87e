"""Computes distances of vectors, exactly for every row.

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
