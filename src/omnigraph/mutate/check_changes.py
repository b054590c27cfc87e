"""Checks row changes against the constraints of the schema, in-process.

Only committed rows that a change can bring into conflict are looked up, all of them at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

from omnigraph.commit.publish_plan import TableAction
from omnigraph.constraints.compile import ChangedImages, Constraint, describe_violation, input_rows_to_reject
from omnigraph.constraints.evaluate import (
    EvaluationContext,
    PreparedConstraint,
    RelationCompiler,
    RowTuple,
    prepare_constraints,
)
from omnigraph.constraints.relations import ImageRows, columns_of
from omnigraph.errors import ConstraintViolation
from omnigraph.mutate.pending_table import PendingTable, Row, RowChange
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.schema.row_constraints import Violation, find_row_violations
from omnigraph.storage.backend import Backend

VIOLATIONS_MAX = 100
_ADDRESS = "_row"

Changes = Mapping[str, Sequence[RowChange]]
ResultT = TypeVar("ResultT")
TableOf = Callable[[TypeDef], PendingTable]


@dataclass
class ViolationReport:
    """How many violations there are, and the first ones by id: as many as an error lists."""

    listed: list[Violation] = field(default_factory=list)
    count: int = 0

    def add(self, violations: Iterable[Violation], count: int) -> None:
        self.listed += violations
        self.count += count

    def add_violating_rows(self, catalog: Catalog, constraint: Constraint, rows: Iterable[RowTuple]) -> None:
        """Add the rows that the query of a constraint returns; the rows are streamed."""
        columns = columns_of(constraint.query)
        counting = _CountingIterable(rows)
        first_rows = heapq.nsmallest(VIOLATIONS_MAX, counting, key=itemgetter(columns.index("id")))
        violations = [
            describe_violation(catalog, constraint, dict(zip(columns, row, strict=True))) for row in first_rows
        ]
        self.add(violations, counting.count)


def check_changes(
    backend: Backend, catalog: Catalog, table_of: TableOf, changes: Changes, actions: Sequence[TableAction]
) -> None:
    """Raise ConstraintViolation if the changes violate constraints: lists a hundred violations, counts all of them."""
    checker = ChangeChecker(backend, catalog, table_of, changes)
    value_checks = [
        partial(find_row_violations, catalog.by_id[action.table], action.rows, limit=VIOLATIONS_MAX)
        for action in actions
        if action.rows is not None
    ]
    report = ViolationReport()
    for violations, count in checker.read_committed_rows(value_checks):
        report.add(violations, count)
    for constraint, rows in checker.evaluate_constraints():
        report.add_violating_rows(catalog, constraint, rows)
    if report.count:
        raise build_violation_error(report)


def build_violation_error(report: ViolationReport, code: str | None = None) -> ConstraintViolation:
    ordered = sorted(
        report.listed,
        key=lambda violation: (violation.type, violation.id, violation.rule, violation.property or ""),
    )
    more = f" (and {report.count - 1} more)" if report.count > 1 else ""
    return ConstraintViolation(
        f"{ordered[0].message}{more}",
        code=code,
        advice="Nothing was written; fix the change and send it again",
        violations=[violation.to_json() for violation in ordered[:VIOLATIONS_MAX]],
        violation_count=report.count,
    )


class ChangeChecker:
    """Evaluates the relational constraints that a set of row changes can violate, after looking up committed rows."""

    def __init__(
        self, backend: Backend, catalog: Catalog, table_of: TableOf, changes: Changes, *, strict: bool = False
    ) -> None:
        self._backend = backend
        self._table_of = table_of
        self._catalog = catalog
        self._changes = changes
        self._tables = {table: table_of(catalog.by_id[table]) for table in changes}
        self._kept_rows: dict[tuple[str, str], list[Row]] = {}
        images = {table: _images_of(rows, self._tables[table]) for table, rows in changes.items()}
        self._constraints = [
            (prepared, EvaluationContext(partial(self._read, prepared.lookup_columns)))
            for prepared in prepare_constraints(catalog, images, strict)
        ]

    def read_committed_rows(self, beside: Sequence[Callable[[], ResultT]] = ()) -> list[ResultT]:
        """Read the rows that the constraints need, in one lookup per column of a table, in parallel with `beside`.

        Returns the results of `beside`.
        """
        probes = self._probes()
        for table, _ in probes:
            self._tables.setdefault(table, self._table_of(self._catalog.by_id[table]))
        lookups: list[Callable[[], Any]] = [partial(self._look_up, target, probe) for target, probe in probes.items()]
        results = self._backend.in_parallel(lambda task: task(), [*lookups, *beside])
        return results[len(lookups) :]

    def evaluate_constraints(self) -> Iterator[tuple[Constraint, Iterable[RowTuple]]]:
        """Yield every constraint with its violating rows. `read_committed_rows` must have run."""
        for prepared, context in self._constraints:
            yield prepared.constraint, prepared.evaluate(context)

    def violations_with_rows(self) -> Iterator[tuple[Violation, list[tuple[str, str]]]]:
        """Yield every violation with the changed rows that cause it, as (table, id); some violations have none."""
        for prepared, context in self._constraints:
            violating_rows = list(prepared.evaluate(context))
            if not violating_rows:
                continue
            columns, causes = columns_of(prepared.constraint.query), self._causes(prepared)
            for row in violating_rows:
                violation = describe_violation(self._catalog, prepared.constraint, dict(zip(columns, row, strict=True)))
                yield violation, causes.get(row, [])

    def _causes(self, prepared: PreparedConstraint) -> dict[RowTuple, list[tuple[str, str]]]:
        """The changed rows that cause violations, as (table, id), by the row that the constraint's query returns."""
        causes: dict[RowTuple, list[tuple[str, str]]] = {}
        compiler = RelationCompiler(self._catalog.by_id[prepared.constraint.type_id])
        context = EvaluationContext(partial(self._read_with_address, prepared.lookup_columns))
        for table, relation in input_rows_to_reject(prepared.constraint, self._catalog, _ADDRESS).items():
            for *row, row_id in compiler.compile(relation)(context):
                causes.setdefault(tuple(row), []).append((table, row_id))
        return causes

    def _read_with_address(self, lookup_columns: Mapping[ImageRows, str], image: ImageRows) -> Iterable[RowTuple]:
        """Read an image that has the address column; in-process, the address of a row is its id."""
        columns = tuple("id" if column == _ADDRESS else column for column in image.columns)
        return self._read(lookup_columns, ImageRows(image.kind, image.table, columns))

    def _probes(self) -> dict[tuple[str, str], _Probe]:
        """One probe per table and column.

        A lookup without keys still sees the rows that another lookup of the same column reads, so each probe reads the
        columns of all its lookups.
        """
        probes: dict[tuple[str, str], _Probe] = {}
        for prepared, context in self._constraints:
            for lookup in prepared.lookups:
                probe = probes.setdefault((lookup.table, lookup.column), _Probe())
                probe.values.update(dict.fromkeys(row[lookup.key_index] for row in lookup.keys(context)))
                probe.columns.update(dict.fromkeys(lookup.columns))
        return {target: probe for target, probe in probes.items() if probe.values}

    def _look_up(self, target: tuple[str, str], probe: _Probe) -> None:
        (table, column), values = target, list(probe.values)
        pending = self._tables[table]
        if column == "id":
            assert set(probe.columns) == {"id"}, probe.columns
            self._kept_rows[target] = [{"id": row_id} for row_id in pending.find_unchanged_ids(values)]
        else:
            self._kept_rows[target] = pending.find_unchanged_rows(column, values, list(probe.columns))

    def _read(self, lookup_columns: Mapping[ImageRows, str], image: ImageRows) -> Iterable[RowTuple]:
        rows: Iterable[Row | None]
        changes = self._changes.get(image.table, ())
        match image.kind:
            case "new":
                rows = [change.after for change in changes]
            case "old":
                rows = [change.before for change in changes]
            case "gone":
                return [(change.id,) for change in changes if change.after is None]
            case _:
                rows = self._kept_rows.get((image.table, lookup_columns[image]), ())
        return [tuple([row[column] for column in image.columns]) for row in rows if row is not None]


@dataclass(frozen=True, slots=True)
class _Probe:
    """The values to look for and the columns to read, in the order in which the lookups name them."""

    values: dict[Any, None] = field(default_factory=dict)
    columns: dict[str, None] = field(default_factory=dict)


def _images_of(changes: Sequence[RowChange], table: PendingTable) -> ChangedImages:
    removes_rows = any(change.after is None for change in changes)
    return ChangedImages(
        has_new=any(change.after is not None for change in changes),
        has_old=any(change.before is not None for change in changes),
        has_gone=removes_rows and table.must_leave_no_edges,
        has_kept=not table.is_overwritten,
    )


class _CountingIterable:
    """Counts the rows that pass through it."""

    def __init__(self, rows: Iterable[RowTuple]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[RowTuple]:
        for row in self._rows:
            self.count += 1
            yield row
