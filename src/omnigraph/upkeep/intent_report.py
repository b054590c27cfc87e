"""The report of `recover --list`: every intent, and the files that abandoned intents left for cleanup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import Corruption, NotFound, Unsupported
from omnigraph.intents.objects import IntentAborted, IntentConfirmed, store_now
from omnigraph.intents.states import IntentFolder, IntentState, list_intents, read_intent
from omnigraph.storage.store import ObjectInfo
from omnigraph.upkeep.cleanup.mark import Marks
from omnigraph.upkeep.cleanup.report import FileTotals, total_by_area
from omnigraph.upkeep.cleanup.survey import read_archived_body, take_survey

IntentStatus = Literal["live", "unconfirmed", "confirmed", "aborted", "done", "abandoned", "unreadable"]


@dataclass(frozen=True)
class IntentReport:
    """One intent. `garbage` totals, by table, the files written while it ran that no commit names."""

    id: str
    state: IntentStatus
    opened_at: datetime
    last_sign_at: datetime
    operation: str | None = None
    branch: str | None = None
    actor: str | None = None
    base: str | None = None
    commit_id: str | None = None
    reason: str | None = None
    garbage: Mapping[str, FileTotals] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "state": self.state,
            "operation": self.operation,
            "branch": self.branch,
            "actor": self.actor,
            "base": self.base,
            "opened_at": self.opened_at.isoformat(),
            "last_sign_at": self.last_sign_at.isoformat(),
            "commit_id": self.commit_id,
            "reason": self.reason,
            "garbage": [
                {"place": area, "files": total.files, "size_bytes": total.size_bytes}
                for area, total in sorted((self.garbage or {}).items())
            ],
        }


def report_intents(runtime: GraphRuntime) -> list[IntentReport]:
    """Reports all intents, the oldest first."""
    folders = {folder.op_id: folder for folder in list_intents(runtime.backend.store) if folder.has_opening}
    if not folders:
        return []
    # The store's time costs a write. A read-only graph uses its own clock, since a listing decides nothing.
    now = runtime.backend.clock.now() if runtime.read_only else store_now(runtime.backend)
    reports = [_report_intent(runtime, folder, now) for folder in folders.values()]
    unnamed = _find_unnamed_files(runtime) if any(report.state == "abandoned" for report in reports) else None
    if unnamed is not None:
        reports = [
            replace(report, garbage=_files_left_by(folders[report.id], unnamed))
            if report.state == "abandoned"
            else report
            for report in reports
        ]
    return sorted(reports, key=lambda report: (report.opened_at, report.id))


def _report_intent(runtime: GraphRuntime, folder: IntentFolder, now: datetime) -> IntentReport:
    try:
        state = read_intent(runtime.backend, folder)
    except (Corruption, Unsupported) as error:
        return IntentReport(folder.op_id, "unreadable", folder.opening_time, folder.last_sign_at, reason=error.message)
    opening = state.opening
    return IntentReport(
        id=folder.op_id,
        state=_classify(state, now, runtime.backend.config.recovery_grace),
        opened_at=folder.opening_time,
        last_sign_at=folder.last_sign_at,
        operation=opening.operation,
        branch=opening.branch,
        actor=opening.actor,
        base=opening.base,
        commit_id=state.ending.commit_id if state.ending else None,
        reason=_reason(state),
    )


def _classify(state: IntentState, now: datetime, grace_s: float) -> IntentStatus:
    if state.ending is not None:
        return state.ending.outcome
    if isinstance(state.decision, IntentAborted):
        return "aborted"
    if state.is_live(now, grace_s):
        return "live"
    return "confirmed" if isinstance(state.decision, IntentConfirmed) else "unconfirmed"


def _reason(state: IntentState) -> str | None:
    if state.ending is not None:
        return state.ending.reason
    return state.decision.reason if isinstance(state.decision, IntentAborted) else None


def _find_unnamed_files(runtime: GraphRuntime) -> list[ObjectInfo] | None:
    """Returns the table files that no commit names, of any age. None if the graph is too damaged to tell."""
    tables = runtime.backend.tables.without_cache()
    try:
        survey = take_survey(runtime, {}, {}, runtime.backend.clock.now())
        marks = Marks(runtime.backend, tables, runtime.catalogs)
        marks.add(record for state in survey.streams.values() for record in state.records())
        marks.add(read_archived_body(runtime, info) for info in survey.archived.values())
        return [info for info in runtime.backend.store.list("tables/") if info.key not in marks]
    except (Corruption, NotFound, Unsupported):
        return None
    finally:
        tables.close()


def _files_left_by(folder: IntentFolder, unnamed: Sequence[ObjectInfo]) -> dict[str, FileTotals]:
    assert folder.ending_time is not None
    return total_by_area(info for info in unnamed if folder.opening_time <= info.modified_at <= folder.ending_time)
