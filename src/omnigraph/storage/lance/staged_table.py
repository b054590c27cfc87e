"""What is wanted of a table, and what was staged for it: plain values, safe to pickle or to keep as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata


@dataclass(frozen=True, slots=True)
class TableDelta:
    """A change of one table's content.

    `schema` is the full physical schema wanted; columns that the base lacks are added, null in older rows.
    `rows` are after-images: whatever the base holds under their ids is removed, then they are appended.
    `present_ids` tells which of the ids (of the rows and of the deletes) the base physically holds; None means
    look them up, an empty collection saves the reads. A wrong hint that leaves one out makes an id appear twice.
    """

    schema: pa.Schema
    rows: pa.Table | None = None
    delete_ids: Sequence[str] = ()
    overwrite: bool = False
    present_ids: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class StagedTable:
    """Files written for one table on one base, named by nobody yet.

    `fragments` carry field ids counted from zero over `schema`; the commit gives them those of its base.
    `touched` are fragments of the base with a grown deletion file, `emptied` those that lose their last row.
    `version` is set if the change is a detached version already (`bulk.py`), which then says what is removed;
    `indexes` are those that it was given, as arguments of `IndexSpec`.
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
            return False  # made elsewhere; it may only remove rows, and then no file of its own is named here
        return not (self.fragments or self.touched or self.emptied or self.overwrite or self.adds_columns)

    def files(self) -> set[str]:
        """Data and deletion files this change named, relative to its table."""
        return {name for one in (*self.fragments, *self.touched) for name in fragment_files(load_fragment(one))}

    def to_json(self) -> dict[str, Any]:
        """Without the written ids, which the data files hold."""
        return {
            "table": self.table,
            "base_version": self.base_version,
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "overwrite": self.overwrite,
            "fragments": [json.loads(one) for one in self.fragments],
            "touched": [json.loads(one) for one in self.touched],
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
            fragments=tuple(json.dumps(one) for one in raw["fragments"]),
            touched=tuple(json.dumps(one) for one in raw["touched"]),
            emptied=tuple(raw["emptied"]),
            delete_ids=tuple(raw["delete_ids"]),
            rows_written=raw["rows_written"],
            bytes_written=raw["bytes_written"],
            rows_removed=raw["rows_removed"],
            adds_columns=raw["adds_columns"],
            version=raw.get("version"),
            indexes=tuple(_tuples(one) for one in raw.get("indexes", ())),
        )


@dataclass(frozen=True, slots=True)
class StagedVersion:
    """A physical change (index, compaction) that is already a detached version, built on `base_version`.

    It holds the same rows. It cannot be moved to another base: whoever lost the race drops it.
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


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value


def dump_fragment(fragment: FragmentMetadata) -> str:
    return json.dumps(fragment.to_json())


def load_fragment(text: str) -> FragmentMetadata:
    from lance.fragment import FragmentMetadata

    return FragmentMetadata.from_json(text)


def fragment_files(fragment: FragmentMetadata) -> Iterator[str]:
    """Relative to the table. A data file owns the folder of its name, where Lance keeps large blobs."""
    for file in fragment.files:
        yield f"data/{file.path}"
        yield f"data/{str(file.path).removesuffix('.lance')}/"
    if fragment.deletion_file is not None:
        yield fragment.deletion_file.path(fragment.id)
