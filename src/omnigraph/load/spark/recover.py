"""A load whose process is gone, asked about the commits that landed since: by its staged rows, as it would have."""

from __future__ import annotations

from omnigraph.commit.graph_runtime import Site
from omnigraph.commit.publish_plan import Judge, TableAction
from omnigraph.intents.plan_codec import SavedPlan
from omnigraph.load.spark.rebase import Recheck
from omnigraph.spark.base_table import BaseTable
from omnigraph.spark.constraints_by_shuffle import LoadedTable
from omnigraph.storage.lance import StagedTable


def judge_of(site: Site, saved: SavedPlan) -> Judge:
    """The judge of a confirmed load. Raises ObjectMissing if what it staged is gone."""
    catalog = site.catalogs.get(saved.schema)
    tables = site.backend.tables
    loaded = {}
    for action in saved.actions:
        staged = _staged(action)
        loaded[action.table] = LoadedTable(
            type=catalog.by_id[action.table],
            base=BaseTable(action.move.expected if action.move else None, None),
            staged=staged,
            own=tuple(tables.bulk.own_fragments(staged)),
            overwrite=action.overwrite,
            replaces=action.overwrite or action.updated > 0,
            repeats=False,
        )
    return Recheck(catalog, tables, loaded).judge


def _staged(action: TableAction) -> StagedTable:
    assert action.move is not None
    assert isinstance(action.move.staged, StagedTable)
    return action.move.staged
