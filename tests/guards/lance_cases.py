"""Small Lance tables for the guards, made with Lance alone: a guard is about Lance, not about our code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import FragmentMetadata, write_fragments

SCHEMA = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("n", pa.int64())])


def create_table(root: Path, schema: pa.Schema = SCHEMA) -> LanceDataset:
    """An empty table at version 1, under a session of its own."""
    LanceDataset.commit(str(root / "t"), LanceOperation.Overwrite(schema, []), read_version=0, max_retries=0)
    return LanceDataset(str(root / "t"), 1, session=lance.Session())


def rows(*ids: str, start: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "n": range(start, start + len(ids))}, schema=SCHEMA)


def write_rows(base: LanceDataset, table: pa.Table) -> list[FragmentMetadata]:
    fragments: list[FragmentMetadata] = write_fragments(table, base, mode="overwrite")
    return fragments


def commit_detached(base: LanceDataset, operation: Any) -> LanceDataset:
    return LanceDataset.commit(base, Transaction(base.version, operation), detached=True)


def append_ids(base: LanceDataset, *ids: str) -> LanceDataset:
    return commit_detached(base, LanceOperation.Append(write_rows(base, rows(*ids))))


def ids(dataset: LanceDataset, where: Any = None) -> list[str]:
    return sorted(dataset.to_table(columns=["id"], filter=where)["id"].to_pylist())


def build_index(base: LanceDataset, column: str = "id", kind: str = "BTREE", **more: Any) -> LanceDataset:
    fragments = [get_fragment.fragment_id for get_fragment in base.get_fragments()]
    index_uncommitted = base.create_index_uncommitted(column, kind, name=f"by_{column}", fragment_ids=fragments, **more)
    return commit_detached(base, LanceOperation.CreateIndex([index_uncommitted], []))
