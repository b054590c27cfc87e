"""A schema change as an ordinary commit: compile against the snapshot, validate what gets tighter, publish.

Most steps touch no row: columns are named by identity, and one that a table version lacks reads as null. Only new
required columns and wider types are written, column by column. What rides in the overlay changes its shape inside
`next_record`, on whatever the overlay holds then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.commit.footprint import Footprint, FootprintBuilder
from omnigraph.commit.publish_plan import PublishPlan, Receipt, Reshape, TableAction, WriteTxn
from omnigraph.errors import ConstraintViolation
from omnigraph.log.commit_record import CommitKind
from omnigraph.log.overlay import DEL, RID, OverlayTable
from omnigraph.mutate.check_changes import ViolationReport, build_violation_error
from omnigraph.mutate.tighten import check_tightened_constraints
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.schema.change_steps import (
    VIOLATED,
    AddProperty,
    AddRequiredProperty,
    DropProperty,
    DropType,
    SchemaPlan,
    Tighten,
    Widen,
)
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.plan_change import plan_change
from omnigraph.schema.values import default_value
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance.arrow_fit import fit_columns

_TOKEN = 8


class SchemaChange:
    """Bring the branch to a new schema text. New identities stay the same over all attempts."""

    kind: CommitKind = "schema"

    def __init__(self, backend: Backend, source: str, *, file: str = "<schema>", allow_data_loss: bool = False) -> None:
        self._backend = backend
        self._source = source
        self._file = file
        self._allow_data_loss = allow_data_loss
        self._tokens: list[str] = []
        self.op_id = backend.ids.ulid()

    def plan(self, current: Catalog) -> tuple[SchemaPlan, Catalog]:
        """What the text would change, and the catalog it would lead to."""
        new = compile_schema(self._source, file=self._file, previous=current, mint=self._minting())
        return plan_change(current, new), new

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        steps, new = self.plan(txn.catalog)
        steps.check()
        if not steps.steps:
            return Receipt(None, result=steps.to_json())
        found = check_tightened_constraints(txn, new, [one for one in steps if isinstance(one, Tighten) and one.validates_rows])
        if found.count:
            raise _violated(found)
        changes = _columns_by_type(steps, txn.catalog, new)
        dropped = frozenset(one.type_id for one in steps if isinstance(one, DropType) and one.type_id)
        return PublishPlan(
            kind=self.kind,
            op_id=self.op_id,
            base=txn.record,
            footprint=_footprint(steps, new),
            actions=tuple(one.action() for one in changes.values() if one.rewrites(txn)),
            catalog=new,
            reshapes={table: one.reshape() for table, one in changes.items()},
            dropped=dropped,
            extra=_hard_drops(steps) if self._allow_data_loss else None,
            result=steps.to_json(),
        )

    def _minting(self) -> Callable[[], str]:
        place = 0

        def mint() -> str:
            nonlocal place
            if place == len(self._tokens):
                self._tokens.append(self._backend.ids.token(_TOKEN))
            place += 1
            return self._tokens[place - 1]

        return mint


@dataclass(frozen=True)
class _Columns:
    """What happens to the columns of one type that stays."""

    type: TypeDef
    fills: Mapping[str, Any]
    casts: frozenset[str]

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.type)

    def rewrites(self, txn: WriteTxn) -> bool:
        """Whether the table needs a version in the new shape: it does as soon as it has a pin.

        Also while all rows are in the overlay and the version will be empty: a fold that lands before this change
        gives the table a version in the old shape, and only a pin that this change moves notices that.
        """
        return bool(self.fills or self.casts) and self.type.id in txn.record.pins

    def action(self) -> TableAction:
        return TableAction(self.type.id, self.schema, fills=self.fills, casts=self.casts)

    def reshape(self) -> Reshape:
        schema, fills = self.schema, dict(self.fills)
        return lambda entries, rid: reshape_entries(entries, schema, fills, rid)


def reshape_entries(entries: OverlayTable, schema: pa.Schema, fills: Mapping[str, Any], rid: str) -> OverlayTable:
    """The entries in the shape of `schema`. They get the new record's rid: a fold under way took the old shape."""
    table = entries.table
    tombstones = table[DEL].to_pylist()
    filled = {
        name: pa.array([None if is_tombstone else fills[name] for is_tombstone in tombstones], schema.field(name).type)
        for name in schema.names
        if name in fills and name not in table.column_names
    }
    columns = dict(zip(schema.names, fit_columns(table, schema, filled), strict=True))
    marks = {"id": columns.pop("id"), RID: pa.array([rid] * table.num_rows, pa.utf8()), DEL: table[DEL]}
    return OverlayTable(pa.table({**marks, **columns}))


def _columns_by_type(steps: SchemaPlan, old: Catalog, new: Catalog) -> dict[str, _Columns]:
    """The types whose physical columns change."""
    touched = [
        one
        for one in steps
        if isinstance(one, (AddProperty, AddRequiredProperty, DropProperty))
        or (isinstance(one, Widen) and one.rewrites_rows)
    ]
    found: dict[str, _Columns] = {}
    for type_id in dict.fromkeys(one.type_id for one in touched if one.type_id in old.by_id):
        assert type_id is not None
        own = [one for one in touched if one.type_id == type_id]
        kept = new.by_id[type_id]
        fills = {
            s.property_id: default_value(kept.by_id[s.property_id]) for s in own if isinstance(s, AddRequiredProperty)
        }
        casts = frozenset(column for s in own if isinstance(s, Widen) for column in s.columns)
        found[type_id] = _Columns(kept, fills, casts)
    return found


def _footprint(steps: SchemaPlan, new: Catalog) -> Footprint:
    """Types that get tighter, go, or are rewritten are read as a whole: a write to them in between starts over."""
    claims = FootprintBuilder()
    for one in steps:
        if one.type_id is not None and (one.validates_rows or one.rewrites_rows or isinstance(one, DropType)):
            claims.read_all(one.type_id)
            claims.write_all(one.type_id)
        if isinstance(one, Tighten) and one.rule == "card" and one.type_id is not None:
            # A source without any edge was counted, too, and a new one has none.
            source = new.by_id[one.type_id].source
            assert source is not None
            claims.read_all(source)
    return claims.build()


def _hard_drops(steps: SchemaPlan) -> Mapping[str, Any] | None:
    """What the next cleanup may remove from history as well, by identity."""
    types = sorted(one.type_id for one in steps if isinstance(one, DropType) and one.type_id)
    properties: dict[str, list[str]] = {}
    for one in steps:
        if isinstance(one, DropProperty) and one.type_id:
            properties.setdefault(one.type_id, []).append(one.property_id)
    return {"hard_drops": types, "hard_dropped_properties": properties} if types or properties else None


def _violated(found: ViolationReport) -> ConstraintViolation:
    error = build_violation_error(found, code=VIOLATED)
    error.advice = "Nothing was written; correct these rows, or leave out the rule, and apply the schema again"
    return error
