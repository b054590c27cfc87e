"""Validation of every row against rules that a schema change adds; memory is bounded by the columns of one rule."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from omnigraph.commit.publish_plan import WriteTxn
from omnigraph.constraints.compile import ChangedImages, Constraint, compile_constraints
from omnigraph.constraints.evaluate import EvaluationContext, RelationCompiler, RowTuple
from omnigraph.constraints.relations import ImageRows
from omnigraph.mutate.check_changes import VIOLATIONS_MAX, ViolationReport
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.schema.change_steps import Tighten
from omnigraph.schema.row_constraints import find_row_violations
from omnigraph.schema.values import default_value
from omnigraph.storage.lance.arrow_fit import make_nullable

_VALUE_RULES = ("required", "enum", "range", "check")

#: To a rule that is new every row is new.
_ALL_NEW = ChangedImages(has_new=True, has_kept=False)


def check_tightened_constraints(txn: WriteTxn, new: Catalog, steps: Sequence[Tighten]) -> ViolationReport:
    """What breaks a rule of `steps`: all of it counted, the first of every rule listed."""
    probes = []
    by_type: dict[str, list[Tighten]] = {}
    for step in steps:
        assert step.type_id is not None
        by_type.setdefault(step.type_id, []).append(step)
    for type_id, own in by_type.items():
        one = new.by_id[type_id]
        columns = {column for step in own if step.rule in _VALUE_RULES for column in step.columns}
        if columns:
            probes.append(partial(_values, txn, _only(one, columns)))
        probes += [partial(_rule, txn, new, rule) for rule in _rules(new, one, own)]
    found = ViolationReport()
    for part in txn.snapshot.backend.in_parallel(lambda probe: probe(), probes):
        found.add(part.listed, part.count)
    return found


def _rules(new: Catalog, type_def: TypeDef, steps: Sequence[Tighten]) -> Iterator[Constraint]:
    """The rules of a type that the steps bring, of all that a change of every row could break."""
    uniques = {tuple(step.columns) for step in steps if step.rule == "unique"}
    counted = any(step.rule == "card" for step in steps)
    tables = [type_def.id, type_def.source] if counted and type_def.source is not None else [type_def.id]
    for rule in compile_constraints(new, dict.fromkeys(tables, _ALL_NEW)):
        if rule.type_id == type_def.id and (rule.columns in uniques or (counted and rule.code == "cardinality")):
            yield rule


def _rule(txn: WriteTxn, new: Catalog, rule: Constraint) -> ViolationReport:
    found = ViolationReport()
    evaluate = RelationCompiler(new.by_id[rule.type_id]).compile(rule.query)
    found.add_violating_rows(new, rule, evaluate(EvaluationContext(partial(_read, txn, new))))
    return found


def _read(txn: WriteTxn, new: Catalog, image: ImageRows) -> Iterator[RowTuple]:
    """Every row there is. A required column of this very change is there with its default in all of them."""
    one, before = new.by_id[image.table], txn.catalog.by_id.get(image.table)
    if before is None:
        return  # a type of this very change
    added = {column: default_value(one.by_id[column]) for column in image.columns if _is_new(column, one, before)}
    held = [column for column in image.columns if column not in added]
    for batch in txn.view(before).batches(held):
        values: list[list[Any]] = [
            [added[column]] * batch.num_rows if column in added else batch.column(column).to_pylist()
            for column in image.columns
        ]
        yield from zip(*values, strict=True)


def _values(txn: WriteTxn, type_def: TypeDef) -> ViolationReport:
    """Checked as what the new schema makes of them: a bound may only fit the wider type of this very change."""
    found = ViolationReport()
    shape = make_nullable(arrow_schema(type_def))
    for batch in txn.view(txn.catalog.by_id[type_def.id]).batches(shape.names):
        rows = pa.Table.from_batches([batch]).cast(shape)
        found.add(*find_row_violations(type_def, rows, limit=VIOLATIONS_MAX - len(found.listed)))
    return found


def _only(type_def: TypeDef, columns: Collection[str]) -> TypeDef:
    """The type with these columns and the rules of their values: no other column is read."""
    return replace(
        type_def,
        properties=tuple(prop for prop in type_def.properties if prop.id in columns),
        ranges=tuple(rule for rule in type_def.ranges if rule.column in columns),
        checks=tuple(rule for rule in type_def.checks if rule.column in columns),
    )


def _is_new(column: str, type_def: TypeDef, before: TypeDef) -> bool:
    return column in type_def.by_id and column not in before.by_id
