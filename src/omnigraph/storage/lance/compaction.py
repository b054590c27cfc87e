"""Compaction: rewrites small fragments, and fragments with many removed rows, into few full ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.storage.lance.errors import lance_call
from omnigraph.storage.lance.pinned_table import PinnedTable
from omnigraph.storage.lance.staged_table import data_bytes

if TYPE_CHECKING:
    from lance import LanceOperation
    from lance.fragment import FragmentMetadata
    from lance.optimize import CompactionTask, RewriteResult


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    """Which fragments are worth rewriting: those below `target_rows`, and those with this share of removed rows.

    A fragment above `small_rows` joins smaller ones only if it has at most `size_ratio` times their rows. So a row is
    rewritten a few times in its life and not by every run, and a table keeps a handful of fragments, each much larger
    than the one before.
    """

    target_rows: int = 1 << 20
    removed_ratio: float = 0.1
    max_bytes_per_file: int = 512 << 20
    max_source_bytes: int = 512 << 20
    small_rows: int = 1 << 16
    size_ratio: int = 4

    def for_lance(self) -> dict[str, Any]:
        return {
            "target_rows_per_fragment": self.target_rows,
            "materialize_deletions": True,
            "materialize_deletions_threshold": self.removed_ratio,
            "max_bytes_per_file": self.max_bytes_per_file,
        }


@dataclass(frozen=True, slots=True)
class FragmentSize:
    """The rows and bytes of one fragment, from which compaction decides."""

    id: int
    rows: int
    removed: int
    size_bytes: int

    @classmethod
    def of(cls, fragment: FragmentMetadata) -> FragmentSize:
        removed = fragment.physical_rows - fragment.num_rows
        return cls(fragment.id, fragment.num_rows, removed, data_bytes([fragment]))

    @property
    def live_bytes(self) -> int:
        return self.size_bytes * self.rows // max(1, self.rows + self.removed)


def group_fragments(fragments: Sequence[FragmentSize], options: RewriteOptions) -> list[list[int]]:
    """Groups of fragment ids to rewrite together. The next run leaves the result of a group alone.

    Not Lance's own planner, since that never mixes indexed with unindexed fragments: it would need a second run after
    the indexes have caught up.
    """
    wasteful = {
        fragment.id
        for fragment in fragments
        if fragment.removed > options.removed_ratio * (fragment.rows + fragment.removed)
    }
    small = [fragment for fragment in fragments if fragment.rows < options.target_rows or fragment.id in wasteful]
    groups: list[list[FragmentSize]] = []
    for fragment in sorted(small, key=lambda fragment: (fragment.rows, fragment.id)):
        if groups and _can_join(fragment, groups[-1], options):
            groups[-1].append(fragment)
        else:
            groups.append([fragment])
    worth = [group for group in groups if len(group) > 1 or group[0].id in wasteful]
    return [sorted(fragment.id for fragment in group) for group in worth]


def _can_join(fragment: FragmentSize, group: Sequence[FragmentSize], options: RewriteOptions) -> bool:
    rows = sum(member.rows for member in group)
    return (
        fragment.rows <= max(options.small_rows, options.size_ratio * rows)
        and rows + fragment.rows <= options.target_rows
        and sum(member.live_bytes for member in group) + fragment.live_bytes <= options.max_source_bytes
    )


def rewrite_groups(base: PinnedTable, options: RewriteOptions) -> list[list[int]]:
    """The groups that `plan_rewrite` would rewrite, found without a request."""
    return group_fragments([FragmentSize.of(fragment) for fragment in base.metadata], options)


def plan_rewrite(base: PinnedTable, options: RewriteOptions) -> list[CompactionTask]:
    """Independent tasks, each of which can be pickled and run in any process."""
    groups = rewrite_groups(base, options)
    if not groups:
        return []
    from lance.optimize import Compaction, CompactionTask

    by_id = {fragment.id: fragment for fragment in base.metadata}
    with lance_call(f"plan compaction of table {base.table}"):
        # A plan of Lance over no fragment: only Lance can spell out all the options that a task needs.
        lance_options = {**options.for_lance(), "excluded_fragment_ids": list(by_id)}
        empty_plan = json.loads(Compaction.plan(base.lance(), lance_options).json())
        shared = {
            "read_version": empty_plan["read_version"],
            "options": {**empty_plan["options"], "excluded_fragment_ids": []},
        }
        return [
            CompactionTask.from_json(
                json.dumps({"task": {"fragments": [by_id[fragment_id].to_json() for fragment_id in group]}, **shared})
            )
            for group in groups
        ]


def rewrite_tasks(base: PinnedTable, options: RewriteOptions) -> list[str]:
    """The tasks of `plan_rewrite` as JSON, for other processes."""
    return [task.json() for task in plan_rewrite(base, options)]


def run_rewrite_task(base: PinnedTable, task: str) -> str:
    """Run one task of `rewrite_tasks`, in any process, and return its result as JSON."""
    from lance.optimize import CompactionTask

    return str(run_rewrite(base, CompactionTask.from_json(task)).json())


def rewrite_results(texts: Iterable[str]) -> list[RewriteResult]:
    from lance.optimize import RewriteResult

    return [RewriteResult.from_json(text) for text in texts]


def run_rewrite(base: PinnedTable, task: CompactionTask) -> RewriteResult:
    """Write the new files of one task; no version names them yet."""
    with lance_call(f"compact table {base.table}"):
        return task.execute(base.lance())


def rewrite_operation(base: PinnedTable, results: Sequence[RewriteResult]) -> LanceOperation.BaseOperation:
    """The operation that replaces the old fragments by the rewritten ones.

    New fragments get ids that were never used: with id zero, an index would claim to cover a fragment it never saw.
    """
    from lance import LanceOperation as Op

    fragment_id = base.max_fragment_id
    groups = []
    for result in results:
        new = list(result.new_fragments)
        for fragment in new:
            fragment_id += 1
            fragment.id = fragment_id
        groups.append(Op.RewriteGroup(result.original_fragments, new))
    return Op.Rewrite(groups, [])
