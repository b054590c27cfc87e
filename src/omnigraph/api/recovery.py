"""Recovery as the facade runs it: with the judges of operations that live in layers above the write path."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import ConflictCheck
from omnigraph.intents.plan_codec import SavedPlan
from omnigraph.intents.recovery import Recovery


def make_recovery(runtime: GraphRuntime, holders: Mapping[str, str] | None = None) -> Recovery:
    return Recovery(runtime, holders, restore_conflict_check=_judge_of)


def _judge_of(runtime: GraphRuntime, saved: SavedPlan) -> ConflictCheck:
    # Only a pending load needs this, so only it pays for the import.
    from omnigraph.load.spark.rebase import restore_conflict_check

    return restore_conflict_check(runtime, saved)
