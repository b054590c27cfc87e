"""Tables: the only package that knows Lance. It holds pinned versions, staging, indexes, compaction and `arrow_fit`.

A table version is a *detached* Lance version: immutable, found by its id alone, and invisible until a commit record
names it. Lance checks nothing when it makes a version (no conflict, no key), so exactly one function calls Lance's
commit (`TableStore._commit`), on a pinned handle, with changes that were computed against that pin.
Every room from `log` upwards may import this package; nothing here imports a room other than `schema` and `storage`.
"""

from omnigraph.storage.lance.bulk_tables import (
    BulkTables,
    Removal,
    TableLocation,
    build_segment,
    delete_offsets,
)
from omnigraph.storage.lance.compaction import (
    RewriteOptions,
    plan_rewrite,
    rewrite_groups,
    rewrite_tasks,
    run_rewrite,
    run_rewrite_task,
)
from omnigraph.storage.lance.indexes import IndexPlan, IndexSpec, plan_index, split_index_plan
from omnigraph.storage.lance.open_versions import IoStats
from omnigraph.storage.lance.pinned_table import IndexInfo, PinnedTable
from omnigraph.storage.lance.staged_table import StagedTable, StagedVersion, TableDelta
from omnigraph.storage.lance.table_store import RewriteExecutor, TableStore

__all__ = [
    "BulkTables",
    "IndexInfo",
    "IndexPlan",
    "IndexSpec",
    "IoStats",
    "PinnedTable",
    "Removal",
    "RewriteExecutor",
    "RewriteOptions",
    "StagedTable",
    "StagedVersion",
    "TableDelta",
    "TableLocation",
    "TableStore",
    "build_segment",
    "delete_offsets",
    "plan_index",
    "plan_rewrite",
    "rewrite_groups",
    "rewrite_tasks",
    "run_rewrite",
    "run_rewrite_task",
    "split_index_plan",
]
