"""Tables: the only package that knows Lance.

A table version is a *detached* Lance version: immutable, found by its id alone, and named by nobody until a commit
record does. Lance checks nothing when it makes one (no conflict, no key), so exactly one function commits
(`TableStore.commit`), it takes a pinned handle, and everything it applies was computed against that very pin.
"""

from omnigraph.storage.lance.bulk_tables import (
    BulkTables,
    Removal,
    TablePlace,
    build_elsewhere,
    delete_at,
)
from omnigraph.storage.lance.compaction import (
    RewriteOptions,
    plan_rewrite,
    rewrite_groups,
    rewrite_tasks,
    run_rewrite,
    run_rewrite_task,
)
from omnigraph.storage.lance.difference import Piece, candidate_ids, piece_batches, pieces_of, twins_of
from omnigraph.storage.lance.indexes import IndexPlan, IndexSpec, parts_of, plan_index
from omnigraph.storage.lance.open_versions import IoStats
from omnigraph.storage.lance.pinned_table import IndexInfo, PinnedTable
from omnigraph.storage.lance.staged_table import StagedTable, StagedVersion, TableDelta
from omnigraph.storage.lance.table_store import Elsewhere, TableStore

__all__ = [
    "BulkTables",
    "Elsewhere",
    "IndexInfo",
    "IndexPlan",
    "IndexSpec",
    "IoStats",
    "Piece",
    "PinnedTable",
    "Removal",
    "RewriteOptions",
    "StagedTable",
    "StagedVersion",
    "TableDelta",
    "TablePlace",
    "TableStore",
    "build_elsewhere",
    "candidate_ids",
    "delete_at",
    "parts_of",
    "piece_batches",
    "pieces_of",
    "plan_index",
    "plan_rewrite",
    "rewrite_groups",
    "rewrite_tasks",
    "run_rewrite",
    "run_rewrite_task",
    "twins_of",
]
