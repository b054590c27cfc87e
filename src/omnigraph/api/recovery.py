"""Recovery of bulk operations, for the facade: it also knows how a load decides whether it conflicts.

`intents` may not import `load`, so the function is handed down from here.
"""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import ConflictCheck
from omnigraph.intents.plan_codec import SavedPlan
from omnigraph.intents.recovery import Recovery


def make_recovery(runtime: GraphRuntime, holders: Mapping[str, str] | None = None) -> Recovery:
    return Recovery(runtime, holders, restore_conflict_check=_restore_conflict_check)


def _restore_conflict_check(runtime: GraphRuntime, saved: SavedPlan) -> ConflictCheck:
    # Only a pending load needs this, so only it pays for the import.
    from omnigraph.load.spark.rebase import restore_conflict_check

    return restore_conflict_check(runtime, saved)
