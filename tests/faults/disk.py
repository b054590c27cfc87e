"""A disk that loses power: which names and bytes are left, if only what was synced can be relied on (H41)."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal
from unittest.mock import patch

Survivors = Literal["synced-names", "all-names"]
"""What a cut may leave: only names whose folder was synced, or every name, with unsynced files empty."""


class Disk:
    """Follows every fsync and link below `root`. What is there at the beginning is durable."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.RLock()
        self._synced = {_bytes_of(path.stat()) for path in _files(root)}
        self._names = {folder: _entries(folder) for folder in (root, *_folders(root))} if root.exists() else {}
        self._parent_names = {root.name} if root.exists() else set()
        self._watch: Callable[[str], None] = lambda event: None

    @contextmanager
    def watch(self, at_event: Callable[[str], None]) -> Iterator[None]:
        """`at_event` runs before and after every call that decides what survives; events are counted by the caller."""
        self._watch = at_event
        fsync, link = os.fsync, os.link

        def syncing(descriptor: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            with self._lock:
                self._watch(f"before sync {path.name}")
                fsync(descriptor)
                self._note(path, os.fstat(descriptor))
                self._watch(f"after sync {path.name}")

        def linking(source: str, target: str) -> None:
            with self._lock:
                self._watch(f"before link {Path(target).name}")
                link(source, target)
                self._watch(f"after link {Path(target).name}")

        with patch("os.fsync", syncing), patch("os.link", linking):
            yield

    def cut_power(self, target: Path, survivors: Survivors) -> Path:
        """The tree as the worst cut at this moment would leave it."""
        with self._lock:
            if survivors == "all-names" or self._root.name in self._parent_names:
                self._copy(self._root, target, survivors)
        return target

    def _note(self, path: Path, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            self._names[path] = _entries(path)
            if path == self._root.parent:
                self._parent_names = self._names[path]
        else:
            self._synced.add(_bytes_of(status))

    def _copy(self, folder: Path, target: Path, survivors: Survivors) -> None:
        if not folder.exists():
            return
        target.mkdir(parents=True)
        names = _entries(folder) if survivors == "all-names" else self._names.get(folder, set()) & _entries(folder)
        for name in names:
            # Lance renames and removes its temporary files meanwhile, in threads of its own: then the name is gone.
            with suppress(FileNotFoundError):
                self._copy_one(folder / name, target / name, survivors)

    def _copy_one(self, path: Path, target: Path, survivors: Survivors) -> None:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            self._copy(path, target, survivors)
        elif _bytes_of(status) in self._synced:
            shutil.copyfile(path, target)
        else:
            target.touch()


def _entries(folder: Path) -> set[str]:
    return set(os.listdir(folder))


def _bytes_of(status: os.stat_result) -> tuple[int, int, int]:
    """A file as it was written last: a second write after the sync, or another file under its number, is not it."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def _folders(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_dir()]
