"""Validation of every row against rules that a schema change adds; memory is bounded by the columns of one rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from omnigraph.lang.schema.arrow import arrow_schema
from omnigraph.lang.schema.model import Catalog, TypeDef
from omnigraph.lang.schema.rules import Violation, row_violations
from omnigraph.lang.schema.steps import Tighten
from omnigraph.lang.schema.values import default_of
from omnigraph.log.view import TableView
from omnigraph.write.checks import VIOLATIONS_MAX, cardinality_violation, duplicate_violation, within
from omnigraph.write.claims import unique_key
from omnigraph.write.plan import WriteTxn
from omnigraph.write.table_state import Row, RowChange

_VALUE_RULES = ("required", "enum", "range", "check")


def check_tightened(txn: WriteTxn, new: Catalog, steps: Sequence[Tighten]) -> list[Violation]:
    """Every row that breaks a rule of `steps`, up to a bound per rule."""
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
        probes += [partial(_unique, txn, one, step.columns) for step in own if step.rule == "unique"]
        probes += [partial(_cardinality, txn, one, new) for step in own if step.rule == "card"]
    backend = txn.snapshot.backend
    return [found for part in backend.in_parallel(lambda probe: probe(), probes) for found in part]


def _values(txn: WriteTxn, one: TypeDef) -> list[Violation]:
    """Checked as what the new schema makes of them: a bound may only fit the wider type of this very change."""
    found: list[Violation] = []
    shape = arrow_schema(one)
    shape = pa.schema([column.with_nullable(True) for column in shape])
    for batch in _view(txn, one).batches(shape.names):
        rows = pa.Table.from_batches([batch]).cast(shape)
        found += row_violations(one, rows, limit=VIOLATIONS_MAX - len(found))
        if len(found) >= VIOLATIONS_MAX:
            break
    return found


def _unique(txn: WriteTxn, one: TypeDef, columns: Sequence[str]) -> list[Violation]:
    """A required column of this very change is there with its default in every row."""
    before = txn.catalog.by_id[one.id]
    new = {column: default_of(one.by_id[column]) for column in columns if _is_new(column, one, before)}
    holders: dict[str, str] = {}
    found = []
    for held in _rows(_view(txn, one), ["id", *(column for column in columns if column not in new)]):
        row = {**held, **new}
        key = unique_key(one, columns, row)
        if key is None:
            continue
        if key in holders:
            found.append(duplicate_violation(one, columns, RowChange(row["id"], None, row), holders[key]))
        holders.setdefault(key, row["id"])
        if len(found) >= VIOLATIONS_MAX:
            break
    return found


def _cardinality(txn: WriteTxn, edge: TypeDef, catalog: Catalog) -> list[Violation]:
    assert edge.source is not None
    node = catalog.by_id[edge.source]
    counts = Counter(row["src"] for row in _rows(_view(txn, edge), ["src"]))
    found = []
    for row in _rows(_view(txn, node), ["id"]):
        if not within(edge.cardinality, counts[row["id"]]):
            found.append(cardinality_violation(edge, node, row["id"], counts[row["id"]]))
        if len(found) >= VIOLATIONS_MAX:
            break
    return found


def _only(one: TypeDef, columns: Collection[str]) -> TypeDef:
    """The type with these columns and the rules of their values: no other column is read."""
    return replace(
        one,
        properties=tuple(prop for prop in one.properties if prop.id in columns),
        ranges=tuple(rule for rule in one.ranges if rule.column in columns),
        checks=tuple(rule for rule in one.checks if rule.column in columns),
    )


def _is_new(column: str, one: TypeDef, before: TypeDef) -> bool:
    return column in one.by_id and column not in before.by_id


def _view(txn: WriteTxn, one: TypeDef) -> TableView:
    """Rows as they are now, under the schema they were written with."""
    return txn.view(txn.catalog.by_id.get(one.id, one))


def _rows(view: TableView, columns: Sequence[str]) -> Iterator[Row]:
    for batch in view.batches(columns):
        yield from batch.to_pylist()
