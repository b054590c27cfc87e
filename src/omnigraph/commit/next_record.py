"""`next_record`: the commit record that follows another, as a pure function of that record and the plans it publishes.

Nothing that was captured earlier is used: a plan that was refused at one seq is composed again on the new head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from omnigraph.commit.footprint import merge_writes
from omnigraph.commit.idempotency import make_ops_action
from omnigraph.commit.publish_plan import PinReplacement, PublishPlan, StagedMove, TableAction
from omnigraph.log.branches import MAIN
from omnigraph.log.commit_record import (
    NON_LOGICAL,
    TRAIL_LENGTH,
    CommitRecord,
    Epoch,
    Header,
    Member,
    Pin,
    TouchedTable,
    WriteSet,
)
from omnigraph.log.overlay import OverlayTable

_NO_PIN = Pin(None, 0, 0, 0, 0)


class PinMoved(Exception):
    """A staged table version was not built on the pin that it replaces: a defect, the publisher tests pins first."""

    def __init__(self, table: str) -> None:
        super().__init__(table)
        self.table = table


@dataclass(frozen=True)
class CommitDraft:
    """The state of the next record while its members are applied one after the other."""

    pins: dict[str, Pin]
    overlay: dict[str, OverlayTable]
    touched: dict[str, TouchedTable]


def next_record(previous: CommitRecord, members: Sequence[PublishPlan], rid: str, now: datetime) -> CommitRecord:
    """The record at `previous.seq + 1` that publishes `members`, in order.

    Raises PinMoved if a staged version was built on another pin than that of `previous`. This is a defect, since the
    publisher has tested the pins before.
    """
    first = members[0]
    draft = CommitDraft(dict(previous.pins), dict(previous.overlay), {})
    seq = previous.seq + 1
    for plan in members:
        for action in plan.actions:
            _apply_action(draft, action, rid, seq)
        for replacement in plan.pin_replacements:
            _apply_pin_replacement(draft, replacement)
        _apply_schema_change(draft, plan, rid)
        if plan.options.client_key is not None or plan.ops_row_ids:
            _apply_action(draft, make_ops_action(plan, previous.stream, seq, now), rid, seq)
    parents = [previous.header, first.merged_header] if first.merged_header else [previous.header]
    header = Header(
        stream=previous.stream,
        seq=seq,
        rid=rid,
        kind=first.kind,
        parents=tuple(parent.ref for parent in parents),
        gen=1 + max(parent.gen for parent in parents),
        schema=first.catalog.hash if first.catalog else previous.schema,
        created_at=max(_to_millis(now), previous.header.created_at),
        actor=first.options.actor,
        message=first.options.message,
        members=tuple(
            Member(member.op_id, member.options.actor, member.options.client_key, member.counts) for member in members
        ),
        branch=previous.header.branch,
    )
    return CommitRecord(
        header=header,
        epoch=Epoch(previous.epoch.n + 1, first.epoch.holder) if first.epoch else previous.epoch,
        content_seq=previous.content_seq if first.kind in NON_LOGICAL else seq,
        pins=draft.pins,
        touched=draft.touched,
        writes=merge_writes([member.footprint.writes for member in members]),
        overlay={table: entries for table, entries in draft.overlay.items() if entries.entries},
        trail=_next_trail(previous),
        gc=first.gc,
        extra=first.extra,
        crossing_seq=seq if first.merged_header else previous.crossing_seq,
    )


def first_record(stream: str, rid: str, op_id: str, schema: str, created_at: datetime) -> CommitRecord:
    """Record 0 of `main`: a pure function of the graph's stamp."""
    header = Header(
        stream=stream,
        seq=0,
        rid=rid,
        kind="init",
        parents=(),
        gen=0,
        schema=schema,
        created_at=_to_millis(created_at),
        actor=None,
        message=None,
        members=(Member(op_id, None, None, {}),),
        branch=MAIN,
    )
    return CommitRecord(header, Epoch(), 0, {}, {}, WriteSet(), {})


def fork_record(source: CommitRecord, header: Header) -> CommitRecord:
    """Record 0 of a branch: the state of the source commit, as the first record of a new stream.

    Overlay entries keep the rid of the record that placed them. No writer holds the new stream.
    `changed_seq` starts anew, since seqs of different streams must never be compared.
    """
    pins = {table: replace(pin, changed_seq=0) for table, pin in source.pins.items()}
    fork_header = replace(header, created_at=max(_to_millis(header.created_at), source.header.created_at))
    return CommitRecord(fork_header, Epoch(), 0, pins, {}, WriteSet(), source.overlay)


def keep_applicable(previous: CommitRecord, replacements: Sequence[PinReplacement]) -> tuple[PinReplacement, ...]:
    """The replacements that can still be published: the pin has not moved, and some of the folded entries remain.

    A replacement without entry keys, which only brings other files, needs no entries.
    """
    return tuple(
        replacement
        for replacement in replacements
        if previous.pins.get(replacement.table, _NO_PIN).version == replacement.move.expected
        and (
            not replacement.entry_keys
            or (
                replacement.table in previous.overlay
                and previous.overlay[replacement.table].entry_keys & replacement.entry_keys
            )
        )
    )


def _apply_action(draft: CommitDraft, action: TableAction, rid: str, seq: int) -> None:
    pin = draft.pins.get(action.table, _NO_PIN)
    entries = draft.overlay.get(action.table)
    if action.move is None:
        own_entries = action.overlay(rid)
        draft.overlay[action.table] = entries.with_entries(own_entries) if entries else own_entries
        new_pin = pin
    else:
        new_pin = _move_pin(pin, action.move, action.table)
        if action.adopted is not None:
            # Entries that are new to this stream get the rid of this record (H1); the others keep theirs.
            draft.overlay[action.table] = action.adopted.with_rid_on_new(entries.entry_keys if entries else (), rid)
        elif entries:
            # The overlay wins over the pin, so entries of the ids just staged would hide the new rows.
            remaining = entries.without_ids(entries.index.keys() if action.overwrite else action.ids)
            draft.overlay[action.table] = remaining
    rows = action.rows_after_overwrite if action.overwrite else pin.rows + action.inserted - action.removed
    draft.pins[action.table] = replace(new_pin, rows=rows, changed_seq=seq)
    draft.touched[action.table] = _touch(draft.touched.get(action.table), action, pin.version)


def _touch(before: TouchedTable | None, action: TableAction, old_version: str | None) -> TouchedTable:
    so_far = before or TouchedTable()
    return TouchedTable(
        so_far.inserted + action.inserted,
        so_far.updated + action.updated,
        so_far.deleted + action.removed,
        so_far.staged or action.move is not None,
        old_version if action.move else so_far.old_version,
        action.move.version if action.move else so_far.new_version,
    )


def _apply_pin_replacement(draft: CommitDraft, replacement: PinReplacement) -> None:
    pin = draft.pins.get(replacement.table, _NO_PIN)
    draft.pins[replacement.table] = _move_pin(
        replace(pin, rows=pin.rows - replacement.rows_removed), replacement.move, replacement.table
    )
    if replacement.entry_keys:
        draft.overlay[replacement.table] = draft.overlay[replacement.table].without_entry_keys(replacement.entry_keys)
    draft.touched[replacement.table] = TouchedTable(
        staged=True, old_version=pin.version, new_version=replacement.move.version
    )


def _move_pin(pin: Pin, move: StagedMove, table: str) -> Pin:
    if pin.version != move.expected:
        raise PinMoved(table)
    return replace(pin, version=move.version, size_bytes=move.size_bytes, fragments=move.fragments)


def _apply_schema_change(draft: CommitDraft, plan: PublishPlan, rid: str) -> None:
    for table, reshape in plan.reshapes.items():
        if table in draft.overlay:
            draft.overlay[table] = reshape(draft.overlay[table], rid)
    for table in plan.dropped:
        draft.overlay.pop(table, None)
        draft.pins.pop(table, None)


def _next_trail(previous: CommitRecord) -> tuple[Header, ...]:
    trail = previous.trail if previous.seq % TRAIL_LENGTH else ()
    return (*trail, previous.header)


def _to_millis(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
