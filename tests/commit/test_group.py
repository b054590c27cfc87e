"""Group commit: which waiting plans may share one record. S38, S40, H20."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.compute as pc
import pytest

from omnigraph.commit.footprint import Footprint, FootprintBuilder
from omnigraph.commit.group import CommitGroup
from omnigraph.commit.publish_plan import PublishPlan, WriteOptions
from tests.commit.plans import T, U, action, move, plan


def _footprint(fill: Callable[[FootprintBuilder], object]) -> Footprint:
    builder = FootprintBuilder()
    fill(builder)
    return builder.build()


def _row(key: str, age: int = 1, table: str = T) -> PublishPlan:
    return plan(
        action({key: age}, table=table, inserted=1),
        op_id=key,
        footprint=_footprint(lambda claims: claims.read_write(table, "row", key)),
    )


def _selecting(condition: pc.Expression) -> PublishPlan:
    return plan(op_id="where", footprint=_footprint(lambda claims: claims.predicate(T, condition)))


def _admits(first: PublishPlan, second: PublishPlan, *, max_members: int = 10, max_entries: int = 100) -> bool:
    group = CommitGroup(max_members, max_entries)
    assert group.admits(first)
    group.add(first)
    return group.admits(second)


READS_A = plan(footprint=_footprint(lambda claims: claims.read(T, "row", "a")))
WRITES_A = plan(footprint=_footprint(lambda claims: claims.write(T, "row", "a")))
BULK = plan(footprint=_footprint(lambda claims: claims.write_all(T)))
WHOLE = plan(footprint=_footprint(lambda claims: claims.read_all(T)))

CASES = [
    ("different rows", _row("a"), _row("b"), True),
    ("one row", _row("a"), _row("a"), False),
    ("one id of two tables", _row("a"), _row("a", table=U), True),
    ("read and write of one row", READS_A, WRITES_A, False),
    ("two readers of one row", READS_A, READS_A, True),
    ("two blind writers of one key", WRITES_A, WRITES_A, True),
    ("a condition and a row that satisfies it", _selecting(pc.field("age") > 50), _row("b", 60), False),
    ("a condition and a row that does not", _selecting(pc.field("age") > 50), _row("b", 40), True),
    ("a condition and another table", _selecting(pc.field("age") > 50), _row("b", 60, table=U), True),
    ("a wildcard and a row", BULK, _row("a"), False),
    ("a wildcard and another table", BULK, _row("a", table=U), True),
    ("a whole-table reader and a row", WHOLE, _row("a"), False),
]


@pytest.mark.parametrize(
    ("publish_plan", "other_plan", "together"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_who_shares_a_record(publish_plan: PublishPlan, other_plan: PublishPlan, together: bool) -> None:
    assert _admits(publish_plan, other_plan) == together
    assert _admits(other_plan, publish_plan) == together, "the order of arrival does not matter"


def test_the_third_is_compared_with_both() -> None:
    group = CommitGroup(10, 100)
    group.add(_row("a"))
    group.add(_row("b"))
    assert not group.admits(_row("b"))
    assert not group.admits(_selecting(pc.field("age") < 50))
    assert group.admits(_row("c"))


@pytest.mark.parametrize("kind", ["schema", "merge", "load", "fold", "epoch", "close", "gc", "recovery"])
def test_only_mutations_share(kind: str) -> None:
    assert not _admits(_row("a"), plan(kind=kind))
    assert not _admits(plan(kind=kind), _row("a"))


def test_a_conditional_write_is_alone() -> None:
    """What it names must be the state right before it."""
    conditional = plan(op_id="c", options=WriteOptions(if_commit="s.1"))
    assert not _admits(_row("a"), conditional)
    assert not _admits(conditional, _row("a"))


def test_two_staged_changes_of_one_table_cannot_both_move_its_pin() -> None:
    def staged_plan(key: str, table: str) -> PublishPlan:
        return plan(
            action({key: 1}, table=table, moved=move("7", f"v-{key}")),
            op_id=key,
            footprint=_footprint(lambda claims: claims.read_write(table, "row", key)),
        )

    assert not _admits(staged_plan("a", T), staged_plan("b", T))
    assert _admits(staged_plan("a", T), staged_plan("b", U))
    assert _admits(staged_plan("a", T), _row("b")), "an inline change leaves the pin alone"


def test_bounds() -> None:
    group = CommitGroup(2, 3)
    filled = []
    for name in "ab":
        group.add(_row(name))
        filled.append(group.is_full)
    assert filled == [False, True]
    assert not _admits(plan(action({"a": 1, "b": 2, "c": 3})), _row("d"), max_entries=3)
    assert _admits(plan(action({"a": 1, "b": 2})), _row("d"), max_entries=3)
    assert CommitGroup(10, 1).admits(plan(action({"a": 1, "b": 2, "c": 3}))), "the first is always taken"
