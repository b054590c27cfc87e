"""Taking a whole table over from the source: its version is pinned, no row is written again.

Where the target has left a table as it was at the base, the merged table is the source's, layout and all. The pin
belongs to another stream, so it counts as staged before any fence of cleanup (H35): the source's record must be there
in full *after* the target's was captured. Cleanup fences before it collects, and deletes files only in a later run
than the one that collected their last commit; so either this look finds a stub, or the plan meets that later fence.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.commit.publish_plan import PublishPlan, StagedMove, TableAction
from omnigraph.history.merge_base import BaseState
from omnigraph.log.commit_record import CommitRecord, Pin
from omnigraph.log.overlay import OverlayTable
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.stream import RecordStream
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.lance import StagedVersion


def adopting(
    plan: PublishPlan, base: BaseState, source: Snapshot, target: Snapshot, catalog: Catalog, records: RecordStream
) -> PublishPlan:
    """The plan, with the source's versions for all tables that can be taken over. `records` are the source's."""
    tables = {one.table for one in plan.actions if can_adopt(one.table, base, source, target, catalog)}
    if not tables or not _is_there(records, source.record):
        return plan
    actions = tuple(_adopted(one, source, target) if one.table in tables else one for one in plan.actions)
    # Whatever else is written to such a table must be part of the decision: its rows are not in this plan.
    reads_all = plan.footprint.reads_all | tables
    return replace(plan, actions=actions, footprint=replace(plan.footprint, reads_all=reads_all))


def can_adopt(table: str, base: BaseState, source: Snapshot, target: Snapshot, catalog: Catalog) -> bool:
    """Whether the merged table is the source's own version, because the target has left it as it was."""
    theirs = source.record.pins.get(table)
    return (
        theirs is not None
        and theirs.version is not None
        and theirs.version != _version(target, table)
        and base.is_state_of(target, table)
        and source.catalog.by_id.get(table) == catalog.by_id.get(table)
    )


def _is_there(records: RecordStream, captured: CommitRecord) -> bool:
    found = records.get(captured.seq)
    return isinstance(found, CommitRecord) and found.rid == captured.rid


def _adopted(action: TableAction, source: Snapshot, target: Snapshot) -> TableAction:
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
