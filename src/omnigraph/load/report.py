"""The report of a load, and the error of a load that is refused because of rejected records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from omnigraph.commit.publish_plan import Receipt
from omnigraph.errors import LoadRejected
from omnigraph.load.records.batches import Reject

SAMPLE_SIZE = 20


@dataclass(frozen=True, slots=True)
class RejectSummary:
    """How many records were rejected, by code, and the first few of them."""

    count: int = 0
    by_code: Mapping[str, int] = field(default_factory=dict)
    sample: tuple[Reject, ...] = ()

    @classmethod
    def from_rejects(cls, rejects: Sequence[Reject]) -> RejectSummary:
        """Summarizes all rejects, which are in the order of the input."""
        return cls(len(rejects), dict(Counter(reject.code for reject in rejects)), tuple(rejects[:SAMPLE_SIZE]))


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did. `commit_id` is None if nothing changed; `counts` are by table, such as `node:Person`."""

    commit_id: str | None
    counts: Mapping[str, Mapping[str, int]]
    rejects: int = 0
    rejects_by_code: Mapping[str, int] = field(default_factory=dict)
    sample: tuple[Mapping[str, Any], ...] = ()
    duplicates: int = 0
    rejects_path: str | None = None
    engine: str = "local"
    replayed: bool = False
    attempts: int = 1

    @property
    def commit(self) -> str | None:
        return self.commit_id

    @property
    def loaded(self) -> int:
        """The number of rows that were inserted or updated."""
        return sum(table_counts["inserted"] + table_counts["updated"] for table_counts in self.counts.values())

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "sample": [dict(reject) for reject in self.sample]}

    @classmethod
    def from_receipt(cls, receipt: Receipt) -> LoadReport:
        """Builds the report from a receipt. A load repeated with the same client key reports what the first one did."""
        result = dict(receipt.result)
        return cls(
            receipt.commit_id,
            result.get("counts", {}),
            result.get("rejects", 0),
            result.get("rejects_by_code", {}),
            tuple(result.get("sample", ())),
            result.get("duplicates", 0),
            result.get("rejects_path"),
            result.get("engine", "local"),
            receipt.replayed,
            receipt.attempts,
        )


def build_load_result(
    counts: Mapping[str, Mapping[str, int]],
    summary: RejectSummary,
    *,
    duplicates: int,
    rejects_path: str | None,
    engine: str,
) -> dict[str, Any]:
    """Builds the result that is stored under the client key of a load, so without the texts of sampled rejects."""
    return {
        "counts": {table: dict(table_counts) for table, table_counts in counts.items()},
        "rejects": summary.count,
        "rejects_by_code": dict(summary.by_code),
        "duplicates": duplicates,
        "rejects_path": rejects_path,
        "engine": engine,
    }


def load_rejected_error(
    summary: RejectSummary, rejects_path: str | None = None, *, even_skipping: bool = False
) -> LoadRejected:
    """Builds the error: the first rejects with file, line, column, code and reason, and the totals by code."""
    first = summary.sample[0]
    more = f" (and {summary.count - 1} more)" if summary.count > 1 else ""
    where = f"{first.file}, line {first.line}: " if first.line else ""
    advice = (
        "Nothing was loaded; what is wrong is not in the input, so that no record can be skipped to mend it"
        if even_skipping
        else "Nothing was loaded; fix the records, or use --on-error skip --rejects DIR to load the others"
    )
    return LoadRejected(
        f"{where}{first.reason}{more}",
        advice=advice,
        rejects=[reject.to_json() for reject in summary.sample],
        reject_count=summary.count,
        totals=dict(sorted(summary.by_code.items())),
        rejects_path=rejects_path,
    )
