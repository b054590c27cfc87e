"""The protocol rules H1 to H41, each with a patch that removes it from the code under test.

The fixed schedules use the patches and, inside worker processes, the random oracle: a rule whose removal no test
notices is either not needed or not tested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from omnigraph.commit import footprint as footprint_module
from omnigraph.commit import graph_runtime as graph_runtime_module
from omnigraph.commit import next_record as next_record_module
from omnigraph.commit import publisher as publisher_module
from omnigraph.commit import put_record as put_record_module
from omnigraph.commit import staging as staging_module
from omnigraph.commit import writer as writer_module
from omnigraph.commit.fold import Folder
from omnigraph.commit.footprint import Footprint, FootprintBuilder, PlanConflict
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.group import CommitGroup
from omnigraph.commit.publish_plan import PinReplacement, PublishPlan, StagedMove, TableAction
from omnigraph.commit.publisher import Publisher
from omnigraph.commit.writer import Writer
from omnigraph.errors import Unavailable
from omnigraph.intents import objects as intent_objects_module
from omnigraph.intents import recovery as recovery_module
from omnigraph.intents import scope as intent_scope_module
from omnigraph.intents.recovery import Recovery
from omnigraph.log import stream as stream_module
from omnigraph.log.commit_record import CommitRecord, Stub, WriteSet, decode_record
from omnigraph.log.overlay import Overlay, OverlayTable
from omnigraph.log.stream import RecordStream, record_key
from omnigraph.log.table_view import TableView
from omnigraph.mutate import changed_rows as changed_rows_module
from omnigraph.mutate import claims as claims_module
from omnigraph.mutate.pending_table import PendingTable, RowChange
from omnigraph.schema.arrow import system_fields
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import PinnedTable, StagedTable, TableStore
from omnigraph.storage.lance import table_store as table_store_module
from omnigraph.storage.local import DirectorySync, LocalStore
from omnigraph.storage.store import PutResult
from omnigraph.upkeep.cleanup.cleanup import Cleanup

Patch = Callable[[Any, str, Any], None]
"""`setattr`, or a monkeypatch's, which is undone after the test."""

_REMOVALS: dict[str, Callable[[Patch], None]] = {}


def remove(rule: str, patch: Patch = setattr) -> None:
    """Make the code behave as if nobody had thought of `rule`."""
    _REMOVALS[rule](patch)


def rule_names() -> list[str]:
    return list(_REMOVALS)


def _rule(name: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(removal: Callable[[Patch], None]) -> Callable[[Patch], None]:
        _REMOVALS[name] = removal
        return removal

    return register


@_rule("entry-keys")
def _by_id_only(patch: Patch) -> None:
    """H1: a fold removes the entries of the ids it folded, whoever placed them."""
    patch(
        OverlayTable,
        "without_entry_keys",
        lambda self, entry_keys: self.without_ids({row_id for row_id, _ in entry_keys}),
    )


@_rule("tombstone")
def _no_tombstones(patch: Patch) -> None:
    """H2: a delete of a row that the pin does not hold just drops its entry."""
    unpinned: set[tuple[str, str]] = set()
    action_of, apply = PendingTable.action, next_record_module._apply_action

    def action(self: PendingTable, changes: Sequence[RowChange]) -> TableAction:
        table_action = action_of(self, changes)
        pinned = self._view.pinned
        pinned_ids = (
            set(pinned.find(table_action.deleted)["id"].to_pylist()) if pinned and table_action.deleted else set()
        )
        unpinned.update((table_action.table, row_id) for row_id in table_action.deleted if row_id not in pinned_ids)
        return table_action

    def apply_action(draft: Any, action: TableAction, rid: str, seq: int) -> None:
        apply(draft, action, rid, seq)
        if action.move is None:
            unpinned_ids = [row_id for row_id in action.deleted if (action.table, row_id) in unpinned]
            draft.overlay[action.table] = draft.overlay[action.table].without_ids(unpinned_ids)

    patch(PendingTable, "action", action)
    patch(next_record_module, "_apply_action", apply_action)


@_rule("empty-staging-rides-inline")
def _empty_staging_moves_nothing(patch: Patch) -> None:
    """H2: a staged delete of rows that the pin does not hold drops their entries, and pin and overlay are bare."""

    def with_move(backend: Backend, action: TableAction, expected: Any, base: PinnedTable, staged: StagedTable) -> Any:
        return replace(action, move=staging_module.commit_staged(backend, expected, base, staged))

    patch(staging_module, "_with_move", with_move)


@_rule("supersede")
def _keep_overlay_under_staged(patch: Patch) -> None:
    """H3: a staged write leaves older overlay entries of its ids in place."""
    apply = next_record_module._apply_action

    def apply_action(draft: Any, action: TableAction, rid: str, seq: int) -> None:
        entries = draft.overlay.get(action.table)
        apply(draft, action, rid, seq)
        if action.move is not None and entries is not None:
            draft.overlay[action.table] = entries

    patch(next_record_module, "_apply_action", apply_action)


@_rule("restage-lookup")
def _restage_fragments_only(patch: Patch) -> None:
    """H4: staged fragments are committed on a newer pin without looking for their ids there."""
    restage = TableStore.restage

    def blind(self: TableStore, staged: StagedTable, base: PinnedTable, **_: Any) -> StagedTable:
        return restage(self, staged, base, present_ids=())

    patch(TableStore, "restage", blind)


@_rule("pin-cas")
def _no_pin_cas(patch: Patch) -> None:
    """H5: a version replaces the pin whatever it was built on."""

    def move_pin(pin: Any, move: StagedMove, table: str) -> Any:
        return replace(pin, version=move.version, size_bytes=move.size_bytes, fragments=move.fragments)

    def keep_applicable(previous: CommitRecord, replacements: Sequence[PinReplacement]) -> tuple[PinReplacement, ...]:
        return tuple(replacement for replacement in replacements if replacement.table in previous.overlay)

    patch(next_record_module, "_move_pin", move_pin)
    patch(publisher_module, "keep_applicable", keep_applicable)
    patch(publisher_module, "_has_pin_moved", lambda *_: False)


@_rule("own-change-only")
def _send_captured_overlay(patch: Patch) -> None:
    """H6: a refused writer sends the overlay that it captured at first again."""
    captured: dict[str, Overlay] = {}
    compose = next_record_module.next_record

    def compose_again(previous: CommitRecord, members: Sequence[PublishPlan], rid: str, now: datetime) -> CommitRecord:
        overlay = captured.setdefault(members[0].op_id, previous.overlay)
        return compose(replace(previous, overlay=overlay), members, rid, now)

    patch(publisher_module, "next_record", compose_again)


@_rule("own-entries")
def _fold_takes_own_rows(patch: Patch) -> None:
    """H7: a record's own entries carry the rid of somebody else, as if it had folded them away."""
    of_change = OverlayTable.of_change

    def make_with_foreign_rid(schema: Any, rows: Any, deleted: Any, rid: str) -> OverlayTable:
        return of_change(schema, rows, deleted, "somebody")

    patch(OverlayTable, "of_change", make_with_foreign_rid)


@_rule("compare-images")
def _candidates_are_changes(patch: Patch) -> None:
    """H8: whatever lies in another fragment is reported as changed."""
    patch(changed_rows_module, "is_same_row", lambda *_: False)


@_rule("never-inline")
def _blobs_inline(patch: Patch) -> None:
    """H9: a change rides in the record whatever it holds."""
    patch(writer_module, "rides_inline", lambda actions, config: True)


@_rule("limit-after-hiding")
def _limit_first(patch: Patch) -> None:
    """H10: the limit is pushed down before hidden rows are removed."""

    def scan_pinned(self: TableView, names: Any, where: Any, limit: int | None) -> Any:
        assert self.pinned is not None
        return self._unhidden(self.pinned.scan(self._physical(names), where, limit))

    patch(TableView, "_scan_pinned", scan_pinned)


@_rule("one-fold-per-process")
def _fold_herd(patch: Patch) -> None:
    """H11: whoever wants to fold folds, whether or not somebody is at it."""
    patch(Folder, "fold_if_free", lambda self, holder=None: self._fold(holder))


@_rule("schema-meets-all")
def _schema_meets_nobody(patch: Patch) -> None:
    """H12: a schema change in between is tested like any other commit."""
    real = footprint_module.find_footprint_conflict

    def conflict(footprint: Footprint, schema: str, commit_record: CommitRecord | Stub) -> PlanConflict | None:
        return real(footprint, schema if isinstance(commit_record, Stub) else commit_record.schema, commit_record)

    patch(publisher_module, "find_footprint_conflict", conflict)


@_rule("schema-reads-all")
def _schema_reads_nothing(patch: Patch) -> None:
    """H13: a rule that was validated once stays valid."""
    patch(FootprintBuilder, "read_all", lambda *_: None)


@_rule("birth-is-pure")
def _birth_with_columns(patch: Patch) -> None:
    """H14: version 1 has the columns that its first writer knew."""
    real = system_fields
    born: list[str] = []

    def fields(kind: Any) -> Any:
        born.append(kind)
        return [*real(kind), pa.field(f"column{len(born)}", pa.int32())]

    patch(table_store_module, "system_fields", fields)


@_rule("unique-claims")
def _no_unique_claims(patch: Patch) -> None:
    """H15: ids are claimed, unique values are not."""
    patch(claims_module, "_claim_uniques", lambda *_: None)


def _without_classes(patch: Patch, *kinds: str) -> None:
    read, write = FootprintBuilder.read, FootprintBuilder.write

    def but(real: Any) -> Any:
        return lambda self, table, kind, key: None if kind in kinds else real(self, table, kind, key)

    patch(FootprintBuilder, "read", but(read))
    patch(FootprintBuilder, "write", but(write))


@_rule("card-claims")
def _no_card_claims(patch: Patch) -> None:
    """H15: the number of a source's edges is nobody's business."""
    _without_classes(patch, "card")


@_rule("references")
def _no_references(patch: Patch) -> None:
    """H16: nodes and edges are other tables, so they never meet."""
    _without_classes(patch, "live", "inc")


@_rule("phantom")
def _no_phantoms(patch: Patch) -> None:
    """H17: a condition is not part of what was read."""
    patch(FootprintBuilder, "predicate", lambda *_: None)


@_rule("looked-up-rows")
def _no_read_of_vanished_rows(patch: Patch) -> None:
    """H17: a row that a mutation makes and removes again was never looked at."""
    patch(PendingTable, "dependency_ids", property(lambda self: set()))


@_rule("if-commit-at-publish")
def _precondition_once(patch: Patch) -> None:
    """H18: `if_commit` is compared when the change is prepared and not where it lands."""
    real = publisher_module.find_plan_conflict

    def find_conflict(plan: PublishPlan, record: Any) -> Any:
        return real(replace(plan, options=replace(plan.options, if_commit=None)), record)

    patch(publisher_module, "find_plan_conflict", find_conflict)


@_rule("negative-is-fresh")
def _stale_negatives(patch: Patch) -> None:
    """H18: an answer without commit is given from whatever head is known."""
    patch(Writer, "_holds_now", lambda *_: True)


@_rule("wildcards")
def _no_wildcards(patch: Patch) -> None:
    """H19: what a record does not name it did not write."""
    patch(footprint_module, "_find_wildcard_conflict", lambda *_: None)


@_rule("stub-is-wild")
def _stubs_wrote_nothing(patch: Patch) -> None:
    """H19, H23: a collected record in between is taken for harmless."""
    real = footprint_module.find_footprint_conflict

    def conflict(footprint: Footprint, schema: str, commit_record: CommitRecord | Stub) -> PlanConflict | None:
        return None if isinstance(commit_record, Stub) else real(footprint, schema, commit_record)

    patch(publisher_module, "find_footprint_conflict", conflict)


@_rule("group-members-apart")
def _any_group(patch: Patch) -> None:
    """H20: plans share a record though they meet."""
    patch(CommitGroup, "_meets", lambda *_: False)


@_rule("read-ahead")
def _one_record_per_round(patch: Patch) -> None:
    """H21: a loser reads the record that refused it and no further."""
    follow = Publisher._take_over_entries
    patch(Publisher, "_take_over_entries", lambda self, entries: follow(self, entries[:1]))


@_rule("recapture")
def _same_base_again(patch: Patch) -> None:
    """H22: a plan that does not hold is prepared again from the record it was prepared on."""
    attempt = Writer._attempt
    first: dict[str, CommitRecord] = {}

    def again(self: Writer, operation: Any, options: Any, holder: Any, head: CommitRecord, attempts: Any) -> Any:
        return attempt(self, operation, options, holder, first.setdefault(operation.op_id, head), attempts)

    patch(Writer, "_attempt", again)


@_rule("names-stay")
def _stub_forgets(patch: Patch) -> None:
    """H23: a stub does not say whose record it was."""
    real = decode_record

    def forgetful(data: bytes, where: str) -> CommitRecord | Stub:
        entry = real(data, where)
        if not isinstance(entry, Stub):
            return entry
        return Stub(replace(entry.header, rid="?", members=()))

    patch(stream_module, "decode_record", forgetful)


@_rule("absent-proves-nothing")
def _absent_is_lost(patch: Patch) -> None:
    """H24: a PUT without answer whose seq is absent did not land."""

    def put_record(backend: Backend, records: RecordStream, record: CommitRecord, deadline: float) -> Any:
        key = record_key(record.stream, record.seq)
        try:
            if backend.store.put_if_absent(key, record.as_bytes) is PutResult.CREATED:
                return put_record_module.RecordLanded()
        except Unavailable:
            look = put_record_module._look_up_outcome(records, record)
            if look is None:
                raise
            return look
        return put_record_module._look_up_outcome(records, record)

    patch(publisher_module, "put_record", put_record)


@_rule("exists-is-no-answer")
def _exists_is_mine(patch: Patch) -> None:
    """H25: "exists" without a record to read is taken for an own success."""
    look = put_record_module._look_up_outcome
    patch(
        put_record_module,
        "_look_up_outcome",
        lambda records, record: look(records, record) or put_record_module.RecordLanded(),
    )


@_rule("rid-and-op-id")
def _exists_is_theirs(patch: Patch) -> None:
    """H25, H39: "exists" always means that somebody else won: neither the rid nor the op_id is looked at."""

    def look(records: RecordStream, record: CommitRecord) -> Any:
        ahead = records.read_ahead(record.seq)
        return put_record_module.RecordRefused(tuple(ahead)) if ahead else None

    patch(put_record_module, "_look_up_outcome", look)
    patch(publisher_module, "is_published_in", lambda *_: False)


@_rule("op-id-once")
def _op_ids_unread(patch: Patch) -> None:
    """H39: records in between are not asked whether they hold our operation already."""
    patch(publisher_module, "is_published_in", lambda *_: False)


@_rule("key-claim")
def _no_key_claim(patch: Patch) -> None:
    """H26: the client key is looked up and stored, but not part of the footprint."""
    patch(writer_module, "with_key_claim", lambda footprint, stream, key: footprint)


@_rule("key-of-stream")
def _key_of_graph(patch: Patch) -> None:
    """H26: a branch inherits the answers of its source."""
    from omnigraph.commit import idempotency as idempotency_module

    patch(idempotency_module, "ops_row_id", lambda stream, key: key)


@_rule("gen-of-all-parents")
def _gen_of_the_first_parent(patch: Patch) -> None:
    """H27: a merge is one further than the branch it lands on, however deep the other side is."""
    compose = next_record_module.next_record

    def count_generation(
        previous: CommitRecord, members: Sequence[PublishPlan], rid: str, now: datetime
    ) -> CommitRecord:
        commit_record = compose(previous, members, rid, now)
        return replace(commit_record, header=replace(commit_record.header, gen=previous.header.gen + 1))

    patch(publisher_module, "next_record", count_generation)


@_rule("gap-is-damage")
def _gaps_pass(patch: Patch) -> None:
    """H28: a listing is believed as it is."""
    patch(
        stream_module,
        "_contiguous_seqs",
        lambda stream, infos: sorted((stream_module.seq_of_key(info.key) for info in infos), reverse=True),
    )


@_rule("probe-upward")
def _listing_is_truth(patch: Patch) -> None:
    """H28: nobody looks above what was listed, and a first look never comes again."""
    get_many = stream_module.RecordStream.newest

    def newest(self: Any) -> Any:
        infos = self._store.list(f"__manifest/{self.stream}/")
        if not infos:
            return get_many(self)
        return self.record(max(stream_module.seq_of_key(info.key) for info in infos))

    patch(stream_module.RecordStream, "newest", newest)


@_rule("complete-records")
def _records_are_deltas(patch: Patch) -> None:
    """H29: a record carries its own entries only."""
    compose = next_record_module.next_record

    def delta(previous: CommitRecord, members: Sequence[PublishPlan], rid: str, now: datetime) -> CommitRecord:
        commit_record = compose(previous, members, rid, now)
        own_entries = {table: entries.own(rid) for table, entries in commit_record.overlay.items()}
        return replace(
            commit_record, overlay={table: entries for table, entries in own_entries.items() if entries.entries}
        )

    patch(publisher_module, "next_record", delta)


def _fence_but(patch: Patch, *, close: bool, epoch: bool) -> None:
    real = publisher_module.find_fence

    def find_some_fence(plan: PublishPlan, record: Any) -> Any:
        if isinstance(record, Stub) or (record.kind == "close" and not close):
            return None
        if record.kind != "close" and not epoch:
            return None
        return real(plan, record)

    patch(publisher_module, "find_fence", find_some_fence)
    patch(writer_module, "find_fence", find_some_fence)


@_rule("epoch-fence")
def _epoch_excludes_nobody(patch: Patch) -> None:
    """H30: who holds the branch is written down and never asked."""
    _fence_but(patch, close=True, epoch=False)


@_rule("epoch-in-between")
def _epoch_of_head_only(patch: Patch) -> None:
    """H30: only the newest record is asked who holds the branch."""
    real = publisher_module.find_fence
    newest_by_plan: dict[str, CommitRecord] = {}

    def find_some_fence(plan: PublishPlan, record: Any) -> Any:
        if isinstance(record, Stub):
            return None
        # The head is asked first; records in between come later and are older.
        newest = newest_by_plan.get(plan.op_id)
        if newest is not None and record.seq < newest.seq:
            return None
        newest_by_plan[plan.op_id] = record
        return real(plan, record)

    patch(publisher_module, "find_fence", find_some_fence)


@_rule("time-never-goes-back")
def _own_clock(patch: Patch) -> None:
    """H31: a record bears the time of its writer."""
    compose = next_record_module.next_record

    def date_record(previous: CommitRecord, members: Sequence[PublishPlan], rid: str, now: datetime) -> CommitRecord:
        commit_record = compose(previous, members, rid, now)
        return replace(commit_record, header=replace(commit_record.header, created_at=now))

    patch(publisher_module, "next_record", date_record)


@_rule("close-fence")
def _close_excludes_nobody(patch: Patch) -> None:
    """H32: writers in flight go on after the branch was closed."""
    _fence_but(patch, close=False, epoch=True)


@_rule("bury")
def _nobody_completes_a_deletion(patch: Patch) -> None:
    """H32: the registry is believed, the stream's close is not looked at."""
    patch(GraphRuntime, "_end_branch", lambda *_: None)


@_rule("look-after-fork")
def _fork_without_a_second_look(patch: Patch) -> None:
    """H33: the source of a fork is not read again after record 0 was written."""

    def register(self: GraphRuntime, name: str, stream: str, source: CommitRecord) -> Any:
        return self.registry.create(name, stream), source

    patch(GraphRuntime, "_register", register)


@_rule("list-again")
def _cleanup_without_a_second_look(patch: Patch) -> None:
    """H33: what became a root while stubs were written stays collected."""
    patch(Cleanup, "_restore_protected", lambda *_: None)


@_rule("complete-birth")
def _init_is_one_shot(patch: Patch) -> None:
    """H34: whoever finds a stamp without record 0 leaves it so."""
    patch(graph_runtime_module, "complete_birth", lambda backend, stamp: None)


@_rule("gc-fence")
def _gc_is_nothing(patch: Patch) -> None:
    """H35: a cleanup in between is no reason to stage again."""
    patch(
        publisher_module,
        "find_plan_conflict",
        lambda plan, record: footprint_module.find_footprint_conflict(plan.footprint, plan.base.schema, record),
    )


@_rule("gc-honours")
def _gc_honours_nobody(patch: Patch) -> None:
    """H35: a cleanup's list of honoured operations is not read."""
    real = publisher_module.find_plan_conflict

    def find_conflict(plan: PublishPlan, record: Any) -> Any:
        return real(
            plan, replace(record, gc={}) if isinstance(record, CommitRecord) and record.kind == "gc" else record
        )

    patch(publisher_module, "find_plan_conflict", find_conflict)


@_rule("write-set")
def _no_write_set(patch: Patch) -> None:
    """Section 1: a record does not say what it wrote."""
    patch(next_record_module, "merge_writes", lambda parts: WriteSet())


@_rule("sync-tables")
def _tables_not_synced(patch: Patch) -> None:
    """H41: Lance's files are left to the page cache."""
    patch(DirectorySync, "sync", lambda *_: None)


@_rule("sync-names")
def _names_not_synced(patch: Patch) -> None:
    """H41: a record's directory entry is left to the page cache."""
    patch(LocalStore, "_settle", lambda *_: None)


@_rule("sync-temporary")
def _temporary_not_synced(patch: Patch) -> None:
    """H41: a record gets its name before its bytes are on the disk."""
    write = LocalStore._write_temporary

    def write_unsynced(self: LocalStore, path: str, data: bytes) -> str:
        self._fsync, before = False, self._fsync
        try:
            return write(self, path, data)
        finally:
            self._fsync = before

    patch(LocalStore, "_write_temporary", write_unsynced)


@_rule("recovery-keeps-files")
def _recovery_tidies_up(patch: Patch) -> None:
    """H36: whoever rolls an operation back also removes the files that no record names."""
    given_up = Recovery._give_up

    def tidy_up(self: Recovery, *args: Any) -> Any:
        store, tables = self._runtime.backend.store, self._runtime.backend.tables
        live_files = set[str]()
        for table, pin in self._runtime.branch("main").publisher.refresh().pins.items():
            if pin.version:
                live_files |= {f"tables/{table}/{file}" for file in tables.open(table, pin.version).files()}
        for info in store.list("tables/"):
            if "/data/" in info.key and info.key not in live_files:
                store.delete(info.key)
        return given_up(self, *args)

    patch(Recovery, "_give_up", tidy_up)


@_rule("condemned-for-a-while")
def _no_wait_of_condemned(patch: Patch) -> None:
    """H37: what is on a list goes with the next run, however soon that is."""

    def due(self: Cleanup, lists: Any, store_now: datetime, marks: Any) -> Any:
        return [file for trash, _ in lists for file in trash.files if file.key not in marks]

    patch(Cleanup, "_find_due", due)


@_rule("mark-again")
def _no_pardon_of_condemned(patch: Patch) -> None:
    """H37: what is on a list goes when its time has come, whatever names it by then."""
    real: Any = Cleanup._find_due
    patch(Cleanup, "_find_due", lambda self, lists, store_now, marks: real(self, lists, store_now, ()))


@_rule("first-decision-holds")
def _last_decision_holds(patch: Patch) -> None:
    """H38: decisions about an intent are written over each other."""

    def overwrite(backend: Backend, key: str, data: bytes) -> bytes:
        backend.store.put(key, data)
        return data

    patch(intent_objects_module, "create_object", overwrite)
    patch(intent_scope_module, "create_object", overwrite)


@_rule("no-blind-roll-forward")
def _rolls_forward_anyway(patch: Patch) -> None:
    """H40: a confirmed plan is published on whatever the newest record is."""
    patch(recovery_module._OpenStream, "find_outcome", lambda *_: None)
