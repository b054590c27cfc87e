"""Compaction: small fragments and removed rows become few full fragments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.pinned import PinnedTable

if TYPE_CHECKING:
    from lance import LanceOperation
    from lance.optimize import CompactionTask, RewriteResult


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    """Which fragments are worth rewriting: those below the target, and those with this share of removed rows."""

    target_rows: int = 1 << 20
    removed_ratio: float = 0.1
    max_bytes_per_file: int = 512 << 20
    max_source_bytes: int | None = None

    def for_lance(self) -> dict[str, Any]:
        return {
            "target_rows_per_fragment": self.target_rows,
            "materialize_deletions": True,
            "materialize_deletions_threshold": self.removed_ratio,
            "max_bytes_per_file": self.max_bytes_per_file,
            "max_source_bytes": self.max_source_bytes,
        }


def plan_rewrite(base: PinnedTable, options: RewriteOptions) -> list[CompactionTask]:
    """Independent tasks; each can be pickled and run where there is room for it."""
    from lance.optimize import Compaction

    with lance_call(f"plan compaction of table {base.table}"):
        return list(Compaction.plan(base.lance(), options.for_lance()).tasks)


def run_rewrite(base: PinnedTable, task: CompactionTask) -> RewriteResult:
    """Write the new files of one task; nobody names them yet."""
    with lance_call(f"compact table {base.table}"):
        return task.execute(base.lance())


def rewrite_operation(base: PinnedTable, results: Sequence[RewriteResult]) -> LanceOperation.BaseOperation:
    """Fresh ids are set by hand: left at zero, an index would claim to cover a fragment that it never saw."""
    from lance import LanceOperation as Op

    number = base.max_fragment_id
    groups = []
    for result in results:
        new = list(result.new_fragments)
        for one in new:
            number += 1
            one.id = number
        groups.append(Op.RewriteGroup(result.original_fragments, new))
    return Op.Rewrite(groups, [])
