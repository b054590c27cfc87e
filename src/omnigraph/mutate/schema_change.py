"""A schema change as an ordinary commit: compile against the snapshot, validate tightened constraints, publish.

Most steps touch no row: columns are named by identity, and a column that a table version lacks reads as null. Only new
required columns and wider types are written, column by column. Overlay entries get the new shape inside `next_record`,
so that entries of commits in between are included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from omnigraph.commit.footprint import Footprint, FootprintBuilder
from omnigraph.commit.publish_plan import PublishPlan, Receipt, Reshape, TableAction, WriteTxn
from omnigraph.constraints.compile import ChangedImages, Constraint, compile_constraints
from omnigraph.constraints.evaluate import EvaluationContext, RelationCompiler, RowTuple
from omnigraph.constraints.relations import ImageRows
from omnigraph.errors import ConstraintViolation
from omnigraph.log.commit_record import CommitKind
from omnigraph.log.overlay import DEL, RID, OverlayTable
from omnigraph.mutate.check_changes import VIOLATIONS_MAX, ViolationReport, build_violation_error
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
from omnigraph.schema.row_constraints import find_row_violations
from omnigraph.schema.values import default_value
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance.arrow_fit import fit_columns, make_nullable

_TOKEN_CHARS = 8
_VALUE_CONSTRAINTS = ("required", "enum", "range", "check")

#: A new constraint is checked against every row as if every row were new.
_ALL_NEW = ChangedImages(has_new=True, has_kept=False)


class SchemaChange:
    """Brings the branch to a new schema text. All attempts use the same new identities."""

    kind: CommitKind = "schema"

    def __init__(self, backend: Backend, source: str, *, file: str = "<schema>", allow_data_loss: bool = False) -> None:
        self._backend = backend
        self._source = source
        self._file = file
        self._allow_data_loss = allow_data_loss
        self._tokens: list[str] = []
        self.op_id = backend.ids.ulid()

    def plan(self, current: Catalog) -> tuple[SchemaPlan, Catalog]:
        """The steps from `current` to the new text, and the catalog that they lead to."""
        new = compile_schema(self._source, file=self._file, previous=current, mint=self._token_source())
        return plan_change(current, new), new

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        steps, new = self.plan(txn.catalog)
        steps.check()
        if not steps.steps:
            return Receipt(None, result=steps.to_json())
        report = _check_tightened(
            txn, new, [step for step in steps if isinstance(step, Tighten) and step.validates_rows]
        )
        if report.count:
            raise _violation_error(report)
        column_changes = _column_changes(steps, txn.catalog, new)
        dropped = frozenset(step.type_id for step in steps if isinstance(step, DropType) and step.type_id)
        return PublishPlan(
            kind=self.kind,
            op_id=self.op_id,
            base=txn.record,
            footprint=_footprint(steps, new),
            actions=tuple(change.action() for change in column_changes.values() if change.rewrites(txn)),
            catalog=new,
            reshapes={table: change.reshape() for table, change in column_changes.items()},
            dropped=dropped,
            extra=_hard_drops(steps) if self._allow_data_loss else None,
            result=steps.to_json(),
        )

    def _token_source(self) -> Callable[[], str]:
        """A function that returns the same sequence of tokens in every attempt."""
        position = 0

        def mint() -> str:
            nonlocal position
            if position == len(self._tokens):
                self._tokens.append(self._backend.ids.token(_TOKEN_CHARS))
            position += 1
            return self._tokens[position - 1]

        return mint


@dataclass(frozen=True)
class _ColumnChanges:
    """The changes of the physical columns of one type: columns filled with a default, columns cast to a wider type."""

    type: TypeDef
    fills: Mapping[str, Any]
    casts: frozenset[str]

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.type)

    def rewrites(self, txn: WriteTxn) -> bool:
        """Whether the table needs a version in the new shape: it does as soon as it has a pin.

        That holds even if all rows are in the overlay and the new version is empty: a fold that commits before this
        change gives the table a version in the old shape, and only a change that moves the pin conflicts with it.
        """
        return bool(self.fills or self.casts) and self.type.id in txn.record.pins

    def action(self) -> TableAction:
        return TableAction(self.type.id, self.schema, fills=self.fills, casts=self.casts)

    def reshape(self) -> Reshape:
        schema, fills = self.schema, dict(self.fills)
        return lambda entries, rid: reshape_entries(entries, schema, fills, rid)


def reshape_entries(entries: OverlayTable, schema: pa.Schema, fills: Mapping[str, Any], rid: str) -> OverlayTable:
    """The entries in the shape of `schema`, with the rid of the new commit record.

    The new rid keeps a fold that is under way, with the old shape, from removing them.
    """
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


def _column_changes(steps: SchemaPlan, old: Catalog, new: Catalog) -> dict[str, _ColumnChanges]:
    """The changes of physical columns, by type."""
    column_steps = [
        step
        for step in steps
        if isinstance(step, (AddProperty, AddRequiredProperty, DropProperty))
        or (isinstance(step, Widen) and step.rewrites_rows)
    ]
    changes: dict[str, _ColumnChanges] = {}
    for type_id in dict.fromkeys(step.type_id for step in column_steps if step.type_id in old.by_id):
        assert type_id is not None
        type_def = new.by_id[type_id]
        type_steps = [step for step in column_steps if step.type_id == type_id]
        fills = {
            step.property_id: default_value(type_def.by_id[step.property_id])
            for step in type_steps
            if isinstance(step, AddRequiredProperty)
        }
        casts = frozenset(column for step in type_steps if isinstance(step, Widen) for column in step.columns)
        changes[type_id] = _ColumnChanges(type_def, fills, casts)
    return changes


def _footprint(steps: SchemaPlan, new: Catalog) -> Footprint:
    """Claim every tightened, dropped or rewritten type as a whole: a write to it in between is a conflict."""
    claims = FootprintBuilder()
    for step in steps:
        if step.type_id is not None and (step.validates_rows or step.rewrites_rows or isinstance(step, DropType)):
            claims.read_all(step.type_id)
            claims.write_all(step.type_id)
        if isinstance(step, Tighten) and step.rule == "card" and step.type_id is not None:
            # `@card` counts the edges of every source node, so a source node that is inserted meanwhile is a conflict.
            source = new.by_id[step.type_id].source
            assert source is not None
            claims.read_all(source)
    return claims.build()


def _hard_drops(steps: SchemaPlan) -> Mapping[str, Any] | None:
    """The types and properties, by identity, that the next cleanup may remove from history as well."""
    types = sorted(step.type_id for step in steps if isinstance(step, DropType) and step.type_id)
    properties: dict[str, list[str]] = {}
    for step in steps:
        if isinstance(step, DropProperty) and step.type_id:
            properties.setdefault(step.type_id, []).append(step.property_id)
    return {"hard_drops": types, "hard_dropped_properties": properties} if types or properties else None


# --- tightened constraints -------------------------------------------------------------------------------------------


def _check_tightened(txn: WriteTxn, new: Catalog, steps: Sequence[Tighten]) -> ViolationReport:
    """Check every row against the constraints of `steps`: counts all violations, lists the first of each constraint.

    Memory is bounded by the columns of one constraint.
    """
    checks: list[Callable[[], ViolationReport]] = []
    steps_by_type: dict[str, list[Tighten]] = {}
    for step in steps:
        assert step.type_id is not None
        steps_by_type.setdefault(step.type_id, []).append(step)
    for type_id, type_steps in steps_by_type.items():
        type_def = new.by_id[type_id]
        columns = {column for step in type_steps if step.rule in _VALUE_CONSTRAINTS for column in step.columns}
        if columns:
            checks.append(partial(_check_values, txn, _restrict_to(type_def, columns)))
        constraints = _find_tightened(new, type_def, type_steps)
        checks += [partial(_check_constraint, txn, new, constraint) for constraint in constraints]
    report = ViolationReport()
    for part in txn.snapshot.backend.in_parallel(lambda check: check(), checks):
        report.add(part.listed, part.count)
    return report


def _find_tightened(new: Catalog, type_def: TypeDef, steps: Sequence[Tighten]) -> Iterator[Constraint]:
    """The relational constraints of the type that the steps add or tighten."""
    uniques = {tuple(step.columns) for step in steps if step.rule == "unique"}
    bounds_edges = any(step.rule == "card" for step in steps)
    tables = [type_def.id, type_def.source] if bounds_edges and type_def.source is not None else [type_def.id]
    for constraint in compile_constraints(new, dict.fromkeys(tables, _ALL_NEW)):
        is_tightened = constraint.columns in uniques or (bounds_edges and constraint.code == "cardinality")
        if constraint.type_id == type_def.id and is_tightened:
            yield constraint


def _check_constraint(txn: WriteTxn, new: Catalog, constraint: Constraint) -> ViolationReport:
    report = ViolationReport()
    evaluate = RelationCompiler(new.by_id[constraint.type_id]).compile(constraint.query)
    report.add_violating_rows(new, constraint, evaluate(EvaluationContext(partial(_read_all_rows, txn, new))))
    return report


def _read_all_rows(txn: WriteTxn, new: Catalog, image: ImageRows) -> Iterator[RowTuple]:
    """Read every row of the table; a required column that this change adds has its default in every row."""
    type_def, old_type = new.by_id[image.table], txn.catalog.by_id.get(image.table)
    if old_type is None:
        return  # this change adds the type
    defaults = {
        column: default_value(type_def.by_id[column])
        for column in image.columns
        if column in type_def.by_id and column not in old_type.by_id
    }
    stored_columns = [column for column in image.columns if column not in defaults]
    for batch in txn.view(old_type).batches(stored_columns):
        values: list[list[Any]] = [
            [defaults[column]] * batch.num_rows if column in defaults else batch.column(column).to_pylist()
            for column in image.columns
        ]
        yield from zip(*values, strict=True)


def _check_values(txn: WriteTxn, type_def: TypeDef) -> ViolationReport:
    """Check the values as the new types store them: a bound may fit only the wider type of this change."""
    report = ViolationReport()
    schema = make_nullable(arrow_schema(type_def))
    for batch in txn.view(txn.catalog.by_id[type_def.id]).batches(schema.names):
        rows = pa.Table.from_batches([batch]).cast(schema)
        report.add(*find_row_violations(type_def, rows, limit=VIOLATIONS_MAX - len(report.listed)))
    return report


def _restrict_to(type_def: TypeDef, columns: Collection[str]) -> TypeDef:
    """The type with only these columns and their value constraints, so that no other column is read."""
    return replace(
        type_def,
        properties=tuple(prop for prop in type_def.properties if prop.id in columns),
        ranges=tuple(limits for limits in type_def.ranges if limits.column in columns),
        checks=tuple(check for check in type_def.checks if check.column in columns),
    )


def _violation_error(report: ViolationReport) -> ConstraintViolation:
    error = build_violation_error(report, code=VIOLATED)
    error.advice = "Nothing was written; correct these rows, or leave out the rule, and apply the schema again"
    return error
