"""Validation of every row against rules that a schema change adds; memory is bounded by the columns of one rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from omnigraph.lang.schema.model import Catalog, TypeDef
from omnigraph.lang.schema.rules import Violation, row_violations
from omnigraph.lang.schema.steps import Tighten
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
        if any(step.rule in _VALUE_RULES for step in own):
            probes.append(partial(_values, txn, _of_older_columns(one, txn.catalog.by_id[type_id])))
        probes += [partial(_unique, txn, one, step.columns) for step in own if step.rule == "unique"]
        probes += [partial(_cardinality, txn, one, new) for step in own if step.rule == "card"]
    backend = txn.snapshot.backend
    return [found for part in backend.in_parallel(lambda probe: probe(), probes) for found in part]


def _values(txn: WriteTxn, one: TypeDef) -> list[Violation]:
    found: list[Violation] = []
    for batch in _view(txn, one).batches():
        found += row_violations(one, pa.Table.from_batches([batch]), limit=VIOLATIONS_MAX - len(found))
        if len(found) >= VIOLATIONS_MAX:
            break
    return found


def _unique(txn: WriteTxn, one: TypeDef, columns: Sequence[str]) -> list[Violation]:
    holders: dict[str, str] = {}
    found = []
    for row in _rows(_view(txn, one), ["id", *columns]):
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


def _of_older_columns(new: TypeDef, old: TypeDef) -> TypeDef:
    """The new rules of columns that rows have already; columns of this very change hold their default or null."""
    kept = old.by_id.keys()
    return replace(
        new,
        properties=tuple(one for one in new.properties if one.id in kept),
        ranges=tuple(one for one in new.ranges if one.column in kept),
        checks=tuple(one for one in new.checks if one.column in kept),
    )


def _view(txn: WriteTxn, one: TypeDef) -> TableView:
    """Rows as they are now, under the schema they were written with."""
    return txn.view(txn.catalog.by_id.get(one.id, one))


def _rows(view: TableView, columns: Sequence[str]) -> Iterator[Row]:
    for batch in view.batches(columns):
        yield from batch.to_pylist()
