"""A graph in a directory.

`put_if_absent` writes a temporary file beside the target, makes it durable, and names it with a hard link, which fails
if the name is taken: the only file-system call that is atomic and refuses to replace. A request that has returned
survives a power cut (H41), unless `fsync=False`, which is for tests.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from omnigraph.clock import IdSource, SystemIds
from omnigraph.errors import Forbidden, InvalidInput, OmnigraphError, Unavailable, Unsupported
from omnigraph.storage.keys import TEMPORARY_PREFIX, check_key, check_prefix, is_temporary
from omnigraph.storage.store import NOT_DURABLE, ObjectInfo, ObjectMissing, PutResult, Store, innermost

FIRST_PAGE_KEYS = 100

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})
_MAKES_FOLDERS = frozenset({"create", "write", "probe"})
_REFUSED = frozenset({errno.EACCES, errno.EPERM})
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_UNAVAILABLE = {
    errno.ENOSPC: ("disk_full", "Free some space on that file system and try again"),
    errno.EDQUOT: ("disk_full", "Free some space within the quota and try again"),
    errno.EROFS: ("read_only_file_system", "Mount the file system writable, or open the graph read-only"),
    errno.EIO: ("io_error", "Check the disk"),
    errno.ESTALE: ("root_vanished", "Mount the file system again and reopen the graph"),
    errno.EMFILE: ("too_many_open_files", "Raise the limit of open files (ulimit -n)"),
    errno.ENFILE: ("too_many_open_files", "Raise the system's limit of open files"),
}


class LocalStore:
    """Objects are files below `root_path`; the first put creates the directory."""

    def __init__(self, root_path: str | os.PathLike[str], *, fsync: bool = True, ids: IdSource | None = None) -> None:
        self._root = os.path.abspath(os.fspath(root_path))
        self._fsync = fsync
        self._ids = ids or SystemIds()
        self._root_id = _identity(self._root)
        self._durable: set[str] = set()
        self._durable_lock = threading.Lock()

    @property
    def root(self) -> str:
        return self._root

    @property
    def fsync(self) -> bool:
        return self._fsync

    def path_of(self, key: str) -> str:
        """The file that holds `key`."""
        return f"{self._root}/{check_key(key)}"

    def get(self, key: str) -> bytes:
        path = self.path_of(key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _read_all(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._classify_error(error, "read", key) from error

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        # One after the other: a thread hand-over costs more than reading a cached file.
        return [self._get_or_none(key) for key in keys]

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        path = self.path_of(key)
        with self.typed_errors("create", key):
            # Names are never reused, so an existing name decides without writing and syncing a temporary file.
            if os.path.lexists(path):
                return self._exists(path)
            temporary = self._write_temporary(path, data)
            try:
                return self._link(temporary, path)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)

    def put(self, key: str, data: bytes) -> None:
        path = self.path_of(key)
        with self.typed_errors("write", key):
            temporary = self._write_temporary(path, data)
            try:
                os.replace(temporary, path)
            except OSError:
                os.unlink(temporary)
                raise
            self._settle(os.path.dirname(path))

    def head(self, key: str) -> ObjectInfo:
        try:
            return _info(self.path_of(key), key)
        except OSError as error:
            raise self._classify_error(error, "look up", key) from error

    def leftovers(self) -> list[ObjectInfo]:
        """Temporary files of puts that are under way or whose process was killed, sorted by key."""
        with self.typed_errors("list", ""):
            keys = sorted(key for key in _walk(self._root, "", temporary=True) if is_temporary(key))
            infos = [_info_or_none(f"{self._root}/{key}", key) for key in keys]
        return [info for info in infos if info is not None]

    def list(self, prefix: str, *, first_page: bool = False) -> list[ObjectInfo]:
        folder = f"{self._root}/{check_prefix(prefix)}".rstrip("/")
        try:
            keys = sorted(_walk(folder, prefix))
            infos = (_info_or_none(f"{self._root}/{key}", key) for key in keys)
            present = (info for info in infos if info is not None)
            objects = list(islice(present, FIRST_PAGE_KEYS)) if first_page else list(present)
        except OSError as error:
            raise self._classify_error(error, "list", prefix) from error
        if not objects:
            self._check_root("list", prefix)
        return objects

    def drop_leftover(self, key: str) -> None:
        """Remove a temporary file. A put that still needs it fails without effect."""
        assert is_temporary(key), key
        with self.typed_errors("delete", key), suppress(FileNotFoundError):
            os.unlink(f"{self._root}/{key}")

    def delete(self, key: str) -> None:
        path = self.path_of(key)
        try:
            os.unlink(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise self._classify_error(error, "delete", key) from error
            self._check_root("delete", key)

    def _get_or_none(self, key: str) -> bytes | None:
        try:
            return self.get(key)
        except ObjectMissing:
            return None

    def _link(self, temporary: str, path: str) -> PutResult:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return self._exists(path)
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise no_hard_links(self._root) from error
            raise
        # The name must be durable before the call returns; the same sync covers the removal of the temporary file.
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        self._settle_name(path)
        return PutResult.CREATED

    def _exists(self, path: str) -> PutResult:
        # The caller may find its own bytes under the name and acknowledge them as its commit: sync the name.
        self._settle_name(path)
        return PutResult.EXISTS

    def _settle_name(self, path: str) -> None:
        """Sync the folder of a name. The object exists by now, so an error is `NOT_DURABLE` and never a failed put."""
        try:
            self._settle(os.path.dirname(path))
        except OSError as error:
            raise Unavailable(
                f"cannot make {path} durable: {os.strerror(error.errno or 0)}",
                code=NOT_DURABLE,
                advice="Check the disk and the limit of open files; the object may or may not survive a power cut",
                root=self._root,
            ) from error

    def _write_temporary(self, path: str, data: bytes) -> str:
        folder = os.path.dirname(path)
        temporary = f"{folder}/{TEMPORARY_PREFIX}{self._ids.token(16)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            descriptor = os.open(temporary, flags, 0o666)
        except FileNotFoundError:
            self._make_folder(folder)
            descriptor = os.open(temporary, flags, 0o666)
        try:
            try:
                _write_all(descriptor, data)
                if self._fsync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            os.unlink(temporary)
            raise
        return temporary

    def _make_folder(self, folder: str) -> None:
        """Create a missing folder, but never a root that existed before: an unmounted disk is not an empty graph."""
        self._check_root("write into", folder)
        os.makedirs(folder, exist_ok=True)
        self._remember_root()
        with self._durable_lock:
            self._durable.discard(folder)

    def _settle(self, folder: str) -> None:
        """Make the names in `folder` durable, and once per folder also the path that leads to it.

        The path counts too because another process may have created the folder and not yet synced its parent.
        """
        if not self._fsync:
            return
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY)
        if folder in self._durable:
            return
        above = folder
        while above != self._root and above.startswith(self._root):
            above = os.path.dirname(above)
            _sync(above, os.O_RDONLY | os.O_DIRECTORY)
        # The process may have no permission to read above the root.
        with suppress(PermissionError):
            _sync(os.path.dirname(self._root), os.O_RDONLY | os.O_DIRECTORY)
        with self._durable_lock:
            self._durable.add(folder)

    def _check_root(self, verb: str, key: str) -> None:
        """Raise Unavailable if the root is no longer the directory it was, in which a missing file means nothing."""
        first_seen_id = self._remember_root()
        if first_seen_id is not None and _identity(self._root) != first_seen_id:
            raise Unavailable(
                f"cannot {verb} {key!r}: the directory {self._root} has vanished or was replaced",
                code="root_vanished",
                advice="Mount or restore it and reopen the graph",
                root=self._root,
            )

    def _remember_root(self) -> tuple[int, int] | None:
        """Device and inode of the root, remembered once it exists, whichever thread sees it first."""
        root_id = self._root_id
        if root_id is None:
            root_id = _identity(self._root)
            if root_id is not None:
                self._root_id = root_id
        return root_id

    @contextmanager
    def typed_errors(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._classify_error(error, verb, key) from error

    def _classify_error(self, error: OSError, verb: str, key: str) -> OmnigraphError:
        number = error.errno or 0
        if number in _ABSENT:
            self._check_root(verb, key)
            if verb in _MAKES_FOLDERS:
                return self._obstruction_error(verb, key, number)
            return ObjectMissing(f"no object {key!r} in {self._root}", key=key, root=self._root)
        problem = f"cannot {verb} {key!r} in {self._root}: {os.strerror(number)}"
        if number in _REFUSED:
            return Forbidden(problem, advice="Check the owner and the permissions of that directory", root=self._root)
        if number == errno.ENAMETOOLONG:
            return InvalidInput(problem, code="invalid_key", advice="Use a shorter name", root=self._root)
        if number == errno.EEXIST:
            return self._obstruction_error(verb, key, number)
        code, advice = _UNAVAILABLE.get(number, ("io_error", "Check the disk and the file system"))
        return Unavailable(problem, code=code, advice=advice, root=self._root)

    def _obstruction_error(self, verb: str, key: str, number: int) -> OmnigraphError:
        """The error of a put whose folder cannot be used: another process removed it, or a file has its name."""
        problem = f"cannot {verb} {key!r} in {self._root}: {os.strerror(number)}"
        if number == errno.ENOENT:
            return Unavailable(problem, code="folder_vanished", advice="Try again", root=self._root)
        advice = "The address must be a directory, and nothing else may write into it"
        return InvalidInput(problem, code="invalid_address", advice=advice, root=self._root)


class DirectorySync:
    """Makes files durable that Lance wrote below one directory (H41): Lance itself never calls fsync."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._anchored: set[Path] = set()
        self._lock = threading.Lock()

    def sync(self, files: Iterable[str]) -> None:
        """Sync files, then the directories that hold them. A path ending in '/' stands for all files below it.

        Paths are relative to the root. A directory that this process meets for the first time may be new, so its
        parents are synced with it.
        """
        folders: set[Path] = set()
        for name in files:
            for path in self._expand(name):
                _sync(path, os.O_RDONLY)
                folders.add(path.parent)
        for folder in sorted(folders):
            self._sync_folder(folder)

    def _expand(self, name: str) -> Iterable[Path]:
        path = self.root / name
        if not name.endswith("/"):
            return [path]
        return [entry for entry in path.rglob("*") if entry.is_file()] if path.is_dir() else []

    def _sync_folder(self, folder: Path) -> None:
        _sync(folder, os.O_RDONLY)
        with self._lock:
            is_anchored = folder in self._anchored
        if is_anchored or folder == self.root:
            return
        self._sync_folder(folder.parent)
        with self._lock:
            self._anchored.add(folder)


def leftovers(store: Store) -> list[ObjectInfo]:
    """Temporary files that killed puts left below the root, sorted by key; some may belong to puts under way.

    Only a directory has them. No listing shows them, and every other request refuses their keys.
    """
    local = innermost(store)
    return local.leftovers() if isinstance(local, LocalStore) else []


def drop_leftover(store: Store, key: str) -> None:
    """Remove one temporary file; only cleanup calls this."""
    local = innermost(store)
    if isinstance(local, LocalStore):
        local.drop_leftover(key)


def no_hard_links(root: str) -> Unsupported:
    """The error for a file system on which put-if-absent is impossible."""
    return Unsupported(
        f"the file system of {root} has no hard links, so it cannot create a file only if it is absent",
        code="no_conditional_put",
        advice="Keep it on a file system with hard links (ext4, xfs, btrfs, zfs, apfs, ntfs) or in an object store",
        root=root,
    )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _read_all(descriptor: int) -> bytes:
    expected = os.fstat(descriptor).st_size
    data = os.read(descriptor, expected + 1)
    if len(data) == expected:
        return data
    parts = [data]
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _write_all(descriptor: int, data: bytes) -> None:
    unwritten = memoryview(data)
    while unwritten:
        unwritten = unwritten[os.write(descriptor, unwritten) :]


def _sync(path: str | Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _walk(folder: str, prefix: str, *, temporary: bool = False) -> Iterator[str]:
    """Keys below a folder, in any order; a folder that vanishes meanwhile counts as empty."""
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            if entry.name.startswith(TEMPORARY_PREFIX) and not temporary:
                continue
            if entry.is_dir():
                yield from _walk(entry.path, f"{prefix}{entry.name}/", temporary=temporary)
            else:
                yield prefix + entry.name


def _info(path: str, key: str) -> ObjectInfo:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return ObjectInfo(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def _info_or_none(path: str, key: str) -> ObjectInfo | None:
    try:
        return _info(path, key)
    except FileNotFoundError:
        return None
