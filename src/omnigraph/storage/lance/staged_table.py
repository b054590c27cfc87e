"""A change of one table before and after its files are staged: plain values, safe to pickle or to keep as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata


@dataclass(frozen=True, slots=True)
class TableDelta:
    """A change of one table's content.

    `schema` is the full physical schema of the new version; columns that the base lacks are added, null in older rows.
    `rows` are row images: rows of the base with the same ids are removed, then the images are appended.
    `present_ids` says which ids of the rows and of the deletes the base physically holds; None means that staging looks
    them up, an empty collection saves the reads. If the hint misses an id, that id appears twice in the table.
    """

    schema: pa.Schema
    rows: pa.Table | None = None
    delete_ids: Sequence[str] = ()
    overwrite: bool = False
    present_ids: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class StagedTable:
    """Files written for one table on one base; no commit record names them yet.

    `fragments` carry field ids counted from zero over `schema`; the commit replaces them by the ids of its base.
    `touched` are fragments of the base with a grown deletion file, `emptied` those that lose their last row.
    `version` is set if the change is a detached version already (`BulkTables`), which then says what is removed;
    `indexes` are the indexes built for that version, each as arguments of `IndexSpec`.
    """

    table: str
    base_version: str
    schema: pa.Schema
    overwrite: bool
    fragments: tuple[str, ...]
    touched: tuple[str, ...]
    emptied: tuple[int, ...]
    delete_ids: tuple[str, ...]
    rows_written: int
    bytes_written: int
    rows_removed: int
    adds_columns: bool
    version: str | None = None
    indexes: tuple[tuple[Any, ...], ...] = ()
    written_ids: pa.Array | None = field(default=None, compare=False, repr=False)

    @property
    def is_empty(self) -> bool:
        """Committing this would change nothing."""
        if self.version is not None and self.version != self.base_version:
            return False  # a version of BulkTables that only removes rows names no file here
        return not (self.fragments or self.touched or self.emptied or self.overwrite or self.adds_columns)

    def files(self) -> set[str]:
        """Data and deletion files of this change, relative to its table."""
        return {name for text in (*self.fragments, *self.touched) for name in fragment_files(load_fragment(text))}

    def to_json(self) -> dict[str, Any]:
        """Without the written ids, which the data files hold."""
        return {
            "table": self.table,
            "base_version": self.base_version,
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "overwrite": self.overwrite,
            "fragments": [json.loads(text) for text in self.fragments],
            "touched": [json.loads(text) for text in self.touched],
            "emptied": list(self.emptied),
            "delete_ids": list(self.delete_ids),
            "rows_written": self.rows_written,
            "bytes_written": self.bytes_written,
            "rows_removed": self.rows_removed,
            "adds_columns": self.adds_columns,
            "version": self.version,
            "indexes": self.indexes,
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> StagedTable:
        return cls(
            table=raw["table"],
            base_version=raw["base_version"],
            schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(raw["schema"]))),
            overwrite=raw["overwrite"],
            fragments=tuple(json.dumps(fragment) for fragment in raw["fragments"]),
            touched=tuple(json.dumps(fragment) for fragment in raw["touched"]),
            emptied=tuple(raw["emptied"]),
            delete_ids=tuple(raw["delete_ids"]),
            rows_written=raw["rows_written"],
            bytes_written=raw["bytes_written"],
            rows_removed=raw["rows_removed"],
            adds_columns=raw["adds_columns"],
            version=raw.get("version"),
            indexes=tuple(_to_tuples(index) for index in raw.get("indexes", ())),
        )


@dataclass(frozen=True, slots=True)
class StagedVersion:
    """A physical change (index, compaction) that is already a detached version, built on `base_version`.

    The version holds the same rows as its base. It cannot be moved to another base: a writer that loses the race for
    the commit drops it.
    """

    table: str
    base_version: str
    version: str

    @property
    def is_empty(self) -> bool:
        return self.version == self.base_version

    def to_json(self) -> dict[str, Any]:
        return {"table": self.table, "base_version": self.base_version, "version": self.version}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> StagedVersion:
        return cls(raw["table"], raw["base_version"], raw["version"])


def _to_tuples(value: Any) -> Any:
    return tuple(map(_to_tuples, value)) if isinstance(value, (list, tuple)) else value


def dump_fragment(fragment: FragmentMetadata) -> str:
    return json.dumps(fragment.to_json())


def load_fragment(text: str) -> FragmentMetadata:
    from lance.fragment import FragmentMetadata

    return FragmentMetadata.from_json(text)


def data_bytes(fragments: Iterable[FragmentMetadata]) -> int:
    """Bytes of the data files, rows that were removed since included."""
    return sum(file.file_size_bytes or 0 for fragment in fragments for file in fragment.files)


def deletion_path(fragment: FragmentMetadata) -> str | None:
    """The deletion file of a fragment, relative to the table; None if no row of it was removed."""
    return fragment.deletion_file.path(fragment.id) if fragment.deletion_file is not None else None


def fragment_files(fragment: FragmentMetadata) -> Iterator[str]:
    """Files that a fragment names, relative to the table; a name ending in '/' is a folder.

    A data file owns the folder of its name, where Lance keeps large blobs.
    """
    for file in fragment.files:
        yield f"data/{file.path}"
        yield f"data/{str(file.path).removesuffix('.lance')}/"
    if fragment.deletion_file is not None:
        yield fragment.deletion_file.path(fragment.id)
