"""`next_record`: a pure function of the previous record and the plans."""

from __future__ import annotations

from datetime import timedelta

import pytest

from omnigraph.commit.footprint import FootprintBuilder
from omnigraph.commit.idempotency import OPS_TYPE, ops_row_id
from omnigraph.commit.next_record import PinMoved, first_record, fork_record, keep_applicable, next_record
from omnigraph.commit.publish_plan import EpochChange, PinReplacement, PublishPlan, WriteOptions
from omnigraph.log.commit_record import CommitRecord, Epoch, Pin
from tests.commit.plans import T, U, action, move, plan
from tests.log.records import NOON, STREAM, ages_of, entries, header, pin, record


def _next(previous: CommitRecord, *plans: PublishPlan) -> CommitRecord:
    return next_record(previous, plans, "new", NOON)


def test_it_follows_its_parent() -> None:
    following = _next(record(5, gen=9), plan(action({"a": 1}, inserted=1)))
    assert (following.stream, following.seq, following.rid, following.kind) == (STREAM, 6, "new", "mutate")
    assert following.header.parents == (record(5).ref,)
    assert following.header.gen == 10
    assert following.schema == "schema-1"
    assert following.header.branch == "main"


def test_it_uses_nothing_of_the_base_that_the_plan_was_prepared_on() -> None:
    """H6: pins and overlay come from the previous record, however old the plan is."""
    old = record(5, overlay={T: entries("r5", {"old": 1})}, pins={T: pin("7", 1)})
    previous = record(9, pins={T: pin("8", 4)})
    following = _next(previous, plan(action({"a": 1}, inserted=1), base=old))
    assert ages_of(following.overlay[T]) == {"a": 1}
    assert following.pins[T].version == "8"
    assert following.pins[T].rows == 5


def test_inline_rows_lie_above_older_entries() -> None:
    previous = record(5, overlay={T: entries("r5", {"a": 1, "b": 2}, ["c"])}, pins={T: pin(None, 2)})
    following = _next(previous, plan(action({"a": 9, "c": 3}, ["b"], inserted=1, updated=1)))
    assert ages_of(following.overlay[T]) == {"a": 9, "c": 3}
    assert following.overlay[T].tombstones == {"b"}
    assert following.overlay[T].entry_keys == {("a", "new"), ("b", "new"), ("c", "new")}
    assert (following.pins[T].rows, following.pins[T].version, following.pins[T].changed_seq) == (2, None, 6)


def test_a_delete_of_an_overlay_row_leaves_a_tombstone() -> None:
    """H2."""
    following = _next(
        record(5, overlay={T: entries("r5", {"a": 1})}, pins={T: pin(None, 1)}), plan(action(deleted=["a"]))
    )
    assert following.overlay[T].tombstones == {"a"}


def test_a_staged_change_moves_the_pin_and_clears_its_ids_from_the_overlay() -> None:
    """H3."""
    previous = record(5, overlay={T: entries("r5", {"a": 1, "b": 2}, ["c"])}, pins={T: pin("7", 5, 4)})
    following = _next(previous, plan(action({"a": 9}, ["c"], updated=1, moved=move("7", "8"))))
    assert ages_of(following.overlay[T]) == {"b": 2}
    assert following.overlay[T].tombstones == frozenset()
    assert following.pins[T] == Pin("8", 4, 900, 3, 6)
    touched = following.touched[T]
    assert (touched.updated, touched.deleted, touched.staged) == (1, 1, True)
    assert (touched.old_version, touched.new_version) == ("7", "8")


def test_an_overwrite_clears_the_whole_overlay_of_its_table() -> None:
    previous = record(
        5,
        overlay={T: entries("r5", {"a": 1}, ["c"]), U: entries("r5", {"x": 1})},
        pins={T: pin("7", 5), U: pin(None, 1)},
    )
    following = _next(
        previous, plan(action({"z": 1}, inserted=1, moved=move("7", "8", rows_written=1), overwrite=True))
    )
    assert set(following.overlay) == {U}
    assert (following.pins[T].rows, following.pins[U].rows) == (1, 1)


@pytest.mark.parametrize("now", [None, "6", "8"])
def test_a_pin_moves_only_from_what_the_version_was_built_on(now: str | None) -> None:
    """H5, the pin CAS."""
    with pytest.raises(PinMoved) as caught:
        _next(record(5, pins={T: pin(now)}), plan(action({"a": 1}, moved=move("7", "9"))))
    assert caught.value.table == T


def test_a_first_version_needs_a_table_without_one() -> None:
    assert _next(record(5), plan(action({"a": 1}, inserted=1, moved=move(None, "9")))).pins[T].version == "9"
    with pytest.raises(PinMoved):
        _next(record(5, pins={T: pin("7")}), plan(action({"a": 1}, moved=move(None, "9"))))


def _fold(previous: CommitRecord, table: str = T, expected: str | None = "7", version: str = "8") -> PinReplacement:
    return PinReplacement(table, move(expected, version), previous.overlay[table].entry_keys)


def test_a_fold_removes_what_it_took_and_changes_no_row() -> None:
    captured = record(5, overlay={T: entries("r5", {"a": 1, "b": 2})}, pins={T: pin("7", 9, 5)}, content_seq=5)
    now = record(6, overlay={T: captured.overlay[T].with_entries(entries("r6", {"a": 3}))}, pins={T: pin("7", 9, 6)})
    following = _next(now, plan(kind="fold", pin_replacements=(_fold(captured),), base=captured))
    assert ages_of(following.overlay[T]) == {"a": 3}, "replaced since (H1)"
    assert following.pins[T] == Pin("8", 9, 900, 3, 6), "rows and changed_seq are logical"
    assert following.content_seq == 6, "the content is that of the record before"
    assert following.kind == "fold"


def test_an_emptied_overlay_disappears() -> None:
    captured = record(5, overlay={T: entries("r5", {"a": 1})}, pins={T: pin("7", 1)})
    assert _next(captured, plan(kind="fold", pin_replacements=(_fold(captured),), base=captured)).overlay == {}


def test_folds_that_still_fit() -> None:
    captured = record(
        5,
        overlay={T: entries("r5", {"a": 1}), U: entries("r5", {"x": 1})},
        pins={T: pin("7"), U: pin("7")},
    )
    folds = (_fold(captured), _fold(captured, U))
    assert keep_applicable(captured, folds) == folds
    moved = record(6, overlay=captured.overlay, pins={T: pin("77"), U: pin("7")})
    assert keep_applicable(moved, folds) == folds[1:], "a table that moved is dropped (H5)"
    without_entries = record(6, overlay={U: captured.overlay[U]}, pins=captured.pins)
    assert keep_applicable(without_entries, folds) == folds[1:], "nothing of it is left"
    replaced = record(6, overlay={**captured.overlay, T: entries("r6", {"a": 2})}, pins=captured.pins)
    assert keep_applicable(replaced, folds) == folds[1:], "every entry was replaced"


def test_time_never_goes_back() -> None:
    """H31: a slow clock gets its parent's time; milliseconds are all that is kept."""
    late = NOON + timedelta(hours=1)
    assert next_record(record(5, created_at=late), [plan()], "new", NOON).header.created_at == late
    exact = next_record(record(5), [plan()], "new", late + timedelta(microseconds=1999)).header.created_at
    assert exact == late + timedelta(milliseconds=1)


def test_members_of_a_group_keep_their_own_names() -> None:
    plans = [
        plan(action({"a": 1}, inserted=1), op_id="op1", options=WriteOptions(actor="ada", message="m1")),
        plan(action({"b": 2}, inserted=1), op_id="op2", options=WriteOptions(actor="bob")),
    ]
    following = _next(record(5), *plans)
    assert [(member.op_id, member.actor, member.counts["inserted"]) for member in following.members] == [
        ("op1", "ada", 1),
        ("op2", "bob", 1),
    ]
    assert (following.header.actor, following.header.message) == ("ada", "m1")
    assert ages_of(following.overlay[T]) == {"a": 1, "b": 2}
    assert following.pins[T].rows == 2
    assert following.touched[T].inserted == 2


def test_write_sets_of_a_group_are_joined() -> None:
    footprints = []
    for key in ("a", "b"):
        claims = FootprintBuilder()
        claims.read_write(T, "row", key)
        footprints.append(claims.build())
    following = _next(
        record(5), *[plan(op_id=str(number), footprint=footprint) for number, footprint in enumerate(footprints)]
    )
    assert set(following.writes.exact.tolist()) == footprints[0].write_keys | footprints[1].write_keys
    assert following.writes.scopes == {f"{T}|row"}


def test_a_client_key_becomes_a_row_of_its_own_table() -> None:
    """H26: the answer rides in the record that it is about."""
    following = _next(record(5), plan(action({"a": 1}, inserted=1), options=WriteOptions(client_key="key")))
    (row,) = following.overlay[OPS_TYPE.id].rows.to_pylist()
    assert (row["id"], row["seq"], row["op_id"]) == (ops_row_id(STREAM, "key"), 6, "op")
    assert following.members[0].client_key == "key"
    assert OPS_TYPE.id not in _next(record(5), plan(action({"a": 1}))).overlay


@pytest.mark.parametrize(
    ("kind", "content_seq"), [("mutate", 6), ("load", 6), ("schema", 6), ("fold", 3), ("gc", 3), ("epoch", 3)]
)
def test_content_seq_follows_what_readers_see(kind: str, content_seq: int) -> None:
    assert _next(record(5, content_seq=3), plan(kind=kind)).content_seq == content_seq


def test_the_epoch_is_carried_on_until_it_is_changed() -> None:
    claimed_record = record(5, epoch=Epoch(3, "me"))
    assert _next(claimed_record, plan()).epoch == Epoch(3, "me")
    assert _next(claimed_record, plan(kind="epoch", epoch=EpochChange("you"))).epoch == Epoch(4, "you")
    assert _next(claimed_record, plan(kind="epoch", epoch=EpochChange(None))).epoch == Epoch(4, None)


def test_a_merge_has_two_parents_and_the_greater_generation() -> None:
    merged_header = header(7, stream="OTHER", gen=40)
    following = _next(record(5), plan(kind="merge", merged_header=merged_header))
    assert following.header.parents == (record(5).ref, merged_header.ref)
    assert following.header.gen == 41


def test_the_trail_holds_the_headers_since_the_last_thirty_second() -> None:
    record = first_record(STREAM, "r0", "op0", "schema-1", NOON)
    for _ in range(70):
        record = next_record(record, [plan(base=record)], f"r{record.seq + 1}", NOON)
        first = (record.seq - 1) // 32 * 32
        assert [header.seq for header in record.trail] == list(range(first, record.seq))
    assert len(record.trail) <= 32


def test_a_dropped_table_is_no_longer_named() -> None:
    previous = record(
        5, overlay={T: entries("r5", {"a": 1}), U: entries("r5", {"x": 1})}, pins={T: pin("7"), U: pin("7")}
    )
    following = _next(previous, plan(kind="schema", dropped=frozenset({T})))
    assert (set(following.pins), set(following.overlay)) == ({U}, {U})


def test_a_reshaped_overlay_carries_the_new_rid() -> None:
    """H12: a fold that took the old shape removes nothing of the new one."""
    previous = record(5, overlay={T: entries("r5", {"a": 1})}, pins={T: pin(None, 1)})
    following = _next(previous, plan(kind="schema", reshapes={T: lambda _, rid: entries(rid, {"a": 2})}))
    assert following.overlay[T].entry_keys == {("a", "new")}
    assert ages_of(following.overlay[T]) == {"a": 2}


def test_the_previous_record_is_untouched() -> None:
    previous = record(5, overlay={T: entries("r5", {"a": 1})}, pins={T: pin("7", 1)})
    before = previous.as_bytes
    _next(previous, plan(action({"a": 2}, ["b"], moved=move("7", "8"))))
    assert record(5, overlay={T: entries("r5", {"a": 1})}, pins={T: pin("7", 1)}).as_bytes == before
    assert ages_of(previous.overlay[T]) == {"a": 1}
    assert previous.pins[T].version == "7"


def test_a_fork_repeats_the_state_and_starts_anew() -> None:
    source = record(9, overlay={T: entries("r5", {"a": 1})}, pins={T: pin("7", 3, 8)}, epoch=Epoch(2, "me"))
    born = fork_record(
        source, header(0, "fork", stream="FORK", parents=(source.ref,), created_at=NOON - timedelta(days=1))
    )
    assert born.overlay == source.overlay, "entries keep their rids (H1)"
    assert born.pins[T] == Pin("7", 3, 100, 1, 0), "seqs of different streams are never compared"
    assert born.epoch == Epoch(), "a fork resets the epoch"
    assert born.header.created_at == NOON, "never before its source"
    assert born.trail == ()


def test_the_first_record_is_a_function_of_its_arguments() -> None:
    """H34: whoever completes an init writes the same bytes."""
    first, second = (first_record(STREAM, "r", "op", "schema", NOON) for _ in range(2))
    assert first.as_bytes == second.as_bytes
    assert (first.seq, first.kind, first.header.parents, first.pins) == (0, "init", (), {})
