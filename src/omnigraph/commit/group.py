"""Group commit: which waiting plans may share one record.

Members must not meet: no read or write of one may be touched by another, so that the record means the same in
any order of its members. Sets of all members together make the usual test one intersection, not one per pair.
"""

from __future__ import annotations

from omnigraph.commit.footprint import Footprint, members_meet
from omnigraph.commit.publish_plan import PublishPlan


class CommitGroup:
    """The plans chosen for the next record so far."""

    def __init__(self, max_members: int, max_entries: int) -> None:
        self._max_members = max_members
        self._max_entries = max_entries
        self._plans: list[PublishPlan] = []
        self._reads: set[int] = set()
        self._writes: set[int] = set()
        self._staged: set[str] = set()
        self._entries = 0

    @property
    def is_full(self) -> bool:
        return len(self._plans) >= self._max_members

    def admits(self, plan: PublishPlan) -> bool:
        if not self._plans:
            return True
        if not (plan.groupable and self._plans[0].groupable):
            return False
        if self._entries + _inline_entries(plan) > self._max_entries or self._staged & _staged_tables(plan):
            return False
        return not self._meets(plan)

    def add(self, plan: PublishPlan) -> None:
        self._plans.append(plan)
        self._reads |= plan.footprint.read_keys
        self._writes |= plan.footprint.write_keys
        self._staged |= _staged_tables(plan)
        self._entries += _inline_entries(plan)

    def _meets(self, plan: PublishPlan) -> bool:
        ours = plan.footprint
        if not (self._writes.isdisjoint(ours.read_keys) and self._reads.isdisjoint(ours.write_keys)):
            return True
        return any(_meet_beyond_keys(plan, other) for other in self._plans if ours.is_broad or other.footprint.is_broad)


def _meet_beyond_keys(one: PublishPlan, other: PublishPlan) -> bool:
    """Wildcards, whole tables and conditions, in both directions."""
    return _selects(one.footprint, other) or _selects(other.footprint, one)


def _selects(footprint: Footprint, other: PublishPlan) -> bool:
    return members_meet(footprint, other.footprint, {action.table: action.rows for action in other.actions})


def _inline_entries(plan: PublishPlan) -> int:
    return sum(one.entries for one in plan.actions if one.move is None)


def _staged_tables(plan: PublishPlan) -> set[str]:
    return {one.table for one in plan.actions if one.move is not None}
