"""Adoption: a merge takes over the source's pin of a table and writes no row again.

If the target has left a table as it was at the base, the merged table is the source's version. The pin belongs to
another stream, so it counts as staged before any fence of cleanup (H35): the source's commit record must still be
complete *after* the target's was read. Cleanup fences before it collects, and deletes files only in a later run than
the one that collected their last commit; so either `adopt_tables` finds a stub, or the plan meets that later fence.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.commit.publish_plan import PublishPlan, StagedMove, TableAction
from omnigraph.history.merge_base import MergeBase
from omnigraph.log.commit_record import CommitRecord, Pin
from omnigraph.log.overlay import OverlayTable
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.stream import RecordStream
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.lance import StagedVersion


def adopt_tables(
    plan: PublishPlan,
    base: MergeBase,
    source: Snapshot,
    target: Snapshot,
    catalog: Catalog,
    source_stream: RecordStream,
) -> PublishPlan:
    """The plan with the source's pins for all tables that can be adopted."""
    tables = {action.table for action in plan.actions if can_adopt(action.table, base, source, target, catalog)}
    if not tables or not _is_complete(source_stream, source.record):
        return plan
    actions = tuple(_adopt(action, source, target) if action.table in tables else action for action in plan.actions)
    # The rows of an adopted table are not in this plan, so any other write to the table is a conflict.
    reads_all = plan.footprint.reads_all | tables
    return replace(plan, actions=actions, footprint=replace(plan.footprint, reads_all=reads_all))


def can_adopt(table: str, base: MergeBase, source: Snapshot, target: Snapshot, catalog: Catalog) -> bool:
    """Whether the merged table is the source's version, because the target has left the table as it was."""
    pin = source.record.pins.get(table)
    return (
        pin is not None
        and pin.version is not None
        and pin.version != _version(target, table)
        and base.is_state_of(target, table)
        and source.catalog.by_id.get(table) == catalog.by_id.get(table)
    )


def _is_complete(source_stream: RecordStream, commit_record: CommitRecord) -> bool:
    """Whether cleanup has left the whole record."""
    entry = source_stream.get(commit_record.seq)
    return isinstance(entry, CommitRecord) and entry.rid == commit_record.rid


def _adopt(action: TableAction, source: Snapshot, target: Snapshot) -> TableAction:
    pin: Pin = source.record.pins[action.table]
    assert pin.version is not None
    expected = _version(target, action.table)
    staged = StagedVersion(action.table, expected or "", pin.version)
    move = StagedMove(expected, staged, pin.version, pin.size_bytes, pin.fragments)
    entries = source.record.overlay.get(action.table) or OverlayTable.of_change(action.schema, None, (), "")
    return replace(action, move=move, adopted=entries)


def _version(snapshot: Snapshot, table: str) -> str | None:
    pin = snapshot.record.pins.get(table)
    return pin.version if pin else None
