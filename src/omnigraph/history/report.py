"""What a merge did, or would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from omnigraph.commit.publish_plan import PublishPlan, Receipt

_NOTHING = {"inserted": 0, "updated": 0, "deleted": 0}


@dataclass(frozen=True, slots=True)
class MergeReport:
    """`outcome` is already_up_to_date, fast_forward or merged; `commit_id` is None if nothing was written."""

    outcome: str
    commit_id: str | None
    counts: Mapping[str, int]
    dry_run: bool = False
    branch_deleted: bool = False  # asked for, and the source had not moved on

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, receipt: Receipt, *, branch_deleted: bool = False) -> MergeReport:
        counts = {**_NOTHING, **receipt.counts}
        return cls(receipt.result["outcome"], receipt.commit_id, counts, branch_deleted=branch_deleted)

    @classmethod
    def preview(cls, prepared: PublishPlan | Receipt) -> MergeReport:
        return cls(prepared.result["outcome"], None, {**_NOTHING, **prepared.counts}, dry_run=True)
