"""Group commit: which waiting plans may share one record.

The footprints of members must not meet: no member may write what another reads or writes, so that the record means
the same in any order of its members. The keys of all members are kept in common sets, so that the usual test is one
intersection instead of one per pair.
"""

from __future__ import annotations

from omnigraph.commit.footprint import Footprint, depends_on_member
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
        if not (plan.is_groupable and self._plans[0].is_groupable):
            return False
        if self._entries + _count_inline_entries(plan) > self._max_entries or self._staged & _tables_to_move(plan):
            return False
        return not self._meets(plan)

    def add(self, plan: PublishPlan) -> None:
        self._plans.append(plan)
        self._reads |= plan.footprint.read_keys
        self._writes |= plan.footprint.write_keys
        self._staged |= _tables_to_move(plan)
        self._entries += _count_inline_entries(plan)

    def _meets(self, plan: PublishPlan) -> bool:
        footprint = plan.footprint
        if not (self._writes.isdisjoint(footprint.read_keys) and self._reads.isdisjoint(footprint.write_keys)):
            return True
        return any(
            _meet_beyond_keys(plan, member) for member in self._plans if footprint.is_broad or member.footprint.is_broad
        )


def _meet_beyond_keys(plan: PublishPlan, other_plan: PublishPlan) -> bool:
    """Whether the plans meet by wildcards, reads of whole tables or predicates, in either direction."""
    return _depends_on(plan.footprint, other_plan) or _depends_on(other_plan.footprint, plan)


def _depends_on(footprint: Footprint, other_plan: PublishPlan) -> bool:
    rows = {action.table: action.rows for action in other_plan.actions}
    return depends_on_member(footprint, other_plan.footprint, rows)


def _count_inline_entries(plan: PublishPlan) -> int:
    return sum(action.entries for action in plan.actions if action.move is None)


def _tables_to_move(plan: PublishPlan) -> set[str]:
    return {action.table for action in plan.actions if action.move is not None}
