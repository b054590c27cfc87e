"""A plan survives being written down: what is published from it is what its own process would have published."""

from __future__ import annotations

import dataclasses
import string
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.commit.footprint import Footprint, Predicate
from omnigraph.commit.next_record import next_record
from omnigraph.commit.publish_plan import (
    EpochChange,
    PinReplacement,
    PublishPlan,
    StagedMove,
    TableAction,
    WriteOptions,
)
from omnigraph.errors import Corruption, Unsupported
from omnigraph.intents.plan_codec import decode_plan, encode_plan
from omnigraph.log.commit_record import Pin, WriteSet
from omnigraph.log.snapshot import Catalogs
from omnigraph.storage.lance import StagedTable, StagedVersion
from tests.commit.plans import T, U, action, move, plan
from tests.log.records import COLUMNS, entries, record, rows

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CATALOGS: Catalogs = None  # type: ignore[assignment]  # no plan here brings a schema

#: What a plan is made of, and the codec knows. Whoever adds a field teaches the codec, or says here why it is left out.
KEPT: dict[type, set[str]] = {
    PublishPlan: {
        "kind", "op_id", "base", "footprint", "actions", "pin_replacements", "options", "holder", "catalog", "dropped",
        "merged_header", "extra", "result", "ops_row_ids",
    },
    TableAction: {
        "table", "schema", "rows", "deleted", "inserted", "updated", "removed", "overwrite", "fills", "casts",
        "present_ids", "never_inline", "superseded", "move",
    },
    PinReplacement: {"table", "move", "entry_keys", "rows_removed"},
    StagedMove: {"expected", "staged", "version", "size_bytes", "fragments"},
    WriteOptions: {"actor", "message", "client_key", "if_commit", "on_conflict"},
    Footprint: {"reads", "reads_all", "predicates", "writes"},
    WriteSet: {"exact", "wild", "scopes"},
}  # fmt: skip
#: Refused: `reshapes`, `epoch`, `gc`, `adopted`. Gone with its process, the footprint decides: `conflict_check`.
LEFT_OUT: dict[type, set[str]] = {PublishPlan: {"reshapes", "epoch", "gc", "conflict_check"}, TableAction: {"adopted"}}

_words = st.text(string.ascii_letters + string.digits + "é'\"\\ ", min_size=1, max_size=8)
_keys = st.frozensets(st.integers(0, 2**64 - 1), max_size=6)
_scopes = st.sampled_from(["t|row", "t|live", "u|uniq:email", "_ops|row"])
_tables = st.sampled_from([T, U])


@st.composite
def _draw_staged(draw: st.DrawFn) -> StagedTable | StagedVersion:
    if draw(st.booleans()):
        return StagedVersion(T, draw(_words), draw(_words))
    fragments = draw(st.lists(st.integers(0, 9).map(lambda number: f'{{"id": {number}, "files": []}}'), max_size=3))
    return StagedTable(
        T,
        draw(_words),
        COLUMNS,
        draw(st.booleans()),
        tuple(fragments),
        tuple(fragments[:1]),
        tuple(draw(st.lists(st.integers(0, 99), max_size=3))),
        tuple(draw(st.lists(_words, max_size=3))),
        draw(st.integers(0, 2**40)),
        draw(st.integers(0, 2**40)),
        draw(st.integers(0, 9)),
        draw(st.booleans()),
        draw(st.none() | _words),
    )


_moves = st.builds(StagedMove, st.none() | _words, _draw_staged(), _words, st.integers(0, 2**50), st.integers(0, 1000))
_ages = st.dictionaries(_words, st.none() | st.integers(-5, 150), min_size=1, max_size=5)


@st.composite
def _actions(draw: st.DrawFn) -> TableAction:
    ages = draw(st.none() | _ages)
    return TableAction(
        table=draw(_tables),
        schema=COLUMNS,
        rows=rows(ages) if ages else None,
        deleted=tuple(draw(st.lists(_words, max_size=3, unique=True))),
        inserted=draw(st.integers(0, 2**40)),
        updated=draw(st.integers(0, 9)),
        removed=draw(st.integers(0, 9)),
        overwrite=draw(st.booleans()),
        fills=draw(st.sampled_from([{}, {"age": 7}, {"age": None}])),
        casts=draw(st.sampled_from([frozenset(), frozenset({"age"})])),
        present_ids=draw(st.none() | st.lists(_words, max_size=2).map(tuple)),
        never_inline=draw(st.booleans()),
        superseded=tuple(draw(st.lists(_words, max_size=2))),
        move=draw(st.none() | _moves),
    )


_footprints = st.builds(
    lambda reads, whole, exact, wild: Footprint(
        reads, whole, (), WriteSet(np.array(sorted(exact), np.uint64), wild, frozenset({"t|row"}))
    ),
    st.dictionaries(_scopes, _keys, max_size=3),
    st.frozensets(_tables, max_size=2),
    _keys,
    st.frozensets(st.sampled_from(["t|*", "u|inc|*"])),
)
_plans = st.builds(
    PublishPlan,
    kind=st.sampled_from(["load", "merge", "physical"]),
    op_id=_words,
    base=st.just(record(5)),
    footprint=_footprints,
    actions=st.lists(_actions(), max_size=3).map(tuple),
    pin_replacements=st.lists(
        st.builds(PinReplacement, _tables, _moves, st.frozensets(st.tuples(_words, _words)), st.integers(0, 9)),
        max_size=2,
    ).map(tuple),
    options=st.builds(
        WriteOptions, st.none() | _words, st.none() | _words, st.none() | _words, st.none() | _words,
        st.sampled_from(["retry", "fail"]),
    ),
    holder=st.none() | _words,
    dropped=st.frozensets(_tables),
    merged_header=st.none() | st.just(record(3).header),
    extra=st.none() | st.dictionaries(_words, st.integers()),
    result=st.dictionaries(_words, _words),
    ops_row_ids=st.lists(_words, max_size=2).map(tuple),
)  # fmt: skip


def _as_read(publish_plan: PublishPlan) -> PublishPlan:
    saved = decode_plan(encode_plan(publish_plan), "here")
    assert (saved.base, saved.schema, saved.op_id) == (
        publish_plan.base.ref,
        publish_plan.base.schema,
        publish_plan.op_id,
    )
    return saved.on(publish_plan.base, CATALOGS)


def _facts(value: Any) -> Any:
    """A value as something that can be compared: Arrow and NumPy compare in ways of their own."""
    if isinstance(value, pa.Table):
        return [value.schema.names, value.to_pylist()]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if dataclasses.is_dataclass(value) and type(value) in KEPT:
        return {name: _facts(getattr(value, name)) for name in KEPT[type(value)] if name not in ("base", "predicates")}
    return [_facts(item) for item in value] if isinstance(value, tuple) else value


def _without_rows_of_files(publish_plan: PublishPlan) -> PublishPlan:
    """Of rows that are in files only the ids are kept."""
    actions = [
        dataclasses.replace(each, rows=each.rows.select(["id"]))
        if each.move is not None and each.rows is not None
        else each
        for each in publish_plan.actions
    ]
    return dataclasses.replace(publish_plan, actions=tuple(actions))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_plans)
def test_a_plan_survives_being_written_down(publish_plan: PublishPlan) -> None:
    again = _as_read(publish_plan)
    assert _facts(again) == _facts(_without_rows_of_files(publish_plan))
    assert encode_plan(again) == encode_plan(publish_plan)


def test_the_record_made_from_it_is_the_same() -> None:
    """What the next record needs is all there: ids that leave the overlay, rows, counts, pins, answers."""
    original = plan(
        action({"a": 1, "b": 2}, ["gone"], inserted=2, moved=move("9", "12")),
        action({"c": 3}, table=U, inserted=1),
        base=record(5, pins={T: Pin("9", 2, 10, 1, 1)}, overlay={T: entries("old", {"a": 0, "z": 0})}),
        kind="load",
        ops_row_ids=("s/op",),
        options=WriteOptions("ann", "night", "key"),
    )
    first, second = (
        next_record(original.base, [publish_plan], "rid", NOW) for publish_plan in (original, _as_read(original))
    )
    assert first.as_bytes == second.as_bytes


def test_every_field_is_known_to_the_codec() -> None:
    for kind, fields in KEPT.items():
        assert {field.name for field in dataclasses.fields(kind)} == fields | LEFT_OUT.get(kind, set()), kind


def test_a_condition_becomes_a_read_of_its_table() -> None:
    plan_with_condition = plan(footprint=Footprint(predicates=(Predicate(T, pc.field("age") > 3),)))
    assert _as_read(plan_with_condition).footprint.reads_all == {T}


@pytest.mark.parametrize(
    "fields",
    [{"epoch": EpochChange("me")}, {"gc": {"id": "x"}}, {"reshapes": {T: lambda entries, rid: entries}}],
    ids=["epoch", "gc", "reshape"],
)
def test_what_only_its_process_can_do_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="cannot be kept"):
        encode_plan(plan(**fields))


@pytest.mark.parametrize("cut", [0, 5, 60, -1])
def test_damage_is_named(cut: int) -> None:
    data = encode_plan(plan(action({"a": 1}, moved=move("9", "12"))))
    with pytest.raises(Corruption) as error:
        decode_plan(data[:cut], "__recovery/x/1")
    assert error.value.details["key"] == "__recovery/x/1"
