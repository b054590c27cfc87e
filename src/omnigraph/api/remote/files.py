"""NDJSON files that a load sends to a server, and the file that an export receives from it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from omnigraph.errors import InvalidInput
from omnigraph.load.export.export import ExportReport

_SUFFIXES = (".jsonl", ".ndjson", ".json")
_CHUNK_BYTES = 1 << 20
_RECORD = re.compile(rb'\{"(type|edge)":\s*"([^"]+)"')


def check_line_files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """The paths as a list; raises `InvalidInput` for one that is not a file of NDJSON."""
    files = [Path(path) for path in ([paths] if isinstance(paths, (str, Path)) else paths)]
    for path in files:
        if path.suffix not in _SUFFIXES or not path.is_file():
            raise InvalidInput(
                f"{path} is not a file of NDJSON",
                code="file_error",
                advice="Over HTTP load takes .jsonl and .ndjson files",
            )
    return files


def read_chunks(files: Iterable[Path]) -> Iterator[bytes]:
    """The bytes of all files, each ended by a line break."""
    for path in files:
        last = b""
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                last = chunk
                yield chunk
        if not last.endswith(b"\n"):
            yield b"\n"


def write_export(
    destination: str | Path | BinaryIO, chunks: Iterator[bytes], commit_id: str, *, overwrite: bool
) -> ExportReport:
    """Write the chunks and count their records. A file appears whole or not at all."""
    counts: Counter[str] = Counter()
    size_bytes = 0
    if not isinstance(destination, (str, Path)):
        for chunk in _count_records(chunks, counts):
            size_bytes += destination.write(chunk)
        return ExportReport(commit_id, None, "ndjson", dict(counts), size_bytes)
    path = Path(destination)
    with _open_draft(path, overwrite=overwrite) as out:
        for chunk in _count_records(chunks, counts):
            size_bytes += out.write(chunk)
    return ExportReport(commit_id, str(path), "ndjson", dict(counts), size_bytes, (path.name,))


@contextmanager
def _open_draft(path: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """A hidden file beside `path` that takes its place when the block ends without an error."""
    if path.exists() and not overwrite:
        raise InvalidInput(f"{path} exists", code="file_error", advice="Choose another path, or overwrite=True")
    draft = path.with_name(f".{path.name}.part")
    try:
        with draft.open("wb") as out:
            yield out
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _count_records(chunks: Iterator[bytes], counts: Counter[str]) -> Iterator[bytes]:
    """The chunks unchanged; every line is counted by the table that its start names."""
    unfinished_line = b""
    for chunk in chunks:
        yield chunk
        *lines, unfinished_line = (unfinished_line + chunk).split(b"\n")
        for line in lines:
            match = _RECORD.match(line)
            if match:
                counts[f"{'node' if match[1] == b'type' else 'edge'}:{match[2].decode()}"] += 1
