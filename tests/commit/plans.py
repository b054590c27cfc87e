"""Plans made by hand, for tables of cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from omnigraph.commit.publish_plan import PublishPlan, StagedMove, TableAction
from omnigraph.log.commit_record import CommitRecord
from omnigraph.storage.lance import StagedTable
from tests.log.records import COLUMNS, record, rows

T, U = "node.t-1", "node.u-1"


def move(
    expected: str | None, version: str, *, size_bytes: int = 900, fragments: int = 3, rows_written: int = 0
) -> StagedMove:
    staged = StagedTable(T, expected or "1", COLUMNS, False, (), (), (), (), rows_written, 0, 0, False)
    return StagedMove(expected, staged, version, size_bytes, fragments)


def action(
    ages: Mapping[str, int | None] | None = None,
    deleted: Iterable[str] = (),
    *,
    table: str = T,
    inserted: int = 0,
    updated: int = 0,
    moved: StagedMove | None = None,
    **fields: Any,
) -> TableAction:
    deleted_ids = tuple(deleted)
    return TableAction(
        table,
        COLUMNS,
        rows(ages) if ages else None,
        deleted_ids,
        inserted=inserted,
        updated=updated,
        removed=len(deleted_ids),
        move=moved,
        **fields,
    )


def plan(*actions: TableAction, base: CommitRecord | None = None, op_id: str = "op", **fields: Any) -> PublishPlan:
    return PublishPlan(fields.pop("kind", "mutate"), op_id, base or record(5), actions=actions, **fields)
