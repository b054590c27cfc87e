"""What `recover --list` tells: every intent, and what those that were given up have left for cleanup."""

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
from omnigraph.upkeep.cleanup.report import Counted, by_table
from omnigraph.upkeep.cleanup.survey import archived_body, take_survey

State = Literal["live", "unconfirmed", "confirmed", "aborted", "done", "abandoned", "unreadable"]


@dataclass(frozen=True)
class IntentReport:
    """One intent. `garbage` counts, by table, files that no commit names and that were written while it ran."""

    id: str
    state: State
    opened_at: datetime
    last_sign_at: datetime
    operation: str | None = None
    branch: str | None = None
    actor: str | None = None
    base: str | None = None
    commit_id: str | None = None
    reason: str | None = None
    garbage: Mapping[str, Counted] | None = None

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
                {"place": place, "files": one.files, "size_bytes": one.size_bytes}
                for place, one in sorted((self.garbage or {}).items())
            ],
        }


def report_intents(site: GraphRuntime) -> list[IntentReport]:
    """All of them, the oldest first."""
    found = [one for one in list_intents(site.backend.store) if one.has_opening]
    if not found:
        return []
    # Asking the store for its time is a write. Who may only read uses its own: a listing decides nothing.
    now = site.backend.clock.now() if site.read_only else store_now(site.backend)
    told = [_report(site, one, now) for one in found]
    given_up = {one.op_id: one for one in found if one.has_ended}
    unnamed = _unnamed(site) if any(one.state == "abandoned" for one in told) else None
    return sorted(
        (
            replace(one, garbage=_left_by(given_up[one.id], unnamed))
            if unnamed is not None and one.state == "abandoned"
            else one
            for one in told
        ),
        key=lambda one: (one.opened_at, one.id),
    )


def _report(site: GraphRuntime, found: IntentFolder, now: datetime) -> IntentReport:
    try:
        state = read_intent(site.backend, found)
    except (Corruption, Unsupported) as error:
        return IntentReport(found.op_id, "unreadable", found.opening_time, found.last_sign_at, reason=error.message)
    opening = state.opening
    return IntentReport(
        id=found.op_id,
        state=_state(state, now, site.backend.config.recovery_grace),
        opened_at=found.opening_time,
        last_sign_at=found.last_sign_at,
        operation=opening.operation,
        branch=opening.branch,
        actor=opening.actor,
        base=opening.base,
        commit_id=state.ending.commit_id if state.ending else None,
        reason=_reason(state),
    )


def _state(state: IntentState, now: datetime, grace_s: float) -> State:
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


def _unnamed(site: GraphRuntime) -> list[ObjectInfo] | None:
    """Files of tables that no commit names, whatever their age. None if the graph is too damaged to tell."""
    tables = site.backend.tables.without_cache()
    try:
        survey = take_survey(site, {}, {}, site.backend.clock.now())
        marks = Marks(site.backend, tables, site.catalogs)
        marks.add(record for state in survey.streams.values() for record in state.records())
        marks.add(archived_body(site, info) for info in survey.archived.values())
        return [one for one in site.backend.store.list("tables/") if one.key not in marks]
    except (Corruption, NotFound, Unsupported):
        return None
    finally:
        tables.close()


def _left_by(found: IntentFolder, unnamed: Sequence[ObjectInfo]) -> dict[str, Counted]:
    assert found.ending_time is not None
    return by_table(one for one in unnamed if found.opening_time <= one.modified_at <= found.ending_time)
