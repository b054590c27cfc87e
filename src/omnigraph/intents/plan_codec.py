"""A publish plan as bytes: what an intent stores, so that recovery can publish the plan of a dead driver.

The base record is stored by name only: a plan holds its own change, and recovery publishes it on the record that is
newest by then. The rows of a staged table are in its files; only their ids are stored, which is all that the next
record needs. A predicate that selected rows becomes a read of its whole table, which may cause a needless conflict but
never misses one.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.commit.footprint import Footprint
from omnigraph.commit.publish_plan import PinReplacement, PublishPlan, StagedMove, TableAction, WriteOptions
from omnigraph.errors import Corruption, Unsupported
from omnigraph.log.commit_record import CommitRecord, CommitRef, Header, Stub, WriteSet, decode_record
from omnigraph.log.frame import decode_frame, encode_frame
from omnigraph.log.snapshot import Catalogs
from omnigraph.storage.lance import StagedTable, StagedVersion

PLAN_VERSION = 1


@dataclass(frozen=True)
class SavedPlan:
    """A stored plan. `base` names the record it was prepared on, `schema` is the schema of that record.

    `has_conflict_check`: the operation had a check of its own that is more exact than the footprint.
    """

    base: CommitRef
    schema: str
    catalog: str | None
    fields: Mapping[str, Any]
    has_conflict_check: bool = False

    @property
    def op_id(self) -> str:
        return str(self.fields["op_id"])

    @property
    def actions(self) -> tuple[TableAction, ...]:
        return tuple(self.fields["actions"])

    @property
    def moves(self) -> dict[str, StagedMove]:
        """The staged table versions, by table."""
        changed = {action.table: action.move for action in self.actions if action.move is not None}
        return {**changed, **{replacement.table: replacement.move for replacement in self.fields["pin_replacements"]}}

    def on(self, record: CommitRecord, catalogs: Catalogs) -> PublishPlan:
        """The plan as if it had been prepared on `record`. The caller has checked for conflicts up to there."""
        catalog = catalogs.get(self.catalog) if self.catalog else None
        return PublishPlan(base=record, catalog=catalog, **self.fields)


def can_be_kept(plan: PublishPlan) -> bool:
    """Whether another process could publish the plan: plans with functions of this process cannot be stored."""
    return not (plan.reshapes or plan.epoch or plan.gc)


def encode_plan(plan: PublishPlan) -> bytes:
    """The plan as one checksummed object. Raises Unsupported for plans that only their own process can publish."""
    if not can_be_kept(plan):
        raise Unsupported(
            f"a plan of kind {plan.kind} cannot be kept for recovery",
            advice="Only changes of tables outlive their process",
            kind=plan.kind,
        )
    parts = _PlanSections()
    head = {
        "v": PLAN_VERSION,
        "kind": plan.kind,
        "op_id": plan.op_id,
        "base": [plan.base.stream, plan.base.seq, plan.base.rid],
        "schema": plan.base.schema,
        "footprint": _footprint_json(plan.footprint, parts),
        "actions": [_action_json(action, parts) for action in plan.actions],
        "folds": [_replacement_json(replacement) for replacement in plan.pin_replacements],
        "options": _options_json(plan.options),
        "holder": plan.holder,
        "catalog": plan.catalog.hash if plan.catalog else None,
        "dropped": sorted(plan.dropped),
        "merged": parts.add(Stub(plan.merged_header).encode()) if plan.merged_header else None,
        "extra": dict(plan.extra) if plan.extra is not None else None,
        "result": dict(plan.result),
        "answers": list(plan.ops_row_ids),
        "judged": plan.conflict_check is not None,
        "sections": parts.sizes,
    }
    return encode_frame(head, parts.sections)


def decode_plan(data: bytes, where: str) -> SavedPlan:
    """The plan in `data`; errors name it by `where`."""
    try:
        head, body = decode_frame(data, where)
        if head.get("v") != PLAN_VERSION:
            raise Unsupported(f"{where} has plan version {head.get('v')}", advice="Upgrade omnigraph", key=where)
        return _to_saved_plan(head, _split_sections(body, head["sections"]), where)
    except (KeyError, ValueError, TypeError, IndexError, pa.ArrowException) as error:
        raise Corruption(f"{where} cannot be read: {error}", advice="Run `omnigraph verify`", key=where) from error


class _PlanSections:
    """The binary sections of a stored plan; its JSON header refers to them by number."""

    def __init__(self) -> None:
        self.sections: list[bytes] = []

    @property
    def sizes(self) -> list[int]:
        return [len(section) for section in self.sections]

    def add(self, data: bytes) -> int:
        self.sections.append(data)
        return len(self.sections) - 1

    def keys(self, keys: Sequence[int]) -> int:
        return self.add(np.array(sorted(keys), "<u8").tobytes())

    def table(self, rows: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return self.add(sink.getvalue().to_pybytes())


def _split_sections(body: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    sections, start = [], 0
    for size in sizes:
        section = body[start : start + size]
        if len(section) != size:
            raise ValueError("a section is cut short")
        sections.append(section)
        start += size
    return sections


def _to_saved_plan(head: Mapping[str, Any], parts: Sequence[memoryview], where: str) -> SavedPlan:
    fields = {
        "kind": head["kind"],
        "op_id": head["op_id"],
        "footprint": _footprint_of(head["footprint"], parts),
        "actions": tuple(_action_of(action_json, parts) for action_json in head["actions"]),
        "pin_replacements": tuple(_replacement_of(replacement_json) for replacement_json in head["folds"]),
        "options": WriteOptions(**head["options"]),
        "holder": head["holder"],
        "dropped": frozenset(head["dropped"]),
        "merged_header": _header_of(parts[head["merged"]], where) if head["merged"] is not None else None,
        "extra": head["extra"],
        "result": head["result"],
        "ops_row_ids": tuple(head["answers"]),
    }
    return SavedPlan(CommitRef(*head["base"]), head["schema"], head["catalog"], fields, head["judged"])


def _header_of(data: memoryview, where: str) -> Header:
    return decode_record(bytes(data), where).header


def _options_json(options: WriteOptions) -> dict[str, Any]:
    return {
        "actor": options.actor,
        "message": options.message,
        "client_key": options.client_key,
        "if_commit": options.if_commit,
        "on_conflict": options.on_conflict,
    }


def _footprint_json(footprint: Footprint, parts: _PlanSections) -> dict[str, Any]:
    return {
        "reads": {scope: parts.keys(list(keys)) for scope, keys in sorted(footprint.reads.items())},
        "reads_all": sorted(footprint.reads_all | {condition.table for condition in footprint.predicates}),
        "exact": parts.keys(footprint.writes.exact.tolist()),
        "wild": sorted(footprint.writes.wild),
        "scopes": sorted(footprint.writes.scopes),
    }


def _footprint_of(raw: Mapping[str, Any], parts: Sequence[memoryview]) -> Footprint:
    def keys(number: int) -> Any:
        return np.frombuffer(parts[number], "<u8").astype(np.uint64)

    return Footprint(
        reads={scope: frozenset(keys(number).tolist()) for scope, number in raw["reads"].items()},
        reads_all=frozenset(raw["reads_all"]),
        writes=WriteSet(keys(raw["exact"]), frozenset(raw["wild"]), frozenset(raw["scopes"])),
    )


def _action_json(action: TableAction, parts: _PlanSections) -> dict[str, Any]:
    assert action.adopted is None, "a version of another stream is not among the files that an intent keeps"
    rows = action.rows.select(["id"]) if action.rows is not None and action.move is not None else action.rows
    return {
        "table": action.table,
        "schema": _schema_text(action.schema),
        "rows": parts.table(rows) if rows is not None else None,
        "deleted": list(action.deleted),
        "inserted": action.inserted,
        "updated": action.updated,
        "removed": action.removed,
        "overwrite": action.overwrite,
        "fills": parts.table(_one_row(action.fills, action.schema)) if action.fills else None,
        "casts": sorted(action.casts),
        "present_ids": list(action.present_ids) if action.present_ids is not None else None,
        "never_inline": action.never_inline,
        "superseded": list(action.superseded),
        "move": _move_json(action.move) if action.move is not None else None,
    }


def _action_of(raw: Mapping[str, Any], parts: Sequence[memoryview]) -> TableAction:
    def table(number: int) -> pa.Table:
        return pa.ipc.open_stream(pa.py_buffer(bytes(parts[number]))).read_all()

    present = raw["present_ids"]
    return TableAction(
        table=raw["table"],
        schema=_schema_of(raw["schema"]),
        rows=table(raw["rows"]) if raw["rows"] is not None else None,
        deleted=tuple(raw["deleted"]),
        inserted=raw["inserted"],
        updated=raw["updated"],
        removed=raw["removed"],
        overwrite=raw["overwrite"],
        fills=table(raw["fills"]).to_pylist()[0] if raw["fills"] is not None else {},
        casts=frozenset(raw["casts"]),
        present_ids=tuple(present) if present is not None else None,
        never_inline=raw["never_inline"],
        superseded=tuple(raw.get("superseded", ())),
        move=_move_of(raw["move"]) if raw["move"] is not None else None,
    )


def _one_row(values: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """A table of one row with these values, in the types of the columns."""
    return pa.Table.from_pylist([dict(values)], pa.schema([schema.field(name) for name in values]))


def _replacement_json(replacement: PinReplacement) -> dict[str, Any]:
    return {
        "table": replacement.table,
        "move": _move_json(replacement.move),
        "stamps": sorted(map(list, replacement.entry_keys)),
        "rows_removed": replacement.rows_removed,
    }


def _replacement_of(raw: Mapping[str, Any]) -> PinReplacement:
    entry_keys = frozenset((row_id, rid) for row_id, rid in raw["stamps"])
    return PinReplacement(raw["table"], _move_of(raw["move"]), entry_keys, raw["rows_removed"])


def _move_json(move: StagedMove) -> dict[str, Any]:
    return {
        "expected": move.expected,
        "files" if isinstance(move.staged, StagedTable) else "built": move.staged.to_json(),
        "version": move.version,
        "size_bytes": move.size_bytes,
        "fragments": move.fragments,
    }


def _move_of(raw: Mapping[str, Any]) -> StagedMove:
    staged = StagedTable.from_json(raw["files"]) if "files" in raw else StagedVersion.from_json(raw["built"])
    return StagedMove(raw["expected"], staged, raw["version"], raw["size_bytes"], raw["fragments"])


def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
