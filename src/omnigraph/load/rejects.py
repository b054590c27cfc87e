"""Writes rejected records as NDJSON, in a directory or below an object-store address.

Records are written in the order given; the engines sort.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from omnigraph.errors import InvalidInput
from omnigraph.load.records.batches import Reject
from omnigraph.storage.address import open_store, parse_address


def encode_rejects(rejects: Iterable[Reject]) -> bytes:
    """Encodes one line per reject, in UTF-8 even if a text has unpaired surrogates."""
    return b"".join(_encode_reject(reject) for reject in rejects)


def _encode_reject(reject: Reject) -> bytes:
    document = reject.to_json()
    try:
        return json.dumps(document, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # an unpaired surrogate: only an escape can represent it
        return json.dumps(document).encode() + b"\n"


def write_rejects(
    directory: str, name: str, rejects: Iterable[Reject], storage_options: Mapping[str, str] | None = None
) -> str:
    """Writes the file `name` below the directory, replacing that of an earlier attempt, and returns its path."""
    address = parse_address(directory, storage_options)
    data = encode_rejects(rejects)
    if not address.is_local:
        open_store(directory, storage_options).put(name, data)
        return f"{address.uri}/{name}"
    try:
        folder = Path(address.uri)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    except OSError as error:
        raise InvalidInput(
            f"the rejects cannot be written to {directory}: {error.strerror}",
            code="file_error",
            advice="Name another directory",
            file=directory,
        ) from error
    return str(folder / name)
