"""Making Lance's files survive a power cut (H41): Lance itself never calls fsync."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path


class Durable:
    """fsync of files below one directory, and of every directory whose entries they need."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._anchored: set[Path] = set()
        self._lock = threading.Lock()

    def sync(self, files: Iterable[str]) -> None:
        """Files by path relative to the root; a path ending in '/' is a folder whose whole content counts.

        Files come first, then their directories; a directory this process meets for the first time may be new,
        so the chain of its parents is synced with it.
        """
        folders: set[Path] = set()
        for name in files:
            for path in self._expand(name):
                _fsync(path)
                folders.add(path.parent)
        for folder in sorted(folders):
            self._sync_folder(folder)

    def _expand(self, name: str) -> Iterable[Path]:
        path = self.root / name
        if not name.endswith("/"):
            return [path]
        return [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else []

    def _sync_folder(self, folder: Path) -> None:
        _fsync(folder)
        with self._lock:
            known = folder in self._anchored
        if known or folder == self.root:
            return
        self._sync_folder(folder.parent)
        with self._lock:
            self._anchored.add(folder)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
