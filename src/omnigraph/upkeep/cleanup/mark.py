"""`Marks` collects the files that remaining commits name."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.commit.idempotency import OPS_TYPE
from omnigraph.log.commit_record import CommitRecord
from omnigraph.log.snapshot import Catalogs
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import TableStore

#: Files that every table has from its creation on. A writer may build on them at any time, so they always stay.
_BIRTH = ("_versions/18446744073709551614.manifest", "_versions/latest_version_hint.json")
_BIRTH_TRANSACTION = "_transactions/0-"


class Marks:
    """A set of file keys. Each table version is opened once, in parallel; an unreadable version is an error."""

    def __init__(self, backend: Backend, tables: TableStore, catalogs: Catalogs) -> None:
        self._backend = backend
        self._tables = tables
        self._catalogs = catalogs
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._table_ids: set[str] = {OPS_TYPE.id}
        self._schemas: set[str] = set()
        self._versions: set[tuple[str, str]] = set()

    @property
    def versions(self) -> int:
        return len(self._versions)

    def add(self, records: Iterable[CommitRecord]) -> None:
        """Adds every file that these commits name."""
        new: set[tuple[str, str]] = set()
        for record in records:
            new |= {(table, pin.version) for table, pin in record.pins.items() if pin.version}
            if record.schema not in self._schemas:
                self._schemas.add(record.schema)
                self._table_ids |= self._catalogs.get(record.schema).by_id.keys()
        todo = sorted(new - self._versions)
        for files in self._backend.in_parallel(lambda table_version: self._tables.open(*table_version).files(), todo):
            self._folders |= {key for key in files if key.endswith("/")}
            self._files |= files
        self._versions |= new

    def __contains__(self, key: str) -> bool:
        if not key.startswith("tables/"):
            return False
        if key in self._files or any(key[: at + 1] in self._folders for at, char in enumerate(key) if char == "/"):
            return True
        return key.split("/")[1] in self._table_ids and belongs_to_birth(key)


def belongs_to_birth(key: str) -> bool:
    name = key.split("/", 2)[2]
    return name in _BIRTH or name.startswith(_BIRTH_TRANSACTION)
