"""Output files that users ask for: one file, or a folder of files, in a file system or an object store.

A file appears whole or not at all. A folder in a file system is filled under a temporary name and renamed at the end,
so that no reader sees half of it; in an object store, where folders do not exist, `_SUCCESS` is written last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from omnigraph.clock import IdSource
from omnigraph.errors import Forbidden, InvalidInput, OmnigraphError, Unavailable
from omnigraph.storage.address import open_store, parse_address
from omnigraph.storage.remote import RemoteStore
from omnigraph.storage.store import ObjectMissing

SUCCESS = "_SUCCESS"
_TOKEN = 8


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """A folder to write files into. Picklable, so that every worker writes its own files."""

    address: str
    storage_options: tuple[tuple[str, str], ...] = ()

    @property
    def is_local(self) -> bool:
        return parse_address(self.address).is_local

    def path(self, name: str = "") -> str:
        root = parse_address(self.address).uri
        return f"{root}/{name}" if name else root

    @contextmanager
    def open_writer(self, name: str, ids: IdSource) -> Iterator[BinaryIO]:
        """A stream into a file, which gets its name if the block ends without an error."""
        if not self.is_local:
            with self._store().open_writer(name) as stream:
                yield stream
            return
        path = Path(self.path(name))
        unfinished = path.with_name(f".{path.name}.{ids.token(_TOKEN)}.tmp")
        with _output_errors(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with unfinished.open("xb") as stream:
                    yield stream
                    stream.flush()
                    os.fsync(stream.fileno())
                unfinished.replace(path)
            except BaseException:
                with suppress(OSError):
                    unfinished.unlink(missing_ok=True)
                raise

    @contextmanager
    def open_reader(self, name: str) -> Iterator[BinaryIO]:
        """A stream of a file of this folder, which must be in the file system."""
        with _output_errors(self.path(name)), Path(self.path(name)).open("rb") as stream:
            yield stream

    def size_bytes(self, name: str) -> int | None:
        """Size of a file; None if it does not exist."""
        if not self.is_local:
            try:
                return self._store().head(name).size_bytes
            except ObjectMissing:
                return None
        try:
            return Path(self.path(name)).stat().st_size
        except FileNotFoundError:
            return None

    def rename(self, old: str, new: str) -> None:
        if not self.is_local:
            self._store().rename(old, new)
            return
        with _output_errors(self.path(new)):
            Path(self.path(new)).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self.path(old), self.path(new))

    def drop(self, name: str) -> None:
        """Remove a folder inside this one with its content; the folder may be missing."""
        if self.is_local:
            shutil.rmtree(self.path(name), ignore_errors=True)
            return
        store = self._store()
        for info in store.list(f"{name}/"):
            store.delete(info.key)

    def holds_anything(self, name: str = "") -> bool:
        """Whether a file of this name exists or, without a name, whether the folder holds anything."""
        if not self.is_local:
            if name:
                return self.size_bytes(name) is not None
            return bool(self._store().list("", first_page=True))
        path = Path(self.path(name))
        with _output_errors(str(path)):
            return path.exists() and not (path.is_dir() and not any(path.iterdir()))

    def _store(self) -> RemoteStore:
        store = open_store(self.address, dict(self.storage_options))
        assert isinstance(store, RemoteStore)
        return store


@contextmanager
def fill_folder(folder: OutputFolder, ids: IdSource, *, overwrite: bool) -> Iterator[OutputFolder]:
    """A folder to fill, which becomes `folder` if the block ends without an error.

    Until then the folder has a temporary name or, in an object store, lacks `_SUCCESS`. Raises InvalidInput if `folder`
    holds something, unless `overwrite` is set; in an object store always.
    """
    if folder.holds_anything() and not (overwrite and folder.is_local):
        advice = "Choose another, or say --overwrite" if folder.is_local else "Choose an empty folder"
        raise output_exists_error(folder.path(), advice)
    if not folder.is_local:
        yield folder
        with folder.open_writer(SUCCESS, ids):
            pass
        return
    path = Path(folder.path())
    beside = path.with_name(f".{path.name}.{ids.token(_TOKEN)}.tmp")
    with _output_errors(str(path)):
        beside.mkdir(parents=True)
    try:
        filled = replace(folder, address=str(beside))
        yield filled
        with filled.open_writer(SUCCESS, ids):
            pass
        with _output_errors(str(path)):
            _swap(beside, path, ids)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


@contextmanager
def scratch_beside(folder: OutputFolder, ids: IdSource) -> Iterator[OutputFolder]:
    """A temporary folder inside `folder`, which is removed at the end."""
    name = f".{ids.token(_TOKEN)}.tmp"
    try:
        yield replace(folder, address=folder.path(name))
    finally:
        folder.drop(name)


def output_exists_error(path: str, advice: str = "Choose another name, or say --overwrite") -> InvalidInput:
    return InvalidInput(f"{path} is there already", code="output_exists", advice=advice, path=path)


def _swap(new: Path, path: Path, ids: IdSource) -> None:
    """Rename `new` to `path`. Moves an existing folder aside first, since a folder with content cannot be replaced."""
    if not path.exists():
        new.rename(path)
        return
    old = path.with_name(f".{path.name}.{ids.token(_TOKEN)}.old")
    path.rename(old)
    new.rename(path)
    if old.is_dir() and not old.is_symlink():
        shutil.rmtree(old, ignore_errors=True)
    else:
        old.unlink(missing_ok=True)


@contextmanager
def _output_errors(path: str) -> Iterator[None]:
    """Turns errors of the file system into typed errors."""
    try:
        yield
    except OmnigraphError:
        raise
    except PermissionError as error:
        raise Forbidden(f"{path} cannot be written: {error.strerror}", advice="Check the permissions") from error
    except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
        raise InvalidInput(
            f"{path} cannot be written: {error.strerror}", code="output_error", advice="Choose another path"
        ) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror or error}", advice="Check the disk") from error
