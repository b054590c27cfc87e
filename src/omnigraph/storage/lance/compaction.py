"""Compaction: small fragments and removed rows become few full fragments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.storage.lance.errors import lance_call
from omnigraph.storage.lance.pinned_table import PinnedTable

if TYPE_CHECKING:
    from lance import LanceOperation
    from lance.fragment import FragmentMetadata
    from lance.optimize import CompactionTask, RewriteResult


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    """Which fragments are worth rewriting: those below the target, and those with this share of removed rows.

    A fragment above `small_rows` joins smaller ones only if it has at most `size_ratio` times their rows: so a row is
    rewritten a few times in its life and not by every run, and a table keeps a handful of fragments, each much larger
    than the last.
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
    """One fragment as the grouping sees it."""

    id: int
    rows: int
    removed: int
    size_bytes: int

    @classmethod
    def of(cls, fragment: FragmentMetadata) -> FragmentSize:
        size_bytes = sum(file.file_size_bytes or 0 for file in fragment.files)
        return cls(fragment.id, fragment.num_rows, fragment.physical_rows - fragment.num_rows, size_bytes)

    @property
    def live_bytes(self) -> int:
        return self.size_bytes * self.rows // max(1, self.rows + self.removed)


def group_fragments(fragments: Sequence[FragmentSize], options: RewriteOptions) -> list[list[int]]:
    """Ids of fragments to be rewritten together. What a run has grouped, the next run leaves alone.

    Lance's own planner never mixes indexed with unindexed fragments, so it would need a second run after the
    indexes have caught up.
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
    """What `plan_rewrite` would do, without a request."""
    return group_fragments([FragmentSize.of(fragment) for fragment in base.metadata], options)


def plan_rewrite(base: PinnedTable, options: RewriteOptions) -> list[CompactionTask]:
    """Independent tasks; each can be pickled and run where there is room for it."""
    groups = rewrite_groups(base, options)
    if not groups:
        return []
    from lance.optimize import Compaction, CompactionTask

    by_id = {one.id: one for one in base.metadata}
    with lance_call(f"plan compaction of table {base.table}"):
        # Lance's planner is asked about nothing: only it can spell out all the options that a task needs.
        lance_options = {**options.for_lance(), "excluded_fragment_ids": list(by_id)}
        empty_plan = json.loads(Compaction.plan(base.lance(), lance_options).json())
        shared = {
            "read_version": empty_plan["read_version"],
            "options": {**empty_plan["options"], "excluded_fragment_ids": []},
        }
        return [
            CompactionTask.from_json(
                json.dumps({"task": {"fragments": [by_id[one].to_json() for one in group]}, **shared})
            )
            for group in groups
        ]


def rewrite_tasks(base: PinnedTable, options: RewriteOptions) -> list[str]:
    """The tasks of `plan_rewrite` as texts, for other processes."""
    return [task.json() for task in plan_rewrite(base, options)]


def run_rewrite_task(base: PinnedTable, task: str) -> str:
    """Do one of them, anywhere; the text of its result."""
    from lance.optimize import CompactionTask

    return str(run_rewrite(base, CompactionTask.from_json(task)).json())


def rewrite_results(texts: Iterable[str]) -> list[RewriteResult]:
    from lance.optimize import RewriteResult

    return [RewriteResult.from_json(text) for text in texts]


def run_rewrite(base: PinnedTable, task: CompactionTask) -> RewriteResult:
    """Write the new files of one task; nobody names them yet."""
    with lance_call(f"compact table {base.table}"):
        return task.execute(base.lance())


def rewrite_operation(base: PinnedTable, results: Sequence[RewriteResult]) -> LanceOperation.BaseOperation:
    """Fresh ids are set by hand: left at zero, an index would claim to cover a fragment that it never saw."""
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
