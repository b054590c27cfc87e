"""`PublishPlan`: the complete description of a write, and `WriteTxn`: the snapshot that it is prepared on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from omnigraph.commit.footprint import Footprint, PlanConflict
from omnigraph.errors import InvalidInput
from omnigraph.log.commit_record import CommitKind, CommitRecord, Header
from omnigraph.log.overlay import OverlayTable
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.table_view import TableView
from omnigraph.schema.arrow import kind_of
from omnigraph.schema.catalog import Catalog, EntityKind, TypeDef
from omnigraph.storage.lance import StagedTable, StagedVersion

ConflictCheck = Callable[[CommitRecord], PlanConflict | None]
"""The check of a bulk change whether a commit that landed meanwhile conflicts with it; it can look up its own rows."""

Reshape = Callable[[OverlayTable, str], OverlayTable]
"""Entries of one table and the new record's rid → the same entries under the new schema. Pure."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options that every write verb takes."""

    actor: str | None = None
    message: str | None = None
    client_key: str | None = None
    if_commit: str | None = None
    on_conflict: Literal["retry", "fail"] = "retry"

    def __post_init__(self) -> None:
        """Refuse text that no record can hold. Later it would fail in the thread of the publisher's leader."""
        for field_name, text in (("actor", self.actor), ("message", self.message)):
            try:
                (text or "").encode()
            except UnicodeEncodeError as error:
                raise InvalidInput(
                    f"the {field_name} holds half of a surrogate pair, which UTF-8 cannot store",
                    code="bad_text",
                    advice="Give it as whole characters in UTF-8",
                ) from error


@dataclass(frozen=True)
class WriteTxn:
    """The snapshot that an operation is prepared on. It was captured once and cannot be asked for newer commits."""

    snapshot: Snapshot

    @property
    def record(self) -> CommitRecord:
        return self.snapshot.record

    @property
    def catalog(self) -> Catalog:
        return self.snapshot.catalog

    def view(self, type_def: TypeDef) -> TableView:
        return self.snapshot.view(type_def)


@dataclass(frozen=True, slots=True)
class StagedMove:
    """A table version that no record names yet. It was built on the pin `expected` and may only replace that pin."""

    expected: str | None
    staged: StagedTable | StagedVersion
    version: str
    size_bytes: int
    fragments: int


@dataclass(frozen=True)
class TableAction:
    """The change of one table: row images to write and ids to remove, for inserts, upserts, updates and deletes alike.

    `overwrite` replaces the whole content by `rows`. The counts are those of the receipt.
    """

    table: str
    schema: pa.Schema
    rows: pa.Table | None = None
    deleted: tuple[str, ...] = ()
    inserted: int = 0
    updated: int = 0
    removed: int = 0
    overwrite: bool = False
    fills: Mapping[str, Any] = field(default_factory=dict)  # columns that every row gets, with their value
    casts: frozenset[str] = frozenset()  # columns whose values are cast to the wider type of `schema`
    present_ids: tuple[str, ...] | None = (
        None  # ids of this action that the pin is known to hold; None: not known, look them up
    )
    never_inline: bool = False  # the type holds blobs, which a row image in a record cannot carry
    superseded: tuple[str, ...] = ()  # ids of overlay entries that staged rows replace, if `rows` is None
    move: StagedMove | None = None  # the staged table version; None if the change rides in the record
    adopted: OverlayTable | None = None  # by a merge that takes over the source's table as `move`: its overlay entries

    @property
    def rewrites_columns(self) -> bool:
        """Whether the action rewrites whole columns, which fit only the table version that they were staged on."""
        return bool(self.fills or self.casts)

    @property
    def needs_exact_pin(self) -> bool:
        """Whether the staged version fits one pin only: if the pin moves, the whole change must be prepared again."""
        return self.rewrites_columns or self.adopted is not None

    @property
    def kind(self) -> EntityKind:
        return kind_of(self.schema)

    @property
    def ids(self) -> list[str]:
        written: list[str] = self.rows["id"].to_pylist() if self.rows is not None else []
        return [*written, *self.deleted, *self.superseded]

    @property
    def rows_after_overwrite(self) -> int:
        """How many rows an overwrite leaves in the table."""
        if self.move is not None and isinstance(self.move.staged, StagedTable):
            return self.move.staged.rows_written
        return self.entries - len(self.deleted)

    @property
    def entries(self) -> int:
        return (self.rows.num_rows if self.rows is not None else 0) + len(self.deleted)

    def overlay(self, rid: str) -> OverlayTable:
        return OverlayTable.of_change(self.schema, self.rows, self.deleted, rid)


@dataclass(frozen=True)
class PinReplacement:
    """Another version of one table that holds what readers see already. Used by folds and by optimize.

    A fold has moved overlay entries into the version: `entry_keys` names them as (id, rid), and the record drops
    exactly these entries, not those that replaced them since. Compaction and new indexes put the same rows into other
    files and have no `entry_keys`. `rows_removed` counts expired rows of `_ops`; rows of users never go this way.
    """

    table: str
    move: StagedMove
    entry_keys: frozenset[tuple[str, str]] = frozenset()
    rows_removed: int = 0


@dataclass(frozen=True, slots=True)
class EpochChange:
    """Claims the stream for the writer `holder`; None releases it. The record gets the next epoch number."""

    holder: str | None


@dataclass(frozen=True)
class PublishPlan:
    """All that `Publisher.publish` needs. A plan holds only its own change; the rest comes from the previous record."""

    kind: CommitKind
    op_id: str
    base: CommitRecord  # the record that the change was prepared on; records after it are tested for conflicts
    footprint: Footprint = field(default_factory=Footprint)
    actions: tuple[TableAction, ...] = ()
    pin_replacements: tuple[PinReplacement, ...] = ()  # by folds and optimize
    options: WriteOptions = WriteOptions()
    holder: str | None = None  # the token with which this writer holds the stream; None if it does not
    catalog: Catalog | None = None  # the new schema, by a schema change
    reshapes: Mapping[str, Reshape] = field(default_factory=dict)  # by a schema change: overlay entries in a new shape
    dropped: frozenset[str] = frozenset()  # by a schema change: tables that the record names no more
    merged_header: Header | None = None  # by a merge: header of the source commit, which becomes the second parent
    epoch: EpochChange | None = None  # one writer becomes the holder of the stream, or releases it
    gc: Mapping[str, Any] | None = None  # by cleanup: its id, and the bulk operations whose staged files it spares
    extra: Mapping[str, Any] | None = None  # facts for the record that belong to one kind, such as a recovery's audit
    conflict_check: ConflictCheck | None = None  # tested instead of the footprint; an intent cannot store it
    result: Mapping[str, Any] = field(default_factory=dict)  # what the receipt says besides the counts
    ops_row_ids: tuple[str, ...] = ()  # rows of `_ops` that store the receipt, besides the row of the client key

    @property
    def counts(self) -> dict[str, int]:
        return {
            "inserted": sum(action.inserted for action in self.actions),
            "updated": sum(action.updated for action in self.actions),
            "deleted": sum(action.removed for action in self.actions),
        }

    @property
    def is_staged(self) -> bool:
        """Whether the plan names objects that were written before the record."""
        return bool(self.pin_replacements or self.catalog) or any(action.move is not None for action in self.actions)

    @property
    def is_groupable(self) -> bool:
        """Only plain mutations share a record; everything else is a commit of its own."""
        return self.kind == "mutate" and not self.extra and self.options.if_commit is None


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of a write. `commit_id` is None if there was nothing to do."""

    commit_id: str | None
    counts: Mapping[str, int] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    replayed: bool = False
    attempts: int = 1
    waited_s: float = 0.0  # spent waiting because the graph needs to be optimized
