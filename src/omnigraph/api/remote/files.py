"""Files of records on their way to a server, and on their way back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from omnigraph.errors import InvalidInput
from omnigraph.load.export.export import ExportReport

_LINES = (".jsonl", ".ndjson", ".json")
_CHUNK_BYTES = 1 << 20
_RECORD = re.compile(rb'\{"(type|edge)":\s*"([^"]+)"')


def line_files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    files = [Path(one) for one in ([paths] if isinstance(paths, (str, Path)) else paths)]
    for one in files:
        if one.suffix not in _LINES or not one.is_file():
            raise InvalidInput(
                f"{one} is not a file of NDJSON",
                code="file_error",
                advice="Over HTTP load takes .jsonl and .ndjson files",
            )
    return files


def chunks_of(files: Iterable[Path]) -> Iterator[bytes]:
    for one in files:
        last = b""
        with one.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                last = chunk
                yield chunk
        if not last.endswith(b"\n"):
            yield b"\n"


def write_export(
    destination: str | Path | BinaryIO, chunks: Iterator[bytes], commit_id: str, *, overwrite: bool
) -> ExportReport:
    """Write what comes, and count it. A file appears whole or not at all."""
    counts: Counter[str] = Counter()
    size_bytes = 0
    if not isinstance(destination, (str, Path)):
        for block in _counted(chunks, counts):
            size_bytes += destination.write(block)
        return ExportReport(commit_id, None, "ndjson", dict(counts), size_bytes)
    path = Path(destination)
    with _appearing(path, overwrite=overwrite) as out:
        for block in _counted(chunks, counts):
            size_bytes += out.write(block)
    return ExportReport(commit_id, str(path), "ndjson", dict(counts), size_bytes, (path.name,))


@contextmanager
def _appearing(path: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    if path.exists() and not overwrite:
        raise InvalidInput(f"{path} exists", code="file_error", advice="Choose another path, or overwrite=True")
    draft = path.with_name(f".{path.name}.part")
    try:
        with draft.open("wb") as out:
            yield out
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _counted(chunks: Iterator[bytes], counts: Counter[str]) -> Iterator[bytes]:
    """The chunks as they are; lines are counted by the table they name at their start."""
    rest = b""
    for chunk in chunks:
        yield chunk
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            found = _RECORD.match(line)
            if found:
                counts[f"{'node' if found[1] == b'type' else 'edge'}:{found[2].decode()}"] += 1
