"""Tables: the only package that knows Lance.

A table version is a *detached* Lance version: immutable, found by its id alone, and named by nobody until a commit
record does. Lance checks nothing when it makes one (no conflict, no key), so exactly one function commits
(`TableStore.commit`), it takes a pinned handle, and everything it applies was computed against that very pin.
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
from omnigraph.storage.lance.version_difference import (
    FragmentDifference,
    candidate_ids,
    differing_rows,
    fragment_differences,
    map_shared_fragments,
)

__all__ = [
    "BulkTables",
    "FragmentDifference",
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
    "candidate_ids",
    "delete_offsets",
    "differing_rows",
    "fragment_differences",
    "map_shared_fragments",
    "plan_index",
    "plan_rewrite",
    "rewrite_groups",
    "rewrite_tasks",
    "run_rewrite",
    "run_rewrite_task",
    "split_index_plan",
]
