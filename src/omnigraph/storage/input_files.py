"""Input files that users name by path, directory or glob, in a file system or an object store. Read only."""

from __future__ import annotations

import glob
import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from omnigraph.errors import InvalidInput, NotFound
from omnigraph.storage.address import open_store, parse_address
from omnigraph.storage.store import ObjectInfo, ObjectMissing

_WILD = re.compile(r"[*?\[]")
_REMOTE = re.compile(r"(?!file:)([A-Za-z][A-Za-z0-9+.-]+)://([^/]+)/?(.*)\Z", re.DOTALL)
_GLOB_PART = re.compile(r"\*\*/|\*\*|\*|\?|\[!?[^\]]+\]|.", re.DOTALL)
_BUFFER_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file to read."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class InputFiles:
    """Finds and opens input. Picklable, so that every worker opens files for itself."""

    storage_options: Mapping[str, str] = field(default_factory=dict)

    def find(self, pattern: str) -> list[InputFile]:
        """The files that a path, a directory or a glob stands for, sorted by path.

        A directory stands for all files below it, except files and folders whose name begins with a dot or an
        underscore. Raises InvalidInput if nothing matches; a directory may be empty.
        """
        remote = _REMOTE.match(pattern)
        files = self._find_remote(pattern, *remote.groups()) if remote else _find_local(_local(pattern))
        if files is None:
            raise InvalidInput(f"there is no file {pattern}", code="file_error", advice="Check the path", file=pattern)
        return sorted(files, key=lambda file: file.path)

    def open(self, path: str) -> BinaryIO:
        """A seekable stream of the file's bytes."""
        remote = _REMOTE.match(path)
        if remote is None:
            try:
                return Path(_local(path)).open("rb")
            except OSError as error:
                raise _unreadable(path, error) from error
        scheme, bucket, key = remote.groups()
        return io.BufferedReader(_RemoteFile(f"{scheme}://{bucket}", key, self.storage_options), _BUFFER_BYTES)

    def _find_remote(self, pattern: str, scheme: str, bucket: str, key: str) -> list[InputFile] | None:
        root = f"{scheme}://{bucket}"
        store = open_store(root, self.storage_options)
        wild = _WILD.search(key)
        if wild is None and key and not key.endswith("/"):
            try:
                return [InputFile(pattern, store.head(key).size_bytes)]
            except ObjectMissing:
                pass
        folder = key[: wild.start()].rpartition("/")[0] if wild else key.rstrip("/")
        objects = store.list(f"{folder}/" if folder else "")
        if wild:
            matching = [info for info in objects if _matches(info.key, key)]
        else:
            matching = [info for info in objects if _is_data(info.key[len(folder) :])]
        return [_remote_file(root, info) for info in matching] if matching or key.endswith("/") else None


class _RemoteFile(io.RawIOBase):
    """An object as a seekable file; reads are range requests."""

    def __init__(self, root: str, key: str, storage_options: Mapping[str, str]) -> None:
        from omnigraph.storage.remote import RemoteStore

        store = open_store(root, storage_options)
        assert isinstance(store, RemoteStore)
        self._store = store
        self._key = key
        self._at = 0
        try:
            self._size = store.head(key).size_bytes
        except NotFound as error:
            raise InvalidInput(f"there is no file {root}/{key}", code="file_error", advice="Check the path") from error

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        data = self._store.get_range(self._key, self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _remote_file(root: str, info: ObjectInfo) -> InputFile:
    return InputFile(f"{root}/{info.key}", info.size_bytes)


def _local(path: str) -> str:
    # Not the real path: rejected records name a file as the user did.
    return parse_address(path).uri if path.startswith("file:") else os.path.expanduser(path)


def _find_local(path: str) -> list[InputFile] | None:
    try:
        if os.path.isfile(path):
            return [_local_file(path)]
        if os.path.isdir(path):
            _refuse_graph(path)
            return [_local_file(file_path) for file_path in _data_files_below(path)]
        if _WILD.search(path):
            matching = [file_path for file_path in glob.glob(path, recursive=True) if os.path.isfile(file_path)]
            return [_local_file(file_path) for file_path in matching] or None
        if os.path.exists(path):  # a pipe or a device: it cannot be read twice, and has no size
            raise InvalidInput(f"{path} is not a regular file", code="file_error", advice="Copy it to a file first")
    except OSError as error:
        raise _unreadable(path, error) from error
    return None


def _refuse_graph(folder: str) -> None:
    if os.path.isfile(os.path.join(folder, "graph.json")):
        raise InvalidInput(
            f"{folder} is a graph, not a folder of records",
            code="file_error",
            advice="Name the graph by --graph, or last; to copy a graph, export it first",
            file=folder,
        )


def _data_files_below(folder: str) -> list[str]:
    return [
        os.path.join(root, name)
        for root, _, names in os.walk(folder, onerror=_raise)
        for name in names
        if _is_data(os.path.join(root, name)[len(folder) :])
    ]


def _raise(error: OSError) -> None:
    raise error


def _is_data(relative: str) -> bool:
    return not any(part.startswith((".", "_")) for part in re.split(r"[/\\]", relative) if part)


def _matches(key: str, pattern: str) -> bool:
    """Matches like a shell: `*` stays within a folder, `**` crosses folders."""
    return re.fullmatch("".join(_expression(part) for part in _GLOB_PART.findall(pattern)), key, re.DOTALL) is not None


def _expression(part: str) -> str:
    fixed = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if part in fixed:
        return fixed[part]
    if part.startswith("[") and len(part) > 1:
        return f"[{'^' if part[1] == '!' else ''}{re.escape(part[1:-1].removeprefix('!')).replace(chr(92) + '-', '-')}]"
    return re.escape(part)


def _local_file(path: str) -> InputFile:
    return InputFile(path, os.stat(path).st_size)


def _unreadable(path: str, error: OSError) -> InvalidInput:
    return InvalidInput(
        f"{path} cannot be read: {error.strerror}", code="file_error", advice="Check the path", file=path
    )
