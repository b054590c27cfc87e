"""Staging: builds table versions that no record names yet, for changes that are too large to ride in a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omnigraph.commit.publish_plan import StagedMove, TableAction
from omnigraph.config import Config
from omnigraph.log.commit_record import CommitRecord
from omnigraph.schema.catalog import EntityKind
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import PinnedTable, StagedTable, TableDelta


def rides_inline(actions: Sequence[TableAction], config: Config) -> bool:
    """Whether the change is small enough to be part of the record. An overwrite never is: it has no row images."""
    if any(action.overwrite or action.never_inline or action.rewrites_columns for action in actions):
        return False
    entries = sum(action.entries for action in actions)
    size_bytes = sum(action.rows.nbytes for action in actions if action.rows is not None)
    return entries <= config.inline_max_entries and size_bytes <= config.inline_max_bytes


def stage_actions(backend: Backend, on: CommitRecord, actions: Sequence[TableAction]) -> tuple[TableAction, ...]:
    """Stage a table version for every action that has none yet, all tables in parallel."""
    return tuple(backend.in_parallel(lambda action: action if action.move else _stage(backend, on, action), actions))


def restage_moved(backend: Backend, on: CommitRecord, actions: Sequence[TableAction]) -> tuple[TableAction, ...]:
    """Commit the staged files again for tables whose pin moved; the other tables stay as they are. Rewrites no data."""
    return tuple(backend.in_parallel(lambda action: _restage(backend, on, action), actions))


def to_table_delta(action: TableAction) -> TableDelta:
    return TableDelta(
        schema=action.schema,
        rows=action.rows,
        delete_ids=action.deleted,
        overwrite=action.overwrite,
        present_ids=action.present_ids,
    )


def base_table(
    backend: Backend, on: CommitRecord, action_table: str, kind: EntityKind
) -> tuple[str | None, PinnedTable]:
    """The pin of the table in `on`, which must not move until the publish, and the table version to build on."""
    version = version_in_record(on, action_table)
    if version is None:
        return None, backend.tables.birth(action_table, kind)
    return version, backend.tables.open(action_table, version)


def version_in_record(on: CommitRecord, table: str) -> str | None:
    pin = on.pins.get(table)
    return pin.version if pin else None


def commit_staged(backend: Backend, expected: str | None, base: PinnedTable, staged: StagedTable) -> StagedMove:
    version = backend.tables.commit(base, staged)
    return StagedMove(expected, staged, version.version, version.size_bytes, version.fragments)


def _stage(backend: Backend, on: CommitRecord, action: TableAction) -> TableAction:
    expected, base = base_table(backend, on, action.table, action.kind)
    if action.rewrites_columns:
        staged = backend.tables.stage_columns(base, action.schema, action.fills)
    else:
        staged = backend.tables.stage(base, to_table_delta(action))
    return _with_move(backend, action, expected, base, staged)


def _restage(backend: Backend, on: CommitRecord, action: TableAction) -> TableAction:
    if action.move is None or version_in_record(on, action.table) == action.move.expected:
        return action
    assert isinstance(action.move.staged, StagedTable)
    expected, base = base_table(backend, on, action.table, action.kind)
    # Which ids the old pin held says nothing about the new one: a fold may have moved ids into the table.
    staged = backend.tables.restage(action.move.staged, base)
    return _with_move(backend, action, expected, base, staged)


def _with_move(
    backend: Backend, action: TableAction, expected: str | None, base: PinnedTable, staged: StagedTable
) -> TableAction:
    """The action with its committed table version, or without one if nothing was staged.

    Nothing is staged for a delete of rows that are only in the overlay. Such an action rides inline: its tombstones
    stay in the overlay. Otherwise a fold that has already moved those rows into a version could land afterwards, since
    the pin has not moved, and the rows would be back.
    """
    if staged.is_empty:
        return replace(action, move=None)
    return replace(action, move=commit_staged(backend, expected, base, staged))
