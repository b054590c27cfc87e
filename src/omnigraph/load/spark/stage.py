"""Stage: workers write portions as data files, and the driver adds those files to staged versions of the tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from omnigraph.commit.staging import base_table
from omnigraph.load.records.batches import FRESH_ID_COLUMN, RecordProblem, Reject
from omnigraph.load.spark.parse import Portion, StageJob, parse_split
from omnigraph.log.snapshot import Snapshot
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.spark.constraint_selection import LoadedTable
from omnigraph.spark.table_rows import BaseTable
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import StagedTable
from omnigraph.storage.lance.arrow_fit import select_and_cast

#: Rejects that a task returns as a sample; all of them go into its reject file.
TASK_SAMPLE = 20


# --- in a worker -----------------------------------------------------------------------------------------------


def stage_split(job: StageJob, split_number: int) -> Iterator[dict[str, Any]]:
    """Write the rows of a split; one result per portion."""
    for portion_number, portion in enumerate(parse_split(job, split_number)):
        yield stage_portion(job, portion, split_number, portion_number)


def stage_portion(job: StageJob, portion: Portion, split_number: int, portion_number: int) -> dict[str, Any]:
    """Write a portion; the result tells the driver of its files and counts."""
    job.write_rejects(f"part-{split_number:05d}-{portion_number:03d}.ndjson", portion.rejects)
    store = job.location.open()
    tables: dict[str, Any] = {}
    for type_id, rows in portion.tables.items():
        type_def = job.type_def(type_id)
        if job.bases[type_id].version is None:
            store.birth(type_id, type_def.kind)  # several workers may do so: all end with the same empty version
        fragments = store.write_rows(type_id, select_and_cast(rows, arrow_schema(type_def)))
        tables[type_id] = {
            "fragments": [json.loads(fragment) for fragment in fragments],
            "present": portion.existing_ids.get(type_id, 0),
            "minted": bool(pc.all(rows.column(FRESH_ID_COLUMN)).as_py()),
        }
    return {
        "split": split_number,
        "portion": portion_number,
        "tables": tables,
        "duplicates": portion.duplicates,
        **summarize_rejects(portion.rejects),
    }


def summarize_rejects(rejects: Sequence[Reject]) -> dict[str, Any]:
    """What a task returns of its rejects: counts by code and a sample."""
    return {
        "rejected": dict(Counter(reject.code for reject in rejects)),
        "sample": [reject.to_json() for reject in rejects[:TASK_SAMPLE]],
    }


# --- on the driver: descriptions of files and numbers, never rows ------------------------------------------------


@dataclass(frozen=True, slots=True)
class FragmentOrigin:
    """Which part of the input a fragment holds: a portion of a split, from this row of its table on."""

    split: int
    portion: int
    first_row: int


@dataclass
class StagingResult:
    """What the staging tasks wrote, by table: fragments in the order of the input, and what is known of their ids."""

    fragments: dict[str, list[str]] = field(default_factory=dict)
    origins: dict[str, dict[str, FragmentOrigin]] = field(default_factory=dict)  # by the path of the data file
    existing_ids: Counter[str] = field(default_factory=Counter)
    portions: Counter[str] = field(default_factory=Counter)
    tables_with_fresh_ids: set[str] = field(default_factory=set)  # all of their ids were made by the load
    rows: int = 0
    duplicates: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    sample: list[Reject] = field(default_factory=list)

    @classmethod
    def from_tasks(cls, task_results: Iterable[Mapping[str, Any]]) -> StagingResult:
        staging = cls()
        tables_with_input_ids: set[str] = set()
        for task_result in sorted(task_results, key=lambda result: (result["split"], result["portion"])):
            staging.duplicates += task_result["duplicates"]
            staging.rejected.update(task_result["rejected"])
            staging.sample += [decode_reject(raw) for raw in task_result["sample"]]
            for table, portion in task_result["tables"].items():
                staging._add(table, portion, task_result["split"], task_result["portion"])
                tables_with_input_ids |= set() if portion["minted"] else {table}
        staging.tables_with_fresh_ids = set(staging.fragments) - tables_with_input_ids
        return staging

    def _add(self, table: str, portion: Mapping[str, Any], split_number: int, portion_number: int) -> None:
        self.existing_ids[table] += portion["present"]
        self.portions[table] += 1
        first_row = 0
        for fragment in portion["fragments"]:
            self.fragments.setdefault(table, []).append(json.dumps(fragment))
            path = fragment["files"][0]["path"]
            self.origins.setdefault(table, {})[path] = FragmentOrigin(split_number, portion_number, first_row)
            first_row += fragment["physical_rows"]
        self.rows += first_row


@dataclass(frozen=True)
class StagedInput:
    """One table with the rows of the input added, as a version that no commit names yet."""

    type_def: TypeDef
    base: BaseTable
    staged: StagedTable
    input_fragments: tuple[int, ...]  # those of the staged version that hold rows of the input
    is_overwritten: bool
    may_replace_existing_ids: bool
    may_repeat_ids: bool

    @property
    def has_rows(self) -> bool:
        return bool(self.input_fragments)

    @property
    def facts(self) -> LoadedTable:
        return LoadedTable(
            self.type_def.kind,
            self.has_rows,
            not self.base.is_empty,
            self.is_overwritten,
            self.may_replace_existing_ids,
            self.may_repeat_ids,
        )


def stage_tables(
    backend: Backend, snapshot: Snapshot, job: StageJob, staging: StagingResult, named_types: Sequence[str]
) -> dict[str, StagedInput]:
    """A staged version of every table that the input has rows for, and of `named_types`, which an overwrite empties."""
    is_overwritten = job.mode == "overwrite"
    tables = dict.fromkeys([*named_types, *staging.fragments])
    bulk = backend.tables.bulk

    def stage(table: str) -> StagedInput:
        type_def, base = snapshot.catalog.by_id[table], job.bases[table]
        _, pinned = base_table(backend, snapshot.record, table, type_def.kind)
        fragments = staging.fragments.get(table, ())
        staged = bulk.stage(pinned, arrow_schema(type_def), fragments, overwrite=is_overwritten)
        has_hidden_rows = base.version is not None and base.overlay is not None
        return StagedInput(
            type_def=type_def,
            base=base,
            staged=staged,
            input_fragments=tuple(bulk.ids_of_new_fragments(staged)),
            is_overwritten=is_overwritten,
            may_replace_existing_ids=is_overwritten or staging.existing_ids[table] > 0 or has_hidden_rows,
            may_repeat_ids=staging.portions[table] > 1 and table not in staging.tables_with_fresh_ids,
        )

    return dict(zip(tables, backend.in_parallel(stage, tables), strict=True))


def decode_reject(raw: Mapping[str, Any]) -> Reject:
    """The inverse of `Reject.to_json`."""
    others = tuple(RecordProblem(**problem) for problem in raw.get("others", ()))
    return Reject(**{**raw, "others": others})
